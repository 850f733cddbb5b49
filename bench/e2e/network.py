"""Reads over HTTP from a server that waits before each answer, as stores far away do.

    python bench/run.py network -- --peers headrace,tensorstore --delays 100

The server (slow_server.py) is on the loopback device and counts what it is asked. The floor of a
row is the time that no reader can do without: the round trips that must follow each other (one for
chunks; for shards the index, then what lies in them), and the bytes at the rate at which curl gets
them from this server without a delay. Decoding comes on top of it: `local_s` is what headrace takes
for the same read from files in the page cache. Peers take turns; each call reads anew.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import harness
import numpy as np
from e2e import data
from e2e.client import Client
from e2e.run import available, checked

PEERS = (
    "headrace",
    "headrace_cached_cold",
    "headrace_cached",
    "headrace_obstore",
    "zarr_obstore",
    "zarr_fsspec",
    "zarrs",
    "tensorstore",
)
SHAPE = (64, data.NLAT, data.NLON)
CHUNK = (1, 361, 720)  # 1 MiB of float32, four a step
DELAYS_MS = (0.0, 20.0, 100.0)
READS = {
    "one step": [17],
    "point series": [[0, 64], 300, 700],
    "whole": [[0, 64], [0, SHAPE[1]], [0, SHAPE[2]]],
}


@dataclass(frozen=True)
class Layout:
    """What of an array matters here; fetches follow each other: an index, what it says."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None = None
    is_compressed: bool = True
    reads: tuple[str, ...] = tuple(READS)
    fetches: int = 1
    delays_ms: tuple[float, ...] = DELAYS_MS

    def selection(self, read: str) -> list:
        return READS[read] if self.shape == SHAPE else [[0, n] for n in self.shape]


LAYOUTS = {
    "chunks": Layout(SHAPE, CHUNK),
    "shards": Layout(SHAPE, CHUNK, (16, 722, 1440), fetches=2),
    "small-objects": Layout(  # 1,000 of 64 KiB
        (1000, 128, 128), (1, 128, 128), None, False, ("whole",)
    ),
    "one-large-object": Layout(  # 4 GiB
        (1024, 1024, 1024), (1024, 1024, 1024), None, False, ("whole",), delays_ms=(20.0,)
    ),
}


class Server:
    """A server of this folder in a process of its own."""

    def __init__(self, *arguments: str, module: str = "slow_server"):
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"e2e.{module}", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=harness.ENVIRONMENT,
        )
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def control(self, what: str) -> dict:
        with urllib.request.urlopen(f"{self.url}/_{what}") as answer:
            return json.load(answer)

    def counts(self) -> dict:
        """Of what it was asked since the last call."""
        return self.control("counts")

    def delay(self, ms: float) -> None:
        self.control(f"delay?ms={ms}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()


def make_arrays(folder: Path, names=tuple(LAYOUTS)) -> None:
    import zarr
    from zarr.codecs import ZstdCodec

    fields = np.stack(list(data.fields(SHAPE[0])))
    for name in names:
        layout = LAYOUTS[name]
        place = folder / name
        truth = fields if layout.shape == SHAPE else np.resize(fields, layout.shape)
        np.save(f"{place}.npy", truth)
        array = zarr.create_array(
            store=str(place),
            shape=layout.shape,
            dtype="float32",
            chunks=layout.chunks,
            shards=layout.shards,
            compressors=ZstdCodec(level=3) if layout.is_compressed else None,
            fill_value=0.0,
        )
        array[:] = truth


def bandwidth(server: Server, folder: Path) -> float:
    """Bytes a second of a large file, or of its begin, by curl: the best of five."""
    files = [p for p in folder.rglob("*") if p.is_file()]
    largest = max(files, key=lambda p: p.stat().st_size)
    url = f"{server.url}/{largest.relative_to(folder)}"
    nbytes = min(largest.stat().st_size, 256 << 20)

    def fetch() -> None:
        subprocess.run(["curl", "-s", "-o", "/dev/null", "-r", f"0-{nbytes - 1}", url], check=True)

    return nbytes / min(harness.seconds(fetch) for _ in range(5))


def summary(rounds: list[dict], nbytes: str) -> dict:
    """What a row says of a peer; `nbytes` names those that went over the line."""

    def median(name: str) -> float:
        return statistics.median(r[name] for r in rounds)

    return {
        "median_s": round(median("seconds"), 5),
        "min_s": round(min(r["seconds"] for r in rounds), 5),
        "max_s": round(max(r["seconds"] for r in rounds), 5),
        "cpu_s": round(median("cpu_s"), 5),
        "requests": median("requests"),
        "most_at_once": max(r["most_at_once"] for r in rounds),
        nbytes: median(nbytes),
        "runs": len(rounds),
    }


def _read(client: Client, server: Server, selections: list) -> dict:
    server.counts()
    return client.ask("read", selections=selections, repeat=1) | server.counts()


def _local_seconds(
    clients: list[Client], server: Server, path: Path, selections: list, runs: int
) -> float | None:
    """Of headrace for this read from local files; none where it does not take part."""
    for client in clients:
        if client.peer == "headrace":
            client.ask("open", path=str(path))
            rounds = [client.ask("read", selections=selections, repeat=1) for _ in range(runs)]
            client.ask("open", path=f"{server.url}/{path.name}")
            return round(statistics.median(r["seconds"] for r in rounds), 5)
    return None


def _rows(clients: list[Client], server: Server, layout: str, read: str, args, folder: Path, rate):
    """One for each delay."""
    kind = LAYOUTS[layout]
    selections = [kind.selection(read)]

    def check(client: Client) -> dict:
        client.ask("open", path=f"{server.url}/{layout}")
        truth = str(folder / f"{layout}.npy")
        return client.ask("verify", truth=truth, selections=selections)

    server.delay(0)
    ready, failed = checked(clients, check)
    local_s = _local_seconds(ready, server, folder / layout, selections, args.runs)
    for delay in args.delays:
        if delay not in kind.delays_ms:
            continue
        server.delay(delay)
        ways = {c.peer: partial(_read, c, server, selections) for c in ready}
        figures = {
            n: summary(r, "sent_nbytes") for n, r in harness.in_turns(ways, args.runs).items()
        }
        # A cache that has all asks for nothing.
        nbytes = min((n for f in figures.values() if (n := f["sent_nbytes"])), default=0)
        yield {
            "layout": layout,
            "read": read,
            "delay_ms": delay,
            "floor_s": round(kind.fetches * delay / 1000 + nbytes / rate, 5),
            "local_s": local_s,
            "peers": figures | failed,
        }


def measure(args, folder: Path, log) -> dict:
    make_arrays(folder, args.layouts)
    names, versions, missing = available(args.peers, log)
    report = {
        **harness.head("network", folder),
        "versions": versions,
        "unavailable": missing,
        "settings": {"runs": args.runs},
        "rows": [],
    }
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(name, log)) for name in names]
        server = stack.enter_context(Server(str(folder)))
        rate = bandwidth(server, folder)
        report["settings"]["server_mb_s"] = round(rate / 1e6)
        for layout in args.layouts:
            for read in LAYOUTS[layout].reads:
                for row in _rows(clients, server, layout, read, args, folder, rate):
                    report["rows"].append(row)
                    show(row)
    return report


def show(row: dict) -> None:
    def figure(peer: dict) -> str:
        if "error" in peer:
            return peer["error"]
        return f"{peer['median_s']:.3f} ({peer['requests']:.0f}, {peer['most_at_once']})"

    cells = [f"{name} {figure(peer)}" for name, peer in row["peers"].items()]
    where = f"{row['layout']}, {row['read']}, {row['delay_ms']:g} ms"
    bound = f"floor {row['floor_s']:.3f}, local {row['local_s']}"
    print(f"{where}: {bound}", *cells, sep=", ", file=sys.stderr)


def main() -> None:
    args = harness.parser(
        __doc__, peers=PEERS, layouts=tuple(LAYOUTS), delays=DELAYS_MS, runs=5
    ).parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-network-") as folder,
        (Path(folder) / "workers.log").open("w") as log,
    ):
        report = measure(args, Path(folder), log)
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
