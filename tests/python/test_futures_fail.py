"""Futures whose request failed in Python, and futures that several threads ask."""

import asyncio
import gc
import signal
import sys
import threading
import time
import traceback
import weakref

import headrace as hr
import numpy as np
import pytest
from helpers import chunk_files, write_zarr
from zarr.storage import LocalStore, WrapperStore


class Refused(LookupError):
    """An exception of the application's own."""


class Refusing(WrapperStore):
    """Chunks cannot be read or written; all else can."""

    async def get(self, key, *args, **kwargs):
        if "/c/" in f"/{key}":
            raise Refused(f"not {key}")
        return await self._store.get(key, *args, **kwargs)

    async def set(self, key, value):
        if "/c/" in f"/{key}":
            raise Refused(f"no room for {key}")
        await self._store.set(key, value)


@pytest.fixture
def refusing(store):
    write_zarr(store, np.arange(48.0).reshape(6, 8), chunks=(2, 8))
    return hr.open_array(Refusing(LocalStore(store)), mode="r+")


def failing_read(array):
    return array.read_async(np.s_[:2])


def failing_write(array):
    return array.write_async(np.s_[:2], np.ones((2, 8)))


REQUESTS = pytest.mark.parametrize("request_of", [failing_read, failing_write])


@REQUESTS
def test_every_call_raises_the_same_exception(refusing, request_of):
    future = request_of(refusing)
    raised = []
    for _ in range(4):
        with pytest.raises(Refused) as info:
            future.result(60)
        raised.append(info.value)
    assert len({id(error) for error in raised}) == 1
    assert future.exception() is raised[0] and future.exception(1) is raised[0]


@REQUESTS
def test_the_traceback_does_not_grow(refusing, request_of):
    future = request_of(refusing)
    lengths = []
    for _ in range(5):
        try:
            future.result(60)
        except Refused as error:
            lengths.append(len(traceback.extract_tb(error.__traceback__)))
    assert len(lengths) == 5 and len(set(lengths)) == 1


@REQUESTS
def test_it_can_be_gathered_twice_and_awaited_again(refusing, request_of):
    async def ask(future):
        return await future

    async def main():
        future = request_of(refusing)
        found = await asyncio.gather(*(ask(future) for _ in range(3)), return_exceptions=True)
        again = await asyncio.gather(ask(future), return_exceptions=True)
        return [*found, *again]

    found = asyncio.run(main())
    assert [type(error) for error in found] == [Refused] * 4
    assert len({id(error) for error in found}) == 1


@REQUESTS
def test_callbacks_and_threads_see_it_too(refusing, request_of):
    future = request_of(refusing)
    seen = []
    done = threading.Semaphore(0)

    def look(finished):
        try:
            finished.result(0)
        except Refused as error:
            seen.append(error)
        done.release()

    for _ in range(3):
        future.add_done_callback(look)
    threads = [threading.Thread(target=look_from_thread, args=(future, seen)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(3):
        assert done.acquire(timeout=60)
    assert len(seen) == 7 and len({id(error) for error in seen}) == 1


def look_from_thread(future, seen):
    try:
        future.result(60)
    except Refused as error:
        seen.append(error)


def test_an_error_of_headrace_is_one_object_too(store):
    write_zarr(store, np.arange(8.0), chunks=(4,))
    for file in chunk_files(store).values():
        file.write_bytes(b"nonsense")
    future = hr.open_array(store).read_async()
    first = future.exception(60)
    assert isinstance(first, hr.CorruptError)
    with pytest.raises(hr.CorruptError) as info:
        future.result()
    assert info.value is first


def test_exception_lets_an_interrupt_through(store):
    """What interrupts the waiting is not what the request ended with."""
    write_zarr(store, np.arange(8.0), chunks=(4,))

    main = threading.get_ident()
    asked, go_on = threading.Event(), threading.Event()

    class Waiting(WrapperStore):
        async def get(self, key, *args, **kwargs):
            if "/c/" in f"/{key}" and not go_on.is_set():
                await asyncio.to_thread(asked.wait, 60)
                signal.pthread_kill(main, signal.SIGUSR1)
                await asyncio.to_thread(go_on.wait, 60)
            return await self._store.get(key, *args, **kwargs)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        future = hr.open_array(Waiting(LocalStore(store))).read_async(0)
        with pytest.raises(KeyboardInterrupt):
            asked.set()
            future.exception()
    finally:
        signal.signal(signal.SIGUSR1, before)
        go_on.set()
    assert future.exception(60) is None


@pytest.mark.parametrize("dtype", [str, "f8"])
def test_all_threads_get_one_result(store, dtype):
    data = np.arange(30_000).astype("U5").astype("T") if dtype is str else np.arange(200_000.0)
    array = hr.create_array(store, shape=data.shape, dtype=dtype, chunks=(5000,))
    array[:] = data
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            future = array.read_async()
            start, found = threading.Barrier(4), []

            def ask(future=future, start=start, found=found):
                start.wait()
                found.append(future.result(60))

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == 4 and len({id(result) for result in found}) == 1
            assert np.array_equal(found[0], data)
    finally:
        sys.setswitchinterval(interval)


def test_a_future_and_its_exception_are_collected(refusing):
    gone = []

    def ask():
        future = failing_read(refusing)
        weakref.finalize(future, gone.append, True)
        try:
            future.result(60)
        except Refused as error:
            assert error.__traceback__ is not None  # it leads to this frame, which has the future

    ask()
    end = time.monotonic() + 10
    # The thread that finished it may not be done with it.
    while not gone and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    assert gone == [True]


def thing_of(kind, folder):
    group = hr.create_group(folder)
    array = group.create_array("a", shape=(4,), dtype="f4")
    things = {
        "Array": lambda: array,
        "Store": lambda: group.store,
        "Group": lambda: group,
        "Future": array.read_async,
        "LazyArray": lambda: array.lazy,
        "DeviceArray": lambda: array.read(device="simt"),
    }
    return things[kind]()


@pytest.mark.parametrize("kind", ["Array", "Store", "Group", "Future", "LazyArray", "DeviceArray"])
def test_weak_references(tmp_path, kind):
    thing = thing_of(kind, tmp_path / "g")
    kept = weakref.WeakValueDictionary({1: thing})
    assert kept[1] is thing
    del thing
    gc.collect()
    assert 1 not in kept
