"""Strings to Arrow: `to_arrow()` beside pyarrow's conversion of what zarr-python and headrace read.

    python bench/run.py strings -- --runs 5

10^6 strings of 0 to 40 bytes in chunks of 10^5, from files in a warm page cache. All ways take
turns and are compared with what was written.
"""

import tempfile
from functools import partial
from pathlib import Path

import harness
import headrace as hr
import numpy as np
import pyarrow as pa
import zarr

CODECS = {"none": None, "zstd": hr.codecs.Zstd(level=3)}


def texts(n: int) -> np.ndarray:
    rng = np.random.default_rng(7)
    words = ["", "a", "station", "Z\u00fcrich", "\u4e2d\u6587", "x" * 40]
    chosen = rng.integers(len(words), size=n)
    made = [words[w] if w % 3 == 0 else f"{words[w]}-{i % 9973}" for i, w in enumerate(chosen)]
    return np.array(made, np.dtypes.StringDType())


def measure(args, folder: Path) -> dict:
    data = texts(args.strings)
    wanted = pa.array(data.astype(object), pa.large_string())
    report = {
        **harness.head("strings", folder, "headrace", "zarr", "numcodecs", "pyarrow", "numpy"),
        "cache_state": "warm page cache",
        "settings": {"runs": args.runs, "strings": args.strings, "chunk": args.chunk},
        "nbytes": sum(buffer.size for buffer in wanted.buffers() if buffer),
        "rows": [],
    }
    for codec in args.codecs:
        path = folder / codec
        array = hr.create_array(
            path, shape=len(data), chunks=args.chunk, dtype=str, compressors=CODECS[codec]
        )
        array[...] = data
        theirs = zarr.open_array(path, mode="r")
        ways = {
            "to_arrow": array.to_arrow,
            "pa.array(headrace)": lambda array=array: pa.array(array[:], pa.large_string()),
            "pa.array(zarr-python)": lambda theirs=theirs: pa.array(theirs[:], pa.large_string()),
        }
        for name, way in ways.items():
            if not way().equals(wanted):
                raise SystemExit(f"{codec} {name}: other strings than were written")
        turns = {name: partial(harness.took, way) for name, way in ways.items()}
        found = harness.in_turns(turns, args.runs)
        row = {
            name: {
                **harness.figures([each.seconds for each in times], "ms", 1),
                "cpu_s": round(float(np.median([each.cpu_s for each in times])), 4),
            }
            for name, times in found.items()
        }
        report["rows"].append({"codec": codec, "stored": harness.nbytes_of(path), "ways": row})
        print(f"{codec:6}", " | ".join(f"{n} {r['median_ms']:.1f} ms" for n, r in row.items()))
    return report


def main() -> None:
    options = {"codecs": tuple(CODECS), "strings": 1_000_000, "chunk": 100_000, "runs": 7}
    args = harness.parser(__doc__, **options).parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-strings-") as folder:
        harness.save(measure(args, Path(folder)), args.out)


if __name__ == "__main__":
    main()
