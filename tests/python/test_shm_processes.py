"""headrace.shm under kill -9, with many processes and few file descriptors."""

import gc
import multiprocessing
import random
import signal
import time

import headrace.shm as shm
import numpy as np
import pytest
from helpers import python
from shm_children import (
    METHODS,
    arrive_and,
    consume,
    consume_for_ever,
    produce,
    produce_for_ever,
)

ROUNDS = 16

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


@pytest.fixture
def context():
    return multiprocessing.get_context("fork")


def start(context, target, *args):
    process = context.Process(
        target=arrive_and, args=(has_arrived := context.Event(), target, *args), daemon=True
    )
    process.start()
    process.has_arrived = has_arrived
    return process


def kill(process):
    # The place of one that is killed before it arrives is kept for it: a minute.
    assert process.has_arrived.wait(60)
    process.kill()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL


def assert_empty(arena):
    gc.collect()
    arena.reclaim(orphans=True)
    stats = arena.stats()
    assert (stats["used_nbytes"], stats["blocks"], stats["in_transit"]) == (0, 0, 0)
    assert stats["processes"] == 1


def test_killed_producers(context):
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        arena = shm.Arena(2 << 20)
        channel = arena.channel(4)
        child = start(context, produce_for_ever, channel, rng.choice([0, 0.001]))
        for _ in range(rng.randrange(20)):
            assert (channel.get(timeout=30) == 1).all()
        time.sleep(rng.uniform(0, 0.01))
        kill(child)
        while not channel.empty():
            got = channel.get(timeout=30)
            assert got.shape == (20_000,) and (got == 1).all()
        del channel
        got = None
        assert_empty(arena)


def test_killed_consumers(context):
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        arena = shm.Arena(2 << 20)
        channel = arena.channel(4)
        child = start(context, consume_for_ever, channel)
        for _ in range(rng.randrange(20)):
            channel.put(np.ones(20_000), timeout=30)
        time.sleep(rng.uniform(0, 0.01))
        kill(child)
        while not channel.full():
            channel.put(np.ones(20_000), timeout=30)
        del channel
        assert_empty(arena)


def test_survivors_are_told(context):
    arena = shm.Arena(2 << 20)
    channel = arena.channel(4)
    child = start(context, produce_for_ever, channel, 0)
    assert (channel.get(timeout=30) == 1).all()
    kill(child)
    with pytest.raises(BrokenPipeError):
        while True:
            channel.get(timeout=30)
    with pytest.raises(BrokenPipeError):
        while True:
            channel.put(1, timeout=30)
    del channel
    assert_empty(arena)


def test_a_killed_consumer_is_replaced(context):
    arena = shm.Arena(2 << 20)
    channel = arena.channel(4)
    producer = start(context, produce, channel, 40, 7)
    has_all = context.Event()
    first = start(context, consume, channel, 10, has_all)
    assert has_all.wait(60)
    kill(first)
    seen = []
    with pytest.raises(BrokenPipeError):
        while True:
            seed, i, values = channel.get(timeout=30)
            assert (values == seed * 1000 + i).all()
            seen.append(i)
    producer.join(30)
    assert seen == list(range(10, 40))
    del channel
    values = None
    assert_empty(arena)


def queue_of_arrays(queue):
    while True:
        queue.put(np.ones(20_000))


def test_killed_workers_of_a_queue(context):
    arena = shm.install(shm.Arena(2 << 20))
    try:
        for seed in range(8):
            rng = random.Random(seed)
            queue = context.SimpleQueue()
            child = start(context, queue_of_arrays, queue)
            for _ in range(rng.randrange(1, 10)):
                assert (queue.get() == 1).all()
            kill(child)
            queue.close()
            assert_empty(arena)
    finally:
        shm.uninstall()


@pytest.mark.parametrize("method", METHODS[1:])
def test_killed_children_of_other_methods(method):
    arena = shm.Arena(2 << 20)
    channel = arena.channel(4)
    child = start(multiprocessing.get_context(method), produce_for_ever, channel, 0)
    assert (channel.get(timeout=30) == 1).all()
    kill(child)
    with pytest.raises(BrokenPipeError):
        while True:
            channel.get(timeout=30)
    del channel
    assert_empty(arena)


def test_64_processes(context):
    arena = shm.Arena(8 << 20)
    channel = arena.channel(16)
    count = 5
    children = [start(context, produce, channel, count, seed) for seed in range(64)]
    seen = {}
    for _ in range(64 * count):
        seed, i, values = channel.get(timeout=60)
        assert (values == seed * 1000 + i).all() and values.shape == (5000,)
        assert seen.get(seed, -1) == i - 1  # in the order of each producer
        seen[seed] = i
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    assert set(seen.values()) == {count - 1}
    del channel, values
    assert_empty(arena)


def test_few_file_descriptors():
    code = """
import multiprocessing, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import headrace.shm as shm, numpy as np
arena = shm.install(shm.Arena("48MiB", max_blocks=2048))

def produce(queue, channel):
    for i in range(600):
        queue.put(np.full(5000, i))
        channel.put(np.full(500, i))

queue, channel = multiprocessing.SimpleQueue(), arena.channel(8)
child = multiprocessing.get_context("fork").Process(target=produce, args=(queue, channel))
child.start()
kept = [(queue.get(), channel.get()) for _ in range(600)]
child.join()
assert all((a == i).all() and (b == i).all() for i, (a, b) in enumerate(kept))
assert arena.stats()["in_band"] == 0 and arena.stats()["blocks"] > 1200
channels = [arena.channel(2) for _ in range(300)]
"""
    python(code)
