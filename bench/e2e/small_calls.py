"""Latency of reading one small chunk a call, and the time of `import`.

    python bench/e2e/small_calls.py --out bench/results/small-calls.json

One chunk of 16, 64 or 128 KiB a call, in random order, from files in a warm page cache and from a
store in memory. Peers take turns; the median over all calls of all rounds is what counts.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import data
import machine
import numpy as np
import peers
from client import Client, PeerError
from run import available
from turns import in_turn

# Chunk shape of float32 by its size; the array is one 640 x 1280 field.
CHUNKS = {"16KiB": (64, 64), "64KiB": (128, 128), "128KiB": (128, 256)}
SHAPE = (640, 1280)
CODECS = ("none", "zstd", "blosc")
STORES = ("file", "memory")
CALLS = 400

IMPORTS = {
    "headrace": "headrace",
    "zarr": "zarr",
    "zarrs": "zarr, zarrs",
    "tensorstore": "tensorstore",
}
# NumPy comes first: it is everyone's, and its time is nobody's.
IMPORT_CODE = (
    "import time, numpy; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
)


def _selections(chunk: tuple[int, int]) -> list:
    starts = [(y, x) for y in range(0, SHAPE[0], chunk[0]) for x in range(0, SHAPE[1], chunk[1])]
    chosen = np.random.default_rng(3).integers(len(starts), size=CALLS)
    return [[[b, b + c] for b, c in zip(starts[i], chunk, strict=True)] for i in chosen]


def _import_seconds(names: list[str], runs: int) -> dict:
    seconds = {name: [] for name in names}
    for _ in range(runs + 1):  # the first one fills the page cache
        for name in names:
            code = IMPORT_CODE.format(IMPORTS[name])
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds[name].append(float(done.stdout))
    return {
        name: {
            "median_ms": round(statistics.median(s[1:]) * 1e3, 1),
            "min_ms": round(min(s[1:]) * 1e3, 1),
            "max_ms": round(max(s[1:]) * 1e3, 1),
        }
        for name, s in seconds.items()
    }


def _row(clients: list, folder: Path, store: str, spec: dict, runs: int, checker) -> dict:
    truth = str(folder / "field.npy")
    selections, part = _selections(spec["chunks"]), [[0, n] for n in SHAPE]
    path = folder / f"{spec['chunks'][0]}-{spec['codec']}.zarr"
    if store == "file" and not path.exists():
        checker.ask("write", spec=spec, source=truth, part=part, path=str(path))
    results, ready, times = {}, [], {}
    for client in clients:
        try:
            if store == "memory" and not client.memory:
                raise PeerError(f"[{client.peer}] serves no store in memory")
            if store == "file":
                client.ask("open", path=str(path))
            else:
                client.ask("fill_memory", spec=spec, source=truth, part=part)
            check = client.ask("verify", truth=truth, selections=selections[:8])
            if not check["ok"]:
                raise PeerError(f"[{client.peer}] wrong result: {check['why']}")
            client.ask("latency", selections=selections, repeat=1)  # warm-up
            ready.append(client)
            times[client.peer] = []
        except PeerError as error:
            results[client.peer] = {"error": str(error)}
    for r in range(runs):
        for client in in_turn(ready, r):
            times[client.peer] += client.ask("latency", selections=selections, repeat=1)["ns"]
    for client in ready:
        us = np.array(times[client.peer]) / 1e3
        results[client.peer] = {
            "median_us": round(float(np.median(us)), 2),
            "min_us": round(float(us.min()), 2),
            "p90_us": round(float(np.percentile(us, 90)), 2),
            "calls": len(us),
            "verified": True,
        }
    return results


def measure(args, folder: Path, log) -> dict:
    np.save(folder / "field.npy", next(data.fields(1))[: SHAPE[0], : SHAPE[1]])
    names, versions, missing = available(args.peers, log)
    report = {
        **machine.head("small-calls", folder),
        "versions": versions,
        "unavailable": missing,
        "cache_state": "warm page cache",
        "settings": {"runs": args.runs, "calls": CALLS},
        "import": _import_seconds(names, args.runs),
        "rows": [],
    }
    for name, r in report["import"].items():
        print(f"import {name:12} {r['median_ms']:.0f} ms")
    checker = Client("zarr", log)
    clients = [Client(name, log) for name in names]
    for client in clients:
        client.memory = client.ask("hello")["memory"]
    for store in STORES:
        for size, chunk in CHUNKS.items():
            for codec in CODECS:
                chunks = list(chunk)
                spec = {
                    "shape": list(SHAPE),
                    "chunks": chunks,
                    "inner_chunks": None,
                    "codec": codec,
                }
                results = _row(clients, folder, store, spec, args.runs, checker)
                report["rows"].append(
                    {"store": store, "chunk": size, "codec": codec, "peers": results}
                )
                cells = [
                    f"{p} {r['median_us']:.0f}" if "error" not in r else f"{p} -"
                    for p, r in results.items()
                ]
                print(f"{store:6} {size:6} {codec:5} us a call: {' | '.join(cells)}", flush=True)
    for client in [*clients, checker]:
        client.close()
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=lambda t: t.split(","), default=list(peers.PEERS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-small-"))
    try:
        with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
            report = measure(args, folder, log)
    finally:
        shutil.rmtree(folder)
    machine.save(report, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
