"""hr.rechunk and `headrace rechunk|convert`: results, plans, memory, resuming."""

import base64
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from headrace import _rechunk
from helpers import assert_same, on_a_terminal, read_zarr
from hypothesis import given
from hypothesis import strategies as st
from test_cli import COMMAND, run, run_json

STATE = ".rechunk"


def source_of(data, store=None, **create):
    array = hr.create_array(
        store or hr.memory_store(), shape=data.shape, dtype=data.dtype, **create
    )
    array[...] = data
    return array


def counting(shape, dtype="i4"):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


@st.composite
def cases(draw):
    shape = draw(st.lists(st.integers(0, 20), min_size=0, max_size=3))
    extents = st.tuples(*[st.integers(1, n + 2) for n in shape])
    chunks = draw(extents)
    source = draw(st.sampled_from(["v2", "v3", "shards", "rectilinear"]))
    create = {"chunks": draw(extents), "compressors": draw(st.sampled_from([None, "auto"]))}
    if source == "v2":
        create["zarr_format"] = 2
    elif source == "shards":
        create["shards"] = [2 * n for n in create["chunks"]]
    elif source == "rectilinear" and 0 not in shape and shape:
        create["chunks"] = [[1, n] for n in shape]
    shards = draw(st.sampled_from([None, "auto", [n * 2 for n in chunks]]))
    return shape, create, chunks, shards, draw(st.integers(1, 4))


@given(cases())
def test_equals_numpy(case):
    shape, create, chunks, shards, memory = case
    data = counting(shape)
    src = source_of(data, **create)
    written = [2 * n for n in chunks] if isinstance(shards, list) else chunks
    read = shape if isinstance(create["chunks"][:1], list) else create["chunks"]
    # From what a chunk needs to several, in one pass or two.
    least = max(np.prod(np.minimum(unit, shape)) for unit in (written, read))
    limit = max(int(least) * memory, 1) * 2 * data.itemsize
    out = hr.rechunk(
        src, hr.memory_store(), chunks=chunks, shards=shards, max_memory=limit, verify=True
    )
    assert out.chunks == tuple(chunks)
    assert out.zarr_format == 3
    assert_same(out[...], data)


def test_two_passes_equal_numpy_and_leave_nothing(store):
    data = counting((60, 40, 8), "f4")
    src = source_of(data, chunks=(1, 40, 8))
    plan = hr.rechunk_plan(src, chunks=(60, 2, 2), max_memory=8000)
    assert len(plan[0]["passes"]) == 2
    assert plan[0]["amplification"] == 2
    told = []
    out = hr.rechunk(
        src,
        store,
        chunks=(60, 2, 2),
        max_memory=8000,
        progress=lambda done, total: told.append((done, total)),
    )
    assert_same(out[...], data)
    assert_same(read_zarr(store), data)
    assert not Path(store, STATE).exists()
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (2 * data.nbytes, 2 * data.nbytes)


class CountingStore(zarr.storage.MemoryStore):
    """Remembers the chunks that are asked for."""

    def __init__(self):
        super().__init__()
        self.chunks = []

    async def get(self, key, prototype, byte_range=None):
        if "c/" in key:
            self.chunks.append(key)
        return await super().get(key, prototype, byte_range)


@pytest.mark.parametrize("max_memory", [4096, 8192, 1 << 20])
def test_measured_reads_are_those_of_the_plan(max_memory):
    counted = CountingStore()
    data = counting((32, 32))
    zarr.create_array(counted, data=data, chunks=(4, 16))
    src = hr.open(counted)
    (plan,) = hr.rechunk_plan(src, chunks=(16, 2), max_memory=max_memory)
    counted.chunks.clear()
    hr.rechunk(src, hr.memory_store(), chunks=(16, 2), max_memory=max_memory)
    first = plan["passes"][0]
    assert len(counted.chunks) == first["chunks_read"]
    assert first["nbytes_read"] == first["chunks_read"] * 4 * 16 * 4


def test_group_with_metadata(store, tmp_path):
    root = zarr.create_group(store, attributes={"title": "t"})
    cube = counting((12, 6, 4), "f4")
    options = {"dimension_names": ["t", "y", "x"], "attributes": {"units": "K"}}
    root.create_array("a/cube", data=cube, chunks=(1, 6, 4), fill_value=7, **options)
    root.create_array("t", data=np.arange(12), chunks=(5,))
    zarr.consolidate_metadata(store)
    path = str(tmp_path / "out.zarr")
    out = hr.rechunk(store, path, chunks=(12, 2, 2), shards=(12, 4, 4), verify=True)
    assert out.consolidated
    assert dict(out.attrs) == {"title": "t"}
    made = out["a/cube"]
    assert (made.chunks, made.shards, made.fill_value) == ((12, 2, 2), (12, 4, 4), 7)
    assert (made.dimension_names, dict(made.attrs)) == (("t", "y", "x"), {"units": "K"})
    assert out["t"].chunks == (5,)
    assert_same(read_zarr(path, "a/cube"), cube)
    assert_same(read_zarr(path, "t"), np.arange(12))


@pytest.mark.parametrize(
    ("dtype", "fill_value", "mark"),
    [
        ("i2", -5, {"_FillValue": -5}),
        ("f4", 0.5, {"_FillValue": base64.b64encode(struct.pack("<d", 0.5)).decode()}),
        ("f2", np.inf, {"_FillValue": base64.b64encode(struct.pack("<d", np.inf)).decode()}),
        ("?", True, {"_FillValue": True}),
        ("M8[s]", 0, {}),
    ],
)
def test_what_xarray_keeps_in_v2_becomes_v3s(store, dtype, fill_value, mark):
    create = {"dtype": dtype, "fill_value": fill_value, "zarr_format": 2}
    attributes = {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m"}
    src = hr.create_array(
        hr.memory_store(), shape=(4, 4), chunks=(2, 2), attributes=attributes, **create
    )
    for out in (hr.rechunk(src, store, chunks=(4, 1)), hr.copy(src, store + "2", zarr_format=3)):
        assert out.dimension_names == ("y", "x")
        assert dict(out.attrs) == {"units": "m", **mark}
    scalar = hr.create_array(
        hr.memory_store(), shape=(), attributes={"_ARRAY_DIMENSIONS": []}, **create
    )
    assert dict(hr.rechunk(scalar, store + "3", chunks=None).attrs) == mark


@pytest.mark.parametrize("names", [{}, {"_ARRAY_DIMENSIONS": ["y"]}, {"_ARRAY_DIMENSIONS": 1}])
def test_attributes_of_others_stay(store, names):
    attributes = {**names, "units": "m"}
    src = source_of(counting((4, 4)), chunks=(2, 2), zarr_format=2, attributes=attributes)
    assert dict(hr.rechunk(src, store, chunks=(4, 1)).attrs) == attributes


def test_missing_chunks_stay_missing(store):
    src = hr.create_array(hr.memory_store(), shape=(16, 4), dtype="f4", chunks=(4, 4), fill_value=3)
    src[4:8] = 1
    out = hr.rechunk(src, store, chunks=(2, 4))
    assert out.nchunks_initialized == 2
    assert_same(out[...], src[...])


def test_strings(store):
    words = np.array(["a", "", "longer than most", "z"] * 4, dtype=object)
    src = hr.create_array(hr.memory_store(), shape=words.shape, dtype=str, chunks=(3,))
    src[...] = words
    out = hr.rechunk(src, store, chunks=(5,), verify=True)
    assert out[...].tolist() == words.tolist()


def test_archive_takes_one_pass(tmp_path):
    data = counting((8, 8))
    src = source_of(data, chunks=(1, 8))
    path = str(tmp_path / "out.zip")
    assert_same(hr.rechunk(src, path, chunks=(8, 1))[...], data)
    with pytest.raises(NotImplementedError, match="archive takes one pass"):
        hr.rechunk(src, str(tmp_path / "two.zip"), chunks=(8, 1), max_memory=128)


@pytest.mark.parametrize("destination", ["", "g", "g/a", "g/a/b"])
def test_refuses_to_overwrite_its_source(store, destination):
    data = counting((8, 8))
    source_of(data, f"{store}/g/a", chunks=(1, 8))
    with pytest.raises(ValueError, match="overlap"):
        hr.rechunk(f"{store}/g/a", f"{store}/{destination}", chunks=(8, 1), overwrite=True)
    assert_same(read_zarr(store, "g/a"), data)


def test_refuses_to_overwrite_its_source_by_another_name(tmp_path):
    data = counting((8, 8))
    store = tmp_path / "a b.zarr"
    source_of(data, str(store), chunks=(1, 8))
    (tmp_path / "link.zarr").symlink_to(store)
    for name in (tmp_path / "link.zarr", tmp_path / "none" / ".." / "a b.zarr", tmp_path):
        with pytest.raises(ValueError, match="overlap"):
            hr.rechunk(str(store), str(name), chunks=(8, 1), overwrite=True)
    assert_same(read_zarr(str(store), ""), data)


def test_refuses_what_is_there_and_too_little_memory(store):
    src = source_of(counting((8, 8)), chunks=(8, 8))
    with pytest.raises(ValueError, match="needs 512 bytes"):
        hr.rechunk(src, store, chunks=(2, 2), max_memory=511)
    hr.rechunk(src, store, chunks=(2, 2))
    with pytest.raises(ValueError, match="is there already"):
        hr.rechunk(src, store, chunks=(4, 2))
    assert hr.rechunk(src, store, chunks=(4, 2), overwrite=True).chunks == (4, 2)


@pytest.mark.parametrize("consolidated", [False, True])
def test_a_member_called_as_the_notes_is_refused(store, tmp_path, consolidated):
    group = hr.create_group(store)
    group["sub/.rechunk"] = np.arange(3)
    copy = hr.rechunk(store, str(tmp_path / "deeper.zarr"), chunks=None)
    assert_same(copy["sub/.rechunk"][...], np.arange(3))
    group[".rechunk"] = np.arange(3)
    if consolidated:
        hr.consolidate_metadata(store)
    with pytest.raises(ValueError, match=r"has a member '\.rechunk'"):
        hr.rechunk(store, str(tmp_path / "out.zarr"), chunks=None)
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("note", [".rechunk/progress.json", ".rechunk.json"])
@pytest.mark.parametrize("name", ["", "a"])
def test_what_has_notes_is_unfinished(store, name, note):
    node = f"{store}/{name}".rstrip("/")
    hr.create_array(node, shape=(4,), dtype="i4")
    assert _rechunk._is_finished(node)
    array = hr.open_array(node, mode="r+")
    array.store._set(f"{array.path}/{note}".lstrip("/"), b"{}")
    assert not _rechunk._is_finished(node)


def test_a_variable_called_as_the_notes_is_refused(tmp_path):
    xr = pytest.importorskip("xarray")
    out = str(tmp_path / "out.zarr")
    with pytest.raises(ValueError, match=r"has a member '\.rechunk'"):
        hr.rechunk(xr.Dataset({".rechunk": ("x", np.arange(3))}), out, chunks=None)
    deeper = xr.Dataset({"sub/.rechunk": ("x", np.arange(3))})
    assert_same(hr.rechunk(deeper, out, chunks=None)["sub/.rechunk"][...], np.arange(3))


class StopError(Exception):
    pass


@pytest.mark.parametrize(("max_memory", "passes"), [("8kB", 2), ("32kB", 1)])
def test_goes_on_where_it_stopped(store, max_memory, passes):
    data = counting((48, 40, 4))
    src = source_of(data, chunks=(1, 40, 4))
    arguments = {"chunks": (48, 4, 1), "max_memory": max_memory}
    assert len(hr.rechunk_plan(src, **arguments)[0]["passes"]) == passes
    stops = 0

    def progress(done, total):
        if stops * total // 4 < done < total:
            raise StopError

    while True:
        try:
            hr.rechunk(src, store, **arguments, progress=progress)
            break
        except StopError:
            stops += 1
            assert Path(store, STATE, "progress.json").exists()
            with pytest.raises(ValueError, match="other arguments"):
                hr.rechunk(src, store, chunks=(24, 4, 1))
    assert stops
    assert_same(read_zarr(store), data)
    assert not Path(store, STATE).exists()


def test_does_not_go_on_when_the_source_was_resized(store):
    src = source_of(counting((64,)), chunks=(8,))

    def progress(done, total):
        raise StopError

    with pytest.raises(StopError):
        hr.rechunk(src, store, chunks=(16,), max_memory=128, progress=progress)
    src.append(counting((8,)))
    with pytest.raises(ValueError, match="of what the source was then"):
        hr.rechunk(src, store, chunks=(16,), max_memory=128)
    out = hr.rechunk(src, store, chunks=(16,), max_memory=128, overwrite=True)
    assert_same(out[...], src[...])


def test_finished_blocks_are_not_copied_again(store):
    src = source_of(counting((64,)), chunks=(8,))
    calls = []

    def progress(done, total):
        calls.append(done)
        if done == total // 2:
            raise StopError

    arguments = {"chunks": (16,), "max_memory": 128}
    with pytest.raises(StopError):
        hr.rechunk(src, store, **arguments, progress=progress)
    state = json.loads(Path(store, STATE, "progress.json").read_text())
    assert state["done"] == [[0, 2]]
    src[:16] = -1  # what was copied stays as it was
    out = hr.rechunk(src, store, **arguments)
    assert_same(out[...], counting((64,)))


KILLED = """
import sys, headrace as hr
print("ready", flush=True)
hr.rechunk(sys.argv[1], sys.argv[2], chunks=(240, 4, 4), max_memory=60000)
"""


def test_kill_and_resume(store, tmp_path):
    data = counting((240, 32, 16))
    source_of(data, store, chunks=(1, 32, 16))
    target = str(tmp_path / "out.zarr")

    def finished():
        notes = Path(target, STATE, "progress.json"), Path(target, f"{STATE}.json")
        return Path(target, "zarr.json").exists() and not any(note.exists() for note in notes)

    rng = np.random.default_rng(3)
    killed = 0
    for _ in range(5):
        command = [sys.executable, "-c", KILLED, store, target]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.08))
            process.send_signal(signal.SIGKILL)
            killed += process.wait(30) == -signal.SIGKILL
        if finished():
            break
    assert killed
    if not finished():
        hr.rechunk(store, target, chunks=(240, 4, 4), max_memory=60000)
    assert_same(read_zarr(target), data)
    # A kill between its last system calls leaves empty folders.
    assert not [left for left in Path(target, STATE).rglob("*") if left.is_file()]


@pytest.mark.parametrize("overwrite", [False, True])
def test_another_rechunk_to_the_same_place_is_refused(store, tmp_path, overwrite):
    """What ends first would remove what the other reads."""
    data = counting((240, 32, 16))
    source_of(data, store, chunks=(1, 32, 16))
    target = str(tmp_path / "out.zarr")
    arguments = {"chunks": (240, 4, 4), "max_memory": 60000, "overwrite": overwrite}
    refused = []

    def progress(done, total):
        if refused:
            return
        for name in (target, f"{tmp_path}/./x/../out.zarr"):
            os.makedirs(tmp_path / "x", exist_ok=True)
            with pytest.raises(hr.ConflictError, match="rechunk is at work"):
                hr.rechunk(store, name, **arguments)
        with pytest.raises(hr.ConflictError, match="rechunk is at work"):
            hr.create_array(target, shape=3, dtype="u1", overwrite=True)
        refused.append(done)

    hr.rechunk(store, target, **arguments, progress=progress)
    assert refused
    assert_same(read_zarr(target), data)


def test_another_rechunk_through_a_store_of_zarr_is_refused(store, tmp_path):
    data = counting((240, 32, 16))
    source_of(data, store, chunks=(1, 32, 16))
    target = tmp_path / "out.zarr"
    arguments = {"chunks": (240, 4, 4), "max_memory": 60000}
    refused = []

    def wrapped():
        return zarr.storage.WrapperStore(zarr.storage.LocalStore(target))

    def progress(done, total):
        if refused:
            return
        for overwrite in (False, True):
            with pytest.raises(hr.ConflictError, match="rechunk is at work"):
                hr.rechunk(store, wrapped(), **arguments, overwrite=overwrite)
        with pytest.raises(hr.ConflictError, match="rechunk is at work"):
            hr.create_array(wrapped(), shape=3, dtype="u1", overwrite=True)
        refused.append(done)

    hr.rechunk(store, wrapped(), **arguments, progress=progress)
    assert refused
    assert_same(read_zarr(target), data)


def test_corrupt_chunk_leaves_a_state_to_go_on_from(store, tmp_path):
    data = counting((32, 8))
    source_of(data, store, chunks=(4, 8))
    chunk = Path(store, "c", "4", "0")
    good = chunk.read_bytes()
    chunk.write_bytes(good[:-5])
    target = str(tmp_path / "out.zarr")
    with pytest.raises(hr.CorruptError, match="c/4/0"):
        hr.rechunk(store, target, chunks=(8, 4), max_memory=512)
    assert Path(target, STATE, "progress.json").exists()
    chunk.write_bytes(good)
    assert_same(hr.rechunk(store, target, chunks=(8, 4), max_memory=512)[...], data)


def test_verify_finds_a_difference(store):
    src = source_of(np.linspace(0, 1, 64, dtype="f4"), chunks=(16,))
    lossy = [hr.codecs.BitRound(keepbits=2), hr.codecs.Bytes(), hr.codecs.Zstd()]
    with pytest.raises(hr.CorruptError, match="differs"):
        hr.rechunk(src, store, chunks=(8,), compressors=lossy, verify=True)


MEASURED = """
import resource, sys, headrace as hr
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
small = hr.create_array(hr.memory_store(), shape=(8, 8), dtype="f4", chunks=(4, 4))
small[...] = 1
hr.rechunk(small, hr.memory_store(), chunks=(8, 1))
before = peak()
hr.rechunk(sys.argv[1], sys.argv[2], chunks=(160, 8, 256), max_memory="16MiB")
print(peak() - before)
"""


def test_peak_memory_of_an_array_ten_times_larger(store, tmp_path):
    src = hr.create_array(store, shape=(160, 1000, 256), dtype="f4", chunks=(1, 1000, 256))
    rows = np.random.default_rng(0).integers(0, 99, (1000, 256)).astype("f4")
    src[...] = rows + np.arange(160)[:, None, None]
    assert src.nbytes > 9 * (16 << 20)
    (plan,) = hr.rechunk_plan(src, chunks=(160, 8, 256), max_memory="16MiB")
    assert len(plan["passes"]) == 2
    target = str(tmp_path / "out.zarr")
    command = [sys.executable, "-c", MEASURED, store, target]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert int(done.stdout) < 16 << 20, done.stdout
    out = hr.open(target)
    for at in (0, 77, 159):
        assert_same(out[at], rows + np.float32(at))


def test_netcdf_by_references_and_by_xarray(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    xr = pytest.importorskip("xarray")
    pytest.importorskip("fsspec")
    path = tmp_path / "t.nc"
    data = counting((6, 40), ">i4")
    with scipy_io.netcdf_file(path, "w") as file:
        file.createDimension("t", 6)
        file.createDimension("x", 40)
        file.createVariable("u", ">i4", ("t", "x"))[:] = data
    at = path.read_bytes().index(data.tobytes())
    metadata = {"zarr_format": 2, "shape": [6, 40], "chunks": [2, 40], "dtype": ">i4"}
    unset = {"order": "C", "compressor": None, "filters": None, "fill_value": None}
    references = {
        ".zgroup": '{"zarr_format": 2}',
        "u/.zarray": json.dumps(metadata | unset),
        **{f"u/{i}.0": [str(path), at + i * 320, 320] for i in range(3)},
    }
    options = {"fo": references, "remote_protocol": "file"}
    source = hr.open("reference://", storage_options=options)
    with xr.open_dataset(path, engine="scipy", decode_cf=False) as dataset:
        for name, src in (("references", source), ("xarray", dataset)):
            target = str(tmp_path / f"{name}.zarr")
            out = hr.rechunk(src, target, chunks=(6, 10), shards=(6, 40), verify=True)
            assert (out["u"].zarr_format, out["u"].shards) == (3, (6, 40))
            assert_same(read_zarr(target, "u"), data)


def test_xarray_sources(store, tmp_path):
    xr = pytest.importorskip("xarray")
    data = counting((6, 4), "f4")
    ds = xr.Dataset(
        {"u": (("t", "x"), data, {"units": "m/s", "scale": np.float32(2)})},
        coords={"t": np.arange(6)},
        attrs={"title": "t"},
    )
    out = hr.rechunk(ds, store, chunks=(2, 2), verify=True)
    assert dict(out.attrs) == {"title": "t"}
    assert out["u"].dimension_names == ("t", "x")
    assert dict(out["u"].attrs) == {"units": "m/s", "scale": 2.0}
    assert_same(read_zarr(store, "u"), data)
    assert_same(read_zarr(store, "t"), np.arange(6))
    one = str(tmp_path / "one.zarr")
    hr.rechunk(ds["u"], one, chunks=(6, 1), max_memory=192, verify=True)
    assert_same(read_zarr(one), data)
    two = str(tmp_path / "two.zarr")
    assert_same(hr.rechunk(data, two, chunks=3)[...], data)


class Changing:
    """An array of another library that reads otherwise each time."""

    shape, dtype = (8, 8), np.dtype("i4")
    reads = 0

    def __getitem__(self, block):
        self.reads += 1
        return np.full(self.shape, self.reads, self.dtype)[block]


def test_a_copy_that_verify_refuses_stays_unfinished(store):
    source = Changing()
    with pytest.raises(hr.CorruptError, match="differs from the source"):
        hr.rechunk(source, store, chunks=(8, 8), verify=True)
    assert run_json("verify", store, status=1)["unfinished"] == [""]
    out = hr.rechunk(source, store, chunks=(8, 8), overwrite=True)
    assert out[0, 0] == source.reads
    assert run_json("verify", store)["unfinished"] == []


def test_dask_executor(store, tmp_path):
    distributed = pytest.importorskip("distributed")
    data = counting((24, 12, 4))
    source_of(data, store, chunks=(1, 12, 4))
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for name, max_memory in (("one", "1MiB"), ("two", 1536)):
            target = str(tmp_path / f"{name}.zarr")
            told = []
            hr.rechunk(
                store,
                target,
                chunks=(24, 2, 2),
                max_memory=max_memory,
                executor=client,
                progress=lambda done, total, told=told: told.append(done / total),
            )
            assert_same(read_zarr(target), data)
            assert told[-1] == 1


def test_dask_executor_outlives_workers(store, tmp_path):
    """All of them are killed, and started again: none alone has what all need."""
    distributed = pytest.importorskip("distributed")
    data = counting((24, 12, 4))
    source_of(data, store, chunks=(1, 12, 4))
    target = str(tmp_path / "out.zarr")
    killed = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def progress(*_):
            if not killed:
                killed.extend(worker.pid for worker in cluster.workers.values())
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Dask, that workers died
            hr.rechunk(store, target, chunks=(24, 1, 1), executor=client, progress=progress)
    assert len(killed) == 2
    assert_same(read_zarr(target), data)


def test_what_dask_raises_names_the_array(store, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    source_of(counting((4, 4)), store, chunks=(1, 4))

    class Client:
        scatter = None

        def submit(self, *_, **__):
            return types.SimpleNamespace(key="k")

        def cancel(self, futures):
            pass

    def as_completed(futures):
        raise distributed.KilledWorker("task", None, 3)

    monkeypatch.setattr(distributed, "as_completed", as_completed)
    with pytest.raises(distributed.KilledWorker) as info:
        hr.rechunk(store, str(tmp_path / "out.zarr"), chunks=(4, 1), executor=Client())
    (note,) = info.value.__notes__
    assert store in note and "the same call goes on" in note


@pytest.fixture
def interrupts():
    """As in a terminal: a shell may have had them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupt_leaves_a_state_to_go_on_from(store, tmp_path, interrupts):
    data = counting((64, 64))
    src = source_of(data, store, chunks=(1, 64))

    def progress(done, total):
        if done == total // 4:
            signal.raise_signal(signal.SIGINT)

    arguments = {"chunks": (8, 64), "max_memory": 4096}
    with pytest.raises(KeyboardInterrupt):
        hr.rechunk(src, str(tmp_path / "out.zarr"), **arguments, progress=progress)
    assert (tmp_path / "out.zarr" / STATE / "progress.json").exists()
    out = hr.rechunk(src, str(tmp_path / "out.zarr"), **arguments)
    assert_same(out[...], data)


def test_command_rechunk(store, tmp_path):
    data = counting((16, 8), "f4")
    source_of(data, store, chunks=(1, 8))
    target = str(tmp_path / "out.zarr")
    plan = run_json("rechunk", store, target, "--chunks", "16,2", "--plan")
    assert not plan["done"]
    assert plan["arrays"][0]["amplification"] == 1
    assert not Path(target).exists()
    facts = run_json(
        *("rechunk", store, target, "--chunks=-1,2", "--shards", "16,4", "--codec", "zstd:1"),
        *("--max-memory", "1MiB", "--verify"),
    )
    assert facts["verified"]
    assert facts["arrays"][0]["chunks"] == [16, 2]
    assert_same(read_zarr(target), data)
    assert hr.open(target).shards == (16, 4)
    run("rechunk", store, target, "--chunks", "16,2", status=1)
    run("rechunk", store, target, "--chunks", "16,2", "--overwrite")
    run("rechunk", store, target, "--chunks", "16,x", status=2)
    run("rechunk", store, target, "--chunks", "16,2", "--max-memory", "many", status=2)
    run("rechunk", store, target, "--codec", "none", "--codec", "zstd", "--overwrite", status=2)


def shown_on_a_terminal(command):
    text, status = on_a_terminal(command, stdout=subprocess.DEVNULL)
    assert status == 0, text
    return text


IN_PYTHON = """
import sys, headrace as hr
codecs = [hr.codecs.Zstd(level=15)]
hr.rechunk(*sys.argv[1:], chunks=(64, 256), compressors=codecs, max_memory="1MiB", progress=True)
"""


def test_terminals_show_rate_and_time_left(store, tmp_path):
    data = np.random.default_rng(0).integers(0, 99, (4096, 256))
    source_of(data, store, chunks=(64, 256))
    arguments = ("--chunks", "64,256", "--codec", "zstd:15", "--max-memory", "1MiB")
    for command in (
        [COMMAND, "rechunk", store, str(tmp_path / "a"), *arguments],
        [sys.executable, "-c", IN_PYTHON, store, str(tmp_path / "b")],
    ):
        assert re.search(
            r"\[#+\.+\] +\d+ ?%  [\d.]+ \w+/s, 0:00:\d\d left", shown_on_a_terminal(command)
        )


def test_command_takes_extents_by_dimension(store, tmp_path):
    root = hr.create_group(store)
    root.create_array("x", data=counting((64, 32)), chunks=(8, 32), dimension_names=["t", "y"])
    target = str(tmp_path / "out.zarr")
    run("rechunk", store + "/x", target, "--chunks", "t=-1", "--shards", "t=64,1=64")
    assert (hr.open(target).chunks, hr.open(target).shards) == ((64, 32), (64, 64))
    run("rechunk", target, target + "2", "--chunks", "y=16", "--shards", "t=128")
    assert (hr.open(target + "2").chunks, hr.open(target + "2").shards) == ((64, 16), (128, 64))
    run("rechunk", store + "/x", target, "--chunks", "z=1", status=2)
    run("rechunk", store + "/x", target, "--chunks", "t=0", status=2)
    run("rechunk", store, target, "--chunks", "t=1", status=2)  # a group's arrays differ


def test_command_convert(store, tmp_path):
    data = counting((64, 32))
    root = zarr.create_group(store, zarr_format=2)
    root.create_array("x", data=data, chunks=(2, 32))
    target = str(tmp_path / "out.zarr")
    assert b"in shards (64, 32)" in run("convert", store, target, "--plan")
    run("convert", store, target, "--verify")
    out = hr.open(target)
    assert (out.zarr_format, out["x"].chunks, out["x"].shards) == (3, (2, 32), (64, 32))
    assert_same(read_zarr(target, "x"), data)
