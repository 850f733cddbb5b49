"""Loaders of cells in children, threads and at the end of the interpreter."""

import gc
import multiprocessing
import threading

import headrace as hr
import numpy as np
import pytest
from headrace.loader import CellLoader
from helpers import python
from test_threads_fork import in_fork

pytest.importorskip("scipy")
pytest.importorskip("zarr")

from cells_store import counts, write


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "a.zarr", counts(np.random.default_rng(1), 100, 7))


def loader_of(path):
    return CellLoader(hr.cells(path), 8, window=(4, 4))


def values(loader):
    return [(batch["index"].tobytes(), batch["X"].data.tobytes()) for batch in loader]


def test_a_child_of_fork_goes_on(path):
    loader, other = loader_of(path), loader_of(path)
    next(loader), next(other)  # its thread reads ahead
    wanted = values(other)

    def child():
        assert values(loader) == wanted

    in_fork(child)
    assert values(loader) == wanted


def rest(loader, queue):
    queue.put(values(loader))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_get_loaders_by_pickle(path, method):
    context = multiprocessing.get_context(method)
    loader = loader_of(path)
    next(loader)
    queue = context.Queue()
    child = context.Process(target=rest, args=(loader, queue))
    child.start()
    found = queue.get(timeout=100)
    child.join()
    assert found == values(loader)


def test_a_loader_that_is_dropped_ends_its_thread(path):
    loader = loader_of(path)
    next(loader)
    assert any(thread.name.startswith("headrace-cells") for thread in threading.enumerate())
    del loader
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("headrace-cells"):
            thread.join(10)
            assert not thread.is_alive()


def test_the_interpreter_ends_while_a_window_is_read(path):
    code = """
import sys, headrace as hr
from headrace.loader import CellLoader
loader = CellLoader(hr.cells(sys.argv[1]), 8, window=(4, 4))
print(next(loader)["X"].shape)
"""
    assert python(code, path).split() == ["(8,", "7)"]


def test_two_threads_at_once_are_refused(path):
    loader = loader_of(path)
    given, refused = [], []

    def take():
        while loader.epoch == 0:
            try:
                batch = next(loader, None)
            except ValueError as error:
                refused.append(str(error))
            else:
                given.append(batch)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(refused) <= {"[loader] another thread is using the loader"}
    found = [batch["index"].tolist() for batch in given if batch is not None]
    wanted = [batch["index"].tolist() for batch in loader_of(path)]
    # A thread may have begun the next epoch before another one told of its end.
    assert all(found.count(cells) == 1 for cells in wanted)
    assert len(found) <= len(wanted) + len(threads)


def test_a_loader_is_closed_by_another_thread(path):
    loader = loader_of(path)
    wanted = values(loader_of(path))
    stop = threading.Event()

    def close():
        while not stop.wait(0.002):
            loader.close()

    thread = threading.Thread(target=close)
    thread.start()
    found = []
    while len(found) < len(wanted):
        try:
            batch = next(loader)
        except ValueError:  # close() has the turn
            continue
        found.append((batch["index"].tobytes(), batch["X"].data.tobytes()))
    stop.set()
    thread.join()
    assert found == wanted


def test_the_handler_of_a_signal_closes_a_loader_at_work(path):
    code = """
import signal, sys
import headrace as hr
from headrace.loader import CellLoader
loader = CellLoader(hr.cells(sys.argv[1]), 8, window=(4, 4))
made = loader._made
def interrupted(planned):
    signal.raise_signal(signal.SIGTERM)
    return made(planned)
def leave(*_):
    loader.close()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
loader._made = interrupted
signal.alarm(20)  # ends a wait without end
next(loader)
"""
    python(code, path)


def test_loaders_in_threads(path):
    wanted = values(loader_of(path))
    found = [None] * 4

    def read(number):
        found[number] = values(loader_of(path))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4
