"""kill -9 of a writer in mid-write: every chunk is old or new, nothing left over breaks reading.

A leftover temporary file is allowed, being no chunk key; a later write may or may not remove it.
HEADRACE_CRASHES is the number of kills of each test, each in a process of its own.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same, read_zarr

ROUNDS = int(os.environ.get("HEADRACE_CRASHES", "3"))
SIDE, CHUNK = 64, 16
OLD = 1
NOISE = np.arange(SIDE * SIDE, dtype="u4").reshape(SIDE, SIDE)

LAYOUTS = {
    "chunks": {},
    "shards": {"shards": (32, 32)},
    "v2": {"zarr_format": 2, "compressors": hr.codecs.Blosc()},
    "raw": {"compressors": None},
}

WRITER = """
import sys, numpy as np, headrace as hr
array = hr.open_array(sys.argv[1], mode="r+")
rng = np.random.default_rng(int(sys.argv[2]))
noise = rng.integers(0, 2**16, array.shape, dtype="u4") << 16
print("ready", flush=True)
turn = 1
while True:
    turn += 1
    array[...] = noise | np.uint32(turn)
"""

# Behind the end there may be rows of an append that was killed.
APPENDER = """
import sys, numpy as np, headrace as hr
array = hr.open_array(sys.argv[1], mode="r+")
print("ready", flush=True)
while True:
    turn = array.shape[0] // 10 + 1
    array.append(np.full((10, 64), turn, "u4"))
    array.attrs["rows"] = array.shape[0]
"""

ARCHIVER = """
import sys, numpy as np, headrace as hr
print("ready", flush=True)
turn = 1
while True:
    turn += 1
    with hr.open(sys.argv[1], mode="w", zarr_format=int(sys.argv[3])) as group:
        for name in "ab":
            made = group.create_array(name, shape=(64, 64), chunks=(16, 16), dtype="u4")
            made[...] = turn
            made.attrs["turn"] = turn
"""

RECHUNKER = """
import signal, sys, headrace as hr
source = hr.open_array(sys.argv[1])
shards = (64, 8) if sys.argv[3] == "shards" else None
print("ready", flush=True)
hr.rechunk(source, sys.argv[1] + ".to", chunks=(64, 2), shards=shards, max_memory=4096)
signal.pause()
"""


def kill_in_mid_write(code, store, seed, *arguments):
    """The writer's low 16 bits tell which write a chunk comes from, its high bits are noise."""
    command = [sys.executable, "-c", code, store, str(seed), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n", writer.stderr.read()
        time.sleep(np.random.default_rng(seed).uniform(0.0, 0.15))
        assert writer.poll() is None, writer.stderr.read()
        writer.send_signal(signal.SIGKILL)
        assert writer.wait(30) == -signal.SIGKILL


def check_chunks(data, seed):
    noise = np.random.default_rng(seed).integers(0, 2**16, data.shape, dtype="u4") << 16
    seen = set()
    for y in range(0, data.shape[0], CHUNK):
        for x in range(0, data.shape[1], CHUNK):
            at = np.s_[y : y + CHUNK, x : x + CHUNK]
            turns = np.unique(data[at] & 0xFFFF)
            assert len(turns) == 1, f"chunk {y // CHUNK}/{x // CHUNK} mixes writes {turns}"
            seen.add(int(turns[0]))
            wanted = OLD if turns[0] == OLD else noise[at] | turns[0]
            assert (data[at] == wanted).all()
    # One write replaces chunk by chunk: two neighbouring writes at most.
    assert max(seen) - min(seen) <= 1, seen


@pytest.mark.parametrize("layout", LAYOUTS)
def test_killed_writer_leaves_old_or_new_chunks(tmp_path, layout):
    options = LAYOUTS[layout]
    for seed in range(ROUNDS):
        store = str(tmp_path / f"{seed}.zarr")
        array = hr.create_array(
            store, shape=(SIDE, SIDE), dtype="u4", chunks=(CHUNK, CHUNK), fill_value=0, **options
        )
        array[...] = OLD
        kill_in_mid_write(WRITER, store, seed)
        got = hr.open_array(store)[...]
        check_chunks(got, seed)
        assert_same(read_zarr(store), got)
        again = hr.open_array(store, mode="r+")
        assert again.nchunks_initialized == again.nchunks
        again[...] = 7
        assert_same(read_zarr(store), np.full((SIDE, SIDE), 7, "u4"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_killed_appender_leaves_whole_appends(tmp_path, layout):
    for seed in range(ROUNDS):
        store = str(tmp_path / f"{seed}.zarr")
        hr.create_array(
            store, shape=(0, 64), dtype="u4", chunks=(16, 16), fill_value=9, **LAYOUTS[layout]
        )
        kill_in_mid_write(APPENDER, store, seed)
        name = ".zarray" if layout == "v2" else "zarr.json"
        array = hr.open_array(store, mode="r+")
        assert list(array.shape) == json.loads(Path(store, name).read_text())["shape"]
        rows = array.attrs.get("rows", 0)
        assert array.shape[0] in (rows, rows + 10)
        # The shape counts only rows that are written.
        whole = np.repeat(np.arange(array.shape[0] // 10, dtype="u4") + 1, 10)
        assert_same(array[...], np.broadcast_to(whole[:, None], array.shape))
        assert_same(read_zarr(store), array[...])
        array.append(np.full((3, 64), 7, "u4"))
        assert_same(read_zarr(store)[:, 0], np.append(whole, np.full(3, 7, "u4")))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_killed_writer_of_an_archive_leaves_a_whole_one(tmp_path, zarr_format):
    for seed in range(ROUNDS):
        archive = str(tmp_path / f"{seed}.zip")
        with hr.open(archive, mode="w", zarr_format=zarr_format) as group:
            for name in "ab":
                group.create_array(name, shape=(SIDE, SIDE), dtype="u4")[...] = OLD
        kill_in_mid_write(ARCHIVER, archive, seed, str(zarr_format))
        group = hr.open_group(archive)
        turn = group["a"].attrs.get("turn", OLD)
        for name in "ab":
            assert group[name].attrs.get("turn", OLD) == turn
            assert_same(group[name][...], np.full((SIDE, SIDE), turn, "u4"))
        with hr.open(archive, mode="w") as group:
            group.create_array("c", shape=1, dtype="u4")[...] = 3
        assert hr.open_group(archive)["c"][0] == 3


@pytest.mark.parametrize("target", ["chunks", "shards"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_killed_rechunk_goes_on(tmp_path, layout, target):
    shards = (64, 8) if target == "shards" else None
    for seed in range(-(-ROUNDS // 2)):
        store = str(tmp_path / f"{seed}.zarr")
        array = hr.create_array(
            store, shape=(SIDE, SIDE), dtype="u4", chunks=(CHUNK, CHUNK), **LAYOUTS[layout]
        )
        array[...] = NOISE
        kill_in_mid_write(RECHUNKER, store, seed, target)
        assert_same(hr.open_array(store)[...], NOISE)
        to = store + ".to"
        try:
            hr.rechunk(store, to, chunks=(64, 2), shards=shards, max_memory=4096)
        except ValueError as error:
            assert "already" in str(error)  # it was over before it was killed
        assert_same(read_zarr(to), NOISE)
        # A kill between its last system calls leaves empty folders.
        assert not [path for path in Path(to, ".rechunk").rglob("*") if path.is_file()]


def test_killed_writer_in_a_group_leaves_no_false_members(tmp_path):
    store = str(tmp_path / "group.zarr")
    hr.create_group(store)
    hr.create_array(store, name="a", shape=(SIDE, SIDE), dtype="u4", chunks=(CHUNK, CHUNK))
    hr.open_array(store, path="a", mode="r+")[...] = OLD
    for seed in range(4):
        kill_in_mid_write(WRITER, str(Path(store, "a")), seed)
        assert list(hr.open_group(store)) == ["a"]
        array = hr.open_group(store)["a"]
        assert array[...].shape == (SIDE, SIDE)
        hr.open_array(store, path="a", mode="r+")[...] = OLD
