"""Reads and writes of several checkouts of headrace in turns, to the host and to a GPU.

    checkouts.py OUT.json before=FOLDER now=FOLDER [--steps 48] [--seconds 190] [--only cuda]

FOLDER is what goes on PYTHONPATH, so that a bare machine without zarr-python can run it. Each
checkout lives in its own process (six turns a row, another first each time); the first one writes
the data, in memory. Every result is compared with the data. Reads to a GPU need torch.

`ms` has the least and the median of the last five. A core may run at two speeds: a row that stands
out in the medians of one checkout alone should be run again.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LAYOUTS = {
    "4MiB": ((1, 721, 1440), None),
    "128KiB": ((1, 181, 180), None),
    "shard": ((1, 181, 180), (8, 724, 1440)),
}
CODECS = ("blosc", "zstd", "none", "gzip")
ACCESSES = ("whole", "out", "step", "chunk", "series", "box", "write")
TURNS = 6


def field(steps: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    y, x = np.linspace(0, 6, 721)[:, None], np.linspace(0, 12, 1440)[None, :]
    out = np.empty((steps, 721, 1440), "f4")
    for t in range(steps):
        noise = rng.normal(0, 0.02, (721, 1440))
        wave = 20 * np.sin(y) * np.cos(x) + 3 * np.sin(3 * y + t / 5)
        out[t] = np.round((280 + wave + noise) * 1024) / 1024
    return out


def selections(access: str, layout: str, steps: int) -> list:
    rng = np.random.default_rng(7)
    if access in ("whole", "out"):
        return [(slice(None),) * 3]
    if access == "step":
        return [(int(t),) for t in rng.permutation(steps)[:16]]
    if access == "series":
        return [(slice(None), 300, 700), (slice(None), 12, 99)]
    if access == "box":
        return [(slice(None), slice(300, 420), slice(500, 740))]
    _, ny, nx = LAYOUTS[layout][0]
    n = 16 if layout == "4MiB" else 256
    at = zip(
        rng.integers(steps, size=n),
        rng.integers(721, size=n),
        rng.integers(1440, size=n),
        strict=True,
    )
    return [
        (
            int(t),
            slice(y // ny * ny, min(721, (y // ny + 1) * ny)),
            slice(x // nx * nx, (x // nx + 1) * nx),
        )
        for t, y, x in at
    ]


class Worker:
    """One checkout: answers lines of JSON."""

    def __init__(self, folder: Path):
        import headrace

        self.hr = headrace
        self.folder = folder
        self.on_device = (None, None, None)

    def create(self, path: Path, layout: str, codec: str, steps: int):
        codecs = self.hr.codecs
        chunks, shards = LAYOUTS[layout]
        compressors = {
            "none": lambda: None,
            "zstd": lambda: codecs.Zstd(level=3),
            "blosc": lambda: codecs.Blosc(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
            "gzip": lambda: codecs.Gzip(level=5),
        }[codec]()
        return self.hr.create_array(
            path,
            shape=(steps, 721, 1440),
            dtype="f4",
            chunks=chunks,
            shards=shards,
            compressors=compressors,
            overwrite=True,
        )

    def data(self, steps: int) -> dict:
        truth = field(steps)
        np.save(self.folder / "truth.npy", truth)
        for layout in LAYOUTS:
            for codec in CODECS:
                path = self.folder / f"{layout}-{codec}.zarr"
                self.create(path, layout, codec, steps)[...] = truth
        return {}

    @property
    def truth(self) -> np.ndarray:
        return np.load(self.folder / "truth.npy", mmap_mode="r")

    def cpu(self, layout: str, codec: str, access: str) -> dict:
        truth = self.truth
        if access == "write":
            half = np.array(truth[: len(truth) // 2])
            target = self.folder / "written.zarr"
            shutil.rmtree(target, ignore_errors=True)
            begin = time.perf_counter()
            self.create(target, layout, codec, len(half))[...] = half
            seconds = time.perf_counter() - begin
            return {"seconds": seconds, "ok": bool((self.hr.open_array(target)[...] == half).all())}
        path = self.folder / f"{layout}-{codec}.zarr"
        array = self.hr.open_array(path, mode="r", device="cpu")
        wanted = selections(access, layout, len(truth))
        ok = all(np.array_equal(array[s], truth[s]) for s in wanted)
        out = np.empty(truth.shape, "f4") if access == "out" else None
        begin, n = time.perf_counter(), 0
        while n < 1 or time.perf_counter() - begin < 0.08:
            for s in wanted:
                _ = array[s] if out is None else array.read(s, out=out)
            n += 1
        return {"seconds": (time.perf_counter() - begin) / n, "ok": ok}

    def cuda(self, layout: str, codec: str, access: str) -> dict:
        import torch

        key, array, out = self.on_device
        if key != (layout, codec):
            path = self.folder / f"{layout}-{codec}.zarr"
            array = self.hr.open_array(path, mode="r", device="cuda:0")
            out = torch.empty(tuple(array.shape), dtype=torch.float32, device="cuda:0")
            self.on_device = ((layout, codec), array, out)
        array.read(out=out)
        ok = bool((out.cpu().numpy() == self.truth).all())
        begin, n = time.perf_counter(), 0
        while n < 3 or time.perf_counter() - begin < 0.1:
            array.read(out=out)
            torch.cuda.synchronize()
            n += 1
        return {"seconds": (time.perf_counter() - begin) / n, "ok": ok}

    def serve(self) -> None:
        for line in sys.stdin:
            question = json.loads(line)
            answer = getattr(self, question.pop("ask"))(**question)
            print(json.dumps(answer), flush=True)


class Checkout:
    """The driver's end of one."""

    def __init__(self, folder: str, data: Path):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(data)],
            env=dict(os.environ, PYTHONPATH=folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, ask: str, **question) -> dict:
        self.process.stdin.write(json.dumps({"ask": ask, **question}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a checkout ended with status {self.process.wait()} in {ask}")
        return json.loads(line)


def measure(checkouts: dict, only: str, seconds: float) -> list[dict]:
    todo = [("cuda", layout, codec, "whole") for layout in LAYOUTS for codec in CODECS]
    todo += [
        ("cpu", layout, c, access) for c in CODECS for layout in LAYOUTS for access in ACCESSES
    ]
    names, rows, end = list(checkouts), [], time.monotonic() + seconds
    for where, layout, codec, access in todo:
        if not where.startswith(only) or time.monotonic() > end:
            continue
        times = {name: [] for name in names}
        ok = True
        for turn in range(TURNS):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                answer = checkouts[name].ask(where, layout=layout, codec=codec, access=access)
                times[name].append(answer["seconds"])
                ok &= answer["ok"]
        ms = {
            n: [round(s * 1e3, 4) for s in (min(t), statistics.median(t[1:]))]
            for n, t in times.items()
        }
        rows.append({"where": where, "row": f"{layout}-{codec}-{access}", "ok": ok, "ms": ms})
        print(where, rows[-1]["row"], "ok" if ok else "WRONG", ms, flush=True)
    return rows


def means(rows: list[dict]) -> dict:
    """What the last checkout took of the others' time: geometric means of the medians."""
    found = {}
    for where in {row["where"] for row in rows}:
        medians = [{n: m[1] for n, m in r["ms"].items()} for r in rows if r["where"] == where]
        *others, last = medians[0]
        for name in others:
            logs = [math.log(m[last] / m[name]) for m in medians]
            found[f"{where}: {last} / {name}"] = round(math.exp(statistics.mean(logs)), 3)
    return found


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        Worker(Path(sys.argv[2])).serve()
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("checkouts", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--steps", type=int, default=48, help="fields of 4.2 MB")
    parser.add_argument("--seconds", type=float, default=1e9, help="no row begins after these")
    parser.add_argument("--only", choices=("cuda", "cpu", ""), default="")
    args = parser.parse_args()
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="headrace-", dir=parent) as folder:
        named = dict(c.split("=", 1) for c in args.checkouts)
        checkouts = {name: Checkout(path, Path(folder)) for name, path in named.items()}
        next(iter(checkouts.values())).ask("data", steps=args.steps)
        rows = measure(checkouts, args.only, args.seconds)
        for checkout in checkouts.values():
            checkout.process.stdin.close()
            checkout.process.wait()
    report = {"schema": 1, "what": "before-after", "cores": os.cpu_count(), "steps": args.steps}
    report |= {"means": means(rows), "rows": rows}
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(report["means"])
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
