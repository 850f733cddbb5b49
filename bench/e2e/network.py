"""Reads over HTTP from a server that waits before each answer, as stores far away do.

    python bench/e2e/network.py --out bench/results/network.json

The server (slow_server.py) is on the loopback device and counts what it is asked. The floor of a
row is the time that no reader can do without: the round trips that must follow each other (one for
chunks; for shards the index, then what lies in them), and the bytes at the rate at which curl gets
them from this server without a delay. Decoding comes on top of it. Peers take turns; each call
reads anew.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import data
import machine
import numpy as np
from client import Client, PeerError, Unavailable
from turns import in_turn

PEERS = ("headrace", "headrace_obstore", "zarr_obstore", "zarr_fsspec", "zarrs", "tensorstore")
SHAPE = (64, data.NLAT, data.NLON)
CHUNK = (1, 361, 720)  # 1 MiB of float32, four a step
LAYOUTS = {"chunks": (CHUNK, None), "shards": ((16, 722, 1440), CHUNK)}
DELAYS_MS = (0, 20, 100)
READS = {
    "one step": [17],
    "point series": [[0, 64], 300, 700],
    "whole": [[0, 64], [0, SHAPE[1]], [0, SHAPE[2]]],
}


class Server:
    """slow_server.py in a process of its own."""

    def __init__(self, folder: Path):
        command = [sys.executable, str(Path(__file__).parent / "slow_server.py"), str(folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        url = f"{server.url}/{largest.relative_to(folder)}"
        subprocess.run(["curl", "-s", "-o", "/dev/null", url], check=True)
        seconds.append(time.perf_counter() - begin)
    return largest.stat().st_size / min(seconds)


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


def _row(clients: list[Client], server: Server, read: str, url: str, folder: Path, runs: int):
    selections = [READS[read]]
    peers, ready = {}, []
    server.delay(0)
    for client in clients:
        try:
            client.ask("open", path=url)
            check = client.ask("verify", truth=str(folder / "truth.npy"), selections=selections)
            if not check["ok"]:
                raise PeerError(f"[{client.peer}] wrong result: {check['why']}")
            ready.append(client)
        except PeerError as error:
            peers[client.peer] = {"error": str(error)}
    return peers, ready, selections


def measure(args: argparse.Namespace, folder: Path, log) -> dict:
    make_arrays(folder)
    clients, versions, missing = [], {}, {}
    for name in args.peers:
        client = Client(name, log)
        try:
            versions |= client.ask("hello")["versions"]
            clients.append(client)
        except Unavailable as error:
            missing[name] = str(error)
            client.close()
    with Server(folder) as server:
        rate = bandwidth(server, folder)
        report = {
            **machine.head("network", folder),
            "versions": versions,
            "unavailable": missing,
            "settings": {"runs": args.runs, "server_mb_s": round(rate / 1e6)},
            "rows": [],
        }
        for layout in LAYOUTS:
            for read in READS:
                url = f"{server.url}/{layout}"
                failed, ready, selections = _row(clients, server, read, url, folder, args.runs)
                for delay in args.delays:
                    server.delay(delay)
                    rounds = {client.peer: [] for client in ready}
                    for number in range(args.runs):
                        for client in in_turn(ready, number):
                            server.counts()
                            got = client.ask("read", selections=selections, repeat=1)
                            rounds[client.peer].append(got | server.counts())
                    figures = {name: _summary(r) for name, r in rounds.items()}
                    trips = 1 if layout == "chunks" else 2
                    nbytes = min(f["sent_nbytes"] for f in figures.values())
                    row = {
                        "layout": layout,
                        "read": read,
                        "delay_ms": delay,
                        "floor_s": round(trips * delay / 1000 + nbytes / rate, 5),
                        "peers": figures | failed,
                    }
                    report["rows"].append(row)
                    show(row)
        for client in clients:
            client.close()
    return report


def show(row: dict) -> None:
    def figure(peer: dict) -> str:
        return f"{peer['median_s']:.3f} ({peer['requests']:.0f}, {peer['most_at_once']})"

    cells = [f"{n} {figure(p) if 'error' not in p else '-'}" for n, p in row["peers"].items()]
    print(f"{row['layout']} {row['read']} {row['delay_ms']} ms, floor {row['floor_s']:.3f}:", *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peers", type=lambda s: s.split(","), default=list(PEERS))
    parser.add_argument("--delays", type=lambda s: [float(x) for x in s.split(",")], default=DELAYS_MS)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-network-"))
    try:
        with (folder / "workers.log").open("w") as log:
            report = measure(args, folder, log)
        machine.save(report, args.out)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
