"""Several writers of one array or group: threads, handles, spellings and processes lose nothing."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from forking import fork
from zarr.storage import LocalStore

FORMATS = [2, 3]
THREADS = 4


def run_together(*calls):
    """Starts them at once and raises what one of them raises."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


def run_processes(code, *arguments):
    """One process for each tuple of arguments; they begin when all are ready."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for each in arguments
    ]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"\n")
        child.stdin.close()
    for child in children:
        assert child.wait(100) == 0
        child.stdout.close()


READY = """
import sys, numpy as np, headrace as hr
print("ready", flush=True); sys.stdin.readline()
"""


# --- one array under every spelling

SPELLINGS = {
    "member": lambda root, folder: hr.open_group(root, mode="r+")["a"],
    "path": lambda root, folder: hr.open_array(f"{root}/a", mode="r+"),
    "pathlib": lambda root, folder: hr.open_array(Path(root) / "a", mode="r+"),
    "dots": lambda root, folder: hr.open_array(f"{root}/../{Path(root).name}/a", mode="r+"),
    "url": lambda root, folder: hr.open_array(f"file://{root}/a", mode="r+"),
    "encoded": lambda root, folder: hr.open_array(
        f"file://{root[:-1]}%{ord(root[-1]):x}/a", mode="r+"
    ),
    "relative": lambda root, folder: hr.open_array(os.path.relpath(root), "a", mode="r+"),
    "link to the store": lambda root, folder: hr.open_group(folder / "store", mode="r+")["a"],
    "link to the array": lambda root, folder: hr.open_array(folder / "array", mode="r+"),
    "link within the store": lambda root, folder: hr.open_group(root, mode="r+")["linked"],
    "cached": lambda root, folder: hr.open_array(
        hr.cached(hr.open_store(root, mode="r+")), "a", mode="r+"
    ),
    "zarr's store": lambda root, folder: hr.open_array(LocalStore(root), "a", mode="r+"),
    "wrapped": lambda root, folder: hr.open_array(
        zarr.storage.LoggingStore(LocalStore(root), log_level="CRITICAL"), "a", mode="r+"
    ),
}


@pytest.fixture
def spelled(tmp_path):
    """Makes an array of eight numbers in one stored object, with links to it."""

    def make(zarr_format, **options):
        root = str(tmp_path / "s")
        group = hr.create_group(root, zarr_format=zarr_format)
        group.create_array("a", shape=8, dtype="u4", **options)
        for name, target in {
            "store": root,
            "array": f"{root}/a",
            "s/linked": "a",
        }.items():
            (tmp_path / name).symlink_to(target, target_is_directory=True)
        return root

    return make


@pytest.mark.parametrize(
    ("zarr_format", "options"),
    [(2, {"chunks": 8}), (3, {"chunks": 8}), (3, {"chunks": 2, "shards": 8})],
    ids=["v2", "v3", "shards"],
)
def test_every_spelling_is_one_array(spelled, tmp_path, zarr_format, options):
    root = spelled(zarr_format, **options)
    names = [name for name in SPELLINGS if name != "cached"]
    places = {SPELLINGS[name](root, tmp_path).store._identity("") for name in ("dots", "url")}
    assert len(places) == 1
    for group in (names[:4], names[4:8], names[8:], ["cached", "member", "wrapped"]):
        arrays = [SPELLINGS[name](root, tmp_path) for name in group]

        def count(i, array):
            for turn in range(1, 101):
                array[2 * i : 2 * i + 2] = turn

        run_together(*[lambda i=i, a=a: count(i, a) for i, a in enumerate(arrays)])
        found = hr.open_array(f"{root}/a")[: 2 * len(arrays)]
        assert found.tolist() == [100] * 2 * len(arrays), group


def test_writes_to_one_chunk_from_every_pair_of_spellings_keep_each_other(spelled, tmp_path):
    """Two writers that check after each write that theirs is there."""
    root = spelled(3, chunks=8)
    one = hr.open_group(root, mode="r+")["a"]
    for name, make in SPELLINGS.items():
        other = make(root, tmp_path)

        def write(array, place, name=name):
            for turn in range(1, 31):
                array[place] = turn
                # "cached" keeps what it has read, so it is looked at past it.
                assert one[place] == turn, name

        run_together(lambda: write(one, 0), lambda other=other: write(other, 5))


def test_stores_are_told_apart(tmp_path):
    one = hr.open_store(tmp_path / "one", mode="a")
    two = hr.open_store(tmp_path / "two", mode="a")
    assert one._identity() != two._identity()
    assert one._identity("a") != one._identity("b")
    (tmp_path / "one/a").mkdir()
    assert hr.open_store(tmp_path / "one/a", mode="a")._identity() == one._identity("a")
    assert hr.open_store(tmp_path / "one/x", mode="a")._identity("y/z") == one._identity("x/y/z")
    assert (
        hr.open_store("memory://p", mode="a")._identity()
        != hr.open_store("memory://q", mode="a")._identity()
    )
    assert hr.open_store("memory://p", mode="a")._identity("a") == hr.open_store(
        "memory://p", mode="r+"
    )._identity("a")


# --- append, resize

GRIDS = {
    "v2": {"zarr_format": 2, "chunks": 4},
    "v3": {"chunks": 4},
    "one by one": {"chunks": 1},
    "shards": {"chunks": 2, "shards": 8},
    "rectilinear": {"chunks": [[3, 2]]},
}


def blocks_of(writer, count, nrows):
    """Rows that tell who wrote them and in which turn."""
    for turn in range(count):
        yield np.full(nrows, writer * 10_000 + turn + 1, "u4")


def assert_appended(array, writers, count, nrows):
    data = array[...]
    assert data.size == len(writers) * count * nrows
    rows = data.reshape(-1, nrows)
    assert (rows == rows[:, :1]).all(), "a block is torn"
    for writer in writers:
        mine = [row[0] for row in rows if row[0] // 10_000 == writer]
        assert mine == [writer * 10_000 + turn + 1 for turn in range(count)]


def start_array(store, options):
    shape = 5 if "chunks" in options and isinstance(options["chunks"], list) else 0
    array = hr.create_array(store, "a", shape=shape, dtype="u4", **options)
    if shape:
        array.resize(0)
    return array


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("handles", ["one", "many"])
def test_threads_append(store, grid, handles):
    array = start_array(store, GRIDS[grid])

    def append(writer, array):
        starts = []
        for block in blocks_of(writer, 20, 3):
            (end,) = array.append(block)
            starts.append(end - 3)
        return starts

    arrays = [
        array if handles == "one" else hr.open_array(store, "a", mode="r+") for _ in range(THREADS)
    ]
    starts = run_together(*[lambda w=w: append(w, arrays[w]) for w in range(THREADS)])
    # Each was told the rows that became its own.
    assert sorted(chain.from_iterable(starts)) == list(range(0, THREADS * 60, 3))
    found = hr.open_array(store, "a")[...]
    for writer, mine in enumerate(starts):
        for start, block in zip(mine, blocks_of(writer, 20, 3), strict=True):
            np.testing.assert_array_equal(found[start : start + 3], block)
    assert_appended(hr.open_array(store, "a"), range(THREADS), 20, 3)


def test_threads_append_in_memory_and_over_a_store_of_zarr():
    for store in ("memory://appended", hr.zarr.Store("memory://wrapped").handle):
        array = hr.create_array(store, "a", shape=0, chunks=4, dtype="u4", overwrite=True)

        def append(writer, array=array):
            for block in blocks_of(writer, 20, 3):
                array.append(block)

        run_together(*[lambda w=w: append(w) for w in range(THREADS)])
        assert_appended(array, range(THREADS), 20, 3)


APPEND = (
    READY
    + """
array = hr.open_array(sys.argv[1], "a", mode="r+")
for turn in range(30):
    array.append(np.full(3, int(sys.argv[2]) * 10_000 + turn + 1, "u4"))
"""
)


@pytest.mark.parametrize("grid", ["v2", "v3", "shards"])
def test_processes_append(store, grid):
    start_array(store, GRIDS[grid])
    run_processes(APPEND, *[(store, writer) for writer in range(3)])
    assert_appended(hr.open_array(store, "a"), range(3), 30, 3)


APPEND_THROUGH = (
    """
import zarr.storage
from obstore.store import LocalStore
OPEN = {
    "native": lambda root: root,
    "wrapped": lambda root: zarr.storage.WrapperStore(zarr.storage.LocalStore(root)),
    "subclass": lambda root: type("Local", (zarr.storage.LocalStore,), {})(root),
    "obstore": lambda root: zarr.storage.ObjectStore(LocalStore(root)),
}
"""
    + READY
    + """
array = hr.open_array(OPEN[sys.argv[3]](sys.argv[1]), "a", mode="r+")
for turn in range(15):
    array.append(np.full(3, int(sys.argv[2]) * 10_000 + turn + 1, "u4"))
import os; os._exit(0)  # threads of obstore now and then abort a Python that ends
"""
)


@pytest.mark.parametrize("way", ["wrapped", "subclass", "obstore"])
def test_processes_append_through_stores_of_zarr_in_a_folder(store, way):
    pytest.importorskip("obstore")
    start_array(store, GRIDS["v3"])
    run_processes(APPEND_THROUGH, (store, 0, "native"), (store, 1, way), (store, 2, way))
    assert_appended(hr.open_array(store, "a"), range(3), 15, 3)


def test_appends_along_another_axis(store):
    array = hr.create_array(store, shape=(2, 0), chunks=(2, 3), dtype="u4")
    others = [hr.open_array(store, mode="r+") for _ in range(THREADS)]
    run_together(
        *[
            lambda i=i, other=other: [
                other.append(np.full((2, 2), i + 1, "u4"), axis=-1) for _ in range(10)
            ]
            for i, other in enumerate(others)
        ]
    )
    found = hr.open_array(store)[...]
    assert found.shape == (2, THREADS * 20)
    assert (np.bincount(found.ravel()) == [0] + [40] * THREADS).all()
    assert array.append(np.zeros((2, 1), "u4"), axis=1) == (2, THREADS * 20 + 1)


def test_readers_never_see_rows_before_they_are_written(store):
    array = hr.create_array(store, "a", shape=0, chunks=4, dtype="u4")
    stop = threading.Event()

    def read():
        seen = 0
        while not stop.is_set():
            data = hr.open_array(store, "a")[...]
            assert data.all(), "a row is there that nobody has written"
            assert data.size >= seen
            seen = data.size

    def append():
        try:
            for _ in range(150):
                array.append(np.ones(3, "u4"))
        finally:
            stop.set()

    run_together(append, read, read)


def test_a_handle_that_is_behind_keeps_what_others_appended(store):
    """Its last chunk is whole by the shape that it knows."""
    for options in ({"chunks": 8}, {"chunks": 2, "shards": 8}, {"chunks": 8, "zarr_format": 2}):
        hr.create_group(store, zarr_format=options.get("zarr_format", 3), overwrite=True)
        hr.create_array(store, "a", shape=3, dtype="u4", **options)
        behind = hr.open_array(store, "a", mode="r+")
        behind[...] = 1
        hr.open_array(store, "a", mode="r+").append(np.full(4, 7, "u4"))
        behind[...] = 2
        assert hr.open_array(store, "a")[...].tolist() == [2, 2, 2, 7, 7, 7, 7]
        assert behind.append(np.full(2, 9, "u4")) == (9,)
        assert behind[...].tolist() == [2, 2, 2, 7, 7, 7, 7, 9, 9]


def test_resize_shows_nothing_old_when_it_grows_again(store):
    for options in ({"chunks": 4}, {"chunks": 2, "shards": 4}, {"chunks": 4, "zarr_format": 2}):
        hr.create_group(store, zarr_format=options.get("zarr_format", 3), overwrite=True)
        array = hr.create_array(store, "a", shape=(10, 6), dtype="u4", fill_value=5, **options)
        array[...] = 1
        array.resize((5, 3))
        array.resize((10, 6))
        expected = np.full((10, 6), 5, "u4")
        expected[:5, :3] = 1
        np.testing.assert_array_equal(array[...], expected)
        np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[...], expected)


def test_shrinking_and_appending_handles_agree(store):
    """Whatever the order: rows are those of an append after the last shrink, from the front on."""
    hr.create_array(store, "a", shape=0, chunks=3, dtype="u4")

    def append(array):
        for _ in range(40):
            array.append(np.ones(2, "u4"))

    def shrink(array):
        for _ in range(40):
            array.resize(1)

    arrays = [hr.open_array(store, "a", mode="r+") for _ in range(3)]
    run_together(lambda: append(arrays[0]), lambda: append(arrays[1]), lambda: shrink(arrays[2]))
    found = hr.open_array(store, "a")
    assert found[1:].all()
    found = hr.open_array(store, "a", mode="r+")
    size = found.shape[0]
    found.resize(size + 20)
    assert not found[size:].any(), "a chunk outlived the shrink"


def test_a_failed_append_changes_nothing(store):
    array = hr.create_array(store, "a", shape=3, chunks=2, dtype="u4")
    array[...] = 1
    before = sorted(p for p in Path(store).rglob("*") if p.is_file())
    chunk = Path(store) / "a/c/2"
    chunk.mkdir()
    (chunk / "in the way").touch()
    with pytest.raises(OSError):
        array.append(np.ones(6, "u4"))
    (chunk / "in the way").unlink()
    chunk.rmdir()
    assert hr.open_array(store, "a")[...].tolist() == [1, 1, 1] == array[...].tolist()
    assert sorted(p for p in Path(store).rglob("*") if p.is_file()) == before
    array.resize(9)
    assert array[...].tolist() == [1, 1, 1] + [0] * 6


# --- who holds the lock

HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def held(store):
    """An array whose folder another process has locked."""
    hr.create_array(store, "a", shape=0, chunks=4, dtype="u4")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, f"{store}/a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"ready\n"
        yield holder
        holder.kill()


def test_append_waits_for_another_process_and_not_for_a_dead_one(store, held):
    array = hr.open_array(store, "a", mode="r+")
    done = threading.Event()

    def append():
        array.append(np.ones(2, "u4"))
        done.set()

    thread = threading.Thread(target=append)
    thread.start()
    assert not done.wait(0.2)
    # Other arrays, and chunks of this one, wait for nobody.
    hr.create_array(store, "b", shape=0, chunks=4, dtype="u4").append(np.ones(2, "u4"))
    held.send_signal(signal.SIGKILL)
    thread.join(30)
    assert done.is_set()


CTRL_C = """
import signal, sys, numpy as np, headrace as hr
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
array = hr.open_array(sys.argv[1], "a", mode="r+")
try:
    print("ready", flush=True)
    calls = {
        "append": lambda: array.append(np.ones(2, "u4")),
        "resize": lambda: array.resize(4),
        "attributes": lambda: array.attrs.update(x=1),
    }
    calls[sys.argv[2]]()
except KeyboardInterrupt:
    print("interrupted", array.shape)
"""


@pytest.mark.parametrize("call", ["append", "resize", "attributes"])
def test_ctrl_c_ends_the_wait(store, held, call):
    with subprocess.Popen(
        [sys.executable, "-c", CTRL_C, store, call], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        # Before the wait or in it: both are to end.
        child.send_signal(signal.SIGINT)
        assert child.stdout.read() == b"interrupted (0,)\n"
        assert child.wait(30) == 0


def test_a_child_of_fork_does_not_keep_its_parents_lock(store):
    """Forked in mid-append, by a store that is being written to."""
    folder = LocalStore(store)
    hr.create_array(store, "a", shape=0, chunks=4, dtype="u4")
    array = hr.open_array(store, "a", mode="r+")
    stop = threading.Event()

    def append():
        while not stop.is_set():
            array.append(np.ones(2, "u4"))

    thread = threading.Thread(target=append)
    read, write = os.pipe()
    thread.start()
    children = []
    try:
        for _ in range(10):
            child = fork()
            if child == 0:
                os.close(write)
                os.read(read, 1)  # until the parent is done
                os._exit(0)
            children.append(child)
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    # All children live: none of them holds what the parent's threads held.
    hr.open_array(folder, "a", mode="r+").append(np.ones(2, "u4"))
    run_processes(APPEND, (store, 3))
    os.close(write)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    os.close(read)
    assert hr.open_array(store, "a")[...].all()


def test_a_child_of_fork_appends(store):
    array = hr.create_array(store, "a", shape=0, chunks=4, dtype="u4")
    children = []
    for _ in range(3):
        child = fork()
        if child == 0:
            try:
                for _ in range(10):
                    array.append(np.ones(2, "u4"))
                    array.attrs[str(os.getpid()) + str(array.shape)] = 1
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)
    for _ in range(10):
        array.append(np.ones(2, "u4"))
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    found = hr.open_array(store, "a")
    assert found.shape == (80,) and found[...].all()
    assert len(found.attrs) == 30


def test_nothing_of_ours_stays_in_the_store(store):
    group = hr.create_group(store)
    array = group.create_array("a", shape=0, chunks=4, dtype="u4")
    array.append(np.ones(2, "u4"))
    array.attrs["x"] = 1
    group.attrs["y"] = 2
    hr.consolidate_metadata(store)
    names = {str(path.relative_to(store)) for path in Path(store).rglob("*") if path.is_file()}
    assert names == {"zarr.json", "a/zarr.json", "a/c/0"}


# --- stores without a lock


class Remote(zarr.storage.WrapperStore):
    """Somebody else's change comes between what a call reads and what it writes."""

    between = None

    async def set(self, key, value):
        if key.endswith("zarr.json") and (change := type(self).between):
            type(self).between = None
            await self._store.set(key, change(value))
        await self._store.set(key, value)


def test_a_change_that_is_seen_where_there_is_no_lock_is_a_conflict():
    memory = zarr.storage.MemoryStore()
    store = Remote(memory)
    array = hr.create_array(store, "a", shape=0, chunks=4, dtype="u4")
    array.append(np.ones(2, "u4"))
    other = hr.open_array(memory, "a", mode="r+")
    behind = hr.open_array(store, "a", mode="r+")
    other.append(np.full(2, 3, "u4"))
    behind.append(np.full(2, 4, "u4"))
    assert hr.open_array(memory, "a")[...].tolist() == [1, 1, 3, 3, 4, 4]
    assert issubclass(hr.ConflictError, RuntimeError)


# --- attributes


@pytest.fixture(params=["array", "group"])
def nodes(request, store):
    """Makes handles of one node, each opened anew."""

    def make(zarr_format):
        hr.create_group(store, zarr_format=zarr_format, overwrite=os.path.exists(store))
        hr.create_array(store, "a", shape=0, chunks=4, dtype="u4", zarr_format=zarr_format)

        def again():
            if request.param == "group":
                return hr.open_group(store, mode="r+")
            return hr.open_array(store, "a", mode="r+")

        return again

    return make


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("handles", ["one", "many"])
def test_threads_set_attributes(nodes, zarr_format, handles):
    again = nodes(zarr_format)
    node = again()

    def change(i, node):
        for turn in range(15):
            node.attrs[f"k{i}.{turn}"] = turn
            node.attrs.update({f"u{i}": turn})
            node.attrs[f"gone{i}"] = 1
            del node.attrs[f"gone{i}"]

    run_together(
        *[lambda i=i: change(i, node if handles == "one" else again()) for i in range(THREADS)]
    )
    expected = {f"k{i}.{turn}": turn for i in range(THREADS) for turn in range(15)}
    expected |= {f"u{i}": 14 for i in range(THREADS)}
    assert again().attrs.asdict() == expected
    assert (
        dict(zarr.open(again().store.url.removeprefix("file://"), path=again().path).attrs)
        == expected
    )


def test_one_thread_takes_an_attribute(nodes):
    again = nodes(3)
    again().attrs.update({f"k{i}": i for i in range(40)})
    node = again()
    taken = run_together(
        *[lambda: [node.attrs.pop(f"k{i}", None) for i in range(20)] for _ in range(THREADS)]
    )
    assert sorted(x for row in taken for x in row if x is not None) == list(range(20))
    items = run_together(
        *[lambda: [again().attrs.popitem() for _ in range(5)] for _ in range(THREADS)]
    )
    assert sorted(chain.from_iterable(items)) == sorted((f"k{i}", i) for i in range(20, 40))
    with pytest.raises(KeyError):
        again().attrs.popitem()
    with pytest.raises(KeyError, match="k3"):
        again().attrs.pop("k3")
    with pytest.raises(KeyError, match="k3"):
        del again().attrs["k3"]
    won = run_together(*[lambda i=i: again().attrs.setdefault("first", i) for i in range(THREADS)])
    assert len(set(won)) == 1 and again().attrs["first"] == won[0]


ATTRIBUTES = (
    READY
    + """
node = hr.open(sys.argv[1], sys.argv[2], mode="r+")
for turn in range(30):
    node.attrs[f"k{sys.argv[3]}.{turn}"] = turn
"""
)


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_processes_set_attributes(nodes, store, zarr_format):
    again = nodes(zarr_format)
    run_processes(ATTRIBUTES, *[(store, again().path, i) for i in range(3)])
    assert len(again().attrs) == 90


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_attributes_shape_and_consolidation_do_not_undo_each_other(store, zarr_format):
    group = hr.create_group(store, zarr_format=zarr_format)
    group.create_array("a", shape=0, chunks=4, dtype="u4")

    def append():
        array = hr.open_array(store, "a", mode="r+")
        for _ in range(30):
            array.append(np.ones(2, "u4"))

    def describe():
        array = hr.open_array(store, "a", mode="r+")
        group = hr.open_group(store, mode="r+")
        for turn in range(30):
            array.attrs[f"k{turn}"] = turn
            group.attrs[f"g{turn}"] = turn

    def consolidate():
        for _ in range(10):
            hr.consolidate_metadata(store)

    run_together(append, append, describe, consolidate)
    array = hr.open_array(store, "a")
    assert array.shape == (120,) and array[...].all()
    assert array.attrs.asdict() == {f"k{turn}": turn for turn in range(30)}
    found = hr.open_group(store)
    assert found.consolidated
    assert hr.open_group(store, use_consolidated=False).attrs.asdict() == {
        f"g{turn}": turn for turn in range(30)
    }


# --- creation


def test_one_of_many_creators_wins(store):
    def create(i):
        try:
            hr.create_array(store, "g/h/a", shape=4, chunks=4, dtype="u4", attributes={"by": i})
        except ValueError:
            return None
        return i

    for _ in range(5):
        won = [i for i in run_together(*[lambda i=i: create(i) for i in range(8)]) if i is not None]
        assert len(won) == 1
        assert hr.open_array(store, "g/h/a").attrs["by"] == won[0]
        hr.create_group(store, overwrite=True)


def test_groups_above_are_made_once(store):
    def create(i):
        hr.create_array(store, f"g/a{i}", shape=4, chunks=4, dtype="u4")
        group = hr.open_group(store, "g", mode="r+")
        group.attrs[f"k{i}"] = i

    run_together(*[lambda i=i: create(i) for i in range(8)])
    assert len(hr.open_group(store, "g").attrs) == 8
    assert len(hr.open_group(store, "g")) == 8


def test_a_removed_array_does_not_come_back(store):
    group = hr.create_group(store)
    array = group.create_array("a", shape=0, chunks=4, dtype="u4")
    hr.create_group(store, overwrite=True)
    with pytest.raises(FileNotFoundError, match="removed"):
        array.append(np.ones(2, "u4"))
    with pytest.raises(FileNotFoundError, match="removed"):
        array.attrs["x"] = 1
    with pytest.raises(FileNotFoundError, match="removed"):
        array.resize(3)
    assert list(hr.open_group(store)) == []
    group.create_array("a", shape=(0, 2), chunks=4, dtype="f8")
    with pytest.raises(hr.ConflictError, match="taken its place"):
        array.append(np.ones(2, "u4"))


def test_threads_that_make_the_folder_of_an_array_keep_each_other(tmp_path):
    """zarr-python hands over metadata that are not stored: the first write makes the folder."""
    threads, each = 8, 8
    hr.create_array(tmp_path / "x", shape=(64,), chunks=(64,), dtype="i4")
    document = (tmp_path / "x" / "zarr.json").read_text()
    store = hr.open_store(tmp_path, mode="r+")
    for n in range(30):
        array = hr._core.open_array(store, f"a{n}/b/c/d/e/f", metadata_json=document)
        begin = threading.Barrier(threads)

        def write(k, array=array, begin=begin):
            begin.wait()
            array[k * each : (k + 1) * each] = np.full(each, k + 1, "i4")

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, range(threads)))
        assert np.asarray(array[:]).tolist() == np.repeat(range(1, threads + 1), each).tolist()


@pytest.mark.parametrize("removed", ["g/0", "g/0/1"])
def test_a_node_below_attributes_alone_is_no_chunk(tmp_path, removed):
    """A group of Zarr 2 whose .zgroup is missing looks like an array that was removed."""
    hr.create_group(tmp_path / "g" / "0", zarr_format=2)
    hr.create_array(tmp_path / "g" / "0" / "1", shape=(4,), dtype="i4", zarr_format=2)
    (tmp_path / "g" / ".zattrs").write_text("{}")
    notes = tmp_path.joinpath(removed, "notes.txt")
    notes.write_text("of the user")
    hr.open_store(tmp_path, mode="r+")._remove_nodes(removed)
    assert not any((tmp_path / removed).glob(".z*"))
    assert notes.read_text() == "of the user"
