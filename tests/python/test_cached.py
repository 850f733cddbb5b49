"""hr.cached: what is read of a store once is not asked for again."""

import os
import pickle
import re
import signal
import subprocess
import sys
import time
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
    files = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
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


def test_example_of_the_page(tmp_path):
    page = (ROOT / "docs" / "cached.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    os.mkdir(tmp_path / "here")
    assert python(f"import os\nos.chdir({str(tmp_path / 'here')!r})\n" + block) == ""


def test_wrong_calls(tmp_path):
    with pytest.raises(ValueError, match="is not cached"):
        hr.cache_stats(hr.memory_store())
    with pytest.raises(ValueError, match="memory: expected bytes"):
        hr.cached(hr.memory_store(), memory="much")
    with pytest.raises(ValueError, match="blocks of 0 bytes"):
        hr.cached(hr.memory_store(), block=0)
    with pytest.raises(ValueError, match="name: copies on disk need one"):
        hr.cached(hr.memory_store(), directory=tmp_path)
    with pytest.raises(ValueError, match="name: copies on disk need one"):
        hr.cached(zarr.storage.MemoryStore(), directory=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        hr.cached(hr.memory_store(), directory=tmp_path / "file" / "cache", name="x")
