"""The file store's ways of reading many small chunks: pread and io_uring, warm and cold.

    python bench/run.py file-io -- --runs 9 --out bench/results/file-io.json

The whole array of 128 KiB chunks into existing memory, by headrace alone in this process, the ways
in turn. Cold: the files' pages are dropped from the page cache before each read, folders and inodes
stay. With O_DIRECT ("direct") the page cache plays no part.
"""

import os
import statistics
from functools import partial
from pathlib import Path

import harness
import headrace as hr
import numpy as np
from e2e import data

LAYOUT = "128KiB"
WAYS = {
    "pread": {},
    "uring": {"io": "uring"},
    "pread-direct": {"direct": True},
    "uring-direct": {"io": "uring", "direct": True},
}
STATES = {"warm": ("pread", "uring"), "cold": tuple(WAYS)}


def _figures(rounds: list[harness.Took], base: list[harness.Took], nbytes: int) -> dict:
    seconds = [took.seconds for took in rounds]
    ratios = [b.seconds / own for b, own in zip(base, seconds, strict=True)]
    return {
        **harness.figures(seconds, "s", 5),
        "mb_s": round(nbytes / statistics.median(seconds) / 1e6, 1),
        "cpu_s": round(statistics.median(took.cpu_s for took in rounds), 5),
        "speed_up_over_pread": round(statistics.median(ratios), 2),
    }


def measure_row(folder: Path, codec: str, state: str, truth: np.ndarray, runs: int) -> dict:
    path = folder / data.array_name(LAYOUT, codec)
    files = [p for p in path.rglob("*") if p.is_file()]
    arrays = {
        way: hr.open_array(str(path), mode="r", storage_options=WAYS[way]) for way in STATES[state]
    }
    out = np.zeros_like(truth)
    for file in files:
        file.read_bytes()
    os.sync()  # dirty pages cannot be dropped

    def read(array) -> harness.Took:
        if state == "cold":
            harness.drop_pages(files)
        return harness.took(partial(array.read, ..., out=out))

    for way, array in arrays.items():
        read(array)
        if not np.array_equal(out.view(np.uint32), truth.view(np.uint32)):
            raise RuntimeError(f"{codec} by {way}: wrong result")
    rounds = harness.in_turns({way: partial(read, arrays[way]) for way in arrays}, runs, 0)
    ways = {way: _figures(rounds[way], rounds["pread"], truth.nbytes) for way in rounds}
    return {"layout": LAYOUT, "codec": codec, "cache": state, "ways": ways}


def main() -> None:
    args = harness.parser(
        __doc__, codecs=("none", "zstd", "blosc"), runs=9, steps=64, data=data.default_folder()
    ).parse_args()
    folder = data.prepare(args.data, args.steps, [(LAYOUT, codec) for codec in args.codecs])
    truth = np.array(np.load(folder / "truth.npy", mmap_mode="r"))
    report = {
        **harness.head("file-io", folder, "headrace"),
        "settings": {"runs": args.runs, "steps": args.steps},
        "rows": [],
    }
    for codec in args.codecs:
        for state in STATES:
            row = measure_row(folder, codec, state, truth, args.runs)
            report["rows"].append(row)
            cells = [
                f"{way} {f['mb_s']:.0f} MB/s {f['speed_up_over_pread']:.2f}x"
                for way, f in row["ways"].items()
            ]
            print(f"{codec:5} {state}: {' | '.join(cells)}", flush=True)
    report["load_average_end"] = harness.load_average()
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
