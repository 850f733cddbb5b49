"""Signals while a read waits for a thread that is stuck in a store."""

import json
import os
import signal
import socket
import threading
import time

import headrace as hr
import numpy as np
import pytest

PATIENCE = 20  # seconds, after which a test has failed

METADATA = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [2],
    "data_type": "uint8",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
    "codecs": [{"name": "zlib"}],
}


class Interrupted(Exception):
    """What a handler raises."""


class Stuck:
    """Of two chunks the calling thread's comes at once, the helper's when `answer` is set."""

    url = identity = "stuck://"
    folder = ""
    read_only = True
    local = True  # the threads that decode ask it themselves
    batch_size = 1
    coalescing = None

    def __init__(self, codecs):
        self.metadata = json.dumps(METADATA | {"codecs": codecs}).encode()
        self.caller = threading.get_ident()
        self.entered = threading.Event()
        self.caller_left = threading.Event()
        self.answer = threading.Event()
        self.answered = None

    def _chunk(self):
        if threading.get_ident() == self.caller:
            assert self.entered.wait(PATIENCE)
            self.caller_left.set()
            return b"\x01"
        self.entered.set()
        assert self.caller_left.wait(PATIENCE)
        for _ in range(PATIENCE * 10):
            os.kill(os.getpid(), signal.SIGUSR1)
            if self.answer.wait(0.1):
                break
        self.answered = self.answer.is_set()
        return b"\x02"

    def check_caller(self):
        """Any thread may ask."""

    def get_many(self, keys):
        return [self._get(key) for key in keys]

    def _get(self, key):
        if key == "zarr.json":
            return self.metadata
        return self._chunk() if key.startswith("c/") else None

    def nbytes(self, key):
        return None if key == "zarr.json" else 1

    def get_range(self, key, offset, nbytes):
        return self._chunk()

    def get_ranges(self, key, ranges):
        return [self._chunk() for _ in ranges]


@pytest.fixture
def handler():
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda function: signal.signal(signal.SIGUSR1, function)
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def stuck():
    """The store, and its one array."""
    store = Stuck([{"name": "bytes"}])
    with hr.config.set({"threads": 2}):
        yield store, hr.open_array(hr._core.python_store(store))


def test_a_handler_runs_while_a_read_waits(stuck, handler):
    store, array = stuck
    handler(lambda *_: store.answer.set())
    assert sorted(array[:].tolist()) == [1, 2]
    assert store.answered


def test_what_a_handler_raises_ends_the_read_when_the_store_has_answered(stuck, handler):
    store, array = stuck
    calls = []

    def interrupt(*_):
        calls.append(1)
        if len(calls) == 3:  # the third signal is heard, too
            store.answer.set()
        raise Interrupted(len(calls))

    handler(interrupt)
    with pytest.raises(Interrupted, match="1"):
        array[:]
    assert store.answered  # nobody was left behind, who would write to memory of the caller


def test_what_a_handler_raises_in_a_write_is_what_is_raised(store, handler):
    """Also where helpers are at work on large chunks when the caller hears of it."""
    data = np.random.default_rng(0).normal(size=(8, 400_000)).round(2)
    codec = hr.codecs.Zstd(level=8)
    array = hr.create_array(store, shape=data.shape, dtype="f8", chunks=(1, -1), compressors=codec)

    def interrupt(*_):
        raise Interrupted

    handler(interrupt)
    for _ in range(6):
        timer = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGUSR1))
        with pytest.raises(Interrupted):
            timer.start()
            while True:
                array[...] = data
        timer.join()


@pytest.fixture
def silent():
    """The address of a server that takes requests and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def bucket(address):
    options = {"anon": True, "region": "us-east-1", "endpoint_url": f"http://{address}"}
    return hr.open_store("s3://bucket/a", mode="r+", storage_options=options)


@pytest.mark.parametrize(
    "call",
    [
        lambda address: hr.open(f"http://{address}/a.zarr"),
        lambda address: hr.open_array(bucket(address)),
        lambda address: bucket(address)._list(""),
        lambda address: bucket(address)._set("k", b"v"),
    ],
    ids=["open", "open_array", "list", "write"],
)
def test_what_a_handler_raises_ends_the_wait_for_a_silent_server(silent, handler, call):
    def interrupt(*_):
        raise Interrupted

    handler(interrupt)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    begin = time.monotonic()
    try:
        with pytest.raises(Interrupted):
            call(silent)
    finally:
        timer.cancel()
        timer.join()
    assert time.monotonic() - begin < PATIENCE / 2
