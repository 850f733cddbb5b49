"""Reads over HTTP from a server that waits before each answer, as stores far away do.

    python bench/run.py network -- --peers headrace,tensorstore --delays 100

The server (slow_server.py) is on the loopback device and counts what it is asked. The floor of a
row is the time that no reader can do without: the round trips that must follow each other (one for
chunks; for shards the index, then what lies in them), and the bytes at the rate at which curl gets
them from this server without a delay. Decoding comes on top of it. Peers take turns; each call
reads anew.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import urllib.request
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
LAYOUTS = {"chunks": (CHUNK, None), "shards": ((16, 722, 1440), CHUNK)}
DELAYS_MS = (0.0, 20.0, 100.0)
READS = {
    "one step": [17],
    "point series": [[0, 64], 300, 700],
    "whole": [[0, 64], [0, SHAPE[1]], [0, SHAPE[2]]],
}


class Server:
    """slow_server.py in a process of its own."""

    def __init__(self, folder: Path):
        command = [sys.executable, "-m", "e2e.slow_server", str(folder)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=harness.ENVIRONMENT
        )
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def counts(self) -> dict:
        """Of what it was asked since the last call."""
        with urllib.request.urlopen(f"{self.url}/_counts") as answer:
            return json.load(answer)

    def delay(self, ms: float) -> None:
        urllib.request.urlopen(f"{self.url}/_delay?ms={ms}").close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()


def make_arrays(folder: Path) -> None:
    import zarr
    from zarr.codecs import ZstdCodec

    truth = np.stack(list(data.fields(SHAPE[0])))
    np.save(folder / "truth.npy", truth)
    for name, (outer, inner) in LAYOUTS.items():
        array = zarr.create_array(
            store=str(folder / name),
            shape=SHAPE,
            dtype="float32",
            chunks=inner or outer,
            shards=outer if inner else None,
            compressors=ZstdCodec(level=3),
            fill_value=0.0,
        )
        array[:] = truth


def bandwidth(server: Server, folder: Path) -> float:
    """Bytes a second of one large file, by curl: the best of five."""
    largest = max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    url = f"{server.url}/{largest.relative_to(folder)}"

    def fetch() -> None:
        subprocess.run(["curl", "-s", "-o", "/dev/null", url], check=True)

    return largest.stat().st_size / min(harness.seconds(fetch) for _ in range(5))


def _summary(rounds: list[dict]) -> dict:
    def median(name: str) -> float:
        return statistics.median(r[name] for r in rounds)

    return {
        "median_s": round(median("seconds"), 5),
        "min_s": round(min(r["seconds"] for r in rounds), 5),
        "max_s": round(max(r["seconds"] for r in rounds), 5),
        "cpu_s": round(median("cpu_s"), 5),
        "requests": median("requests"),
        "most_at_once": max(r["most_at_once"] for r in rounds),
        "sent_nbytes": median("sent_nbytes"),
        "runs": len(rounds),
    }


def _read(client: Client, server: Server, selections: list) -> dict:
    server.counts()
    return client.ask("read", selections=selections, repeat=1) | server.counts()


def _rows(clients: list[Client], server: Server, layout: str, read: str, args, folder: Path, rate):
    """One for each delay."""
    selections = [READS[read]]

    def check(client: Client) -> dict:
        client.ask("open", path=f"{server.url}/{layout}")
        return client.ask("verify", truth=str(folder / "truth.npy"), selections=selections)

    server.delay(0)
    ready, failed = checked(clients, check)
    for delay in args.delays:
        server.delay(delay)
        ways = {c.peer: partial(_read, c, server, selections) for c in ready}
        figures = {n: _summary(r) for n, r in harness.in_turns(ways, args.runs).items()}
        trips = 1 if layout == "chunks" else 2
        nbytes = min((f["sent_nbytes"] for f in figures.values()), default=0)
        yield {
            "layout": layout,
            "read": read,
            "delay_ms": delay,
            "floor_s": round(trips * delay / 1000 + nbytes / rate, 5),
            "peers": figures | failed,
        }


def measure(args, folder: Path, log) -> dict:
    make_arrays(folder)
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
        server = stack.enter_context(Server(folder))
        rate = bandwidth(server, folder)
        report["settings"]["server_mb_s"] = round(rate / 1e6)
        for layout in LAYOUTS:
            for read in READS:
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
    print(f"{where}: floor {row['floor_s']:.3f}", *cells, sep=", ", file=sys.stderr)


def main() -> None:
    args = harness.parser(__doc__, peers=PEERS, delays=DELAYS_MS, runs=5).parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-network-") as folder,
        (Path(folder) / "workers.log").open("w") as log,
    ):
        report = measure(args, Path(folder), log)
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
