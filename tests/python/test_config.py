"""Settings that hold for a block, in several threads and one in another."""

import os
import signal
import threading

import pytest
from forking import fork
from headrace import config


@pytest.fixture(autouse=True)
def as_it_was():
    before = config.get()
    yield
    config.set(before)
    assert config.get() == before


def test_overlapping_blocks_leave_what_was_there():
    before = config.get("threads")
    first, second = config.set({"threads": 2}), None
    with first:
        second = config.set({"threads": 3})
        second.__enter__()
    assert config.get("threads") == 3
    second.__exit__(None, None, None)
    assert config.get("threads") == before


def test_blocks_of_threads_that_end_in_the_order_they_began():
    before = config.get()
    entered, left = threading.Event(), threading.Event()

    def first():
        with config.set(threads=2, coalesce_gap=100):
            entered.set()
            assert inside.wait(60)
        left.set()

    inside = threading.Event()
    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(60)
    with config.set(threads=3):
        inside.set()
        assert left.wait(60)
        assert config.get("threads") == 3
        assert config.get("coalesce_gap") == before["coalesce_gap"]
    thread.join()
    assert config.get() == before


def test_what_is_set_for_good_in_a_block_stays():
    before = config.get()
    with config.set({"threads": 2}):
        config.set({"coalesce_gap": 12345})
        config.set({"threads": 5})  # a part of the block, as in NumPy, Dask and Zarr
        assert config.get("threads") == 5
    assert config.get("coalesce_gap") == 12345
    assert config.get("threads") == before["threads"]


def test_nested_blocks():
    before = config.get()
    with config.set(threads=2, implementations={"zstd": "libzstd"}):
        with config.set(threads=3):
            with config.set(threads=4):
                assert config.get("threads") == 4
            assert config.get("threads") == 3
        assert config.get("threads") == 2
        assert config.get("implementations") == {"zstd": "libzstd"}
    assert config.get() == before


def test_a_block_that_raises_and_one_that_is_used_again():
    before = config.get()
    block = config.set(threads=2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), block:
            assert config.get("threads") == 2
            raise ZeroDivisionError
        assert config.get() == before


def test_a_value_that_is_refused_changes_nothing():
    before = config.get()
    for bad in (
        {"threads": 2, "device": "abacus"},
        {"threads": 2, "coalesce_gap": "far"},
        {"threads": 2, "thread": 3},
    ):
        with pytest.raises(ValueError):
            config.set(bad)
        assert config.get() == before
    for name, value in {
        "threads": "x",
        "device": 5,
        "implementations": {1: 2},
        "gds": 1,
        "memory_budget": 1.5,
    }.items():
        with pytest.raises(TypeError, match=f"{name}: expected .*, got "):
            config.set({"coalesce_run": 7, name: value})
        assert config.get() == before


def test_changes_of_many_threads_are_all_kept():
    names = ["threads", "coalesce_gap", "coalesce_run", "memory_budget"]
    start = threading.Barrier(len(names))

    def change(name):
        start.wait()
        for value in range(1, 200):
            config.set({name: value << 20 if name == "memory_budget" else value})

    threads = [threading.Thread(target=change, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [config.get(name) for name in names] == [199, 199, 199, 199 << 20]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_a_thread_that_holds_the_lock():
    held, go_on = threading.Event(), threading.Event()

    def hold():
        with config._state.lock:
            held.set()
            go_on.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    try:
        child = fork()
        if child == 0:
            signal.alarm(30)  # who waits for the lock is ended
            config.set({"threads": 1})
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        go_on.set()
        thread.join()
