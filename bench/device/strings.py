"""Strings to Arrow in a GPU's memory: decoded there, or by the host and copied.

    python bench/run.py device-strings -- --strings 4000000

Needs torch with CUDA. Strings of 0 to 40 bytes in chunks of 10^6, from files in a warm page cache.
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


def measure(args, folder: Path) -> dict:
    data = texts(args.strings)
    report = {
        **harness.head("device-strings", folder, "headrace", "torch", "numpy"),
        "device": torch.cuda.get_device_name(),
        "cache_state": "warm page cache",
        "settings": {"runs": args.runs, "strings": args.strings, "chunk": args.chunk},
        "rows": [],
    }
    for codec in args.codecs:
        path = folder / codec
        filters, version = ([{"id": "vlen-utf8"}], 2) if codec == "lz4" else (None, 3)
        array = hr.create_array(
            path,
            shape=len(data),
            chunks=args.chunk,
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
                raise SystemExit(f"{codec} {name}: other strings than were written")
        report["nbytes"] = sum(each.nbytes for each in wanted)
        turns = {n: partial(harness.seconds, partial(finished, w)) for n, w in ways.items()}
        found = harness.in_turns(turns, args.runs)
        row = {name: harness.figures(times, "ms", 2) for name, times in found.items()}
        report["rows"].append({"codec": codec, "stored": harness.nbytes_of(path), "ways": row})
        print(f"{codec:6}", " | ".join(f"{n} {r['median_ms']:.1f} ms" for n, r in row.items()))
    return report


def main() -> None:
    options = {"codecs": tuple(CODECS), "strings": 8_000_000, "chunk": 1_000_000, "runs": 9}
    args = harness.parser(__doc__, **options).parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-strings-") as folder:
        harness.save(measure(args, Path(folder)), args.out)


if __name__ == "__main__":
    main()
