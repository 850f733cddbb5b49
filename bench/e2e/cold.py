"""Arrays that are read from a disk: whole, one step, and a series through all steps.

    python bench/run.py cold -- --steps 64 --runs 5 --peers headrace,tensorstore

The bytes of the files are dropped from the page cache before each read, folders and inodes stay.
Each read has a process of its own, the peers in turn: it imports, reads one step of another array
so that its threads run, and then opens and reads what counts. `read_nbytes` is what the disk read
meanwhile, others' reads included. A peer that cannot be imported is left out.
With --before, the folder of an earlier build's package, that takes its turns too.
"""

import json
import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import harness
import numpy as np
from e2e import data, peers

ROWS = [(layout, codec) for layout in data.LAYOUTS for codec in ("blosc", "none")]
ACCESSES = {
    "whole": (slice(None),) * 3,
    "step": (5, slice(None), slice(None)),
    "series": (slice(None), 360, 720),
}
PEERS = ("headrace", "zarr", "zarrs", "tensorstore")


def files_of(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()]


def child(peer_name: str, path: Path, access: str, other: Path) -> dict:
    peer = peers.load(peer_name)
    peer.read(peer.open_array(str(other)), ACCESSES["step"])
    files = files_of(path)
    harness.drop_pages(files)
    before = harness.bytes_read(path)
    found = []
    took = harness.took(
        lambda: found.append(np.asarray(peer.read(peer.open_array(str(path)), ACCESSES[access])))
    )
    truth = np.load(path.parent / "truth.npy", mmap_mode="r")[ACCESSES[access]]
    if not np.array_equal(found[0].view(np.uint32), np.ascontiguousarray(truth).view(np.uint32)):
        raise RuntimeError(f"{path} by {peer_name}: wrong result")
    return {
        "seconds": took.seconds,
        "cpu_s": took.cpu_s,
        "read_nbytes": harness.bytes_read(path) - before,
        "versions": peer.versions(),
    }


def run(peer: str, path: Path, access: str, other: Path, before: Path | None = None) -> dict:
    environment = dict(harness.ENVIRONMENT)
    if before is not None:
        environment["PYTHONPATH"] = f"{before}{os.pathsep}{environment['PYTHONPATH']}"
    words = [sys.executable, "-m", "e2e.cold", "--child", peer, "--path", path, "--access", access]
    done = subprocess.run(
        [*words, "--other", other], env=environment, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def is_there(peer: str) -> bool:
    words = [sys.executable, "-c", f"from e2e import peers; peers.load({peer!r})"]
    return subprocess.run(words, env=harness.ENVIRONMENT, capture_output=True).returncode == 0


def figures(runs: list[dict]) -> dict:
    return {
        **harness.figures([found["seconds"] for found in runs], "ms", 2),
        "cpu_ms": round(1e3 * statistics.median(found["cpu_s"] for found in runs), 2),
        "read_mib": round(statistics.median(found["read_nbytes"] for found in runs) / 2**20, 2),
    }


def main() -> None:
    args = harness.parser(
        __doc__,
        peers=PEERS,
        runs=5,
        steps=64,
        data=data.default_folder(),
        child="",
        path=None,
        access="whole",
        other=None,
        before=None,
    ).parse_args()
    if args.child:
        print(json.dumps(child(args.child, args.path, args.access, args.other)))
        return
    there = [peer for peer in args.peers if is_there(peer)]
    folder = data.prepare(args.data, args.steps, [*ROWS, ("4MiB", "zstd")])
    os.sync()  # dirty pages cannot be dropped
    other = folder / data.array_name("4MiB", "zstd")
    report = {
        **harness.head("cold", folder),
        "versions": {},
        "settings": {"runs": args.runs, "steps": args.steps},
        "rows": [],
    }
    for layout, codec in ROWS:
        path = folder / data.array_name(layout, codec)
        for access in ACCESSES:
            ways = {peer: partial(run, peer, path, access, other) for peer in there}
            if args.before:
                ways["headrace-before"] = partial(run, "headrace", path, access, other, args.before)
            rounds = harness.in_turns(ways, args.runs, 0)
            for found in rounds.values():
                report["versions"] |= found[0]["versions"]
            report["rows"].append(
                {
                    "layout": layout,
                    "codec": codec,
                    "access": access,
                    "stored_mib": round(data.stored_bytes(path) / 2**20, 2),
                    "peers": {peer: figures(found) for peer, found in rounds.items()},
                }
            )
            cells = [f"{p} {f['median_ms']} ms" for p, f in report["rows"][-1]["peers"].items()]
            print(f"{layout} {codec} {access}: {' | '.join(cells)}", flush=True)
    report["load_average_end"] = harness.load_average()
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
