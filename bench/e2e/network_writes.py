"""Writes to an object store that waits before each answer, as stores far away do.

    python bench/run.py network-writes -- --peers headrace,tensorstore --delays 100

The bucket (bucket_server.py) is on the loopback device and counts what it is asked. Each call
writes all of a new array, whose metadata are there before the clock starts; "parts" writes every
other row of each chunk of an array that is there, so that each is read, changed and put back.
Chunks are zstd of level 1. Peers take turns.
"""

import contextlib
import itertools
import sys
import tempfile
from functools import partial
from pathlib import Path

import harness
import numpy as np
from e2e import data
from e2e.client import Client
from e2e.network import Server, summary
from e2e.run import available

PEERS = ("headrace", "zarr_obstore", "tensorstore")
SHAPE = (64, data.NLAT, data.NLON)
CHUNK = [1, 361, 720]  # 1 MiB of float32, four a step
LAYOUTS = {"chunks": (CHUNK, None), "shards": ([16, 722, 1440], CHUNK)}
DELAYS_MS = (0.0, 20.0, 100.0)
WRITES = {
    "whole": [[0, 64], [0, SHAPE[1]], [0, SHAPE[2]]],
    "parts": [[0, 64], [0, SHAPE[1], 2], [0, SHAPE[2]]],
}


def _spec(layout: str, server: Server) -> dict:
    outer, inner = LAYOUTS[layout]
    return {
        "shape": list(SHAPE),
        "chunks": outer,
        "inner_chunks": inner,
        "codec": "zstd1",
        "endpoint": server.url,
    }


def _summary(rounds: list[dict]) -> dict:
    peak = max(r["peak_over_base_mib"] for r in rounds)
    return summary(rounds, "received_nbytes") | {"peak_over_base_mib": round(peak, 1)}


def _make(client: Client, server: Server, layout: str) -> dict:
    """A new array without chunks, and what a write of it is asked by."""
    where = {"path": f"s3://bench/{client.peer}", "spec": _spec(layout, server)}
    server.delay(0)
    server.control("clear")
    client.ask("make", **where)
    return where


def _write(client: Client, server: Server, part: list, source: Path, delay: float) -> dict:
    server.delay(delay)
    server.counts()
    return client.ask("write_part", source=str(source), part=part) | server.counts()


def _whole(client: Client, server: Server, layout: str, write: str, source: Path, delay: float):
    _make(client, server, layout)
    if write == "parts":  # of an array that is there
        _write(client, server, WRITES["whole"], source, 0)
    figures = _write(client, server, WRITES[write], source, delay)
    server.delay(0)
    ask = {"truth": str(source), "selections": [[0], [SHAPE[0] - 1]]}
    if not (found := client.ask("verify", **ask))["ok"]:
        raise RuntimeError(f"{client.peer}, {layout}, {write}: {found['why']}")
    return figures


def measure(args, folder: Path, log) -> dict:
    truth = folder / "truth.npy"
    np.save(truth, np.stack(list(data.fields(SHAPE[0]))))
    names, versions, missing = available(args.peers, log)
    report = {
        **harness.head("network-writes", folder),
        "versions": versions,
        "unavailable": missing,
        "settings": {"runs": args.runs},
        "rows": [],
    }
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(name, log)) for name in names]
        server = stack.enter_context(Server(module="bucket_server"))
        for layout, write, delay in itertools.product(LAYOUTS, WRITES, args.delays):
            ways = {
                c.peer: partial(_whole, c, server, layout, write, truth, delay) for c in clients
            }
            figures = harness.in_turns(ways, args.runs)
            row = {
                "layout": layout,
                "write": write,
                "delay_ms": delay,
                "peers": {name: _summary(rounds) for name, rounds in figures.items()},
            }
            report["rows"].append(row)
            show(row)
    return report


def show(row: dict) -> None:
    cells = [
        f"{name} {peer['median_s']:.3f} ({peer['requests']:.0f}, {peer['most_at_once']})"
        for name, peer in row["peers"].items()
    ]
    where = f"{row['layout']}, {row['write']}, {row['delay_ms']:g} ms"
    print(where, *cells, sep=", ", file=sys.stderr)


def main() -> None:
    args = harness.parser(__doc__, peers=PEERS, delays=DELAYS_MS, runs=3).parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-network-writes-") as folder,
        (Path(folder) / "workers.log").open("w") as log,
    ):
        report = measure(args, Path(folder), log)
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
