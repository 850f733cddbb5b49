"""A source that goes away while it is read or copied is an error, not the fill value."""

import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from headrace import shm
from headrace.loader import Loader
from helpers import assert_same, linux_only

REMOVED = "removed since it was opened"


@pytest.fixture(params=["plain", "shards", "v2", "gzip"])
def array(request, tmp_path):
    options = {
        "plain": {"compressors": None},
        "shards": {"shards": (16, 64)},
        "v2": {"zarr_format": 2},
        "gzip": {"compressors": [hr.codecs.Gzip()]},
    }[request.param]
    array = hr.create_array(
        tmp_path / "g.zarr", "x", shape=(64, 64), chunks=(4, 64), dtype="f4", **options
    )
    array[:] = 1
    return array


def removed(tmp_path):
    shutil.rmtree(tmp_path / "g.zarr" / "x")


@pytest.mark.parametrize("device", ["cpu", "simt"])
@pytest.mark.parametrize(
    "key", [np.s_[:], np.s_[5], np.s_[:, 3], np.s_[[1, 40]]], ids=["all", "row", "column", "rows"]
)
def test_reads(array, tmp_path, device, key):
    removed(tmp_path)
    with pytest.raises(FileNotFoundError, match=REMOVED):
        array.read(key, device=device)


def test_missing_chunks_of_what_is_there(tmp_path):
    array = hr.create_array(tmp_path / "y.zarr", shape=(64,), chunks=(4,), dtype="i2")
    assert not array[:].any()
    array[8:12] = 1
    assert array[:].sum() == 4


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_that_consolidated_metadata_alone_know(tmp_path, zarr_format):
    group = hr.create_group(tmp_path / "g.zarr", zarr_format=zarr_format)
    group.create_group("a").create_array("y", shape=(64,), chunks=(4,), dtype="i2")
    hr.consolidate_metadata(tmp_path / "g.zarr")
    document = ".zarray" if zarr_format == 2 else "zarr.json"
    (tmp_path / "g.zarr" / "a" / "y" / document).unlink()
    assert not hr.open(tmp_path / "g.zarr")["a/y"][:].any()


def test_loader(tmp_path):
    array = hr.create_array(
        tmp_path / "g.zarr", "x", shape=(512, 8192), chunks=(4, 8192), dtype="f4"
    )
    array[:] = 1
    batches = iter(Loader({"x": array}, batch_size=8, prefetch=1, memory_budget="2MiB"))
    next(batches)
    removed(tmp_path)
    with pytest.raises(FileNotFoundError, match=REMOVED):
        list(batches)


@pytest.mark.parametrize("how", ["copy", "rechunk", "save"])
def test_copies_by_a_handle(array, tmp_path, how):
    removed(tmp_path)
    target = tmp_path / "out.zarr"
    with pytest.raises(FileNotFoundError):
        if how == "copy":
            hr.copy(array, target)
        elif how == "rechunk":
            hr.rechunk(array, target, chunks=(8, 32))
        else:
            hr.save(target, array)


def test_rechunk_whose_source_goes_away(array, tmp_path):
    def progress(done, total):
        if done and (tmp_path / "g.zarr" / "x").exists():
            removed(tmp_path)

    with pytest.raises(FileNotFoundError, match=REMOVED):
        hr.rechunk(
            tmp_path / "g.zarr" / "x",
            tmp_path / "out.zarr",
            chunks=(64, 4),
            max_memory="4KiB",
            progress=progress,
        )


def test_what_is_written_anew_reads(array, tmp_path):
    values = array[:]
    removed(tmp_path)
    place = tmp_path / "g.zarr" / "x"
    hr.create_array(place, data=values, chunks=(4, 64))
    assert_same(hr.open(place)[:], values)


def test_copy_of_objects_whose_source_goes_away(tmp_path):
    """By path: objects as they are; metadata come last, some from memory."""
    source = tmp_path / "g.zarr"
    array = hr.create_array(source, shape=(4000, 8), chunks=(1, 8), dtype="i4", compressors=None)
    array[:] = 1

    def rename():
        while not any((tmp_path / "out.zarr").rglob("0")):
            time.sleep(0.001)
        source.rename(tmp_path / "gone.zarr")

    thread = threading.Thread(target=rename)
    thread.start()
    with pytest.raises(FileNotFoundError, match="removed"):
        hr.copy(source, tmp_path / "out.zarr")
    thread.join()


def test_a_lock_that_another_process_holds(tmp_path):
    array = hr.create_array(tmp_path / "a.zarr", shape=(4,), chunks=(2,), dtype="i4")
    holder = subprocess.Popen(
        ["flock", tmp_path / "a.zarr", "sh", "-c", "echo held; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with hr.config.set({"lock_timeout": 1}):
            with pytest.raises(hr.ConflictError, match="lock_timeout"):
                array.append(np.ones(4, "i4"))
            with pytest.raises(hr.ConflictError, match="lock_timeout"):
                array.attrs["a"] = 1
    finally:
        holder.communicate("")
    array.append(np.ones(4, "i4"))
    assert array.shape == (8,)


@pytest.mark.parametrize("seconds", [-1, 2**40, "x", 1.5])
def test_lock_timeouts_that_are_none(seconds):
    with pytest.raises((ValueError, TypeError), match="lock_timeout"):
        hr.config.set({"lock_timeout": seconds})


@linux_only("look at the memory that is available")  # without one another's process may be killed
@pytest.mark.parametrize("backing", ["memfd", "posix"])
def test_arenas_of_more_than_there_is(backing):
    meminfo = Path("/proc/meminfo").read_text()
    available = int(re.search(r"MemAvailable: +(\d+) kB", meminfo)[1]) * 1024
    with pytest.raises(MemoryError):
        shm.Arena(available + (8 << 30), backing=backing)
