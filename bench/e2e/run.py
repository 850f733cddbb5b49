"""End-to-end benchmark: headrace beside zarr-python, zarrs and tensorstore on the same arrays.

    python bench/e2e/run.py --out bench/results/e2e-cpu.json
    python bench/e2e/run.py --rows '128KiB-zstd-*,shard-*-chunk' --peers headrace,tensorstore
    python bench/e2e/run.py --peers headrace --before OTHER/.venv/bin/python --out FILE
    python bench/e2e/run.py --profile 128KiB-zstd-whole    # headrace alone, in this process

Each peer lives in its own process and is asked in turn (A B C, then B C A, ...), so that all of
them see the same machine. bench/README.md says what each row does.
"""

import argparse
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import data
import limits
import machine
import numpy as np
import peers
import rows
from client import Client, PeerError, Unavailable
from turns import in_turn

WRITE_PART = 2  # a write row writes the first half of the steps: it needs no more to settle
SETTLE_S = 0.1  # a timed round repeats the row's calls until it takes at least this long
TRUTH = "truth.npy"


def _spec(layout: str, codec: str, steps: int) -> dict:
    outer, inner = data.LAYOUTS[layout]
    return {
        "shape": [steps, data.NLAT, data.NLON],
        "chunks": [min(outer[0], steps), *outer[1:]],
        "inner_chunks": list(inner) if inner else None,
        "codec": codec,
    }


def _summary(rounds: list[dict], nbytes: int, calls: int, repeat: int) -> dict:
    seconds = [r["seconds"] / repeat for r in rounds]
    median = statistics.median(seconds)
    return {
        "median_s": round(median, 7),
        "min_s": round(min(seconds), 7),
        "max_s": round(max(seconds), 7),
        "mb_s": round(nbytes / median / 1e6, 1),
        "us_per_call": round(median / calls * 1e6, 1),
        "cpu_s": round(statistics.median(r["cpu_s"] for r in rounds) / repeat, 7),
        "peak_rss_mib": round(max(r["peak_rss_mib"] for r in rounds), 1),
        "peak_over_base_mib": round(max(r["peak_over_base_mib"] for r in rounds), 1),
        "runs": len(seconds),
        "repeat": repeat,
    }


BEFORE = "before"  # headrace of another checkout, by the interpreter that has it


def _client(name: str, log, before: str | None) -> Client:
    if name != BEFORE:
        return Client(name, log)
    client = Client("headrace", log, before)
    client.peer = BEFORE
    return client


def _turns(clients: list, runs: int):
    """The clients of each round, a different one first each time."""
    for r in range(runs):
        yield from in_turn(clients, r)


def _fail(results: dict, client: Client, error: PeerError) -> None:
    print(f"  {error}", file=sys.stderr)
    results[client.peer] = {"error": str(error)}


def run_read(row: rows.Row, clients: list, folder: Path, runs: int) -> dict:
    request = {"selections": row.selections, "out": row.access == "out"}
    if row.access == "out":
        request["out_shape"] = [i[1] - i[0] for i in row.selections[0]]
    nbytes, results, ready, rounds = rows.nbytes(row.selections), {}, [], {}
    for client in clients:
        try:
            check = client.ask("verify", truth=str(folder / TRUTH), **request)
            if not check["ok"]:
                raise PeerError(f"[{client.peer}] {row.name}: wrong result: {check['why']}")
            once = client.ask("read", repeat=1, **request)["seconds"]
            client.repeat = max(1, min(200, math.ceil(SETTLE_S / once)))
            rounds[client.peer] = []
            ready.append(client)
        except PeerError as error:
            _fail(results, client, error)
    for client in _turns(ready, runs):
        rounds[client.peer].append(client.ask("read", repeat=client.repeat, **request))
    for client in ready:
        client.ask("release")
        repeat, calls = client.repeat, len(row.selections)
        results[client.peer] = _summary(rounds[client.peer], nbytes, calls, repeat)
        results[client.peer]["verified"] = True
    return {"nbytes": nbytes, "calls": len(row.selections), "peers": results}


def run_write(row: rows.Row, clients: list, folder: Path, args, checker) -> dict:
    steps = max(1, args.steps // WRITE_PART)
    spec = _spec(row.layout, row.codec, steps)
    part = [[0, steps], [0, data.NLAT], [0, data.NLON]]
    nbytes, results, ready, rounds, stored = rows.nbytes([part]), {}, [], {}, {}
    target = (args.write_to or folder) / "written.zarr"
    request = {"spec": spec, "source": str(folder / TRUTH), "part": part, "path": str(target)}

    def write(client: Client) -> dict:
        shutil.rmtree(target, ignore_errors=True)
        return client.ask("write", **request)

    for client in clients:
        try:
            write(client)  # the warm-up, and what is verified
            checker.ask("open", path=str(target))
            truth = str(folder / TRUTH)
            check = checker.ask("verify", truth=truth, part=part, selections=[part])
            if not check["ok"]:
                raise PeerError(f"[{client.peer}] {row.name}: wrong bytes: {check['why']}")
            stored[client.peer] = data.stored_bytes(target)
            rounds[client.peer] = []
            ready.append(client)
        except PeerError as error:
            _fail(results, client, error)
    for client in _turns(ready, args.runs):
        rounds[client.peer].append(write(client))
    shutil.rmtree(target, ignore_errors=True)
    for client in ready:
        results[client.peer] = _summary(rounds[client.peer], nbytes, 1, 1)
        results[client.peer].update(verified=True, stored_nbytes=stored[client.peer])
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


def available(names: list[str], log, before: str | None = None) -> tuple[list[str], dict, dict]:
    """The peers that run here, all versions, and why the others do not run."""
    found, versions, missing = [], {}, {}
    for name in names:
        with _client(name, log, before) as client:
            try:
                known = client.ask("hello")["versions"]
                versions.update({BEFORE: known["headrace"]} if name == BEFORE else known)
                found.append(name)
            except Unavailable as error:
                missing[name] = str(error)
                print(f"not available: {error}", file=sys.stderr)
    return found, versions, missing


def measure(args, log) -> dict:
    chosen = rows.select(args.rows, args.steps)
    groups = list(dict.fromkeys((r.layout, r.codec) for r in chosen))
    names, versions, missing = available(args.peers, log, args.before)
    print(f"data in {args.data}", flush=True)
    folder = data.prepare(args.data, args.steps, groups)
    report = {
        **machine.head("e2e-cpu", folder),
        "write_filesystem": machine.filesystem(args.write_to or folder),
        "versions": versions,
        "unavailable": missing,
        "cache_state": "warm page cache; writes are not synced",
        "settings": {"runs": args.runs, "steps": args.steps, "quick": args.quick},
        "memory_limits": {},
        "arrays": [],
        "limits": [],
        "rows": [],
    }
    threads = report["machine"]["cores"]
    if args.limits:
        report["memory_limits"] = limits.memory(args.runs, threads)
    for layout, codec in groups:
        warm(folder, layout, codec)
        report["arrays"].append(data.describe(folder, layout, codec))
        if args.limits:
            report["limits"].append(measure_limits(folder, layout, codec, args.runs, threads))
        # Fresh processes for each array: the memory one array leaves behind is not another's peak.
        clients, checker = [_client(name, log, args.before) for name in names], Client("zarr", log)
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
        for client in [*clients, checker]:
            client.close()
    report["load_average_end"] = [round(x, 2) for x in os.getloadavg()]
    return report


def profile(args) -> None:
    """headrace alone on one row, in this process: perf record -g python run.py --profile ROW"""
    row = rows.select([args.profile], args.steps)[0]
    folder = data.prepare(args.data, args.steps, [(row.layout, row.codec)])
    warm(folder, row.layout, row.codec)
    peer = peers.load("headrace")
    steps = args.steps // WRITE_PART if row.access == "write" else args.steps
    truth = np.array(np.load(folder / TRUTH, mmap_mode="r")[:steps])
    array = peer.open_array(str(folder / data.array_name(row.layout, row.codec)))
    selections = [tuple(slice(*i) if isinstance(i, list) else i for i in s) for s in row.selections]
    target = (args.write_to or folder) / "written.zarr"
    out = np.zeros_like(truth) if row.access == "out" else None
    nbytes = truth.nbytes if row.access == "write" else rows.nbytes(row.selections)
    seconds, end = [], time.perf_counter() + args.seconds
    while time.perf_counter() < end:
        if row.access == "write":
            shutil.rmtree(target, ignore_errors=True)
            new = peer.create(str(target), _spec(row.layout, row.codec, steps))
        start = time.perf_counter()
        if row.access == "write":
            peer.write(new, (Ellipsis,), truth)
        else:
            for selection in selections:
                peer.read(array, selection) if out is None else peer.read_out(array, selection, out)
        seconds.append(time.perf_counter() - start)
    shutil.rmtree(target, ignore_errors=True)
    median = statistics.median(seconds)
    print(
        f"{row.name}: {len(seconds)} rounds, median {nbytes / median / 1e6:.0f} MB/s, "
        f"{median / len(row.selections) * 1e6:.1f} us a call"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    listed = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--rows", type=listed, default=["*"], help="shell patterns of row names")
    parser.add_argument("--peers", type=listed, default=list(peers.PEERS))
    parser.add_argument("--before", metavar="PYTHON", help="beside headrace of another checkout")
    parser.add_argument("--runs", type=int, default=7, help="timed rounds of each row, at least 5")
    parser.add_argument(
        "--steps", type=int, default=64, help="fields in the time series (4.2 MB each)"
    )
    parser.add_argument(
        "--data", type=Path, default=data.default_folder(), help="kept between runs"
    )
    parser.add_argument("--write-to", type=Path, help="folder of the arrays that write rows make")
    parser.add_argument("--out", type=Path, help="the JSON result file")
    parser.add_argument("--quick", action="store_true", help="16 steps and 2 rounds: does it work?")
    parser.add_argument("--no-limits", dest="limits", action="store_false")
    parser.add_argument("--profile", metavar="ROW", help="run headrace alone on one row")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long --profile runs")
    args = parser.parse_args()
    if args.quick:
        args.steps, args.runs = 16, 2
    elif args.runs < 5:
        parser.error("--runs must be at least 5 (or use --quick)")
    if args.before:
        args.before = str(Path(args.before).absolute())
    for name in args.peers:
        if name not in peers.PEERS:
            parser.error(f"unknown peer {name!r}, expected {', '.join(peers.PEERS)}")
    args.peers += [BEFORE] if args.before else []
    return args


def main() -> int:
    args = arguments()
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
    machine.save(report, args.out)
    failed = [r for row in report["rows"] for r in row["peers"].values() if "error" in r]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
