"""Batches of chunks in GPU memory, decoded by headrace and by nvCOMP in turns.

batch.py OUT.json. Needs CUDA and nvCOMP (hr.codecs.table() says whether it is found). Both decode
through hr.codecs.decode_batch, from encoded bytes in GPU memory to decoded ones: the copy of the
encoded bytes to padded places, the lists of pointers and the look at the faults are in the time.
Median of five calls by the wall clock; results are compared with the data first.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import field
import headrace as hr
import numpy as np

CODECS = {
    "zstd": {"id": "zstd", "level": 3},
    "lz4": {"id": "lz4"},
    "gzip": {"id": "gzip", "level": 5},
}
SHAPES = [(1, 4096), (8, 4096), (64, 1024), (64, 4096), (512, 1024), (4096, 64)]
IMPLEMENTATIONS = ("headrace-cuda", "nvcomp")
DISTINCT_NBYTES = 64 << 20  # chunks repeat beyond
RUNS = 5


def row_of(name: str, chunks: int, kib: int, data: np.ndarray) -> dict:
    codec = hr.codecs.parse(CODECS[name])
    plain = data.reshape(-1, kib * 256)[:chunks]
    encoded = hr.codecs.encode_batch(codec, list(plain), device="cuda")
    frames = [encoded[i % len(encoded)] for i in range(chunks)]
    row = {"codec": name, "chunks": chunks, "chunk_kib": kib}
    row["ratio"] = round(plain.nbytes / sum(frame.nbytes for frame in encoded), 2)
    for implementation in IMPLEMENTATIONS:
        sizes = [kib * 1024] * chunks
        out = hr.codecs.decode_batch(codec, frames, out_nbytes=sizes, implementation=implementation)
        right = all(
            np.array_equal(x.to_numpy().view("f4"), plain[i % len(plain)])
            for i, x in enumerate(out)
        )
        row[implementation] = {"right": right}
    seconds = {implementation: [] for implementation in IMPLEMENTATIONS}
    for _ in range(RUNS):
        for implementation, taken in seconds.items():
            begin = time.perf_counter()
            hr.codecs.decode_batch(codec, frames, out=out, implementation=implementation)
            taken.append(time.perf_counter() - begin)
    for implementation, taken in seconds.items():
        median = statistics.median(taken)
        row[implementation]["us"] = round(median * 1e6)
        row[implementation]["gb_s"] = round(chunks * kib * 1024 / median / 1e9, 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    device = next(d for d in hr.doctor()["devices"] if d["device"] == "cuda:0")
    data = np.concatenate([x.ravel() for x in field.fields(17)])[: DISTINCT_NBYTES // 4]
    rows = []
    for name in CODECS:
        for chunks, kib in SHAPES:
            rows.append(row_of(name, chunks, kib, data))
            print(rows[-1], flush=True)
            result = {"device": device["name"], "rows": rows}
            args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
