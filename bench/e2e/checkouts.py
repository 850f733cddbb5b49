"""Reads and writes of several checkouts of headrace in turns, to the host and to a GPU.

    python bench/run.py before-after -- before=FOLDER now=FOLDER --steps 48 --only cuda --out FILE

FOLDER is what goes on PYTHONPATH, so that a bare machine without zarr-python can run it. Rows and
processes are those of run.py; the first checkout writes the data, in memory, and looks at what the
others write. Reads to a GPU need torch. --only takes rows of `cuda`, `simt` or `cpu`; none begins
after --seconds.

`ms` has the least and the median of the rounds. A core may run at two speeds: a row that stands out
in the medians of one checkout alone should be run again.
"""

import contextlib
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

import harness
from e2e import data, rows
from e2e.client import Client
from e2e.run import TRUTH, run_read, run_write

# The peer of each place, and how it opens arrays.
PLACES = {
    "cuda": ("headrace_device", {"device": "cuda:0"}),
    "simt": ("headrace_device", {"device": "simt"}),
    "cpu": ("headrace", {}),
}


def prepare(folder: Path, steps: int, chosen: list[rows.Row], writer: Client) -> Path:
    folder = data.prepare(folder, steps, [])
    part = [[0, steps], [0, data.NLAT], [0, data.NLON]]
    for layout, codec in dict.fromkeys((row.layout, row.codec) for row in chosen):
        path, spec = folder / data.array_name(layout, codec), data.spec(layout, codec, steps)
        if not path.exists():
            writer.ask("write", spec=spec, source=str(folder / TRUTH), part=part, path=str(path))
    return folder


def measure(args, named: dict, place: str, folder: Path, log) -> list[dict]:
    found = []
    peer, options = PLACES[place]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(peer, log, *checkout)) for checkout in named.items()]
        checker = stack.enter_context(Client("headrace", log, *next(iter(named.items()))))
        chosen = rows.select(args.rows, args.steps)
        if place != "cpu":
            chosen = [row for row in chosen if row.access == "whole"]
        folder = prepare(folder, args.steps, chosen, checker)
        for row in chosen:
            if time.monotonic() > args.end:
                break
            path = str(folder / data.array_name(row.layout, row.codec))
            for client in clients:
                client.ask("open", path=path, options=options)
            if row.access == "write":
                peers = run_write(row, clients, folder, args, checker)["peers"]
            else:
                peers = run_read(row, clients, folder, args.runs)["peers"]
            ok = not any("error" in figures for figures in peers.values())
            ms = {
                name: [round(1e3 * f[key], 4) for key in ("min_s", "median_s")]
                for name, f in peers.items()
                if "error" not in f
            }
            found.append({"where": place, "row": row.name, "ok": ok, "ms": ms})
            print(place, row.name, "ok" if ok else "WRONG", ms, flush=True)
    return found


def means(found: list[dict]) -> dict:
    """What the last checkout took of the others' time: geometric means of the medians."""
    result = {}
    for where in dict.fromkeys(row["where"] for row in found):
        medians = [{n: m[1] for n, m in r["ms"].items()} for r in found if r["where"] == where]
        *others, last = medians[0]
        for name in others:
            logs = [math.log(m[last] / m[name]) for m in medians]
            result[f"{where}: {last} / {name}"] = round(math.exp(statistics.mean(logs)), 3)
    return result


def main() -> int:
    parser = harness.parser(
        __doc__, rows=("*",), steps=48, runs=5, seconds=1e9, only=("cuda", "cpu"), write_to=None
    )
    parser.add_argument("checkouts", nargs="+", metavar="NAME=FOLDER")
    args = parser.parse_args()
    args.end = time.monotonic() + args.seconds
    named = dict(c.split("=", 1) for c in args.checkouts)
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="headrace-", dir=parent) as folder,
        tempfile.NamedTemporaryFile("w+", suffix=".log") as log,
    ):
        found = [
            row for place in args.only for row in measure(args, named, place, Path(folder), log)
        ]
        report = harness.head("before-after", Path(folder))
    report |= {"steps": args.steps, "means": means(found), "rows": found}
    harness.save(report, args.out)
    return 0 if all(row["ok"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
