"""`device_mapped` and `device_rates` of the configuration, and what `hr.doctor()` says of them.

A device that runs kernels on the CPU takes files of a tmpfs by the same way as a GPU.
"""

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import needs_mapped_files

SHM = Path("/dev/shm")
needs_tmpfs = pytest.mark.skipif(
    not SHM.is_dir() or not os.access(SHM, os.W_OK), reason="/dev/shm is no tmpfs"
)


def settle():
    time.sleep(0.1)  # what was changed a moment ago is not mapped


@pytest.fixture
def folder():
    made = tempfile.mkdtemp(dir=SHM)
    with hr.config.set(
        device_mapped="on",
        device_mapped_nbytes="64MiB",
        device_min_decode_nbytes=0,
        device_slab_nbytes="2MiB",
    ):
        yield Path(made)
    shutil.rmtree(made)


def make(path, codec=None, shards=None):
    x = np.random.default_rng(0).random((6, 1 << 17), "f4")
    a = hr.create_array(
        path,
        shape=x.shape,
        dtype="f4",
        chunks=(1, 1 << 17),
        shards=shards,
        compressors=codec,
        overwrite=True,
    )
    a[:] = x
    settle()
    return x, hr.open_array(path, device="simt")


def counted():
    return hr.doctor()["mapped"]


def numpy_of(a):
    return a[...].to_numpy()


@needs_mapped_files
@needs_tmpfs
@pytest.mark.parametrize("shards", [None, (3, 1 << 17)])
@pytest.mark.parametrize("codec", [None, hr.codecs.Zstd(level=1), hr.codecs.LZ4()])
def test_files_in_memory_stay_mapped(folder, codec, shards):
    x, a = make(folder / "a", codec, shards)
    before = counted()
    assert np.array_equal(numpy_of(a), x)
    first = counted()
    files = 6 if shards is None else 2
    assert first["mapped"] - before["mapped"] == files
    assert first["windows"] == files and first["nbytes"] > files * 300_000
    assert first["most_nbytes"] == 64 << 20
    assert np.array_equal(numpy_of(a), x)
    second = counted()
    assert second["mapped"] == first["mapped"] and second["reused"] > first["reused"]
    with hr.config.set(device_mapped="off"):
        assert counted()["nbytes"] == 0
        assert np.array_equal(numpy_of(a), x)
        assert counted()["mapped"] == first["mapped"]


@needs_tmpfs
def test_a_file_that_is_replaced_or_cut_short_is_no_signal(folder):
    x, a = make(folder / "a")
    assert np.array_equal(numpy_of(a), x)
    writer = hr.open_array(folder / "a", mode="r+")
    writer[2] = x[3]
    x[2] = x[3]
    settle()
    assert np.array_equal(numpy_of(a), x)
    chunk = folder / "a/c/4/0"
    size = chunk.stat().st_size
    os.truncate(chunk, 4096)
    with pytest.raises(hr.CorruptError, match="chunk c/4/0"):
        numpy_of(a)
    os.truncate(chunk, size)
    settle()
    x[4].view("u1")[4096:] = 0
    assert np.array_equal(numpy_of(a), x)


@needs_mapped_files
@needs_tmpfs
def test_a_child_maps_for_itself(folder):
    x, a = make(folder / "a")
    assert np.array_equal(numpy_of(a), x)
    pid = os.fork()
    if pid == 0:
        good = False
        try:
            signal.alarm(60)
            good = counted()["windows"] == 0
            good = good and np.array_equal(numpy_of(a), x) and counted()["windows"] == 6
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert np.array_equal(numpy_of(a), x)


def test_files_of_a_disk_are_not_mapped(tmp_path):
    if shutil.disk_usage(tmp_path).total == shutil.disk_usage(SHM).total:
        pytest.skip("temporary files are in memory")
    with hr.config.set(device_mapped="on", device_min_decode_nbytes=0):
        before = counted()
        x, a = make(tmp_path / "a")
        assert np.array_equal(numpy_of(a), x)
        assert counted()["mapped"] == before["mapped"]


def test_settings():
    assert hr.config.get("device_mapped") == "off"
    assert hr.config.get("device_rates") == "measured"
    for wrong in ({"device_mapped": "yes"}, {"device_rates": "guessed"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            hr.config.set(wrong)
    with pytest.raises(TypeError, match="device_mapped"):
        hr.config.set(device_mapped=True)
    assert counted()["most_nbytes"] == 0
    with hr.config.set(device_mapped="on"):
        assert counted()["most_nbytes"] > 0


def test_rates_say_whence_they_are():
    rows = {row["device"]: row for row in hr.doctor()["rates"]}
    simt = rows["simt"]
    assert simt["source"].startswith("built in")
    assert simt["zstd"]["host_gb_s"] > 0 and simt["fetch_gb_s"] > 0
    with hr.config.set(device_rates="built-in"):
        for row in hr.doctor()["rates"]:
            assert row["source"] == "built in: as configured"


def test_the_engine_of_newer_chips_is_in_the_table():
    row = next(r for r in hr.codecs.table() if r["implementation"] == "blackwell-engine")
    assert row["codec"] == "lz4" and row["device"] == "cuda" and not row["encodes"]
    assert row["available"] or row["why_not"]
