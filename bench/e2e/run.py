"""End-to-end benchmark: headrace beside zarr-python, zarrs and tensorstore on the same arrays.

    python bench/run.py e2e -- --rows '128KiB-zstd-*,shard-*-chunk' --peers headrace,tensorstore
    python bench/run.py e2e -- --quick                        # 16 steps and 2 rounds: does it work?
    python bench/run.py e2e -- --profile 128KiB-zstd-whole    # headrace alone, in this process

Each peer lives in its own process and is asked in turn (A B C, then B C A, ...), so that all of
them see the same machine. bench/README.md says what each row does. --rows are shell patterns of
their names, --steps fields of 4.2 MB in the time series. What --data has is kept between runs,
--write-to is the folder of the arrays that write rows make.
"""

import contextlib
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import harness
import numpy as np
from e2e import data, limits, peers, rows
from e2e.client import Client, PeerError, Unavailable
from e2e.worker import Worker

WRITE_PART = 2  # a write row writes the first half of the steps: it needs no more to settle
SETTLE_S = 0.1  # a timed round repeats the row's calls until it takes at least this long
TRUTH = "truth.npy"


def _summary(rounds: list[dict], nbytes: int, calls: int, repeat: int) -> dict:
    seconds = [r["seconds"] / repeat for r in rounds]
    median = statistics.median(seconds)
    return {
        **harness.figures(seconds, "s", 7),
        "mb_s": round(nbytes / median / 1e6, 1),
        "us_per_call": round(median / calls * 1e6, 1),
        "cpu_s": round(statistics.median(r["cpu_s"] for r in rounds) / repeat, 7),
        "peak_rss_mib": round(max(r["peak_rss_mib"] for r in rounds), 1),
        "peak_over_base_mib": round(max(r["peak_over_base_mib"] for r in rounds), 1),
        "runs": len(seconds),
        "repeat": repeat,
        "verified": True,
    }


def checked(clients: list, check: Callable[[Client], dict]) -> tuple[list, dict]:
    """The clients whose results are right, and what the others answered."""
    ready, failed = [], {}
    for client in clients:
        try:
            found = check(client)
            if not found["ok"]:
                raise PeerError(f"[{client.peer}] wrong result: {found['why']}")
            ready.append(client)
        except PeerError as error:
            print(f"  {error}", file=sys.stderr)
            failed[client.peer] = {"error": str(error)}
    return ready, failed


def read_request(row: rows.Row) -> dict:
    request = {"selections": row.selections, "out": row.access == "out"}
    if row.access == "out":
        request["out_shape"] = [i[1] - i[0] for i in row.selections[0]]
    return request


def run_read(row: rows.Row, clients: list, folder: Path, runs: int) -> dict:
    calls, nbytes = len(row.selections), rows.nbytes(row.selections)
    request = read_request(row)

    def check(client: Client) -> dict:
        found = client.ask("verify", truth=str(folder / TRUTH), **request)
        once = client.ask("read", repeat=1, **request)["seconds"]
        client.repeat = max(1, min(200, math.ceil(SETTLE_S / once)))
        return found

    def read(client: Client) -> dict:
        return client.ask("read", repeat=client.repeat, **request)

    ready, results = checked(clients, check)
    rounds = harness.in_turns({c.peer: partial(read, c) for c in ready}, runs, warm_ups=0)
    for client in ready:
        client.ask("release")
        results[client.peer] = _summary(rounds[client.peer], nbytes, calls, client.repeat)
    return {"nbytes": nbytes, "calls": calls, "peers": results}


def write_request(row: rows.Row, folder: Path, args) -> dict:
    steps = max(1, args.steps // WRITE_PART)
    return {
        "spec": data.spec(row.layout, row.codec, steps),
        "source": str(folder / TRUTH),
        "part": [[0, steps], [0, data.NLAT], [0, data.NLON]],
        "path": str((args.write_to or folder) / "written.zarr"),
    }


def run_write(row: rows.Row, clients: list, folder: Path, args, checker: Client) -> dict:
    request = write_request(row, folder, args)
    part, target = request["part"], request["path"]
    nbytes, stored = rows.nbytes([part]), {}

    def write(client: Client) -> dict:
        shutil.rmtree(target, ignore_errors=True)
        return client.ask("write", **request)

    def check(client: Client) -> dict:
        write(client)  # the warm-up, and what is verified
        checker.ask("open", path=target)
        stored[client.peer] = data.stored_bytes(Path(target))
        return checker.ask("verify", truth=request["source"], part=part, selections=[part])

    ready, results = checked(clients, check)
    rounds = harness.in_turns({c.peer: partial(write, c) for c in ready}, args.runs, warm_ups=0)
    shutil.rmtree(target, ignore_errors=True)
    for peer, of_peer in rounds.items():
        results[peer] = _summary(of_peer, nbytes, 1, 1) | {"stored_nbytes": stored[peer]}
    return {"nbytes": nbytes, "calls": 1, "peers": results}


def measure_limits(folder: Path, layout: str, codec: str, runs: int, threads: int) -> dict:
    path = folder / data.array_name(layout, codec)
    result = {"layout": layout, "codec": codec, **limits.page_cache(path, runs, threads)}
    if codec != "none":
        field = np.load(folder / TRUTH, mmap_mode="r")[:8]
        chunk = data.LAYOUTS[layout][1] or data.LAYOUTS[layout][0]
        result["libraries"] = limits.codec(codec, field, chunk, min(runs, 5), threads)
    return result


def warm(folder: Path, layout: str, codec: str) -> None:
    for file in (folder / data.array_name(layout, codec)).rglob("*"):
        if file.is_file():
            file.read_bytes()


def _print_row(row: rows.Row, result: dict) -> None:
    cells = []
    for peer, r in result["peers"].items():
        if "error" in r:
            cells.append(f"{peer} -")
        elif row.access in rows.PER_CALL:
            cells.append(f"{peer} {r['mb_s']:.0f} MB/s {r['us_per_call']:.0f} us")
        else:
            cells.append(f"{peer} {r['mb_s']:.0f} MB/s")
    print(f"{row.name:22} {' | '.join(cells)}", flush=True)


def available(names: list[str], log) -> tuple[list[str], dict, dict]:
    """The peers that run here, all versions, and why the others do not run."""
    found, versions, missing = [], {}, {}
    for name in names:
        with Client(name, log) as client:
            try:
                versions.update(client.ask("hello")["versions"])
                found.append(name)
            except Unavailable as error:
                missing[name] = str(error)
                print(f"not available: {error}", file=sys.stderr)
    return found, versions, missing


def measure(args, log) -> dict:
    chosen = rows.select(args.rows, args.steps)
    groups = list(dict.fromkeys((r.layout, r.codec) for r in chosen))
    names, versions, missing = available(args.peers, log)
    print(f"data in {args.data}", flush=True)
    folder = data.prepare(args.data, args.steps, groups)
    report = {
        **harness.head("e2e-cpu", folder),
        "write_filesystem": harness.filesystem(args.write_to or folder),
        "versions": versions,
        "unavailable": missing,
        "cache_state": "warm page cache; writes are not synced",
        "settings": {"runs": args.runs, "steps": args.steps, "quick": args.quick},
        "arrays": [],
        "limits": [],
        "rows": [],
    }
    threads = report["machine"]["cores"]
    for layout, codec in groups:
        warm(folder, layout, codec)
        report["arrays"].append(data.describe(folder, layout, codec))
        if not args.no_limits:
            report["limits"].append(measure_limits(folder, layout, codec, args.runs, threads))
        with contextlib.ExitStack() as stack:
            # Fresh processes for each array: what one leaves behind in memory is not another's.
            clients = [stack.enter_context(Client(name, log)) for name in names]
            checker = stack.enter_context(Client("zarr", log))
            for client in clients:
                client.ask("open", path=str(folder / data.array_name(layout, codec)))
            for row in [r for r in chosen if (r.layout, r.codec) == (layout, codec)]:
                if row.access == "write":
                    result = run_write(row, clients, folder, args, checker)
                else:
                    result = run_read(row, clients, folder, args.runs)
                entry = {"layout": layout, "codec": codec, "access": row.access, **result}
                report["rows"].append(entry)
                _print_row(row, result)
    report["load_average_end"] = harness.load_average()
    return report


def profile(args) -> None:
    """headrace alone on one row, in this process: for perf record -g."""
    row = rows.select([args.profile], args.steps)[0]
    folder = data.prepare(args.data, args.steps, [(row.layout, row.codec)])
    warm(folder, row.layout, row.codec)
    worker = Worker(peers.load("headrace"))
    worker.open({"path": str(folder / data.array_name(row.layout, row.codec))})
    read, write = {**read_request(row), "repeat": 1}, write_request(row, folder, args)
    nbytes = rows.nbytes([write["part"]] if row.access == "write" else row.selections)
    seconds, end = [], time.perf_counter() + args.seconds
    while time.perf_counter() < end:
        shutil.rmtree(write["path"], ignore_errors=True)
        took = worker.write(write) if row.access == "write" else worker.read(read)
        seconds.append(took["seconds"])
    shutil.rmtree(write["path"], ignore_errors=True)
    median = statistics.median(seconds)
    print(
        f"{row.name}: {len(seconds)} rounds, median {nbytes / median / 1e6:.0f} MB/s, "
        f"{median / len(row.selections) * 1e6:.1f} us a call"
    )


def main() -> int:
    parser = harness.parser(
        __doc__,
        rows=("*",),
        peers=peers.PEERS,
        runs=7,
        steps=64,
        data=data.default_folder(),
        write_to=None,
        quick=False,
        no_limits=False,
        profile="",
        seconds=10.0,
    )
    args = parser.parse_args()
    if args.quick:
        args.steps, args.runs = 16, 2
    elif args.runs < 5:
        parser.error("--runs must be at least 5 (or use --quick)")
    if unknown := set(args.peers) - set(peers.PEERS):
        parser.error(f"no peer {', '.join(unknown)}, there are {', '.join(peers.PEERS)}")
    if args.profile:
        profile(args)
        return 0
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        try:
            report = measure(args, log)
        except PeerError as error:
            log.seek(0)
            print(f"{error}\n{log.read()[-4000:]}", file=sys.stderr)
            return 1
    if args.out:
        harness.save(report, args.out)
    failed = [r for row in report["rows"] for r in row["peers"].values() if "error" in r]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
