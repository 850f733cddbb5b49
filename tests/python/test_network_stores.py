"""Stores across a network as users open them: by URL, in other libraries, in other processes."""

import base64
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import cloud_servers
import headrace as hr
import numpy as np
import pytest
from cloud_servers import KEY, SECRET, file_server
from headrace import _secrets
from helpers import assert_same

zarr = pytest.importorskip("zarr", minversion="3.1.6")

COMMAND = Path(sys.executable).parent / "headrace"
DATA = np.arange(40 * 30, dtype="f4").reshape(40, 30)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    with cloud_servers.rclone(tmp_path_factory.mktemp("rclone")) as server:
        array = hr.create_array(
            server.url("x.zarr"),
            shape=DATA.shape,
            dtype=DATA.dtype,
            chunks=(10, 10),
            storage_options=server.options,
        )
        array[...] = DATA
        yield server


def is_native(array) -> bool:
    return array.store._python_store is None


def test_a_url_is_opened_without_another_library(bucket):
    code = (
        "import sys, headrace as hr\n"
        f"a = hr.open({bucket.url('x.zarr')!r}, storage_options={bucket.options!r})\n"
        "assert a[3, 4] == 94\n"
        "print([m for m in ('fsspec', 'zarr', 'obstore', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_other_names_of_a_scheme(bucket):
    array = hr.open(bucket.url("x.zarr").replace("s3://", "s3a://"), storage_options=bucket.options)
    assert is_native(array)
    assert_same(array[7], DATA[7])


def test_an_option_that_nobody_knows_is_named(bucket):
    with pytest.raises(ValueError, match="colour"):
        hr.open(bucket.url("x.zarr"), storage_options={**bucket.options, "colour": "red"})


def test_a_pickle_has_no_secret_and_opens_here(bucket):
    array = hr.open(bucket.url("x.zarr"), storage_options=bucket.options)
    store = hr.zarr.Store(bucket.url("x.zarr"), storage_options=bucket.options)
    for thing in (array, array.store, store, hr.cached(array.store)):
        text = pickle.dumps(thing)
        assert SECRET.encode() not in text
        assert KEY.encode() not in text
        pickle.loads(text)
    assert_same(pickle.loads(pickle.dumps(array))[...], DATA)
    assert_same(zarr.open_array(pickle.loads(pickle.dumps(store)), mode="r")[:], DATA)


def test_a_user_in_a_url_is_a_secret_too(tmp_path):
    array = hr.create_array(tmp_path / "x.zarr", shape=(4,), dtype="i4", chunks=(2,))
    array[:] = [1, 2, 3, 4]

    def refused(request):
        given = request.headers.get("Authorization", "")
        return base64.b64decode(given.removeprefix("Basic ")) != b"me:pass word" and 401

    with file_server(tmp_path, refused) as root:
        url = f"{root}/x.zarr".replace("//", "//me:pass%20word@", 1)
        for opened in (hr.open(url), zarr.open_array(hr.zarr.Store(url, read_only=True), mode="r")):
            text = pickle.dumps(opened)
            assert b"pass" not in text.replace(b"password", b"")
            assert list(pickle.loads(text)[:]) == [1, 2, 3, 4]
        with pytest.raises(PermissionError):
            hr.open(url.replace("me:", "you:"))


@pytest.mark.parametrize(
    "name", ["two words.zarr", "\u00e9t\u00e9.zarr", "a%20b.zarr", "a^{b}.zarr"]
)
def test_a_url_as_it_is_pasted(tmp_path, name):
    """With what no URL has, which browsers encode; what is encoded stays so."""
    data = np.arange(4)
    hr.create_array(tmp_path / name.replace("%20", " "), data=data, chunks=2)
    with file_server(tmp_path, lambda request: None) as root:
        array = hr.open(f"{root}/{name}")
        assert_same(array[:], data)
        assert array.store.url.isascii() and " " not in array.store.url
        again = hr.open(array.store.url)
        assert again.store.url == array.store.url
        assert_same(again[:], data)
        with pytest.raises(FileNotFoundError):
            hr.open(f"{root}/{name} 2")


def test_a_pickle_has_secrets_where_that_is_wanted(bucket):
    options = {**bucket.options, "pickle_credentials": True}
    array = hr.open(bucket.url("x.zarr"), storage_options=options)
    assert SECRET.encode() in pickle.dumps(array)


def test_what_is_a_secret():
    open_ones = {"anon": True, "region": "us-east-1", "endpoint_url": "http://x", "profile": "me"}
    secret_ones = {
        "key": "a",
        "secret": "b",
        "sas_token": "c",
        "connection_string": "d",
        "client_kwargs": {"headers": {"Authorization": "e"}},
        "remote_options": '{"token": "f"}',
    }
    left, name = _secrets.set_aside({**open_ones, **secret_ones})
    assert left == open_ones
    assert _secrets.restored(left, name) == {**open_ones, **secret_ones}
    assert _secrets.restored(left, "of another process") == open_ones


def _read(array, queue) -> None:
    queue.put(float(array[...].sum()))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_at_once(bucket, method, monkeypatch):
    """Those that are spawned by the environment's credentials: a pickle has none."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    array = hr.open(bucket.url("x.zarr"), storage_options=bucket.options)
    assert_same(array[...], DATA)  # connections and threads are there before the fork
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    worker = context.Process(target=_read, args=(array, queue))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert queue.get() == DATA.sum(dtype="f8")
    assert_same(array[...], DATA)


def test_obstore_is_read_by_headrace_itself(bucket):
    obstore = bucket.obstore("x.zarr")
    array = hr.open(zarr.storage.ObjectStore(obstore, read_only=True))
    assert is_native(array)
    assert_same(array[...], DATA)
    assert is_native(hr.open(obstore))


def test_fsspec_over_http_is_read_by_headrace_itself(bucket):
    pytest.importorskip("aiohttp")
    store = zarr.storage.FsspecStore.from_url(f"{bucket.endpoint}/bucket/x.zarr", read_only=True)
    from headrace._zarr_stores.urls import place_of

    url, options = place_of(store)
    assert url == f"{bucket.endpoint}/bucket/x.zarr"
    assert options == {}


def test_what_another_library_alone_knows_stays_its_own(bucket):
    store = bucket.obstore("x.zarr")
    with_provider = type(store)(
        "bucket",
        prefix="x.zarr",
        endpoint=bucket.endpoint,
        region="us-east-1",
        credential_provider=lambda: {
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "expires_at": None,
        },
        client_options={"allow_http": True},
    )
    array = hr.open(zarr.storage.ObjectStore(with_provider, read_only=True))
    assert not is_native(array)
    assert_same(array[...], DATA)


def _command(*arguments: str) -> str:
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _options(bucket, flag: str) -> list[str]:
    return [word for name, value in bucket.options.items() for word in (flag, f"{name}={value}")]


def test_the_command_line_copies_lists_and_measures(bucket, tmp_path):
    url, options = bucket.url("x.zarr"), _options(bucket, "--storage-option")
    assert "zarr.json" in _command("ls", url, *options).split()
    assert len(_command("ls", "-r", url, *options).splitlines()) == 13
    assert "13" in _command("du", url, *options)
    local = str(tmp_path / "y.zarr")
    time.sleep(1.1)  # lists tell seconds: what is copied in that of its writing is copied again
    assert "copied 13 of 13" in _command("cp", url, local, "--verify", *options)
    assert_same(hr.open(local)[...], DATA)
    os.remove(tmp_path / "y.zarr/c/1/1")
    assert "copied 1 of 13" in _command("sync", url, local, *options)
    (tmp_path / "y.zarr/other").write_bytes(b"x")
    assert "removed 1" in _command("sync", url, local, "--delete", *options)
    back = _options(bucket, "--to-option")
    assert "copied 13 of 13" in _command("cp", local, bucket.url("z.zarr"), *back)
    assert "copied 0 of 13" in _command("sync", "--checksum", local, bucket.url("z.zarr"), *back)
    array = hr.open(bucket.url("z.zarr"), storage_options=bucket.options)
    assert_same(array[...], DATA)
    for _ in range(2):  # objects, whatever their folder is called
        assert "of 13" in _command("sync", local, bucket.url("z.zip"), *back)


def test_zarr_writes_what_is_new_only_once(bucket):
    import asyncio

    from zarr.core.buffer import cpu

    store = hr.zarr.Store(bucket.url("new"), storage_options=bucket.options)
    for value in (b"first", b"second"):
        asyncio.run(store.set_if_not_exists("k", cpu.Buffer.from_bytes(value)))
    assert store.handle._get("k") == b"first"


def test_a_copy_never_takes_its_own_source(tmp_path):
    """Whatever way leads there: what is removed from the target must not be the source."""
    array = hr.create_array(tmp_path / "a/b", shape=(4,), dtype="i4", chunks=(2,))
    array[:] = [1, 2, 3, 4]
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for source, target in (
        ("a/b", "a"),
        ("a", "a/b"),
        ("a/b", "link"),
        ("link", "a"),
        ("link/b", "a/b"),
    ):
        command = [COMMAND, "sync", "--delete", tmp_path / source, tmp_path / target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, (source, target, done.stdout)
        assert "within the other" in done.stderr
        assert_same(hr.open(tmp_path / "a/b")[...], np.array([1, 2, 3, 4], "i4"))


def test_one_place_of_a_bucket_is_one_place(bucket):
    """Writers of one chunk wait for each other by it."""
    by_url = hr.open_store(bucket.url("g/x"), storage_options=bucket.options)
    by_path = hr.open_store(bucket.url("g"), storage_options=bucket.options)
    root = hr.open_store("s3://bucket", storage_options=bucket.options)
    places = {by_url._identity(""), by_path._identity("x"), root._identity("g/x")}
    assert len(places) == 1


class Signed(cloud_servers.ObjectHandler):
    """Gives objects to who has the signature."""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if "X-Amz-Signature=hidden" not in query:
            return self.fail(403, "AccessDenied")
        data = self.server.objects.get(path[1:])
        if data is None:
            return self.fail(404, "NoSuchKey")
        self.answer_object(data, {"ETag": '"1"'}, self.headers.get("Range"), True)

    do_HEAD = do_GET


def test_a_presigned_url_keeps_its_signature_as_credentials_are_kept():
    with cloud_servers.fake_server(Signed) as (server, url):
        store = zarr.storage.MemoryStore()
        zarr.create_array(store, name="x", data=DATA, chunks=(10, 10))
        server.objects = {key: value.to_bytes() for key, value in store._store_dict.items()}
        signed = f"{url}/x?X-Amz-Signature=hidden&X-Amz-Expires=1"
        array = hr.open(signed)
        assert_same(array[...], DATA)
        assert "hidden" not in array.store.url
        text = pickle.dumps(array)
        assert b"hidden" not in text
        assert_same(pickle.loads(text)[3], DATA[3])
        code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[3, 4])"

        def elsewhere(pickled):
            command = [sys.executable, "-c", code]
            return subprocess.run(command, input=pickled, capture_output=True)

        failed = elsewhere(text)
        assert failed.returncode != 0
        assert b"pickle_credentials" in failed.stderr
        allowed = hr.open(signed, storage_options={"pickle_credentials": True})
        done = elsewhere(pickle.dumps(allowed))
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) == DATA[3, 4]
        with pytest.raises(ValueError, match="query"):
            hr.open(signed, storage_options={"query": "a=b"})


@pytest.mark.parametrize("place", ["cpu", "simt"])
@pytest.mark.parametrize("cached", [False, True])
def test_nginx(tmp_path, place, cached):
    """Ranges, suffixes, entity tags and conditions of a web server that others wrote."""
    (tmp_path / "files").mkdir()
    (tmp_path / "aside").mkdir()
    options = {"shape": DATA.shape, "dtype": DATA.dtype}
    for name, chunks, shards in (("chunks", (10, 10), None), ("shards", (5, 5), (20, 15))):
        hr.create_array(tmp_path / "files" / name, chunks=chunks, shards=shards, **options)[...] = (
            DATA
        )
    with cloud_servers.nginx(tmp_path / "files", tmp_path / "aside") as url:
        for name in ("chunks", "shards"):
            store = hr.open_store(f"{url}/{name}", mode="r")
            array = hr.open_array(hr.cached(store) if cached else store, device=place)

            def read(selection, array=array):
                found = array[selection]
                return found if place == "cpu" else found.to_numpy()

            for wanted in np.s_[3:7, ::4], np.s_[...], np.s_[39]:
                assert_same(read(wanted), DATA[wanted])
            if cached:
                continue
            # Another version: what is known of the shards' indices is of the old one.
            changed = hr.open_array(tmp_path / "files" / name, mode="r+")
            changed[...] = DATA[::-1] * 1.5
            assert_same(read(np.s_[3:7, ::4]), (DATA[::-1] * 1.5)[3:7, ::4])
            changed[...] = DATA
