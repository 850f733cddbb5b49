"""Whole arrays from a GPU's memory to files: encoded there, stored by the host.

Needs torch with CUDA. For each number of cores a process of its own writes arrays below --folder,
on a tmpfs or a disk, --rounds times after a warm-up; the files of the round before are removed
before, untimed. `limit_gb_s` is what Python's threads, one a core, write of the same encoded bytes
to as many new files of that folder, times the ratio: the system's share of the work. What was
written is read back and compared.
"""

import json
import os
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
import headrace as hr
import numpy as np
import torch

from device import field

# Parts of a step, steps of a shard.
LAYOUTS = {"4MiB": (1, None), "1MiB-shards": (4, 16)}
CODECS = {
    "zstd": hr.codecs.Zstd(level=1),
    "blosc": hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="shuffle"),
    "none": None,
}


def create(path: Path, layout: str, codec: str, steps: int):
    parts, shard = LAYOUTS[layout]
    rows = -(-field.NLAT // parts)
    return hr.create_array(
        path,
        shape=(steps, field.NLAT, field.NLON),
        dtype="f4",
        chunks=(1, rows, field.NLON),
        shards=None if shard is None else (shard, parts * rows, field.NLON),
        compressors=CODECS[codec],
        overwrite=True,
    ).to("cuda:0")


def took(work) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    torch.cuda.synchronize()
    wall = time.perf_counter() - wall
    return wall, (time.process_time() - processor) / wall


def store(sizes: list[int], folder: Path) -> float:
    """Seconds for files of these sizes, by a thread a core."""
    folder.mkdir()
    memory = np.ones(max(sizes), dtype=np.uint8)

    def write(number: int) -> None:
        with open(folder / str(number), "wb", buffering=0) as file:
            file.write(memory[: sizes[number]])

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        begin = time.perf_counter()
        list(pool.map(write, range(len(sizes))))
        seconds = time.perf_counter() - begin
    shutil.rmtree(folder)
    return seconds


def measure(folder: Path, layout: str, codec: str, data: torch.Tensor, rounds: int) -> dict:
    path = folder / f"{layout}-{codec}"
    times, cores = [], []
    for number in range(-1, rounds):
        array = create(path, layout, codec, len(data))

        def write(array=array) -> None:
            array[...] = data

        seconds, used = took(write)
        if number >= 0:
            times.append(seconds)
            cores.append(used)
    back = array.read(device="cpu")
    if not all(np.array_equal(back[i], data[i].cpu().numpy()) for i in range(len(data))):
        raise SystemExit(f"{path}: other elements than were written")
    sizes = [file.stat().st_size for file in (path / "c").rglob("*") if file.is_file()]
    shutil.rmtree(path)
    limit = statistics.median(store(sizes, folder / "limit") for _ in range(rounds))
    return {
        "name": path.name,
        "ratio": round(data.nbytes / sum(sizes), 2),
        "gb_s": round(data.nbytes / statistics.median(times) / 1e9, 2),
        "cores": round(statistics.median(cores), 2),
        "limit_gb_s": round(data.nbytes / limit / 1e9, 2),
    }


def main() -> None:
    args = harness.parser(
        __doc__,
        folder=Path("/dev/shm/headrace-write"),
        steps=1024,
        rounds=3,
        cores=(6, 16),
        child=False,
    ).parse_args()
    if args.child:
        fields = torch.from_numpy(np.stack(list(field.fields(16)))).cuda()
        data = fields.repeat(-(-args.steps // 16), 1, 1)[: args.steps].contiguous()
        rows = [
            measure(args.folder, layout, codec, data, args.rounds)
            for layout in LAYOUTS
            for codec in CODECS
        ]
        print(json.dumps(rows))
        return
    facts = {"device": torch.cuda.get_device_name(), "processors": os.cpu_count()}
    facts |= {"filesystem": harness.filesystem(args.folder.parent), "steps": args.steps}
    rows = []
    args.folder.mkdir(parents=True)
    try:
        for cores in args.cores:
            told = ["--folder", args.folder, "--steps", args.steps, "--rounds", args.rounds]
            for row in harness.rows_on_cores(__file__, cores, *told):
                rows.append(row)
                print(row, flush=True)
            harness.save({**facts, "rows": rows}, args.out)
    finally:
        shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
