"""Grids of many chunks of which few are stored: what is there is found, what is not is the fill."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same

SIDE = 96  # 9,216 chunks of one element: enough for a list of what is there


@pytest.fixture(params=[2, 3])
def sparse(request, tmp_path):
    array = hr.create_array(
        tmp_path / "x.zarr",
        "deep/x",
        shape=(SIDE, SIDE),
        chunks=(1, 1),
        dtype="i4",
        fill_value=7,
        zarr_format=request.param,
    )
    expected = np.full((SIDE, SIDE), 7, "i4")
    for at in [(0, 0), (1, 95), (50, 3), (95, 95)]:
        array[at] = expected[at] = sum(at) + 100
    return array, expected


def key_of_50_3(tmp_path):
    files = [path for path in (tmp_path / "x.zarr").rglob("*") if path.is_file()]
    return next(path for path in files if path.name in ("50.3", "3"))


def system_calls(tmp_path, program):
    """How many files a program looked for; -1 without strace."""
    if not shutil.which("strace"):
        return -1
    out = tmp_path / "calls"
    command = ["strace", "-f", "-qq", "-e", "trace=openat,open,statx,newfstatat", "-o", str(out)]
    if subprocess.run([*command, sys.executable, "-c", program]).returncode:
        return -1
    return out.read_text().count("deep/x")


def test_whole(sparse):
    array, expected = sparse
    assert_same(array[...], expected)
    assert_same(array[::-1, 5:], expected[::-1, 5:])
    assert_same(hr.open(array.store, "deep/x")[...], expected)


def test_shards(tmp_path):
    array = hr.create_array(
        tmp_path, shape=(SIDE, SIDE * 2), shards=(1, 2), chunks=(1, 1), dtype="i4", fill_value=7
    )
    expected = np.full((SIDE, SIDE * 2), 7, "i4")
    array[4, 9] = expected[4, 9] = 1
    array[95] = expected[95] = 3
    assert_same(array[...], expected)


def test_points_and_masks(sparse):
    array, expected = sparse
    mask = np.ones(expected.shape, bool)
    mask[7] = False
    assert_same(array.vindex[mask], expected[mask])
    rows = np.arange(SIDE)[::-1].copy()
    assert_same(array.oindex[rows, rows], expected[np.ix_(rows, rows)])


def test_full_and_half_full(tmp_path):
    data = np.arange(5000, dtype="i2") + 1
    array = hr.create_array(tmp_path / "full", data=data, chunks=1)
    assert_same(array[:], data)
    half = data.copy()
    for i in range(0, 5000, 2):
        half[i] = 0
        os.remove(tmp_path / "full" / "c" / str(i))
    assert_same(array[:], half)


def test_chunks_behind_links(sparse, tmp_path):
    array, expected = sparse
    key = key_of_50_3(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    key.rename(elsewhere)
    key.symlink_to(elsewhere)
    assert_same(array[...], expected)


def test_a_damaged_chunk_is_told(sparse, tmp_path):
    array, _ = sparse
    key = key_of_50_3(tmp_path)
    key.write_bytes(b"no zstd frame")
    with pytest.raises(hr.CorruptError):
        array[...]


def test_what_is_written_later_is_read(sparse):
    array, expected = sparse
    assert_same(array[...], expected)
    array[60, 60] = expected[60, 60] = -1
    assert_same(array[...], expected)


OVER = """
import headrace as hr, sys
array = hr.open_array(sys.argv[1], mode="r+")
print("ready", flush=True)
for value in range(2, 1 << 30):
    for i in range(0, 9000, 3):
        array[i] = value
"""


def test_chunks_that_are_written_over_meanwhile_are_there(tmp_path):
    """A list of a folder may leave out a name that is given to another file: tmpfs does."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        array = hr.create_array(f"{folder}/x", shape=9000, chunks=1, dtype="i4", compressors=None)
        array[::3] = np.ones(3000, "i4")
        with subprocess.Popen(
            [sys.executable, "-c", OVER, f"{folder}/x"], stdout=subprocess.PIPE
        ) as writer:
            try:
                assert writer.stdout.readline() == b"ready\n"
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    assert array[...][::3].all()
            finally:
                writer.kill()


def test_what_is_missing_is_not_looked_for(sparse, tmp_path):
    array, _ = sparse
    program = f"import headrace; headrace.open({str(tmp_path / 'x.zarr')!r}, 'deep/x')[...]"
    calls = system_calls(tmp_path, program)
    if calls < 0:
        pytest.skip("no strace here, or it may not trace")
    assert calls < SIDE * SIDE / 4, array


def test_what_was_written_a_moment_ago_is_listed_too(tmp_path):
    program = f"""if True:
        import headrace
        array = headrace.create_array(
            {str(tmp_path)!r}, "deep/x", shape=1 << 17, chunks=1, dtype="u1", compressors=None
        )
        array[5] = 1
        assert array[:].sum() == 1
    """
    calls = system_calls(tmp_path, program)
    if calls < 0:
        pytest.skip("no strace here, or it may not trace")
    assert calls < 1 << 12
