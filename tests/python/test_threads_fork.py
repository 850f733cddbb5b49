"""Many threads on one handle; a child after fork; processes of every start method.

Decision, where api.md is silent: a handle opened from a path may be pickled or may refuse to be;
then a child opens the path itself.
"""

import multiprocessing
import os
import pickle
import select
import signal
import threading
import time
import traceback

import headrace as hr
import numpy as np
import pytest
from forking import fork
from helpers import assert_same, python, read_in_process, read_zarr, smooth, write_zarr

SHAPE = (300, 200)


@pytest.fixture(params=["chunks", "shards"])
def pair(request, store):
    data = smooth("f4", SHAPE)
    shards = {"shards": (64, 64)} if request.param == "shards" else {}
    write_zarr(store, data, chunks=(32, 32), **shards)
    return hr.open_array(store), data


def run_threads(count, body):
    errors = []

    def guarded(k):
        try:
            body(k)
        except BaseException:
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_threads_read_one_handle(pair):
    array, data = pair

    def body(k):
        for turn in range(8):
            low = (37 * k + 11 * turn) % 250
            assert_same(array[low : low + 50, ::3], data[low : low + 50, ::3])
            out = np.empty((SHAPE[0], 3), "f4")
            array.read((slice(None), slice(k, k + 3)), out=out)
            assert_same(out, data[:, k : k + 3])
            assert_same(array.vindex[[low, 0], [k, 199]], data[[low, 0], [k, 199]])

    run_threads(16, body)


def test_threads_open_the_same_store(store):
    data = smooth("i4", (40, 30))
    write_zarr(store, data, chunks=(16, 16))
    run_threads(12, lambda k: [assert_same(hr.open_array(store)[k:], data[k:]) for _ in range(5)])


def test_threads_write_different_chunks(store):
    array = hr.create_array(store, shape=(64, 64), dtype="i4", chunks=(4, 4))

    def body(k):
        for turn in range(3):
            array[4 * k : 4 * k + 4] = 10 * k + turn

    run_threads(16, body)
    wanted = np.repeat(np.arange(16, dtype="i4") * 10 + 2, 4)[:, None] * np.ones(64, "i4")
    assert_same(read_zarr(store), wanted)


def test_reader_sees_old_or_new_chunks_while_a_thread_writes(store):
    writer = hr.create_array(store, shape=(32, 32), dtype="i4", chunks=(16, 16), fill_value=-1)
    writer[...] = 0
    reader, stop = hr.open_array(store), threading.Event()

    def write():
        for turn in range(1, 60):
            writer[...] = turn
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while not stop.is_set():
            got = reader[...]
            for block in (got[:16, :16], got[:16, 16:], got[16:, :16], got[16:, 16:]):
                assert block.min() == block.max() >= 0
    finally:
        thread.join()
    assert_same(reader[...], np.full((32, 32), 59, "i4"))


def in_fork(body, timeout=60):
    """Runs `body` in a forked child; a child that hangs or dies fails the test."""
    receive, send = os.pipe()
    child = fork()
    if child == 0:
        try:
            body()
            os.write(send, b"ok")
        except BaseException:
            os.write(send, traceback.format_exc()[-4000:].encode())
        finally:
            os._exit(0)
    os.close(send)
    poll = select.poll()  # select() knows no descriptor above 1023
    poll.register(receive, select.POLLIN)
    ready = poll.poll(timeout * 1000)
    message = os.read(receive, 4096).decode() if ready else "child hangs"
    os.close(receive)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert message == "ok", message


def test_fork_after_reading(pair):
    array, data = pair
    assert_same(array[...], data)

    def body():
        assert_same(array[...], data)
        assert_same(array.read_async((3,)).result(30), data[3])

    for _ in range(3):
        in_fork(body)
    assert_same(array[...], data)


def test_fork_in_the_middle_of_reading(pair):
    array, data = pair
    stop = threading.Event()

    def read():
        while not stop.is_set():
            assert_same(array[...], data)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            in_fork(lambda: assert_same(array[...], data))
            time.sleep(0.003)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_fork_with_a_future_in_flight(pair):
    array, data = pair
    futures = [array.read_async() for _ in range(8)]
    in_fork(lambda: assert_same(array[...], data))
    for future in futures:
        assert_same(future.result(60), data)


def test_child_writes(store):
    array = hr.create_array(store, shape=(40,), dtype="i4", chunks=(10,))
    array[:10] = 1

    def body():
        array[10:20] = 2

    in_fork(body)
    array[20:30] = 3
    assert_same(read_zarr(store), np.repeat(np.array([1, 2, 3, 0], "i4"), 10))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_multiprocessing(store, method):
    data = smooth("f4", (50, 40))
    write_zarr(store, data, chunks=(16, 16))
    assert_same(hr.open_array(store)[...], data)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    workers = [context.Process(target=read_in_process, args=(store, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in workers:
            assert queue.get(timeout=60) == data.tobytes()
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
        queue.close()


def test_handle_pickles_or_says_no(store):
    data = smooth("f4", (20, 10))
    write_zarr(store, data)
    try:
        pickled = pickle.dumps(hr.open_array(store))
    except (TypeError, pickle.PicklingError):
        return
    assert_same(pickle.loads(pickled)[...], data)


def test_reading_in_a_child_of_a_process_that_only_imported(store):
    data = smooth("f4", (50, 40))
    write_zarr(store, data, chunks=(16, 16))
    code = """
import os, sys, warnings
import headrace as hr
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    print(float(hr.open_array(sys.argv[1])[...].sum()), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    assert float(python(code, store)) == float(data.sum())


def test_exit_with_work_in_flight(store):
    """The interpreter ends while reads run: no hang, no crash."""
    data = smooth("f4", (2000, 1000))
    write_zarr(store, data, chunks=(100, 100))
    code = """
import sys, headrace as hr
array = hr.open_array(sys.argv[1])
futures = [array.read_async() for _ in range(20)]
print("leaving")
"""
    for _ in range(3):
        assert python(code, store, timeout=60) == "leaving\n"
