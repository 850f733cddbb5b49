"""Stores that are opened by a URL of fsspec: over HTTP, and by reference files."""

import http.server
import os
import pickle
import threading
from functools import partial

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
zarr = pytest.importorskip("zarr", minversion="3.1.6")


def window(asked, nbytes):
    """The first byte and the last of "bytes=3-7", or of "bytes=-5"."""
    first, last = asked.removeprefix("bytes=").split("-")
    if not first:
        return max(nbytes - int(last), 0), nbytes - 1
    return int(first), min(int(last), nbytes - 1)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, and ranges of them."""

    def send_head(self):
        asked = self.headers.get("Range")
        file = super().send_head()
        self.window = None
        if file is not None and asked:
            self.window = window(asked, os.fstat(file.fileno()).st_size)
        return file

    def send_response(self, code, message=None):
        super().send_response(206 if code == 200 and self.headers.get("Range") else code, message)

    def send_header(self, keyword, value):
        if keyword == "Content-Length" and (asked := self.headers.get("Range")):
            first, last = window(asked, int(value))
            super().send_header("Content-Range", f"bytes {first}-{last}/{value}")
            value = str(max(last + 1 - first, 0))
        super().send_header(keyword, value)

    def copyfile(self, source, outputfile):
        if self.window is None:
            return super().copyfile(source, outputfile)
        source.seek(self.window[0])
        outputfile.write(source.read(self.window[1] + 1 - self.window[0]))

    def log_message(self, *args):
        pass


@pytest.fixture
def served(tmp_path):
    """A folder and its URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield tmp_path, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_an_array_over_http(served, shards):
    folder, url = served
    data = np.arange(300, dtype="f4").reshape(20, 15)
    zarr.create_array(folder / "x.zarr", data=data, chunks=(4, 4), shards=shards)
    array = hr.open_array(f"{url}/x.zarr")
    assert array.read_only
    assert_same(array[...], data)
    assert_same(array[3:17:2, 1], data[3:17:2, 1])
    assert_same(hr.open_array(f"{url}/x.zarr", device="simt")[5:9].to_numpy(), data[5:9])
    assert_same(pickle.loads(pickle.dumps(array))[2], data[2])
    with pytest.raises(FileNotFoundError):
        hr.open(f"{url}/nothing.zarr")


def test_what_a_web_server_has_not(served):
    _, url = served
    for open_ in (hr.open, hr.open_group):
        with pytest.raises(FileNotFoundError, match=r"answers 404 for zarr\.json, \.zarray and"):
            open_(f"{url}/nothing.zarr")
        with pytest.raises(FileNotFoundError, match=r"by its folder, not by its document$"):
            open_(f"{url}/nothing.zarr/zarr.json")


@pytest.mark.parametrize(
    ("by", "options"),
    [("", None), ("fsspec+", {"client_kwargs": {"trust_env": False}})],
    ids=["itself", "fsspec"],
)
def test_a_data_set_over_http(served, by, options):
    xr = pytest.importorskip("xarray")
    folder, url = served
    ds = xr.Dataset({"t": (("y", "x"), np.arange(12.0).reshape(3, 4))}, {"x": [1, 2, 3, 4]})
    ds.to_zarr(folder / "ds.zarr", consolidated=True)
    with xr.open_dataset(f"{by}{url}/ds.zarr", engine="headrace", storage_options=options) as got:
        xr.testing.assert_identical(got, ds)


def test_references_of_a_file_over_http(served, monkeypatch):
    h5py = pytest.importorskip("h5py")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    folder, url = served
    data = np.arange(300, dtype="f4").reshape(20, 15)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("x", data=data, chunks=(4, 4), compression="gzip", shuffle=True)
        file["plain"] = data
    store = hr.references(f"{url}/a.h5", out=folder / "refs.json")
    for name in ("x", "plain"):
        assert_same(hr.open(store)[name][...], data)
        assert_same(hr.open(f"reference://{url}/refs.json")[name][3:9], data[3:9])
    with pytest.raises(PermissionError):
        hr.open(f"reference://{folder}/refs.json")["x"][...]


def test_chunks_in_other_files_by_references(tmp_path):
    data = np.arange(1000, dtype="<i4")
    (tmp_path / "data.bin").write_bytes(b"header" + data.tobytes())
    metadata = (
        '{"zarr_format": 2, "shape": [1000], "chunks": [500], "dtype": "<i4", "order": "C",'
        ' "compressor": null, "filters": null, "fill_value": 0}'
    )
    chunk = str(tmp_path / "data.bin")
    references = {
        "x/.zarray": metadata,
        "x/0": [chunk, 6, 2000],
        "x/1": [chunk, 2006, 2000],
    }
    array = hr.open_array(
        "reference://", "x", storage_options={"fo": references, "remote_protocol": "file"}
    )
    assert_same(array[...], data)
    assert_same(array[490:510], data[490:510])


def test_writes_and_modes(tmp_path):
    url = f"local://{tmp_path}/y.zarr"
    with pytest.raises(FileNotFoundError):
        hr.open_array(url)
    array = hr.create_array(url, shape=(10,), chunks=(3,), dtype="i2")
    array[:] = np.arange(10)
    assert_same(zarr.open_array(tmp_path / "y.zarr", mode="r")[:], np.arange(10, dtype="i2"))
    with pytest.raises(FileExistsError):
        hr.open_store(url, mode="w-")
    hr.open_store(url, mode="w")
    assert not list(tmp_path.glob("y.zarr/*"))


def test_what_no_package_knows():
    with pytest.raises(NotImplementedError, match="nonsense"):
        hr.open("nonsense://x/y")


def test_a_store_in_memory_is_not_pickled():
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, shape=(4,), dtype="i4")
    with pytest.raises(TypeError, match="this process only"):
        pickle.dumps(hr.open_array(store))
