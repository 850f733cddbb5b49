"""The training loader over HTTP from a server that waits before each answer, as stores far away do.

    python bench/run.py loader-network -- --delays 100

The store, the jobs and the worker are those of loader.py; the server (slow_server.py) is on the
loopback device and counts what it is asked. Each run is one shuffled epoch in a process of its own,
opening the store included. The floor of a row is the time that no loader can do without: one round
trip, and the bytes at the rate at which curl gets them from this server without a delay.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import harness
from e2e import data, loader, loader_data, network
from e2e.client import Client

PEERS = ("headrace", "headrace-lean")
LARGE_NBYTES = 256 << 20


def run(name: str, job: dict, server: network.Server) -> dict:
    with Client(name, None, name, module="e2e.loader_worker") as client:
        client.ask("hello")
        server.counts()
        figures = client.ask("go", **job, workers=0)
        return figures | {k: v for k, v in server.counts().items() if k != "at_once"}


def summary(runs: list[dict]) -> dict:
    middle = statistics.median_low([run["seconds"] for run in runs])
    (found, *_) = [run for run in runs if run["seconds"] == middle]
    return {**found, "all_seconds": [run["seconds"] for run in runs]}


def bandwidth() -> float:
    """Of one large file: chunks are too small to measure it by."""
    with tempfile.TemporaryDirectory(prefix="headrace-loader-") as folder:
        (Path(folder) / "large").write_bytes(bytes(LARGE_NBYTES))
        with network.Server(Path(folder)) as server:
            return network.bandwidth(server, Path(folder))


def rows(store: loader_data.Store, rate: float, args):
    path = loader_data.prepare(args.data, store)
    stored = loader_data.stored_nbytes(path, store)
    job = loader.job_of(path, store, args)
    with network.Server(path) as server:
        for delay in args.delays:
            server.delay(delay)
            of_peer = {
                name: summary(
                    [run(name, job | {"path": server.url}, server) for _ in range(args.rounds)]
                )
                for name in args.peers
            }
            row = {
                "chunk_steps": store.chunk_steps,
                "codec": store.codec,
                "delay_ms": delay,
                "stored_nbytes": stored,
                "floor_s": round(delay / 1000 + stored / rate, 4),
                "peers": of_peer,
            }
            show(row)
            yield row


def show(row: dict) -> None:
    for name, peer in row["peers"].items():
        figures = f"{peer['seconds']:.2f} s, {peer['requests']} requests, {peer['most_at_once']}"
        waits = f"first {peer['first_batch_s']:.2f} s, p50 {peer['wait_p50_ms']:.1f} ms"
        where = f"{row['chunk_steps']} {row['codec']} {row['delay_ms']:g} ms"
        floor = f"floor {row['floor_s']:.2f} s"
        print(f"{where}: {floor}, {name} {figures} at once, {waits}", file=sys.stderr)


def main() -> None:
    parser = harness.parser(
        __doc__,
        data=data.default_folder(),
        steps=256,
        lat=181,
        lon=360,
        variables=2,
        batch=8,
        chunk_steps=(1, 8),
        codecs=("zstd",),
        peers=PEERS,
        delays=(0.0, 20.0, 100.0),
        epochs=1,
        seconds=600.0,
        rounds=3,
    )
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    shape = (args.steps, args.lat, args.lon, args.variables)
    stores = [loader_data.Store(*shape, k, c) for k in args.chunk_steps for c in args.codecs]
    named = ("steps", "variables", "batch", "rounds")
    rate = bandwidth()
    report = {
        **harness.head("loader-network", args.data),
        "settings": {name: getattr(args, name) for name in named} | {"field": [args.lat, args.lon]},
        "rows": [row for store in stores for row in rows(store, rate, args)],
    }
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
