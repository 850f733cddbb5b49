"""hr.cached: what is read of a store once is not asked for again."""

import asyncio
import contextlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from headrace.loader import Loader
from helpers import DEVICES, chunk_files, python, smooth

DATA = smooth("f4", (64, 40, 30))
ROOT = Path(__file__).resolve().parents[2]


class Counting(zarr.storage.WrapperStore):
    """Counts what is asked of it."""

    asked = 0

    async def get(self, *args, **kwargs):
        Counting.asked += 1
        return await super().get(*args, **kwargs)


def counting(path):
    Counting.asked = 0
    return Counting(zarr.storage.LocalStore(path))


@pytest.fixture(params=[None, (16, 40, 30)])
def path(request, store):
    array = hr.create_array(
        store, shape=DATA.shape, dtype="f4", chunks=(4, 20, 30), shards=request.param
    )
    array[...] = DATA
    return store


@pytest.mark.parametrize("place", ["cpu", *DEVICES])
def test_what_was_read_is_not_asked_for_again(path, tmp_path, place):
    options = {"directory": tmp_path / "cache", "block": "4KiB", "name": "a"}
    store = hr.cached(counting(path), **options)
    array = hr.open_array(store, device=place)

    def read(selection):
        got = array[selection]
        return got if place == "cpu" else got.to_numpy()

    for selection in np.s_[3:9, 5, ::2], np.s_[60:], np.s_[...]:
        assert np.array_equal(read(selection), DATA[selection])
    asked, stats = Counting.asked, hr.cache_stats(store)
    assert asked > 0 and stats["fetched_bytes"] > 0
    assert np.array_equal(read(np.s_[...]), DATA)
    assert np.array_equal(read(np.s_[7, :, 3:5]), DATA[7, :, 3:5])
    assert Counting.asked == asked
    assert hr.cache_stats(store)["fetched_bytes"] == stats["fetched_bytes"]
    assert hr.cache_stats(store)["memory_hits"] > stats["memory_hits"]
    # Nor by who comes next.
    other = hr.cached(counting(path), memory=0, **options)
    assert np.array_equal(hr.open_array(other, zarr_format=3)[...], DATA)
    stats = hr.cache_stats(other)
    assert stats["disk_hits"] > 0 == stats["memory_bytes"] == stats["fetched_bytes"]


@contextlib.contextmanager
def slow_server(folder, delay_ms):
    """Its URL, and what it was asked since the last call."""
    server = ROOT / "bench" / "e2e" / "slow_server.py"
    command = [sys.executable, server, folder, "--delay-ms", str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"

        def counts():
            with urllib.request.urlopen(f"{url}/_counts") as answer:
                return json.load(answer)

        try:
            yield url, counts
        finally:
            process.kill()


@pytest.mark.parametrize("place", ["cpu", *DEVICES])
@pytest.mark.parametrize("selection", [np.s_[...], np.s_[5:9, 3], np.s_[::7]])
def test_a_web_server_is_asked_no_more_than_without_it(path, tmp_path, place, selection):
    def values(array):
        got = array[selection]
        return got if place == "cpu" else got.to_numpy()

    with slow_server(path, 2) as (url, counts):
        plain = hr.open_array(url, device=place)
        counts()
        assert np.array_equal(values(plain), DATA[selection])
        wanted = counts()
        store = hr.cached(url, directory=tmp_path / "cache")
        for again in range(2):
            array = hr.open_array(store, device=place)
            if again == 0:
                counts()
            assert np.array_equal(values(array), DATA[selection])
            asked = counts()
            assert asked["requests"] <= (0 if again else wanted["requests"])
        # Nor by who comes next.
        other = hr.cached(url, directory=tmp_path / "cache", memory=0)
        assert np.array_equal(values(hr.open_array(other, device=place)), DATA[selection])
        assert counts()["requests"] == 0 == hr.cache_stats(other)["fetched_bytes"]


def test_many_requests_are_under_way_without_a_thread_each(tmp_path):
    hr.create_array(tmp_path / "a.zarr", shape=(64, 100), dtype="f4", chunks=(1, 100))[...] = 1

    with slow_server(tmp_path / "a.zarr", 20) as (url, counts), hr.config.set({"threads": 1}):
        array = hr.open_array(hr.cached(url))
        counts()
        assert (array[...] == 1).all()
        assert counts()["most_at_once"] > 8

    class Slow(zarr.storage.WrapperStore):
        now = most = 0

        async def get(self, *args, **kwargs):
            Slow.now += 1
            Slow.most = max(Slow.most, Slow.now)
            await asyncio.sleep(0.02)
            Slow.now -= 1
            return await super().get(*args, **kwargs)

    with hr.config.set({"threads": 1}):
        array = hr.open_array(hr.cached(Slow(zarr.storage.LocalStore(tmp_path / "a.zarr"))))
        assert (array[...] == 1).all()
        assert Slow.most > 8


def test_a_cached_read_that_is_cancelled_ends_at_once(tmp_path):
    hr.create_array(tmp_path / "a.zarr", shape=(64, 100), dtype="f4", chunks=(1, 100))[...] = 1
    with slow_server(tmp_path / "a.zarr", 0) as (url, counts):
        array = hr.open_array(hr.cached(url))
        urllib.request.urlopen(f"{url}/_delay?ms=60000").close()
        request = array.read_async()
        while counts()["requests"] == 0:
            time.sleep(0.01)
        begin = time.monotonic()
        assert request.cancel()
        with pytest.raises(hr.CancelledError):
            request.result()
        assert time.monotonic() - begin < 30
        urllib.request.urlopen(f"{url}/_delay?ms=0").close()
        assert (array[...] == 1).all()


def test_writes_through_it_are_seen(path, tmp_path):
    store = hr.cached(hr.open_store(path, mode="r+"), directory=tmp_path / "cache")
    array = hr.open_array(store, mode="r+")
    wanted = DATA.copy()
    for step in range(5):
        assert np.array_equal(array[...], wanted)
        array[step * 7] = wanted[step * 7] = step
        array.attrs["step"] = step
    assert np.array_equal(array[...], wanted)
    assert np.array_equal(hr.open_array(path)[...], wanted)
    assert hr.open_array(store).attrs["step"] == 4
    array.resize((8, 40, 30))
    assert np.array_equal(hr.open_array(store)[...], wanted[:8])


def test_a_loader_fetches_each_chunk_once_in_all_epochs(path, tmp_path):
    stored = sum(file.stat().st_size for file in chunk_files(path).values())
    store = hr.cached(path, directory=tmp_path / "cache", block="1KiB")
    loader = Loader({"x": hr.open_array(store)}, batch_size=4, memory_budget="128KiB")
    for _ in range(3):
        assert sum(len(batch["x"]) for batch in loader) == 64
    stats = loader.stats()
    assert stats["decoded_bytes"] >= 2.5 * DATA.nbytes
    # And metadata, and what two threads ask for at once.
    assert hr.cache_stats(store)["fetched_bytes"] < 1.3 * stored


def test_damaged_and_foreign_files_are_passed_over(path, tmp_path):
    def read():
        store = hr.cached(path, directory=tmp_path / "cache", block="8KiB")
        assert np.array_equal(hr.open_array(store)[...], DATA)
        return hr.cache_stats(store)

    read()
    files = [file for file in (tmp_path / "cache").rglob("??/*") if file.is_file()]
    assert len(files) > 8
    for number, file in enumerate(files):
        data = bytearray(file.read_bytes())
        if number % 3 == 0:
            del data[len(data) // 2 :]
        elif number % 3 == 1:
            data[-1] ^= 1
        else:
            data[:] = b"no copy"
        file.write_bytes(data)
    assert read()["damaged_files"] > 2
    assert read()["damaged_files"] == 0


def test_pickled_arrays_have_the_same_copies(path, tmp_path):
    array = hr.open_array(hr.cached(path, directory=tmp_path / "cache", memory="2MiB"))
    assert np.array_equal(array[...], DATA)
    other = pickle.loads(pickle.dumps(array))
    assert np.array_equal(other[...], DATA)
    stats = hr.cache_stats(other.store)
    assert stats["disk_hits"] > 0 == stats["fetched_bytes"]
    assert 0 < stats["memory_bytes"] <= 2 << 20
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(hr.cached(hr.memory_store()))


def test_a_reader_that_is_killed_leaves_good_copies(path, tmp_path):
    code = """
import sys, headrace as hr
while True:
    store = hr.cached(sys.argv[1], directory=sys.argv[2], disk="40KiB", block="1KiB", memory=0)
    hr.open_array(store)[...]
    print("read", flush=True)
"""
    command = [sys.executable, "-c", code, path, str(tmp_path / "cache")]
    for wait in (0.0, 0.01, 0.02, 0.05):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "read\n"
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
        store = hr.cached(path, directory=tmp_path / "cache", block="1KiB")
        assert np.array_equal(hr.open_array(store)[...], DATA)
        stats = hr.cache_stats(store)
        assert stats["damaged_files"] == stats["failures"] == 0


def tree(folder):
    """Every file below it but those of a cache, with its bytes."""
    files = (file for file in Path(folder).rglob("*") if file.is_file())
    return {file: file.read_bytes() for file in files if "headrace-cache-1" not in file.parts}


def test_files_of_others_in_the_folder_stay(path, tmp_path):
    mine = tmp_path / "mine"
    (mine / "3f").mkdir(parents=True)
    (mine / "thesis.bin").write_bytes(b"x" * 2_000_000)
    (mine / "3f" / "0123456789abcd").write_bytes(b"x" * 2_000_000)
    before = tree(mine)
    for _ in range(2):
        store = hr.cached(path, directory=mine, disk=100_000, memory=0, block="1KiB")
        assert np.array_equal(hr.open_array(store)[...], DATA)
    assert tree(mine) == before


def test_the_folder_that_holds_the_store_may_hold_its_copies(tmp_path):
    root = tmp_path / "data" / "a.zarr"
    hr.save(root, DATA)
    before = tree(tmp_path / "data")
    for _ in range(2):
        store = hr.cached(root, directory=tmp_path / "data", disk=1000, memory=0)
        assert np.array_equal(hr.open_array(store)[...], DATA)
    assert tree(tmp_path / "data") == before


def test_the_store_itself_does_not_hold_its_copies(tmp_path, monkeypatch):
    root = tmp_path / "a.zarr"
    hr.save(root, DATA)
    (tmp_path / "link").symlink_to(root)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(root)
    for inside in root, root / "c", root / "new", tmp_path / "link", ".", root / ".." / "a.zarr":
        with pytest.raises(ValueError, match="lies in the store"):
            hr.cached(root, directory=inside)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_somebody_else_is_refused(path, tmp_path):
    (tmp_path / "headrace-cache-1").mkdir()
    (tmp_path / "headrace-cache-1" / "data").write_text("mine")
    with pytest.raises(ValueError, match=r"no folder of copies that headrace has made.*CACHEDIR"):
        hr.cached(path, directory=tmp_path)
    os.mkdir(tmp_path / "open")
    hr.cached(path, directory=tmp_path / "open")
    os.chmod(tmp_path / "open" / "headrace-cache-1", 0o777)
    with pytest.raises(PermissionError, match="other users may write to it"):
        hr.cached(path, directory=tmp_path / "open")


@pytest.mark.parametrize("shards", [None, (32, 40, 30)])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("how", ["path", "store object", "next process"])
def test_an_array_that_was_replaced_is_never_read_in_parts(tmp_path, shards, zarr_format, how):
    if zarr_format == 2 and shards:
        pytest.skip("v2 has no shards")

    def save(value):
        layout = {"chunks": (16, 40, 30), "shards": shards, "compressors": None}
        layout |= {"zarr_format": zarr_format, "fill_value": 7}
        array = hr.create_array(
            tmp_path / "new", shape=DATA.shape, dtype="f4", overwrite=True, **layout
        )
        array[...] = value
        for file in chunk_files(tmp_path / "new").values():
            target = tmp_path / "a.zarr" / file.relative_to(tmp_path / "new")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
        for file in (tmp_path / "new").glob("*z*"):
            os.replace(file, tmp_path / "a.zarr" / file.name)

    def cached():
        store = tmp_path / "a.zarr"
        if how == "store object":
            store = zarr.storage.LocalStore(store)
        options = {"directory": tmp_path / "cache", "name": "a"}
        return hr.open_array(hr.cached(store, block="4KiB", **options))

    save(1)
    array = cached()
    assert (array[3] == 1).all()
    assert (array[40, 20:] == 1).all()
    save(2)
    if how == "next process":
        array = cached()
    wanted = range(0, 64, 32 if shards else 16)  # what is stored as one object
    assert [len(np.unique(array[first : first + wanted.step])) for first in wanted] == [1] * len(
        wanted
    )
    assert (array[:16] == 2).all() and (array[32:48] == 2).all()


def test_example_of_the_page(tmp_path):
    page = (ROOT / "docs" / "cached.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    os.mkdir(tmp_path / "here")
    assert python(f"import os\nos.chdir({str(tmp_path / 'here')!r})\n" + block) == ""


def test_options_of_fsspec_tell_stores_apart(tmp_path):
    for i in (1, 2):
        hr.save(tmp_path / f"{i}.zip", a=[i, i])

    def read(i):
        options = {"fo": str(tmp_path / f"{i}.zip")}
        store = hr.cached("fsspec+zip://a", directory=tmp_path / "c", storage_options=options)
        return list(hr.open_array(store)[:])

    assert [read(1), read(2), read(1)] == [[1, 1], [2, 2], [1, 1]]


def test_wrong_calls(tmp_path):
    with pytest.raises(ValueError, match="is not cached"):
        hr.cache_stats(hr.memory_store())
    with pytest.raises(ValueError, match="memory: expected bytes"):
        hr.cached(hr.memory_store(), memory="much")
    with pytest.raises(ValueError, match="blocks of 0 bytes"):
        hr.cached(hr.memory_store(), block=0)
    text = {"fo": '{"a": "text"}'}
    with pytest.raises(ValueError, match="name: copies on disk need one"):
        hr.cached("reference://", directory=tmp_path / "cache", storage_options=text)
    with pytest.raises(ValueError, match="name: copies on disk need one"):
        hr.cached(hr.memory_store(), directory=tmp_path)
    with pytest.raises(ValueError, match="name: copies on disk need one"):
        hr.cached(zarr.storage.MemoryStore(), directory=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        hr.cached(hr.memory_store(), directory=tmp_path / "file" / "cache", name="x")


def test_handles_that_go_while_requests_of_a_python_store_end(tmp_path):
    """The last one waits for requests that want the GIL: more processes than processors."""
    hr.save(tmp_path / "x.zip", a=[1, 2])
    code = """
        import sys
        from pathlib import Path
        import headrace as hr

        place, name = Path(sys.argv[1]), sys.argv[2]
        for i in range(100):
            store = hr.cached(
                "fsspec+zip://a",
                directory=place / f"{name}-{i}",
                storage_options={"fo": str(place / "x.zip")},
            )
            assert list(hr.open_array(store)[:]) == [1, 2]
            del store
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), str(tmp_path)]
    processes = [subprocess.Popen([*command, str(name)]) for name in range(4)]
    try:
        assert [process.wait(timeout=90) for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
            process.wait()
