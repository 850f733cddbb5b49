"""Saving and loading the weights of a network: headrace, safetensors, torch.save.

Needs torch and safetensors. The network is a decoder of transformers with random bfloat16 weights.
Each run saves, loads a new state dict to the device, and loads into a network that is there; the
libraries take turns. Loading ends when a byte of every page has been looked at: a mapped file is
not read before. With --cold the files are dropped from the page cache before each load, where the
file system can.
"""

import os
import shutil
import statistics
from functools import partial
from pathlib import Path

import harness
import headrace as hr
import safetensors
import safetensors.torch
import torch
from headrace.torch import load_state_dict, save_state_dict

WIDTH = 2048
VOCABULARY = 32_000


def block(index: int) -> dict[str, tuple[int, ...]]:
    prefix = f"model.layers.{index}"
    square = {f"{prefix}.self_attn.{x}_proj.weight": (WIDTH, WIDTH) for x in "qkvo"}
    return square | {
        f"{prefix}.mlp.gate_proj.weight": (4 * WIDTH, WIDTH),
        f"{prefix}.mlp.up_proj.weight": (4 * WIDTH, WIDTH),
        f"{prefix}.mlp.down_proj.weight": (WIDTH, 4 * WIDTH),
        f"{prefix}.input_layernorm.weight": (WIDTH,),
        f"{prefix}.post_attention_layernorm.weight": (WIDTH,),
    }


def weights(gib: float, device: str) -> dict[str, torch.Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, WIDTH)}
    for index in range(1000):
        if sum(torch.Size(shape).numel() for shape in shapes.values()) * 2 >= gib * 2**30:
            break
        shapes |= block(index)
    torch.manual_seed(0)
    return {
        name: (0.02 * torch.randn(shape, device=device)).to(torch.bfloat16)
        for name, shape in shapes.items()
    }


def look_at(state: dict[str, torch.Tensor]) -> None:
    for tensor in state.values():
        tensor.view(torch.uint8).flatten()[::4096].max()


def copy_into(target: dict[str, torch.Tensor], state: dict[str, torch.Tensor]) -> None:
    for name, tensor in state.items():
        target[name].copy_(tensor)


class Headrace:
    name = "headrace"
    options: dict = {}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{self.name}.zarr"

    def save(self, state):
        save_state_dict(state, self.path, overwrite=True, **self.options)

    def load(self, device):
        return load_state_dict(self.path, device=device)

    def load_into(self, target, device):
        load_state_dict(self.path, into=target)


class HeadraceZstd(Headrace):
    name = "headrace-zstd"
    options = {"filters": hr.codecs.Shuffle(2), "compressors": hr.codecs.Zstd(1)}  # noqa: RUF012


class Safetensors:
    name = "safetensors"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "model.safetensors"

    def save(self, state):
        safetensors.torch.save_file(state, self.path)

    def load(self, device):
        return safetensors.torch.load_file(self.path, device=device)

    def load_into(self, target, device):
        copy_into(target, self.load(device))


class Torch:
    name = "torch"
    mapped = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{self.name}.pt"

    def save(self, state):
        torch.save(state, self.path)

    def load(self, device):
        return torch.load(self.path, map_location=device, mmap=self.mapped, weights_only=True)

    def load_into(self, target, device):
        copy_into(target, self.load("cpu" if self.mapped else device))


class TorchMapped(Torch):
    name = "torch-mmap"
    mapped = True

    def load(self, device):
        state = super().load("cpu")
        return {name: tensor.to(device) for name, tensor in state.items()}


LIBRARIES = (Headrace, HeadraceZstd, Safetensors, Torch, TorchMapped)


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]


def drop_from_cache(path: Path) -> None:
    for file in files_of(path):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    harness.drop_pages(files_of(path))


def measure(args, state) -> list[dict]:
    nbytes = sum(tensor.nbytes for tensor in state.values())
    target = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    libraries = [library(args.folder) for library in LIBRARIES]

    def load(library) -> dict[str, torch.Tensor]:
        loaded = library.load(args.device)
        look_at(loaded)
        return loaded

    def seconds(work, *arguments) -> float:
        def waited():
            work(*arguments)
            if args.device.startswith("cuda"):
                torch.cuda.synchronize()

        return round(harness.seconds(waited), 4)

    def round_of(library) -> dict[str, float]:
        took = {"save": seconds(library.save, state)}
        for work, call in (
            ("load", partial(load, library)),
            ("into", partial(library.load_into, target, args.device)),
        ):
            if args.cold:
                drop_from_cache(library.path)
            took[work] = seconds(call)
        return took

    for library in libraries:
        library.save(state)
        loaded = load(library)
        assert all(torch.equal(loaded[name], state[name]) for name in state), library.name
        del loaded
    rounds = harness.in_turns({x.name: partial(round_of, x) for x in libraries}, args.runs)
    return [
        {
            "library": library.name,
            "stored_nbytes": sum(f.stat().st_size for f in files_of(library.path)),
            **{
                work: figures(nbytes, [took[work] for took in rounds[library.name]])
                for work in ("save", "load", "into")
            },
        }
        for library in libraries
    ]


def figures(nbytes: int, seconds: list[float]) -> dict:
    median = statistics.median(seconds)
    return {"median_s": median, "gb_s": round(nbytes / 1e9 / median, 2), "seconds": seconds}


def main() -> None:
    folder = Path("/dev/shm/headrace-state-dict")
    options = {"device": "cpu", "gib": 2.0, "runs": 5, "folder": folder, "cold": False}
    args = harness.parser(__doc__, **options).parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    state = weights(args.gib, args.device)
    try:
        rows = measure(args, state)
    finally:
        shutil.rmtree(args.folder)
    report = {
        **harness.head("state-dict", args.folder.parent, "headrace", "torch", "safetensors"),
        "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else "cpu",
        "cold": args.cold,
        "tensors": len(state),
        "nbytes": sum(tensor.nbytes for tensor in state.values()),
        "rows": rows,
    }
    harness.save(report, args.out)
    for row in rows:
        rates = ", ".join(f"{work} {row[work]['gb_s']} GB/s" for work in ("save", "load", "into"))
        print(f"{row['library']:14} {rates}, {row['stored_nbytes'] / report['nbytes']:.2f} stored")


if __name__ == "__main__":
    main()
