"""What the machine allows: page cache, each codec's own library; 1 and all threads."""

import mmap
import os
import statistics
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from e2e import native
from harness import in_turns, seconds

MIB = 1 << 20


def _rate(nbytes: int, runs: int, work: Callable[[], object]) -> dict:
    taken = in_turns({"": lambda: seconds(work)}, runs)[""]
    of = {"mb_s": statistics.median, "min_mb_s": max, "max_mb_s": min}
    return {name: round(nbytes / of[name](taken) / 1e6, 1) for name in of}


def on_threads(threads: int, items: list, work) -> None:
    """work(items of this thread, thread number), the items dealt out as the threads take them."""
    if threads == 1:
        work(iter(items), 0)
        return
    waiting = deque(items)

    def take():
        with suppress(IndexError):
            while True:
                yield waiting.popleft()

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, take(), i) for i in range(threads)]:
            done.result()


def page_cache(path: Path, runs: int, threads: int) -> dict:
    """pread of an array's stored bytes: into one reused buffer a thread, and into fresh pages."""
    files = [(p, p.stat().st_size) for p in sorted(path.rglob("*")) if p.is_file()]
    files = [(p, n) for p, n in files if p.name != "zarr.json"]
    total = sum(n for _, n in files)
    pieces, at = [], 0
    for p, n in files:
        for offset in range(0, n, 4 * MIB):
            size = min(4 * MIB, n - offset)
            pieces.append((p, offset, size, at))
            at += size
    reused = [mmap.mmap(-1, 4 * MIB) for _ in range(threads)]

    def into_reused(items, thread):
        for p, offset, size, _ in items:
            fd = os.open(p, os.O_RDONLY)
            os.preadv(fd, [memoryview(reused[thread])[:size]], offset)
            os.close(fd)

    def into_fresh(n):
        target = memoryview(np.empty(total, np.uint8))

        def work(items, _):
            for p, offset, size, at in items:
                fd = os.open(p, os.O_RDONLY)
                os.preadv(fd, [target[at : at + size]], offset)
                os.close(fd)

        on_threads(n, pieces, work)

    result = {}
    for n in sorted({1, threads}):
        used = partial(on_threads, n, pieces, into_reused)
        result[f"pread_used_{n}"] = _rate(total, runs, used)
        result[f"pread_fresh_{n}"] = _rate(total, runs, partial(into_fresh, n))
    return result


def split(field: np.ndarray, chunk: tuple[int, ...]) -> list[np.ndarray]:
    chunks = []
    for t in range(field.shape[0]):
        for y in range(0, field.shape[1], chunk[1]):
            for x in range(0, field.shape[2], chunk[2]):
                piece = np.zeros(chunk[1:], np.float32)
                part = field[t, y : y + chunk[1], x : x + chunk[2]]
                piece[: part.shape[0], : part.shape[1]] = part
                chunks.append(piece)
    return chunks


def codec(name: str, field: np.ndarray, chunk: tuple[int, ...], runs: int, threads: int) -> list:
    """Decode and encode rates of each library of a codec on the chunks of (t, y, x) `field`."""
    chunks = split(field, chunk)
    size = chunks[0].nbytes
    total = size * len(chunks)
    room = size + size // 8 + 4096
    results = []
    for make in native.candidates(name):
        try:
            workers = [make() for _ in range(threads)]
        except ImportError as missing:
            results.append({"implementation": str(missing), "unavailable": True})
            continue
        out = [np.ones(room, np.uint8) for _ in range(threads)]
        encoded = []
        for piece in chunks:
            n = workers[0].encode(piece.ctypes.data, size, out[0].ctypes.data, room)
            encoded.append(out[0][:n].copy())
        raw = [(piece.ctypes.data, size) for piece in chunks]
        packed = [(e.ctypes.data, e.nbytes) for e in encoded]
        targets = [o.ctypes.data for o in out]

        def decode(items, thread, workers=workers, targets=targets):
            run, target = workers[thread].decode, targets[thread]
            for address, n in items:
                if run(address, n, target, size) != size:
                    raise RuntimeError(f"{name}: wrong decoded size")

        def encode(items, thread, workers=workers, targets=targets):
            run, target = workers[thread].encode, targets[thread]
            for address, n in items:
                run(address, n, target, room)

        entry = {
            "implementation": workers[0].implementation,
            "comparable_encode": workers[0].comparable,
            "ratio": round(total / sum(e.nbytes for e in encoded), 3),
        }
        for n in sorted({1, threads}):
            entry[f"decode_{n}"] = _rate(total, runs, partial(on_threads, n, packed, decode))
            entry[f"encode_{n}"] = _rate(total, runs, partial(on_threads, n, raw, encode))
        results.append(entry)
    return results
