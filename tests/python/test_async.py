"""Futures, awaiting, cancelling, read_many.

Decisions, where api.md is silent: `result(timeout)` raises TimeoutError; `cancel()` returns whether
it came in time, and after it `result()` raises hr.CancelledError or the read had been done;
`read_many` returns a list: `out`, or a new array where `out` is None; it raises the first error.
"""

import asyncio
import os
import queue
import threading
import time
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from headrace._zarr_stores.pending import PendingReads
from helpers import assert_same, read_zarr, smooth, values, write_zarr

PATIENCE = 30  # seconds, after which a test has failed


@pytest.fixture
def pair(store):
    data = smooth("f4", (200, 120))
    write_zarr(store, data, chunks=(32, 32))
    return hr.open_array(store, mode="r+"), data


@pytest.fixture
def slow(store):
    """64 MiB behind gzip: some tenths of a second to read."""
    data = np.add.outer(np.arange(4096) % 97, np.arange(4096) * 31 % 101).astype("f4")
    write_zarr(store, data, chunks=(512, 512), compressors=zarr.codecs.GzipCodec(level=1))
    return hr.open_array(store), data


def test_result(pair):
    array, data = pair
    future = array.read_async()
    assert_same(future.result(), data)
    assert future.done()
    assert_same(future.result(0), data)
    assert_same(array.read_async((slice(3, 90, 7), -1)).result(30), data[3:90:7, -1])


def test_result_into_out(pair):
    array, data = pair
    out = np.zeros((120, 200), "f4").T
    array.read_async(..., out=out).result(30)
    assert_same(out, data)


def test_out_lives_until_the_read_is_done(pair):
    array, data = pair
    futures = [array.read_async(..., out=np.empty((200, 120), "f4")) for _ in range(20)]
    for future in futures:
        assert_same(future.result(30), data)


def test_many_in_flight(pair):
    array, data = pair
    futures = [(k, array.read_async((slice(k, None), k % 120))) for k in range(200)]
    for k, future in reversed(futures):
        assert_same(future.result(60), data[k:, k % 120])


def test_timeout(slow):
    array, data = slow
    future = array.read_async()
    try:
        future.result(0)
    except TimeoutError:
        pass
    else:
        assert future.done()
    assert_same(future.result(60), data)


def test_cancel(slow):
    array, data = slow
    future = array.read_async()
    in_time = future.cancel()
    try:
        got = future.result(60)
    except hr.CancelledError:
        assert in_time
    else:
        assert_same(got, data)
    assert future.done()
    # The handle is as good as before.
    assert_same(array[:5], data[:5])


def test_cancel_after_the_end(pair):
    array, data = pair
    future = array.read_async()
    future.result(30)
    assert not future.cancel()
    assert_same(future.result(), data)


def test_dropped_futures_do_no_harm(slow):
    array, data = slow
    for _ in range(5):
        array.read_async()
    assert_same(array[-1], data[-1])


def test_error_is_kept_and_raised_again(pair, store):
    array, _ = pair
    Path(store, "c/1/1").write_bytes(b"nonsense")
    future = array.read_async()
    for _ in range(2):
        with pytest.raises(hr.CorruptError, match="c/1/1"):
            future.result(30)
    assert_same(array[:32], smooth("f4", (200, 120))[:32])


def test_wrong_arguments_are_raised_at_once_or_by_result(pair):
    array, _ = pair
    for arguments, error in [((900,), IndexError), (((0, 0, 0),), IndexError)]:
        with pytest.raises(error):
            array.read_async(*arguments).result(30)
    with pytest.raises(ValueError):
        array.read_async(..., out=np.empty((2, 2), "f4")).result(30)


def test_await(pair):
    array, data = pair

    async def main():
        first = await array.read_async()
        several = await asyncio.gather(*[array.read_async((k,)) for k in range(40)])
        return first, several

    first, several = asyncio.run(main())
    assert_same(first, data)
    assert_same(np.stack(several), data[:40])


def test_await_raises_the_error(pair, store):
    array, _ = pair
    Path(store, "c/0/0").write_bytes(b"")

    async def main():
        await array.read_async()

    with pytest.raises(hr.CorruptError):
        asyncio.run(main())


def test_awaiting_leaves_the_loop_free(slow):
    array, _ = slow

    async def main():
        ticks = 0
        future = asyncio.ensure_future(wait())
        while not future.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    async def wait():
        for _ in range(3):
            await array.read_async()

    assert asyncio.run(main()) >= 5


def test_await_can_be_cancelled(slow):
    array, data = slow

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await array.read_async()
        return await array.read_async((slice(0, 3),))

    assert_same(asyncio.run(main()), data[:3])


def test_a_cancelled_await_has_let_go_of_the_memory(slow):
    array, data = slow
    out = np.empty_like(data)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await array.read_async(out=out)
        out[...] = -1
        await asyncio.sleep(0.2)

    asyncio.run(main())
    assert (out == -1).all()


def test_waiting_and_reading_leave_the_gil_free(slow):
    array, _ = slow
    ticks, stop = [], threading.Event()

    def count():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        begin = time.perf_counter()
        for _ in range(3):
            array.read()
            array.read_async().result()
        end = time.perf_counter()
    finally:
        stop.set()
        counter.join()
    gaps = np.diff([begin, *[t for t in ticks if begin < t < end], end])
    assert gaps.max() < max(0.1, 0.3 * (end - begin))


def test_write_async(pair, store):
    array, data = pair
    data = data.copy()
    rows = values("f4", (10, 120), 3)
    future = array.write_async((slice(5, 15),), rows)
    future.result(30)
    assert future.done()
    data[5:15] = rows
    asyncio.run(wait_for(array.write_async((..., 0), 9.0)))
    data[:, 0] = 9
    assert_same(read_zarr(store), data)


async def wait_for(future):
    await future


def test_write_async_of_a_temporary(pair, store):
    array, _ = pair
    futures = [
        array.write_async((slice(32 * k, 32 * k + 32),), np.full((32, 120), k, "f4"))
        for k in range(6)
    ]
    for future in futures:
        future.result(30)
    wanted = np.repeat(np.arange(6, dtype="f4"), 32)[:, None] * np.ones(120, "f4")
    assert_same(read_zarr(store)[:192], wanted)


def test_read_many(pair, tmp_path):
    array, data = pair
    other = values("i2", (50,))
    where = str(tmp_path / "other")
    write_zarr(where, other, chunks=(8,), zarr_format=2, compressors=None)
    second = hr.open_array(where)
    outs = [np.zeros((200, 120), "f4"), np.zeros((100,), "i2")[::-2], np.zeros((3, 4), "f4")]
    box = (slice(1, 4), slice(60, 64))
    result = hr.read_many([(array, ..., outs[0]), (second, ..., outs[1]), (array, box, outs[2])])
    assert len(result) == 3
    for got, out in zip(result, outs, strict=True):
        assert got is out
    assert_same(outs[0], data)
    assert_same(outs[1], other)
    assert_same(outs[2], data[box])


def test_read_many_makes_what_is_not_given(pair):
    array, data = pair
    first, second = hr.read_many([(array, ..., None), (array, (5,), None)])
    assert_same(first, data)
    assert_same(second, data[5])
    assert list(hr.read_many([])) == []


def test_read_many_raises_and_names_the_chunk(pair, store):
    array, _ = pair
    chunk = Path(store, "c/2/2")
    os.truncate(chunk, chunk.stat().st_size // 2)
    with pytest.raises(hr.CorruptError, match="c/2/2"):
        hr.read_many([(array, (0,), None), (array, ..., None)])
    with pytest.raises(ValueError):
        hr.read_many([(array, (0,), np.zeros(3, "f4"))])


@pytest.mark.parametrize("threads", [1, 2])
def test_callbacks_may_wait_for_reads(pair, threads):
    """More of them than there are threads, each for a read of its own."""
    array, data = pair
    got = queue.Queue()
    with hr.config.set({"threads": threads}):
        futures = [array.read_async() for _ in range(20)]
        for k, future in enumerate(futures):
            future.add_done_callback(
                lambda _, k=k: got.put((k, array.read_async(k).result(PATIENCE)))
            )
        for _ in futures:
            k, row = got.get(timeout=PATIENCE)
            assert_same(row, data[k])


class Awaiting(zarr.storage.MemoryStore):
    """Each chunk waits for an asynchronous read of another array, of which headrace is not told."""

    other = None

    async def get(self, key, *args, **kwargs):
        if key.startswith("c/"):
            await self.other.read_async(0)
        return await super().get(key, *args, **kwargs)


def test_stores_may_wait_for_reads(pair):
    store = Awaiting()
    store.other = pair[0]
    numbers = np.arange(16)
    zarr.create_array(store, shape=16, chunks=4, dtype=numbers.dtype)[:] = numbers
    array = hr.open_array(store)
    assert_same(array[:], numbers)
    with hr.config.set({"threads": 2}):
        for future in [array.read_async() for _ in range(4)]:
            assert_same(future.result(PATIENCE), numbers)


def test_reads_are_watched_after_a_thread_could_not_start(monkeypatch):
    """Those of a loop that is closed are answered, also behind a call that failed."""
    reads, answers = PendingReads(), []
    loop = asyncio.new_event_loop()
    start = threading.Thread.start

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        reads.begin([1], lambda *answer: answers.append(answer), loop)
    monkeypatch.setattr(threading.Thread, "start", start)
    reads.begin([2], lambda *answer: answers.append(answer), loop)
    loop.close()
    until = time.monotonic() + 10
    while not answers and time.monotonic() < until:
        time.sleep(0.05)
    assert [(id, type(error)) for id, _, error in answers] == [(2, RuntimeError)]
