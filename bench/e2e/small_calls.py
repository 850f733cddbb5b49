"""Latency of reading one small chunk a call, and the time of `import`.

    python bench/run.py small-calls -- --peers headrace,zarr --runs 5

One chunk of 16, 64 or 128 KiB a call, in random order, from files in a warm page cache and from a
store in memory. Peers take turns; the median over all calls of all rounds is what counts.
"""

import contextlib
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import harness
import numpy as np
from e2e import data, peers
from e2e.client import Client, PeerError
from e2e.run import available, checked

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


def _import_seconds(name: str) -> float:
    command = [sys.executable, "-c", IMPORT_CODE.format(IMPORTS[name])]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _row(clients: list, folder: Path, store: str, spec: dict, runs: int, checker: Client) -> dict:
    truth = str(folder / "field.npy")
    selections, part = _selections(spec["chunks"]), [[0, n] for n in SHAPE]
    path = folder / f"{spec['chunks'][0]}-{spec['codec']}.zarr"
    if store == "file" and not path.exists():
        checker.ask("write", spec=spec, source=truth, part=part, path=str(path))

    def latency(client: Client) -> list[int]:
        return client.ask("latency", selections=selections, repeat=1)["ns"]

    def check(client: Client) -> dict:
        if store == "file":
            client.ask("open", path=str(path))
        elif client.memory:
            client.ask("fill_memory", spec=spec, source=truth, part=part)
        else:
            raise PeerError(f"[{client.peer}] serves no store in memory")
        return client.ask("verify", truth=truth, selections=selections[:8])

    ready, results = checked(clients, check)
    times = harness.in_turns({c.peer: partial(latency, c) for c in ready}, runs)
    for peer, rounds in times.items():
        us = np.concatenate(rounds) / 1e3
        results[peer] = {
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
    # The first import fills the page cache.
    imports = harness.in_turns({n: partial(_import_seconds, n) for n in names}, args.runs)
    report = {
        **harness.head("small-calls", folder),
        "versions": versions,
        "unavailable": missing,
        "cache_state": "warm page cache",
        "settings": {"runs": args.runs, "calls": CALLS},
        "import": {name: harness.figures(s, "ms", 1) for name, s in imports.items()},
        "rows": [],
    }
    for name, r in report["import"].items():
        print(f"import {name:12} {r['median_ms']:.0f} ms")
    with contextlib.ExitStack() as stack:
        checker, *clients = [stack.enter_context(Client(n, log)) for n in ("zarr", *names)]
        for client in clients:
            client.memory = client.ask("hello")["memory"]
        for store in STORES:
            for size in args.chunks:
                for codec in args.codecs:
                    spec = {"shape": SHAPE, "chunks": CHUNKS[size], "inner_chunks": None}
                    spec["codec"] = codec
                    results = _row(clients, folder, store, spec, args.runs, checker)
                    row = {"store": store, "chunk": size, "codec": codec, "peers": results}
                    report["rows"].append(row)
                    cells = [f"{p} {r.get('median_us', '-')}" for p, r in results.items()]
                    print(f"{store:6} {size:6} {codec:5} us a call: {' | '.join(cells)}")
    return report


def main() -> None:
    options = {"peers": peers.PEERS, "chunks": tuple(CHUNKS), "codecs": CODECS, "runs": 5}
    args = harness.parser(__doc__, **options).parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-small-") as folder,
        tempfile.NamedTemporaryFile("w+", suffix=".log") as log,
    ):
        harness.save(measure(args, Path(folder), log), args.out)


if __name__ == "__main__":
    main()
