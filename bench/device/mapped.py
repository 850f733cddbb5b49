"""Whole reads to a GPU of files in memory: copied by threads, or from where they lie.

For each number of cores a process of its own reads arrays below --folder, which has to be on a
tmpfs, with `device_mapped` "off" and "on" in blocks, twice. `first_s` is the read that maps the
files; `cores` is the processor time a second. Every array is compared with what the host reads.
"""

import json
import os
import shutil
import statistics
import time
from pathlib import Path

import harness
import headrace as hr
import numpy as np

from device import field

# Parts of a step, steps of a shard.
LAYOUTS = {"4MiB": (1, None), "1MiB-shards": (4, 16)}
CODECS = {
    "zstd": hr.codecs.Zstd(level=3),
    "blosc": hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="shuffle"),
    "gzip": hr.codecs.Gzip(level=5),
    "none": None,
}


def make(folder: Path, steps: int, only: str = "") -> None:
    """Arrays whose name has `only` in it."""
    data = np.stack(list(field.fields(16)))
    for layout, (parts, shard) in LAYOUTS.items():
        rows = -(-field.NLAT // parts)
        for codec, compressor in CODECS.items():
            if only not in f"{layout}-{codec}":
                continue
            array = hr.create_array(
                folder / f"{layout}-{codec}",
                shape=(steps, field.NLAT, field.NLON),
                dtype="f4",
                chunks=(1, rows, field.NLON),
                shards=None if shard is None else (shard, parts * rows, field.NLON),
                compressors=compressor,
                overwrite=True,
            )
            for i in range(0, steps, 16):
                array[i : i + 16] = data[: steps - i]


def took(read) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    read()
    wall = time.perf_counter() - wall
    return wall, (time.process_time() - processor) / wall


def measure(path: Path, rounds: int, device: str) -> dict:
    hr.config.set(device_mapped="off")
    array = hr.open_array(path, device=device)
    encoded = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    out = array[...]

    def read():
        array.read(out=out)

    times: dict[str, list] = {"off": [], "on": []}
    hr.config.set(device_mapped="on", device_mapped_nbytes="8GiB")
    row = {"name": path.name, "ratio": round(array.nbytes / encoded, 2)}
    row["first_s"] = round(took(read)[0], 4)
    if not np.array_equal(out.to_numpy(), hr.open_array(path)[...]):
        raise SystemExit(f"{path}: what was mapped is wrong")
    for _ in range(2):
        for mode, ways in times.items():
            hr.config.set(device_mapped=mode)
            read()
            read()
            ways += [took(read) for _ in range(rounds)]
    for mode, ways in times.items():
        seconds = statistics.median(wall for wall, _ in ways)
        row[mode] = {
            "gb_s": round(array.nbytes / seconds / 1e9, 2),
            "encoded_gb_s": round(encoded / seconds / 1e9, 2),
            "cores": round(statistics.median(cores for _, cores in ways), 2),
        }
    return row


def main() -> None:
    args = harness.parser(
        __doc__,
        folder="/dev/shm/headrace-mapped",
        device="cuda:0",
        steps=192,
        rounds=3,
        cores=(1, 4, 6, 8, 12, 16),
        child=False,
    ).parse_args()
    folder = Path(args.folder)
    if args.child:
        rows = [measure(path, args.rounds, args.device) for path in sorted(folder.iterdir())]
        print(json.dumps(rows))
        return
    name = next(d["name"] for d in hr.doctor()["devices"] if d["device"] == args.device)
    facts = {"device": name, "processors": os.cpu_count(), "steps": args.steps}
    rows = []
    folder.mkdir(parents=True)
    try:
        make(folder, args.steps)
        for cores in args.cores:
            told = ["--folder", folder, "--rounds", args.rounds, "--device", args.device]
            for row in harness.rows_on_cores(__file__, cores, *told):
                rows.append(row)
                print(row, flush=True)
            harness.save({**facts, "rows": rows}, args.out)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
