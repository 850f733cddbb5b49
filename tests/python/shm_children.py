"""What children of the tests of headrace.shm run, importable by name for every start method, and
what the tests themselves need of it."""

import hashlib
import signal
import time

import numpy as np
from headrace import _core

METHODS = ["fork", "spawn", "forkserver"]


def field(seed=0, shape=(200, 300)):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def block_of(array):
    """The block of shared memory that an array is a view of; None when it is in private memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, _core.ShmBlock) else None


def facts(array):
    """Enough to tell that an array arrived, and by which way."""
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    return array.dtype.str, array.shape, digest, array.flags.writeable, block_of(array) is not None


def tell(array):
    """For pools: what of it arrived, and an array back."""
    return facts(array), array + 1


def answer(inbox, outbox):
    """Of queues and channels."""
    outbox.put(tell(inbox.get()))


def answer_pipe(connection):
    connection.send(tell(connection.recv()))


def produce(channel, count, seed):
    for i in range(count):
        channel.put((seed, i, np.full(5000, seed * 1000 + i, "int64")), timeout=60)


def produce_for_ever(channel, pause):
    while True:
        channel.put(np.ones(20_000), timeout=60)
        time.sleep(pause)


def consume(channel, count, has_all):
    """Keeps what it took, until it is killed."""
    kept = [channel.get(timeout=60) for _ in range(count)]
    has_all.set()
    while kept:
        signal.pause()


def arrive_and(has_arrived, target, *args):
    has_arrived.set()
    target(*args)


def consume_for_ever(channel):
    kept = []
    while True:
        kept = [*kept[-3:], channel.get(timeout=60)]


def attach_and_tell(name, outbox):
    import headrace.shm as shm

    data = shm.attach(name, timeout=30)
    outbox.put({key: facts(value) for key, value in data.items()})
