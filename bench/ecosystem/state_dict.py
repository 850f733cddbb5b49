"""Saving and loading the weights of a network: headrace, safetensors, torch.save.

state_dict.py OUT.json [--device cuda] [--gib 2] [--folder /dev/shm/...] [--cold]. Needs torch and
safetensors. The network is a decoder of transformers with random bfloat16 weights. Each run saves,
loads a new state dict to the device, and loads into a network that is there; the libraries take
turns. Loading ends when a byte of every page has been looked at: a mapped file is not read before.
With --cold the files are dropped from the page cache before each load, where the file system can.
"""

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path

import headrace as hr
import safetensors
import safetensors.torch
import torch
from headrace.torch import load_state_dict, save_state_dict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
import machine

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
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def timed(work, device: str):
    gc.collect()
    begin = time.perf_counter()
    result = work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def measure(args, state) -> list[dict]:
    nbytes = sum(tensor.nbytes for tensor in state.values())
    target = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    libraries = [library(args.folder) for library in LIBRARIES]
    seconds = {
        (library.name, work): [] for library in libraries for work in ("save", "load", "into")
    }

    def load(library):
        loaded = library.load(args.device)
        look_at(loaded)
        return loaded

    for turn in range(args.runs + 1):
        for library in libraries:
            took = {"save": timed(lambda: library.save(state), args.device)[0]}  # noqa: B023
            if args.cold:
                drop_from_cache(library.path)
            took["load"], loaded = timed(lambda: load(library), args.device)  # noqa: B023
            if turn == 0:
                assert all(torch.equal(loaded[name], state[name]) for name in state), library.name
            del loaded
            if args.cold:
                drop_from_cache(library.path)
            took["into"], _ = timed(
                lambda: library.load_into(target, args.device),  # noqa: B023
                args.device,
            )
            if turn > 0:  # the first is the warm-up
                for work, spent in took.items():
                    seconds[library.name, work].append(round(spent, 4))
    return [
        {
            "library": library.name,
            "stored_nbytes": sum(f.stat().st_size for f in files_of(library.path)),
            **{
                work: {
                    "median_s": statistics.median(seconds[library.name, work]),
                    "gb_s": round(nbytes / 1e9 / statistics.median(seconds[library.name, work]), 2),
                    "seconds": seconds[library.name, work],
                }
                for work in ("save", "load", "into")
            },
        }
        for library in libraries
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm/headrace-state-dict"))
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    state = weights(args.gib, args.device)
    try:
        rows = measure(args, state)
    finally:
        shutil.rmtree(args.folder)
    report = {
        "commit": machine.commit(),
        "date": machine.now(),
        "machine": machine.describe(args.folder.parent),
        "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else "cpu",
        "versions": {
            "headrace": hr.__version__,
            "torch": torch.__version__,
            "safetensors": safetensors.__version__,
        },
        "cold": args.cold,
        "tensors": len(state),
        "nbytes": sum(tensor.nbytes for tensor in state.values()),
        "rows": rows,
    }
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    for row in rows:
        rates = ", ".join(f"{work} {row[work]['gb_s']} GB/s" for work in ("save", "load", "into"))
        print(f"{row['library']:14} {rates}, {row['stored_nbytes'] / report['nbytes']:.2f} stored")


if __name__ == "__main__":
    main()
