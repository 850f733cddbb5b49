"""Corners in which a store could take one place, or one thing, for another."""

import asyncio
import http.server
import json
import os
import pickle
import threading
import zipfile

import headrace as hr
import numpy as np
import pytest
from cloud_servers import fake_server, file_server
from helpers import assert_same

METADATA = json.dumps(
    {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [8],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
    }
).encode()
VALUES = np.arange(8, dtype="u1") + 65


# ---- web servers in front of stores


class Balancer(http.server.BaseHTTPRequestHandler):
    """In front of a bucket whose own server may be down."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body, status, headers = b"<html><h1>default backend - 404</h1></html>", 404, {}
        if self.server.is_up and self.path.partition("?")[0].endswith("zarr.json"):
            body, status, headers = METADATA, 200, {"ETag": '"a"'}
        elif self.server.is_up:
            body, status, headers = VALUES.tobytes(), 200, {"ETag": '"b"'}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, *args):
        pass


CLOUDS = {
    "s3://bucket/a": {"key": "k", "secret": "s", "region": "r"},
    "gs://bucket/a": {"token": "anon"},
    "az://bucket/a": {"account_name": "acc", "account_key": "aaaa"},
}


@pytest.mark.parametrize("url", CLOUDS)
def test_a_404_of_somebody_else_is_no_missing_chunk(url):
    with fake_server(Balancer) as (server, endpoint):
        server.is_up = True
        options = CLOUDS[url] | {"endpoint_url": endpoint}
        array = hr.open_array(url, mode="r+", storage_options=options)
        assert_same(array[:], VALUES)
        server.is_up = False
        with pytest.raises(OSError, match="in between") as failure:
            array[:]
        assert not isinstance(failure.value, FileNotFoundError)
        with pytest.raises(OSError, match="in between"):
            array[:] = 0  # erases the chunk


class Hasty(http.server.BaseHTTPRequestHandler):
    """Says that all is stored before it has it."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        self.rfile.read(1000)
        self.send_response(200)
        self.send_header("ETag", '"a"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.close_connection = True

    def log_message(self, *args):
        pass


def test_a_success_before_all_was_sent_is_none():
    with fake_server(Hasty) as (_, endpoint):
        options = CLOUDS["s3://bucket/a"] | {"endpoint_url": endpoint, "max_retries": "0"}
        store = hr.open_store("s3://bucket/a", mode="a", storage_options=options)
        with pytest.raises(OSError):
            store._set("k", bytes(8 << 20))


@pytest.mark.parametrize(
    "host",
    [
        "acc.dfs.core.windows.net",
        "acc.dfs.core.usgovcloudapi.net",
        "onelake.dfs.fabric.microsoft.com",
        "acc.z01.dfs.storage.azure.net",
        "my.own.example:8443",
    ],
)
def test_a_pickle_of_azure_leads_to_the_same_host(host):
    url = f"abfss://bucket@{host}/a"
    store = hr.open_store(url, storage_options={"anon": True})
    assert store.url == url
    assert pickle.loads(pickle.dumps(store)).url == url


# ---- spellings


def test_two_slashes_behind_a_bucket_are_refused():
    for scheme, options in (("s3", {}), ("gs", {}), ("az", {"account_name": "a"})):
        with pytest.raises(ValueError, match="one slash behind the bucket"):
            hr.open_store(f"{scheme}://bucket//a.zarr", storage_options={"anon": True, **options})
        hr.open_store(f"{scheme}://bucket/", storage_options={"anon": True, **options})


@pytest.mark.parametrize(
    "place", ["s3://key:hidden@bucket//a", "https:/me:hidden@host/a", "s3:/key:hidden@bucket/a"]
)
def test_no_spelling_shows_a_password(place):
    with pytest.raises(ValueError) as failure:
        hr.open_store(place)
    assert "hidden" not in str(failure.value)


@pytest.mark.parametrize("place", ["s3:/bucket/a", "file:/data/a", "gs:/b", "https:/h/a"])
def test_one_slash_behind_a_scheme_is_refused(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="two slashes"):
        hr.create_array(place, shape=(3,), dtype="u1")
    assert os.listdir() == []
    hr.create_array(f"./{place}", shape=(3,), dtype="u1")  # for who means it
    assert os.listdir() == [place.partition("/")[0]]


def test_a_copy_onto_its_source_behind_a_cache_is_refused(tmp_path):
    pytest.importorskip("fsspec")
    source = tmp_path / "a.zarr"
    hr.create_array(source, data=np.arange(5))
    for chain in ("simplecache", "filecache", "blockcache"):
        with pytest.raises(ValueError, match="overlap"):
            hr.copy(source, f"{chain}::file://{source}", overwrite=True)
    assert_same(hr.open_array(source)[:], np.arange(5))


class Versioned(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        body = METADATA if path.endswith("zarr.json") else VALUES.tobytes()
        if query == "version=2" and body is not METADATA:
            body = bytes(8)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_copies_of_two_stores_are_apart_where_their_queries_are(tmp_path):
    with fake_server(Versioned) as (_, url):
        for query, wanted in (("version=1", VALUES), ("version=2", VALUES * 0)) * 2:
            store = hr.cached(f"{url}/a?{query}", directory=tmp_path)
            assert_same(hr.open_array(store)[:], wanted)


# ---- pickles in other folders


def test_a_cache_by_a_relative_folder_stays_there(tmp_path, monkeypatch):
    hr.create_array(tmp_path / "a.zarr", data=np.arange(5))
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(hr.cached(tmp_path / "a.zarr", directory="cache"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert_same(hr.open_array(pickle.loads(pickled))[:], np.arange(5))
    assert os.listdir() == []


def test_references_by_an_option_are_opened_again(tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(VALUES.tobytes())
    references = {"version": 1, "refs": {"zarr.json": METADATA.decode(), "c/0": ["f", 0, 8]}}
    (tmp_path / "refs.json").write_text(json.dumps(references))
    monkeypatch.chdir(tmp_path)
    for place in ("refs.json", str(tmp_path / "refs.json")):
        store = hr.open_store("reference://", storage_options={"fo": place})
        pickled = pickle.dumps(store)
        monkeypatch.chdir("/")
        assert_same(hr.open_array(pickle.loads(pickled))[:], VALUES)
        monkeypatch.chdir(tmp_path)


def test_references_by_an_option_across_a_network_are_opened_again(tmp_path):
    (tmp_path / "f").write_bytes(VALUES.tobytes())
    references = {"version": 1, "refs": {"zarr.json": METADATA.decode(), "c/0": ["f", 0, 8]}}
    (tmp_path / "refs.json").write_text(json.dumps(references))
    with file_server(tmp_path, lambda request: None) as url:
        options = {"fo": f"{url}/refs.json", "allow": url}
        store = hr.open_store("reference://", storage_options=options)
        assert_same(hr.open_array(pickle.loads(pickle.dumps(store)))[:], VALUES)


# ---- links


def test_a_link_to_what_is_not_there_is_no_missing_chunk(tmp_path):
    array = hr.create_array(tmp_path / "a.zarr", data=np.arange(8), chunks=4)
    chunk = tmp_path / "a.zarr" / "c" / "1"
    chunk.rename(tmp_path / "kept")
    chunk.symlink_to(tmp_path / "kept")
    assert_same(array[:], np.arange(8))
    (tmp_path / "kept").rename(tmp_path / "dropped")
    with pytest.raises(OSError, match="link to what is not there"):
        array[:]
    assert_same(array[:4], np.arange(4))
    with pytest.raises(OSError, match="link to what is not there"):
        array[5] = 3
    with pytest.raises(OSError, match="link to what is not there"):
        hr.copy(tmp_path / "a.zarr", tmp_path / "b.zarr")
    assert "link to what is not there" in str(array.verify())
    (tmp_path / "dropped").rename(tmp_path / "kept")
    assert_same(array[:], np.arange(8))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_folder_in_the_place_of_a_chunk_is_a_missing_one(tmp_path, zarr_format):
    zarr = pytest.importorskip("zarr")
    import headrace.zarr as headrace_zarr

    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=8, chunks=4, dtype="i4", fill_value=7, zarr_format=zarr_format)
    chunk = "1" if zarr_format == 2 else "c/1"
    (path / chunk / ".thumbs").mkdir(parents=True)
    assert_same(hr.open(path)[:], np.full(8, 7, "i4"))
    assert_same(hr.open_array(hr.cached(path))[:], np.full(8, 7, "i4"))
    store = headrace_zarr.Store(path)
    assert_same(zarr.open_array(store, mode="r")[:], np.full(8, 7, "i4"))
    with zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"}):
        assert_same(zarr.open_array(path, mode="r")[:], np.full(8, 7, "i4"))
    with pytest.raises(FileNotFoundError):
        asyncio.run(store.getsize(chunk))


# ---- archives


def flipped(path, target, name, at):
    """The archive with one bit of an entry changed."""
    data = bytearray(path.read_bytes())
    info = zipfile.ZipFile(path).getinfo(name)
    data[info.header_offset + 30 + len(name) + at] ^= 4
    target.write_bytes(data)
    return target


@pytest.mark.parametrize("shards", [None, 16])
def test_a_changed_bit_of_an_archive_is_found(tmp_path, shards):
    data = np.random.default_rng(0).normal(size=16)
    options = {"chunks": 4 if shards else 16, "shards": shards, "compressors": None}
    with hr.open(tmp_path / "a.zip", mode="w") as group:
        group.create_array("x", shape=(16,), dtype="f8", **options)[:] = data
    for at in (0, 50, 127):
        bad = hr.open_array(flipped(tmp_path / "a.zip", tmp_path / "b.zip", "x/c/0", at), "x")
        if shards is None:
            with pytest.raises(hr.CorruptError, match="CRC-32"):
                bad[:]
        assert "CRC-32" in str(bad.verify())
    assert_same(hr.open_array(tmp_path / "a.zip", "x")[:], data)


@pytest.mark.parametrize("mode", ["w-", "a"])
def test_an_archive_does_not_replace_what_came_meanwhile(tmp_path, mode):
    path = tmp_path / "a.zip"
    group = hr.open(path, mode=mode)
    group.create_array("x", data=np.arange(3))
    with hr.open(path, mode="w") as other:
        other.create_array("x", data=np.arange(9))
    with pytest.raises(hr.errors.ConflictError, match="since this one was begun"):
        group.store.close()
    assert_same(hr.open_array(path, "x")[:], np.arange(9))
    group.store.discard()
    assert os.listdir(tmp_path) == ["a.zip"]


def test_archives_of_two_threads_are_one(tmp_path):
    groups = [hr.open(tmp_path / "a.zip", mode="w-") for _ in range(4)]
    results = []

    def finish(i, group):
        group.create_array("x", data=np.full(3, i))
        try:
            group.store.close()
            results.append(i)
        except hr.errors.ConflictError:
            group.store.discard()

    threads = [threading.Thread(target=finish, args=pair) for pair in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1
    assert_same(hr.open_array(tmp_path / "a.zip", "x")[:], np.full(3, results[0]))
