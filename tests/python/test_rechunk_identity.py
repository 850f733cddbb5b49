"""A rechunk that stopped halfway goes on with the source that it began with, and with no other."""

import functools
import http.server
import json
import subprocess
import sys
import threading

import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import assert_same
from test_cli import COMMAND, run, run_json

N = 1 << 22
CHUNK = 1 << 15
KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


class StopError(Exception):
    pass


def stop_halfway(source, target, **arguments):
    def progress(done, total):
        if done * 2 >= total:
            raise StopError

    with pytest.raises(StopError):
        hr.rechunk(source, target, **ARGUMENTS, **arguments, progress=progress)


ARGUMENTS = {"chunks": (2 * CHUNK,), "max_memory": "8MiB"}


def elements(node):
    return (node["v"] if isinstance(node, hr.Group) else node)[...]


@kind
def files(values, folder):
    path = folder / f"{values[1]}.zarr"
    return hr.create_array(path, data=values, chunks=(CHUNK,))


@kind
def memory(values, folder):
    return hr.create_array(hr.memory_store(), data=values, chunks=(CHUNK,))


@kind
def named_memory(values, folder):
    return hr.create_array(f"memory://{folder.name}-{values[1]}", data=values, chunks=(CHUNK,))


def references_to(values, folder):
    metadata = {"zarr_format": 2, "shape": [N], "chunks": [CHUNK], "dtype": "<i4", "order": "C"}
    unset = {"compressor": None, "filters": None, "fill_value": None}
    path = folder / str(values[1])
    path.write_bytes(values.tobytes())
    zarray = json.dumps(metadata | unset)
    places = {f"v/{i}": [str(path), i * CHUNK * 4, CHUNK * 4] for i in range(N // CHUNK)}
    return {".zgroup": '{"zarr_format": 2}', "v/.zarray": zarray, **places}


@kind
def references(values, folder):
    """In no file: "reference://" is the URL of all."""
    fo = json.dumps(references_to(values, folder))
    return hr.open("reference://", storage_options={"fo": fo, "allow": [str(folder)]})


@kind
def references_in_a_file(values, folder):
    """Which is written anew, as by `hr.references(..., out=)`."""
    refs = {"version": 1, "refs": references_to(values, folder)}
    (folder / "refs.json").write_text(json.dumps(refs))
    return hr.open(f"reference://{folder}/refs.json")


@kind
def numpy(values, folder):
    return values


@kind
def xarray(values, folder):
    xr = pytest.importorskip("xarray")
    return xr.Dataset({"v": ("t", values)}, coords={"t": np.arange(N)})


@kind
def xarray_with_dask(values, folder):
    pytest.importorskip("dask")
    return xarray(values, folder).chunk(t=CHUNK)


@kind
def dask(values, folder):
    return pytest.importorskip("dask.array").from_array(values, chunks=CHUNK)


@kind
def array_of_zarr(values, folder):
    return zarr.array(values, chunks=(CHUNK,), store=str(folder / f"{values[1]}.zarr"))


@pytest.mark.parametrize("kind", KINDS)
def test_another_source_of_the_same_shape(kind, tmp_path):
    mine, other = np.arange(N, dtype="i4"), -np.arange(N, dtype="i4")
    target = tmp_path / "out.zarr"
    stop_halfway(KINDS[kind](mine, tmp_path), target)
    another = KINDS[kind](other, tmp_path)
    with pytest.raises(ValueError, match=r"stopped halfway there \(other: source\)"):
        hr.rechunk(another, target, **ARGUMENTS)
    assert_same(elements(hr.rechunk(another, target, **ARGUMENTS, overwrite=True)), other)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_source_goes_on(kind, tmp_path):
    values, target = np.arange(N, dtype="i4"), tmp_path / "out.zarr"
    source = KINDS[kind](values, tmp_path)
    stop_halfway(source, target)
    assert_same(elements(hr.rechunk(source, target, **ARGUMENTS)), values)


def lazy(values, folder):
    """Of xarray's, of a file that it reads itself: nothing tells which part of it that is."""
    xr = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    path = folder / f"{values[1]}.nc"
    xr.Dataset({"v": ("t", values)}).to_netcdf(path, engine="h5netcdf")
    return xr.open_dataset(path, engine="h5netcdf")


def store_of_zarr(values, folder):
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, data=values, chunks=(CHUNK,))
    return hr.open(store)


def array_of_zarr_in_memory(values, folder):
    return zarr.array(values, chunks=(CHUNK,))


def dask_of_a_given_name(values, folder):
    return pytest.importorskip("dask.array").from_array(values, chunks=CHUNK, name="mine")


NAMELESS = [lazy, memory, store_of_zarr, array_of_zarr_in_memory, dask_of_a_given_name]


@pytest.mark.parametrize("make", NAMELESS)
def test_what_has_no_name_begins_anew(make, tmp_path):
    values, target = np.arange(N, dtype="i4"), tmp_path / "out.zarr"
    stop_halfway(make(values, tmp_path), target)
    again = make(values, tmp_path)
    with pytest.raises(ValueError, match="A source without a name"):
        hr.rechunk(again, target, **ARGUMENTS)
    done = []
    out = hr.rechunk(
        again, target, **ARGUMENTS, overwrite=True, progress=lambda n, total: done.append(n / total)
    )
    assert done[0] < 0.5
    assert_same(elements(out), values)


NAME = """
import sys, dask.array, numpy as np, xarray as xr
from headrace._foreign_places import name_of
values = np.arange(100)
lazy = xr.open_dataset(sys.argv[1], engine="h5netcdf", chunks={}).variables
print(name_of(dict(lazy)), name_of({"": values}), name_of({"": dask.array.from_array(values)}))
"""


def test_names_of_foreign_arrays_are_those_of_another_process(tmp_path):
    xr = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    pytest.importorskip("dask")
    words = np.array(["a", "bc"], dtype=object)
    dataset = xr.Dataset({"v": ("t", np.arange(9)), "w": ("s", words)}, {"t": np.arange(9)})
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    command = [sys.executable, "-W", "ignore", "-c", NAME, str(tmp_path / "a.nc")]
    told = [
        subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
        for _ in range(2)
    ]
    assert told[0] == told[1]
    assert len(set(told[0])) == 3


CHANGES = {
    "attributes": {"attributes": {"version": 2}},
    "fill value": {"fill_value": 3},
    "dtype": {"dtype": "u4"},
    "codecs": {"compressors": None},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_whose_metadata_changed(change, tmp_path):
    values, target = np.arange(1, N + 1, dtype="i4"), tmp_path / "out.zarr"
    made = {"shape": N, "chunks": (CHUNK,), "dtype": "i4", "attributes": {"version": 1}}
    hr.create_array(tmp_path / "src.zarr", **made)[...] = values
    stop_halfway(tmp_path / "src.zarr", target, overwrite=True)
    new = hr.create_array(tmp_path / "src.zarr", **(made | CHANGES[change]), overwrite=True)
    new[...] = values[::-1]
    with pytest.raises(ValueError, match=r"\(other: metadata of the source"):
        hr.rechunk(tmp_path / "src.zarr", target, **ARGUMENTS)
    out = hr.rechunk(tmp_path / "src.zarr", target, **ARGUMENTS, overwrite=True)
    assert_same(out[...], values[::-1].astype(new.dtype))
    assert (dict(out.attrs), out.fill_value) == (dict(new.attrs), new.fill_value)


def test_a_group_whose_attributes_changed(tmp_path):
    group = hr.create_group(tmp_path / "src.zarr", attributes={"title": "old"})
    group["v"] = np.arange(N, dtype="i4")
    stop_halfway(group, tmp_path / "out.zarr")
    group.attrs["title"] = "new"
    with pytest.raises(ValueError, match=r"\(other: metadata of the source\)"):
        hr.rechunk(group, tmp_path / "out.zarr", **ARGUMENTS)
    out = hr.rechunk(group, tmp_path / "out.zarr", **ARGUMENTS, overwrite=True)
    assert dict(out.attrs) == {"title": "new"}


def test_overwrite_goes_on_with_the_same_arguments(tmp_path):
    values = np.arange(N, dtype="i4")
    stop_halfway(files(values, tmp_path), tmp_path / "out.zarr", overwrite=True)
    done = []
    hr.rechunk(
        tmp_path / "1.zarr",
        tmp_path / "out.zarr",
        **ARGUMENTS,
        overwrite=True,
        progress=lambda n, total: done.append(n / total),
    )
    assert done[0] >= 0.5
    assert b"left halfway goes on" in run("rechunk", "--help")


@pytest.mark.parametrize("below", ["", "g", "g/deeper"])
def test_an_unfinished_destination_is_told(below, tmp_path):
    root = tmp_path / "out.zarr"
    if below:
        hr.create_group(root)
        if "/" in below:
            hr.create_group(root / "g")
    values = np.arange(N, dtype="i4")
    stop_halfway(files(values, tmp_path), root / below)
    report = run_json("verify", root, status=1)
    assert (report["ok"], report["bad"], report["unfinished"]) == (False, 0, [below])
    text = subprocess.run([COMMAND, "verify", root], capture_output=True, text=True).stdout
    assert f"unfinished: {below or '/'}: a rechunk to here" in text
    facts = hr.doctor(root / below)
    assert not facts["good"]
    assert "stopped halfway" in facts["findings"][-1]["says"]
    hr.rechunk(tmp_path / "1.zarr", root / below, **ARGUMENTS)
    assert run_json("verify", root)["unfinished"] == []
    assert hr.doctor(root / below)["good"]


@pytest.mark.parametrize(
    "url", ["http://ann:hunter2@{}/0.0.zarr", "http://{}/0.0.zarr?sig=hunter2"]
)
def test_what_is_noted_of_a_source_holds_no_secret(url, tmp_path):
    files(np.arange(N, dtype="f4") * 0, tmp_path)
    handler = functools.partial(QuietHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # As in C++: Python's own functions lay secrets aside before.
        store = hr._core.open_store(url.format(f"127.0.0.1:{server.server_port}"), "r", None)
        stop_halfway(hr.open_array(store), tmp_path / "out.zarr")
        server.shutdown()
    noted = (tmp_path / "out.zarr/.rechunk/progress.json").read_text()
    assert "127.0.0.1" in noted and "hunter2" not in noted and "ann" not in noted


def test_nor_of_a_store_of_fsspec(tmp_path):
    """And it is known again by what is noted."""
    pytest.importorskip("aiohttp")
    values = np.arange(N, dtype="f4")
    files(values, tmp_path)
    files(values + 1, tmp_path)
    handler = functools.partial(QuietHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def source(name):
            url = f"http://ann:hunter2@127.0.0.1:{server.server_port}/{name}"
            options = {"encoded": True}  # which headrace does not know: fsspec reads it
            store = zarr.storage.FsspecStore.from_url(url, storage_options=options, read_only=True)
            return hr.open_array(store)

        out = tmp_path / "out.zarr"
        stop_halfway(source("1.0.zarr"), out)
        noted = (out / ".rechunk/progress.json").read_text()
        assert "127.0.0.1" in noted and "hunter2" not in noted and "ann" not in noted
        with pytest.raises(ValueError, match="other: source"):
            hr.rechunk(source("2.0.zarr"), out, **ARGUMENTS)
        hr.rechunk(source("1.0.zarr"), out, **ARGUMENTS)
        server.shutdown()
    assert_same(hr.open_array(out)[...], values)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
