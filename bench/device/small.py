"""Small reads to a GPU: one chunk, one step, 64 chunks, beside a copy of the same bytes.

Needs torch with CUDA. Files are in the page cache. Times are from the call until the elements can
be used on the device: into a result of its own (`read`), into memory that is there (`out`), and of
a copy of the encoded bytes from pinned memory (`copy`), in turns. `spans` is where one traced read
spends its time, in microseconds of all threads. `batch` rows: decode_batch of 4096 x 64 KiB, of
arrays of their own or joined in one.
"""

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import harness
import headrace as hr
import numpy as np
import torch

from device import field

NLAT, NLON = field.NLAT, field.NLON
STEPS = 16
LAYOUTS = {
    "4MiB": ((1, NLAT, NLON), None),
    "1MiB": ((1, 181, NLON), None),
    "1MiB-shards": ((1, 181, NLON), (16, 724, NLON)),
}
CODECS = {
    "none": None,
    "blosc": hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="shuffle"),
    "zstd": hr.codecs.Zstd(level=3),
}
# Name of a row, its layout, what the i-th call selects.
SELECTIONS = {
    "chunk-4MiB": ("4MiB", lambda i: (i % STEPS,)),
    "chunk-1MiB": ("1MiB", lambda i: (i % STEPS, slice(0, 181))),
    "inner-1MiB": ("1MiB-shards", lambda i: (i % STEPS, slice(0, 181))),
    "step-1MiB": ("1MiB", lambda i: (i % STEPS,)),
    "64-chunks-1MiB": ("1MiB", lambda i: (slice(0, 16),)),
}


def make(folder: Path, layout: str, codec: str, data) -> Path:
    path = folder / f"{layout}-{codec}.zarr"
    chunks, shards = LAYOUTS[layout]
    array = hr.create_array(
        path,
        shape=data.shape,
        dtype=data.dtype,
        chunks=chunks,
        shards=shards,
        compressors=CODECS[codec],
        overwrite=True,
    )
    array[...] = data
    return path


def spans(call) -> dict[str, float]:
    """Microseconds a traced call, by the name of the span."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        with hr.trace(file.name):
            for i in range(20):
                call(i)
        events = json.loads(Path(file.name).read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    found: dict[str, float] = {}
    for event in events:
        if "dur" in event:
            found[event["name"]] = found.get(event["name"], 0) + event["dur"] / 20
    return {name: round(us, 1) for name, us in sorted(found.items())}


def percentiles(microseconds: list[float]) -> dict[str, float]:
    ordered = sorted(microseconds)
    return {
        "p50_us": round(statistics.median(ordered), 1),
        "p99_us": round(ordered[int(len(ordered) * 0.99)], 1),
    }


def in_turns(ways: dict, calls: int) -> dict[str, dict[str, float]]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(-10, calls):
        for name, call in ways.items():
            begin = time.perf_counter()
            call(i)
            torch.cuda.synchronize()
            if i >= 0:
                times[name].append((time.perf_counter() - begin) * 1e6)
    return {name: percentiles(took) for name, took in times.items()}


def measure(path: Path, select, data, calls: int) -> dict:
    array = hr.open_array(path, device="cuda:0")
    wanted = data[select(0)]
    out = torch.empty(wanted.shape, dtype=torch.float32, device="cuda:0")
    stored = sum(file.stat().st_size for file in path.rglob("c/**/*") if file.is_file())
    encoded = round(stored * wanted.nbytes / data.nbytes)
    host = torch.empty(encoded, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(encoded, dtype=torch.uint8, device="cuda:0")
    ways = {
        "read": lambda i: array[select(i)],
        "out": lambda i: array.read(select(i), out=out),
        "copy": lambda _: device.copy_(host, non_blocking=True),
    }
    row = {"nbytes": wanted.nbytes, "encoded_nbytes": encoded, **in_turns(ways, calls)}
    for way in ("read", "out"):
        out.zero_()
        got = torch.from_dlpack(ways[way](3)) if way == "read" else (ways[way](3), out)[1]
        if not np.array_equal(got.cpu().numpy(), data[select(3)]):
            raise SystemExit(f"{path}: {way} is wrong")
    row["spans"] = spans(ways["out"])
    return row


def batches(data, calls: int) -> list[dict]:
    pieces = [piece.tobytes() for piece in data.reshape(-1)[: 4096 * 16384].reshape(4096, -1)]
    rows = []
    for name in ("zstd", "blosc"):
        codec = CODECS[name]
        if name == "blosc":
            codec = hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="shuffle", typesize=4)
        encoded = [
            np.frombuffer(e, np.uint8) for e in hr.codecs.encode_batch(codec, pieces, device="cpu")
        ]
        on_device = [torch.from_numpy(e.copy()).cuda() for e in encoded]
        targets = [torch.empty(65536, dtype=torch.uint8, device="cuda:0") for _ in pieces]

        # The same as one buffer of inputs, and one array whose rows are the outputs.
        joined = np.concatenate(encoded)
        bounds = np.cumsum([0, *map(len, encoded)])
        joined_on_device = torch.from_numpy(joined).cuda()
        rows_of = torch.empty((len(pieces), 65536), dtype=torch.uint8, device="cuda:0")

        def decode(inputs, out=targets, offsets=None, codec=codec):
            hr.codecs.decode_batch(codec, inputs, offsets=offsets, out=out, device="cuda:0")

        ways = {
            "host": lambda _, inputs=encoded: decode(inputs),
            "device": lambda _, inputs=on_device: decode(inputs),
            "host-joined": lambda _, i=joined, o=rows_of, b=bounds: decode(i, out=o, offsets=b),
            "device-joined": lambda _, i=joined_on_device, o=rows_of, b=bounds: decode(
                i, out=o, offsets=b
            ),
        }
        took = in_turns(ways, max(calls // 10, 10))
        for filled in (targets, rows_of):
            for piece, target in zip(pieces[::511], filled[::511], strict=True):
                if target.cpu().numpy().tobytes() != piece:
                    raise SystemExit(f"decode_batch of {name} is wrong")
        for way, times in took.items():
            rows.append(
                {
                    "name": f"batch-{name}-from-{way}",
                    "gb_s": round(4096 * 65536 / times["p50_us"] / 1e3, 1),
                    **times,
                    "spans": spans(ways[way]),
                }
            )
    return rows


def main() -> None:
    args = harness.parser(__doc__, calls=200, folder="/dev/shm/headrace-small").parse_args()
    folder = Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = np.stack(list(field.fields(STEPS)))
    rows = []
    try:
        for codec in CODECS:
            paths = {layout: make(folder, layout, codec, data) for layout in LAYOUTS}
            for name, (layout, select) in SELECTIONS.items():
                row = {
                    "name": f"{name}-{codec}",
                    **measure(paths[layout], select, data, args.calls),
                }
                print(row, flush=True)
                rows.append(row)
        large = np.concatenate([data] * 5)
        for row in batches(large, args.calls):
            print(row, flush=True)
            rows.append(row)
    finally:
        shutil.rmtree(folder)
    if args.out:
        result = {"device": torch.cuda.get_device_name(), "calls": args.calls, "rows": rows}
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
