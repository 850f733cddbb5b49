"""Reads to the GPU decoded by the host's threads and by the GPU, for the rates of
src/engine/device/decode_cost.cpp.

Needs PyTorch with CUDA. Each codec, size and number of chunks, with 1, 4 and
all threads: the median of five reads into memory of the GPU, files in memory, decoded by either
side and by the one that headrace chooses. At the end, or alone with --fit, the rates that fit the
rows best are printed, and what each side and the choice lose against the faster side.
"""

import itertools
import json
import os
import shutil
from functools import partial
from pathlib import Path

import harness

CODECS = {
    "zstd": {"id": "zstd", "level": 3},
    "lz4": {"id": "lz4"},
    "blosc": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    "gzip": {"id": "gzip", "level": 5},
    "shuffle": {"id": "shuffle", "elementsize": 4},
    "crc32c": {"name": "crc32c"},
    "delta": {"id": "delta", "dtype": "<i4"},
}
CHUNK_KIB = (64, 256, 1024, 4096)
COUNTS = (1, 4, 16, 64, 256)
MOST_NBYTES = 256 << 20
MOST_NBYTES_FEW_THREADS = 32 << 20
RUNS = 5
SIDES = {"host": 1 << 62, "device": 0, "choice": None}


def rows_of(codec: str, chunk_kib: int, data, folder: Path):
    import headrace as hr
    import torch

    elements = chunk_kib * 256
    count = min(COUNTS[-1], MOST_NBYTES // (elements * 4))
    array = hr.create_array(
        folder / "array",
        shape=(count * elements,),
        dtype=data.dtype,
        chunks=(elements,),
        compressors=hr.codecs.parse(CODECS[codec]),
        overwrite=True,
    )
    array[:] = data[: count * elements]
    stored = harness.nbytes_of(folder / "array")
    array = hr.open_array(folder / "array", device="cuda:0")
    every = os.cpu_count()
    for chunks, threads in itertools.product(COUNTS, (1, 4, every)):
        nbytes = chunks * elements * 4
        if chunks > count or (threads < every and nbytes > MOST_NBYTES_FEW_THREADS):
            continue
        out = torch.empty(chunks * elements, dtype=torch.from_numpy(data[:1]).dtype, device="cuda")
        row = {"codec": codec, "chunk_kib": chunk_kib, "chunks": chunks, "threads": threads}
        row["ratio"] = round(count * elements * 4 / stored, 2)
        for side, limit in SIDES.items():
            with hr.config.set({"threads": threads, "device_min_decode_nbytes": limit}):
                read = partial(array.read, slice(0, chunks * elements), out=out)
                row[f"{side}_us"] = round(harness.median_seconds(read, RUNS) * 1e6, 1)
        yield row


def run(path: Path, folder: Path) -> None:
    import numpy as np
    import torch

    from device import field

    fields = np.concatenate([x.ravel() for x in field.fields(16)])
    data = np.tile(fields, -(-MOST_NBYTES // fields.nbytes))
    rows = []
    for codec, chunk_kib in itertools.product(CODECS, CHUNK_KIB):
        plain = data.view("i4") if codec == "delta" else data
        rows += rows_of(codec, chunk_kib, plain, folder)
        result = {
            "device": torch.cuda.get_device_name(),
            "threads": os.cpu_count(),
            "rows": rows,
        }
        harness.save(result, path)
    shutil.rmtree(folder)


def fit(rows: list[dict]) -> None:
    """Least squares of relative errors, a codec and side at a time, and what the choice loses."""
    import numpy as np

    for codec in CODECS:
        mine = [row for row in rows if row["codec"] == codec]
        decoded = np.array([row["chunk_kib"] * 1024.0 * row["chunks"] for row in mine])
        encoded = decoded / [row["ratio"] for row in mine]
        busy = np.array([min(row["chunks"], row["threads"]) for row in mine])
        took = {side: np.array([row[f"{side}_us"] for row in mine]) for side in SIDES}
        for side, by_thread in (("host", decoded), ("device", encoded)):
            columns = np.stack([np.ones_like(decoded), by_thread / busy, decoded], 1)
            scaled = columns / took[side][:, None]
            call, thread, shared = np.linalg.lstsq(scaled, np.ones_like(decoded), rcond=None)[0]
            print(
                f"{codec:8} {side:6} {call:6.0f} us, {1e-3 / thread:6.2f} GB/s a thread, "
                f"{1e-3 / shared:6.1f} GB/s shared"
            )
        faster = np.minimum(took["host"], took["device"])
        for side in SIDES:
            lost = took[side] / faster
            print(f"{codec:8} {side}: {lost.mean():.2f} of the faster, up to {lost.max():.2f}")


def main() -> None:
    folder = Path("/dev/shm/headrace-choice")
    args = harness.parser(__doc__, folder=folder, fit=False).parse_args()
    if not args.fit:
        run(args.out, args.folder)
    fit(json.loads(args.out.read_text())["rows"])


if __name__ == "__main__":
    main()
