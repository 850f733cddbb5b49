"""headrace.shm: share, collate, publish, attach, and the interface without shared memory."""

import gc
import multiprocessing
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import headrace.shm as shm
import numpy as np
import pytest
from headrace.shm import _share
from helpers import assert_same, needs_publications, python
from shm_children import (
    METHODS,
    answer,
    attach_and_tell,
    block_of,
    facts,
    field,
)

ARENA_NBYTES = 8 << 20

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


@pytest.fixture
def arena():
    arena = shm.Arena(ARENA_NBYTES)
    yield arena
    gc.collect()
    assert arena.stats()["used_nbytes"] == 0


def is_in(arena, array):
    start = array.__array_interface__["data"][0]
    return arena._between(start, start + array.nbytes) is not None


# --- share ----------------------------------------------------------------------------------------


def test_share_moves_every_large_array(arena):
    obj = {"a": field(), "b": [(field(1)[::-2], field(2).T)], "small": np.arange(3), "text": "t"}
    got = shm.share(obj, arena=arena)
    assert type(got["b"][0]) is tuple and got["text"] == "t" and list(got["small"]) == [0, 1, 2]
    for array, wanted in ((got["a"], obj["a"]), *zip(got["b"][0], obj["b"][0], strict=True)):
        assert_same(array, wanted)
        assert is_in(arena, array) and array.flags.writeable
    got["a"][0] = 1
    assert not (obj["a"][0] == 1).any()


def test_share_leaves_what_is_there(arena):
    x = arena.empty((100, 100))
    for view in (x, x[::2, ::-1]):
        got = shm.share(view, arena=arena)
        assert got.__array_interface__["data"] == view.__array_interface__["data"]
    frozen = field()
    frozen.flags.writeable = False
    assert shm.share(frozen, arena=arena).flags.writeable


def test_share_xarray_and_pandas(arena):
    xr = pytest.importorskip("xarray")
    pd = pytest.importorskip("pandas")
    ds = xr.Dataset({"t": (("y", "x"), field())}, {"y": np.arange(200.0)}, {"title": "test"})
    got = shm.share(ds, arena=arena)
    xr.testing.assert_identical(got, ds)
    assert is_in(arena, got["t"].values)
    frame = pd.DataFrame(field().astype("f8"))
    got = shm.share(frame, arena=arena)
    pd.testing.assert_frame_equal(got, frame)
    channel = arena.channel(1)
    used = arena.stats()["used_nbytes"]
    channel.put(got)
    assert arena.stats()["used_nbytes"] - used < 16_384
    pd.testing.assert_frame_equal(channel.get(), frame)


def test_share_without_room(arena):
    with pytest.raises(MemoryError, match="no room"):
        shm.share([np.zeros(ARENA_NBYTES // 2, "u1"), np.zeros(ARENA_NBYTES, "u1")])
    assert arena.stats()["used_nbytes"] == 0


@pytest.fixture(autouse=True)
def default_arena(monkeypatch, arena):
    """Not one of 1 GiB."""
    monkeypatch.setattr(_share, "_default", arena)
    yield
    monkeypatch.undo()


def test_the_default_arena(arena):
    assert is_in(arena, shm.share(field()))
    other = shm.install(shm.Arena(1 << 20))
    try:
        assert is_in(other, shm.share(field()))
    finally:
        shm.uninstall()


# --- collate --------------------------------------------------------------------------------------


def test_collate_is_default_collate_in_the_arena(arena):
    torch = pytest.importorskip("torch")
    from torch.utils.data import default_collate

    samples = [
        {"x": torch.from_numpy(field(i)).to(torch.bfloat16), "y": field(i), "i": i, "n": ("a", 2.5)}
        for i in range(4)
    ]
    got, wanted = shm.collate(samples, arena=arena), default_collate(samples)
    assert torch.equal(got["x"], wanted["x"]) and got["x"].dtype == torch.bfloat16
    assert torch.equal(got["y"], wanted["y"]) and torch.equal(got["i"], wanted["i"])
    assert got["n"][0] == wanted["n"][0] and torch.equal(got["n"][1], wanted["n"][1])
    for batch in (got["x"].view(torch.int16), got["y"]):
        assert is_in(arena, batch.numpy())
    with pytest.raises(RuntimeError, match="equal size"):
        shm.collate([torch.zeros(3), torch.zeros(4)], arena=arena)


def test_collate_without_room_uses_ordinary_memory(arena):
    torch = pytest.importorskip("torch")
    got = shm.collate([torch.ones(ARENA_NBYTES // 4)] * 2, arena=arena)
    assert got.shape == (2, ARENA_NBYTES // 4) and not is_in(arena, got.numpy())
    grads = [torch.ones(9000, requires_grad=True)] * 2
    assert shm.collate(grads, arena=arena).requires_grad


# --- publish --------------------------------------------------------------------------------------


@pytest.fixture
def name():
    return f"headrace-test-{os.getpid()}"


@needs_publications
@pytest.mark.parametrize("method", METHODS)
def test_attach_in_other_processes(name, method):
    context = multiprocessing.get_context(method)
    outbox = context.SimpleQueue()
    children = [context.Process(target=attach_and_tell, args=(name, outbox)) for _ in range(2)]
    for child in children:
        child.start()
    data = {"a": field(), "b": field(1)[::2]}
    with shm.publish(name, data) as publication:
        assert publication.name == name and publication.nbytes >= data["a"].nbytes
        for _ in children:
            told = outbox.get()
            for key, value in data.items():
                assert told[key] == (*facts(value)[:3], False, True)
        for child in children:
            child.join(30)


@needs_publications
def test_attached_arrays_outlive_the_publication(name):
    publication = shm.publish(name, {"a": field(), "text": "t"})
    got = shm.attach(name)
    own = shm.attach(name, copy=True)
    with pytest.raises(ValueError, match=name):
        shm.publish(name, 1)
    publication.close()
    with pytest.raises(FileNotFoundError, match=name):
        shm.attach(name)
    with pytest.raises(FileNotFoundError):
        shm.attach(name, timeout=0.05)
    assert_same(got["a"], field())
    assert got["text"] == "t" and block_of(got["a"]) is not None and not got["a"].flags.writeable
    own["a"][0] = 1
    del got
    shm.publish(name, 2).close()


@needs_publications
def test_a_publication_ends_with_its_process(name):
    python("import headrace.shm as shm, sys; kept = shm.publish(sys.argv[1], 1)", name)
    with pytest.raises(FileNotFoundError):
        shm.attach(name)


@needs_publications
def test_names_and_objects_that_are_refused(name):
    for wrong in ("", "x" * 65):
        with pytest.raises(ValueError):
            shm.publish(wrong, 1)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        shm.publish(name, lambda: None)
    shm.publish(name, 1).close()


@needs_publications
def test_several_threads_close_one_publication(name):
    for _ in range(50):
        publication = shm.publish(name, 1)
        with ThreadPoolExecutor(3) as pool:
            closings = [pool.submit(publication.close) for _ in range(3)]
        for closing in closings:
            closing.result(30)


# In a small process: to fork one that has torch 200 times took half a minute on a busy machine.
FORK_MEANWHILE = """
import os, signal, sys, threading, time, warnings
import headrace.shm as shm

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
children = []

def fork():
    for _ in range(200):
        if (child := os.fork()) == 0:
            signal.alarm(60)  # whatever becomes of the parent
            signal.pause()
        children.append(child)
        time.sleep(0.001)

forking = threading.Thread(target=fork)
forking.start()
try:
    published = 0
    while forking.is_alive():
        until = time.monotonic() + 20
        while True:
            try:
                shm.publish(sys.argv[1], 1).close()
                published += 1
                break
            except ValueError:
                assert time.monotonic() < until
                time.sleep(0.001)
finally:
    forking.join()
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
assert (len(children), published > 0) == (200, True)
"""


@needs_publications
def test_a_fork_meanwhile_keeps_no_name(name):
    """A child that is forked in the middle of `publish` or `close` has the socket for a moment."""
    python(FORK_MEANWHILE, name)


# --- without shared memory ------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_without_shared_memory(method):
    arena = shm.Arena("1GiB", backing="none")
    assert isinstance(arena, shm.Arena)
    inbox, outbox = arena.channel(1), arena.channel(1)
    process = multiprocessing.get_context(method).Process(target=answer, args=(inbox, outbox))
    process.start()
    inbox.put(field(), timeout=30)
    told, made = outbox.get(timeout=30)
    assert told == (*facts(field())[:3], True, False) and (made == field() + 1).all()
    process.join(30)
    assert (inbox.qsize(), inbox.empty(), inbox.full()) == (0, True, False)
    with pytest.raises(TimeoutError):
        inbox.get(timeout=0.01)
    inbox.put(1)
    with pytest.raises(TimeoutError):
        inbox.put(2, timeout=0.01)
    assert inbox.get(timeout=30, copy=True) == 1
    with pytest.raises((pickle.PicklingError, AttributeError)):
        inbox.put(lambda: None)


def test_the_rest_of_the_interface_without_shared_memory():
    arena = shm.Arena(backing="none")
    assert arena.empty((2, 3), "f4").shape == (2, 3)
    assert set(arena.stats()) == set(shm.Arena(1 << 20).stats())
    assert arena.stats()["backing"] == "none" and arena.reclaim() == 0
    arena.pin()
    x = field()
    assert shm.share(x, arena=arena) is x
    assert shm.install(arena) is arena
    shm.uninstall()
    if "torch" in sys.modules:
        import torch

        assert shm.collate([torch.ones(9000)] * 2, arena=arena).shape == (2, 9000)
    with pytest.raises(ValueError, match="capacity"):
        arena.channel(0)


CLOSE = """
import os, threading
import headrace.shm as shm
for i in range(30):
    published = shm.publish(f"closed-{os.getpid()}-{i}", 1)
    start, failed = threading.Barrier(3), []

    def close():
        start.wait()
        try:
            published.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=close) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed, failed
"""


@needs_publications
def test_threads_close_one_publication():
    python(CLOSE, timeout=60)
