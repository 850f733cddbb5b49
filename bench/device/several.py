"""Whole reads to two GPUs at once by one process, beside the same to one.

The files are on a tmpfs, as mapped.py makes them. `one`: an array to the first GPU. `arrays`: two
arrays, one to each GPU, by a thread each. `halves`: the first half of an array to the first GPU and
the second to the second. With `device_mapped` "off" and "on" in blocks, twice. GB/s decoded, of
both GPUs together; what was read is compared with what the host reads.
"""

import os
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
import headrace as hr
import numpy as np

from device import mapped

MODES = ("off", "on")


def destinations(path: Path, twin: Path, devices: tuple[str, str]) -> dict[str, list]:
    """Of each way: arrays, what of them is read, and what it is read into."""
    first, second = (hr.open_array(p, device=d) for p, d in zip((path, twin), devices, strict=True))
    same = hr.open_array(path, device=devices[1])
    half = first.shape[0] // 2
    whole = [(a, (), a[...]) for a in (first, second)]
    halves = [(a, s, a[s]) for a, s in ((first, slice(0, half)), (same, slice(half, None)))]
    return {"one": whole[:1], "arrays": whole, "halves": halves}


def measure(path: Path, twin: Path, devices: tuple[str, str], rounds: int) -> list[dict]:
    hr.config.set(device_mapped="off")
    ways = destinations(path, twin, devices)
    truth = hr.open_array(path)[...]
    rows = []
    with ThreadPoolExecutor(2) as threads:

        def read(parts):
            list(threads.map(lambda part: part[0].read(part[1], out=part[2]), parts))

        times: dict[tuple[str, str], list[float]] = {(w, m): [] for m in MODES for w in ways}
        for _ in range(2):
            for mode in MODES:
                hr.config.set(device_mapped=mode)
                for i in range(rounds + 2):
                    for way, parts in ways.items():
                        begin = time.perf_counter()
                        read(parts)
                        if i >= 2:  # the first maps
                            times[way, mode].append(time.perf_counter() - begin)
    for _, selection, out in ways["arrays"] + ways["halves"]:
        if not np.array_equal(out.to_numpy(), truth[selection]):
            raise SystemExit(f"{path}: what was read is wrong")
    for (way, mode), seconds in times.items():
        nbytes = sum(out.nbytes for _, _, out in ways[way])
        rate = nbytes / statistics.median(seconds) / 1e9
        rows.append({"name": path.name, "way": way, "mapped": mode, "gb_s": round(rate, 2)})
    return rows


def main() -> None:
    args = harness.parser(
        __doc__,
        folder="/dev/shm/headrace-several",
        devices=("cuda:0", "cuda:1"),
        steps=512,
        only="",
        rounds=4,
    ).parse_args()
    names = {d["device"]: d.get("name") for d in hr.doctor()["devices"]}
    facts = {"devices": [names[d] for d in args.devices], "processors": os.cpu_count()}
    hr.config.set(device_mapped_nbytes="16GiB")
    folder = Path(args.folder)
    folder.mkdir(parents=True)
    rows = []
    try:
        mapped.make(folder, args.steps, args.only)
        for path in sorted(folder.iterdir()):
            twin = folder / "twin"
            shutil.copytree(path, twin)
            made = measure(path, twin, args.devices, args.rounds)
            shutil.rmtree(twin)
            print(*made, sep="\n", flush=True)
            rows += made
            harness.save({**facts, "steps": args.steps, "rows": rows}, args.out)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
