"""Strings to Arrow in a GPU's memory: decoded there, or by the host and copied.

    python bench/run.py device-strings -- --strings 4000000

Needs torch with CUDA. Short strings, of 0 to 40 bytes and 17 in the mean, and longer ones, of 0 to
twice --means; as many as make the same bytes, eight chunks; from files in a warm page cache.
`device` has the kernels decode, `host` the host's threads, whose two blocks torch copies from
pageable memory, as one without device reads does; `auto` is what headrace chooses. In turns; all
are compared with what was written.
"""

import tempfile
from functools import partial
from pathlib import Path

import harness
import headrace as hr
import numpy as np
import torch
from e2e.strings import texts

CODECS = {
    "zstd": hr.codecs.Zstd(level=3),
    "blosc": hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="noshuffle"),
    "lz4": {"id": "lz4"},
}
SHORT = 17  # bytes, the mean of e2e's texts


def prose(n: int, mean: int) -> np.ndarray:
    """Texts of 0 to twice `mean` bytes: cut out of 32 MB of words by chance."""
    rng = np.random.default_rng(7)
    letters = "etaoinshrdlu"
    words = ["".join(rng.choice(list(letters), k)) for k in rng.integers(2, 12, 5000)]
    text = " ".join(rng.choice(words, 4_000_000))
    at, length = rng.integers(len(text) - 2 * mean, size=n), rng.integers(2 * mean + 1, size=n)
    cut = [text[a : a + k] for a, k in zip(at, length, strict=True)]
    return np.array(cut, np.dtypes.StringDType())


def on_host_and_copied(array) -> tuple[torch.Tensor, torch.Tensor]:
    values, offsets = array.read_ragged()
    return torch.from_numpy(values).to("cuda"), torch.from_numpy(offsets).to("cuda")


def on_device(array, **options) -> tuple[torch.Tensor, torch.Tensor]:
    values, offsets = array.read_ragged(device="cuda:0", **options)
    return torch.from_dlpack(values), torch.from_dlpack(offsets)


def finished(way):
    made = way()
    torch.cuda.synchronize()
    return made


def measure(args, folder: Path, codec: str, mean: int) -> dict:
    data = prose(args.strings * SHORT // mean, mean) if mean > SHORT else texts(args.strings)
    path = folder / f"{codec}-{mean}"
    filters, version = ([{"id": "vlen-utf8"}], 2) if codec == "lz4" else (None, 3)
    array = hr.create_array(
        path,
        shape=len(data),
        chunks=-(-len(data) // 8),
        dtype=object if filters else str,
        filters=filters,
        compressors=CODECS[codec],
        zarr_format=version,
    )
    array[...] = data
    wanted = array.read_ragged()
    ways = {
        "device": partial(on_device, array, implementations={codec: "headrace-cuda"}),
        "auto": partial(on_device, array),
        "host": partial(on_host_and_copied, array),
    }
    for name, way in ways.items():
        got = finished(way)
        if not all(map(np.array_equal, (each.cpu().numpy() for each in got), wanted)):
            raise SystemExit(f"{path.name} {name}: other strings than were written")
    turns = {n: partial(harness.seconds, partial(finished, w)) for n, w in ways.items()}
    found = harness.in_turns(turns, args.runs)
    return {
        "codec": codec,
        "mean": mean,
        "strings": len(data),
        "nbytes": sum(each.nbytes for each in wanted),
        "stored": harness.nbytes_of(path),
        "ways": {name: harness.figures(times, "ms", 2) for name, times in found.items()},
    }


def report(args, folder: Path) -> dict:
    rows = []
    for mean in args.means:
        for codec in args.codecs:
            rows.append(measure(args, folder, codec, mean))
            ways = rows[-1]["ways"].items()
            told = " | ".join(f"{n} {r['median_ms']:.1f} ms" for n, r in ways)
            print(f"{codec:6} {mean:5}", told, flush=True)
    return {
        **harness.head("device-strings", folder, "headrace", "torch", "numpy"),
        "device": torch.cuda.get_device_name(),
        "cache_state": "warm page cache",
        "settings": {"runs": args.runs},
        "rows": rows,
    }


def main() -> None:
    means = (SHORT, 150, 600, 1500, 20_000)
    options = {"codecs": tuple(CODECS), "means": means, "strings": 8_000_000, "runs": 9}
    args = harness.parser(__doc__, **options).parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-strings-") as folder:
        harness.save(report(args, Path(folder)), args.out)


if __name__ == "__main__":
    main()
