"""Millions of references: to open them, and to read one chunk.

    python bench/run.py references -- --counts 1000000

Each row is a process of its own, whose peak of memory counts: the file of references (kerchunk's
JSON, one array of 3 dimensions in 1,000 files) is opened as a store, then one chunk is read. The
file is in the page cache. fsspec is the peer, up to as many references as --fsspec says.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

CHUNK = 400  # bytes
FILES = 1000


def write(folder: Path, count: int) -> Path:
    path = folder / f"refs-{count}.json"
    target = folder / "f0.bin"
    target.write_bytes(bytes(range(200)) * 2 * 4)
    zarray = {"zarr_format": 2, "shape": [count // 100, 50, 20], "chunks": [1, 5, 2]}
    rest = {"dtype": "<f4", "order": "C", "compressor": None, "filters": None, "fill_value": 0}
    with open(path, "w") as out:
        out.write('{"version": 1, "refs": {".zgroup": "{\\"zarr_format\\": 2}",')
        out.write(f'"t/.zarray": {json.dumps(json.dumps(zarray | rest))}')
        for i in range(count):
            step, part = divmod(i, 100)
            url = f"{folder}/f{step * FILES * 100 // count}.bin"
            out.write(f',"t/{step}.{part // 10}.{part % 10}":["{url}",{i % 4 * CHUNK},{CHUNK}]')
        out.write("}}")
    return path


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure(library: str, path: str) -> dict:
    if library == "headrace":
        import headrace as hr
    else:
        import fsspec
    before = resident_mib()
    start = time.perf_counter()
    if library == "headrace":
        store = hr.open_store(f"reference://{path}")
        read = store._get
    else:
        read = fsspec.filesystem("reference", fo=path, remote_protocol="file").cat
    opened = time.perf_counter()
    chunk = bytes(read("t/3.4.5"))
    ended = time.perf_counter()
    assert len(chunk) == CHUNK
    return {
        "open_s": round(opened - start, 3),
        "chunk_s": round(ended - opened, 6),
        "resident_mib": round(resident_mib() - before, 1),
        "peak_mib": round(peak_mib() - before, 1),
    }


def main() -> None:
    parser = harness.parser(__doc__, counts=(1_000_000, 10_000_000), fsspec=1_000_000, runs=3)
    parser.add_argument("--measure", nargs=2, metavar=("LIBRARY", "PATH"))
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = harness.head("references", folder)
        report["rows"] = []
        for count in args.counts:
            path = write(folder, count)
            for library in ("headrace", "fsspec"):
                if library == "fsspec" and count > args.fsspec:
                    continue
                command = [sys.executable, "-m", "e2e.references", "--measure", library, str(path)]
                runs = [
                    json.loads(subprocess.check_output(command, env=harness.ENVIRONMENT))
                    for _ in range(args.runs)
                ]
                best = min(runs, key=lambda run: run["open_s"])
                row = {"references": count, "json_mib": round(path.stat().st_size / 2**20, 1)}
                report["rows"].append(row | {"library": library, "runs": args.runs} | best)
            path.unlink()
    harness.save(report, args.out)


if __name__ == "__main__":
    main()
