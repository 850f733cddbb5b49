"""Loaders on the CPU: shuffled batches of an ERA5-like store, beside the loaders people use today.

    python bench/run.py loader -- --peers headrace,dataloader-zarr-2 --chunk-steps 8

A sample is one step of all variables; batches are shuffled, float32, in host memory, and nothing
else is done with them. Stories: chunks of 1, 8 and 32 samples, blosc-lz4 with shuffle and zstd.
Peers take turns, in another order each round, each in a process of its own, for one epoch (some
keep decoded chunks: later ones of a small store would time their memory) or --seconds. Each has to
deliver every step once an epoch. A peer that wants another interpreter is given one: --python
insitubatch=/path/to/python. The files are in the page cache. headrace-lean has memory for two
windows of shuffling, what insitubatch takes by itself; headrace keeps what fits its default budget.

A row: samples and decoded GB a second (from the start, first batch included), CPU seconds a
decoded GB and peak memory (PSS) of the process tree, that peak over what its imports took, time to
the first batch (opening the store included), p50 and p99 of the waits for the others,
`read_amplification`: bytes that the tree's read calls gave over the stored bytes of what was
delivered, and what a loader itself says of the bytes it decoded. `numcodecs_samples_s` is what
decoding alone allows with the codec's own library from Python: files read, and each chunk decoded
once into memory in use, by a thread a core.

Rows of other stories stay in the JSON file, so that long runs can be made in parts.
"""

import json
import os
import random
import statistics
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import harness
from e2e import data, loader_data
from e2e.client import Client, Unavailable

PEERS = {  # the peer of the worker, and processes that read beside the one that trains
    "headrace": ("headrace", 0),
    "headrace-lean": ("headrace-lean", 0),
    "dataloader-zarr-0": ("dataloader-zarr", 0),
    "dataloader-zarr-1": ("dataloader-zarr", 1),
    "dataloader-zarr-2": ("dataloader-zarr", 2),
    "dataloader-zarrs-0": ("dataloader-zarrs", 0),
    "dataloader-zarrs-1": ("dataloader-zarrs", 1),
    "dataloader-zarrs-2": ("dataloader-zarrs", 2),
    "xbatcher-0": ("xbatcher", 0),
    "xbatcher-2": ("xbatcher", 2),
    "insitubatch": ("insitubatch", 0),
    "beluga": ("beluga", 0),
}
BLOCK_CHUNKS = 16  # chunks that are mixed at a time, where a loader shuffles blocks
POLL_S = 0.02


def tree(pid: int) -> list[int]:
    """The process and what lives below it."""
    pids = [pid]
    for parent in pids:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
    return pids


def pss_kib(pid: int) -> int:
    """Resident memory, of what processes share its part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0  # it ended


class Watch(threading.Thread):
    """The memory of a process tree, looked at many times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._stop_now = pid, threading.Event()
        self.peak_kib = 0
        self._look()
        self.base_kib = self.peak_kib
        self.start()

    def _look(self) -> None:
        total = 0
        for pid in tree(self._pid):
            with suppress(OSError):  # it ended
                total += pss_kib(pid)
        self.peak_kib = max(self.peak_kib, total)

    def run(self) -> None:
        while not self._stop_now.wait(POLL_S):
            self._look()

    def stop(self) -> None:
        self._stop_now.set()
        self.join()


def run_peer(name: str, job: dict, python: str, stored_nbytes: int) -> dict:
    peer, workers = PEERS[name]
    with Client(peer, None, name, module="e2e.loader_worker", python=python) as client:
        try:
            hello = client.ask("hello")
        except Unavailable as error:
            return {"unavailable": str(error)}
        watch = Watch(client.pid)
        try:
            figures = client.ask("go", **job, workers=workers)
        finally:
            watch.stop()
    delivered = stored_nbytes * figures["samples"] / job["steps"]
    return {
        **hello,
        **figures,
        "read_amplification": round(figures["read_nbytes"] / delivered, 2),
        "peak_mib": round(watch.peak_kib / 1024, 1),
        "peak_over_imports_mib": round((watch.peak_kib - watch.base_kib) / 1024, 1),
    }


def job_of(path: Path, store: loader_data.Store, args) -> dict:
    import zarr

    group = zarr.open_group(str(path), mode="r")
    marks = {
        name: group[name][:, 0].sum(axis=1, dtype="f8").tolist() for name in store.names
    }  # reads all chunks: they are in the page cache from here on
    for name, of_steps in marks.items():
        if len(set(of_steps)) != store.steps:
            raise ValueError(f"{path}: first rows of {name} do not tell its steps")
    about = {"block_chunks": BLOCK_CHUNKS, "epochs": args.epochs, "marks": marks}
    return loader_data.job(path, store, args, **about)


def numcodecs_samples_s(path: Path, store: loader_data.Store) -> float:
    import numcodecs
    import numpy as np

    metadata = json.loads((path / store.names[0] / ".zarray").read_text())
    codec = numcodecs.get_codec(metadata["compressor"])
    chunk_nbytes = store.sample_nbytes // store.variables * metadata["chunks"][0]
    of_thread = threading.local()

    def decode(file: Path) -> None:
        if not hasattr(of_thread, "out"):
            of_thread.out = np.zeros(chunk_nbytes, "u1")
        codec.decode(file.read_bytes(), out=of_thread.out)

    files = loader_data.chunk_files(path, store)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        fastest = min(harness.seconds(lambda: list(pool.map(decode, files))) for _ in range(4))
    return round(store.steps / fastest, 1)


def summary(runs: list[dict]) -> dict:
    """Of rounds: the one in the middle by speed, and all speeds."""
    if "samples_s" not in runs[0]:
        return runs[0]
    middle = statistics.median_low([run["samples_s"] for run in runs])
    (found, *_) = [run for run in runs if run["samples_s"] == middle]
    return {**found, "all_samples_s": [run["samples_s"] for run in runs]}


def measure(store: loader_data.Store, args) -> dict:
    path = loader_data.prepare(args.data, store)
    job = job_of(path, store, args)
    stored = loader_data.stored_nbytes(path, store)
    runs: dict[str, list[dict]] = {name: [] for name in args.peers}
    for turn in range(args.rounds):
        for name in random.Random(turn).sample(args.peers, len(args.peers)):
            python = args.python.get(PEERS[name][0], sys.executable)
            runs[name].append(run_peer(name, job, python, stored))
    peers = {name: summary(of_peer) for name, of_peer in runs.items()}
    for name, row in peers.items():
        print(f"{store.chunk_steps:3} {store.codec:6} {name:20}", line_of(row), flush=True)
    return {
        "chunk_steps": store.chunk_steps,
        "codec": store.codec,
        "stored_nbytes": stored,
        "numcodecs_samples_s": numcodecs_samples_s(path, store),
        "peers": peers,
    }


def line_of(row: dict) -> str:
    shown = ("samples_s", "cpu_s_per_gb", "peak_over_imports_mib", "first_batch_s", "wait_p99_ms")
    return row.get("unavailable") or "  ".join(f"{name} {row[name]}" for name in shown)


def story(row: dict) -> tuple[int, str]:
    return row["chunk_steps"], row["codec"]


def rows_of_others(path: Path, settings: dict, stores: list[loader_data.Store]) -> list[dict]:
    """The rows of other stores that the file has, which must have been measured alike."""
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    measured = {(store.chunk_steps, store.codec) for store in stores}
    rows = [row for row in before["rows"] if story(row) not in measured]
    if rows and before["settings"] != settings:
        raise ValueError(f"{path} was measured with {before['settings']}")
    return rows


def main() -> None:
    parser = harness.parser(
        __doc__,
        data=data.default_folder(),
        steps=512,
        lat=181,
        lon=360,
        variables=2,
        batch=8,
        chunk_steps=(1, 8, 32),
        codecs=loader_data.CODECS,
        peers=tuple(PEERS),
        epochs=1,
        seconds=4.0,
        rounds=1,
    )
    parser.add_argument("--python", metavar="PEER=PATH", action="append", default=[])
    args = parser.parse_args()
    args.python = dict(text.split("=", 1) for text in args.python)
    args.data.mkdir(parents=True, exist_ok=True)
    if unknown := set(args.peers) - set(PEERS):
        parser.error(f"no peer {', '.join(sorted(unknown))}")
    shape = (args.steps, args.lat, args.lon, args.variables)
    stores = [loader_data.Store(*shape, k, c) for k in args.chunk_steps for c in args.codecs]
    named = ("steps", "variables", "batch", "epochs", "seconds", "rounds")
    settings = {name: getattr(args, name) for name in named}
    settings |= {"field": [args.lat, args.lon], "block_chunks": BLOCK_CHUNKS}
    others = rows_of_others(args.out, settings, stores) if args.out else []
    rows = [measure(store, args) for store in stores]
    report = {
        **harness.head("loader-cpu", args.data),
        "settings": settings,
        "rows": sorted(others + rows, key=story),
    }
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
