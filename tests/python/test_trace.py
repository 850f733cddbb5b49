"""hr.trace: a file that trace viewers open, with what the read and the write did."""

import json
import threading

import headrace as hr
import numpy as np
import pytest


@pytest.fixture
def array(tmp_path):
    a = hr.create_array(
        tmp_path / "a.zarr",
        shape=(64, 100),
        dtype="f4",
        chunks=(8, 50),
        compressors=hr.codecs.Zstd(),
    )
    a[...] = np.arange(6400, dtype="f4").reshape(64, 100)
    return a


def events_of(path):
    return json.loads(path.read_text())["traceEvents"]


def test_a_read_and_a_write(array, tmp_path):
    path = tmp_path / "trace.json"
    with hr.trace(path):
        array[...]
        array[:8, :50] = 1
    events = events_of(path)
    count = {}
    for event in events:
        assert event["ph"] == "X"
        assert event["dur"] >= 0
        count[event["name"]] = count.get(event["name"], 0) + 1
    assert count["decode"] == 16
    assert count["fetch"] == 16
    assert count["encode"] == count["store"] == 1
    assert sum(e["args"]["bytes"] for e in events if e["name"] == "decode") == array.nbytes


@pytest.mark.parametrize("shards", [None, (32, 100)])
def test_a_read_to_a_device(tmp_path, shards):
    data = np.arange(6400, dtype="f4").reshape(64, 100)
    a = hr.create_array(
        tmp_path / "b.zarr",
        shape=data.shape,
        dtype="f4",
        chunks=(8, 50),
        shards=shards,
        compressors=hr.codecs.Zstd(),
    )
    a[...] = data
    path = tmp_path / "trace.json"
    with hr.config.set({"device_min_decode_nbytes": 0}), hr.trace(path):
        hr.open_array(tmp_path / "b.zarr", device="simt")[...]
    nbytes = {}
    for event in events_of(path):
        nbytes[event["name"]] = nbytes.get(event["name"], 0) + event["args"]["bytes"]
    assert {"plan", "fetch", "copy", "decode", "place", "wait"} <= nbytes.keys()
    assert data.nbytes <= nbytes["decode"] < data.nbytes + 1000  # the indices of shards too
    assert nbytes["copy"] > 0.8 * nbytes["fetch"]


def test_threads_have_rows_of_their_own(array, tmp_path):
    path = tmp_path / "trace.json"
    with hr.trace(path):
        threads = [threading.Thread(target=lambda: array[:8, :50]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({event["tid"] for event in events_of(path)}) == 3


def test_nothing_is_recorded_outside(array, tmp_path):
    path = tmp_path / "trace.json"
    array[...]
    with hr.trace(path):
        pass
    array[...]
    assert events_of(path) == []


def test_one_at_a_time(array, tmp_path):
    with hr.trace(tmp_path / "outer.json"):
        with pytest.raises(ValueError, match="being recorded"), hr.trace(tmp_path / "inner.json"):
            pass
        array[:1]
    assert events_of(tmp_path / "outer.json")


def test_a_block_that_raises_writes_nothing(tmp_path):
    path = tmp_path / "trace.json"
    with pytest.raises(ZeroDivisionError), hr.trace(path):
        _ = 1 / 0
    assert not path.exists()
    with hr.trace(path):
        pass
    assert path.exists()


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError), hr.trace(tmp_path / "no" / "trace.json"):
        pass
