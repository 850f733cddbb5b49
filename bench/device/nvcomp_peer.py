"""nvCOMP's decoders on the batches that headrace_device_bench --dump wrote.

Needs CuPy and nvidia-nvcomp. No row begins after --seconds.
"""

import struct
import time
from pathlib import Path

import cupy as cp
import harness
import numpy as np
from nvidia import nvcomp

ALGORITHMS = {"zstd": "Zstd", "lz4": "LZ4", "snappy": "Snappy", "zlib": "Deflate"}
SHAPES = [
    (1, 4096),
    (1, 16384),
    (8, 4096),
    (64, 1024),
    (64, 4096),
    (512, 1024),
    (512, 4096),
    (4096, 64),
    (4096, 1024),
]
RUNS = 5


def chunks_of(path: Path) -> list[np.ndarray]:
    data = path.read_bytes()
    (count,) = struct.unpack_from("<Q", data)
    sizes = struct.unpack_from(f"<{count}Q", data, 8)
    chunks, at = [], 8 + 8 * count
    for size in sizes:
        chunks.append(np.frombuffer(data, np.uint8, size, at))
        at += size
    return chunks


def measure(codec_name: str, chunks: list[np.ndarray], count: int, nbytes: int) -> dict:
    codec = nvcomp.Codec(algorithm=ALGORITHMS[codec_name], bitstream_kind=nvcomp.BitstreamKind.RAW)
    arrays = nvcomp.as_arrays([cp.asarray(chunks[i % len(chunks)]) for i in range(count)])
    times = []
    for run in range(RUNS + 1):
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        out = codec.decode(arrays)
        cp.cuda.Device().synchronize()
        if run:
            times.append(time.perf_counter() - start)
        assert len(out) == count and out[0].buffer_size == nbytes
        del out
    seconds = sorted(times)[RUNS // 2]
    return {"microseconds": seconds * 1e6, "gigabytes_per_second": count * nbytes / seconds / 1e9}


def main() -> None:
    args = harness.parser(__doc__, dump=Path("/dev/shm/headrace-dump"), seconds=120.0).parse_args()
    deadline = time.monotonic() + args.seconds
    rows = []
    for path in sorted(args.dump.glob("*.bin")):
        codec, data, kib = path.stem.rsplit("-", 2)
        family = codec.split("-")[0]
        if family not in ALGORITHMS:
            continue
        chunks = chunks_of(path)
        if family == "zlib":  # header and Adler-32 off: it takes raw deflate
            chunks = [chunk[2:-4] for chunk in chunks]
        for count, size in SHAPES:
            if size != int(kib) or time.monotonic() > deadline:
                continue
            row = {"codec": codec, "data": data, "chunks": count, "chunk_nbytes": size << 10}
            try:
                row |= measure(family, chunks, count, size << 10)
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"
            rows.append(row)
            print(row, flush=True)
            harness.save({"nvcomp": nvcomp.__version__, "rows": rows}, args.out)


if __name__ == "__main__":
    main()
