"""zarr-python's tests of stores, through `headrace.zarr.Store`, over every store and decorator.

What is written runs all of them; of what is only read (archives, web servers, references, Icechunk)
the same questions are asked of the same content. Servers that others wrote are left out where they
are not installed.
"""

import asyncio
import contextlib
import functools
import json
import pickle
import uuid
import zipfile

import cloud_servers
import headrace as hr
import numpy as np
import pytest
from test_zarr_store import synchronous

zarr = pytest.importorskip("zarr", minversion="3.1.6")

import headrace.zarr as hz  # noqa: E402
from headrace import _core  # noqa: E402
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest  # noqa: E402
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402

# --- stores that are written ---

SERVERS = {
    "rclone": cloud_servers.rclone,
    "moto": lambda folder: cloud_servers.moto(),
    "gcs": lambda folder: cloud_servers.gcs(),
    "azure": lambda folder: cloud_servers.azure(),
}
PLACES = ["memory", "file", *SERVERS, "fsspec+memory", "fsspec+file"]


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    """Servers by name, each begun where it is asked for first."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def start(name):
            return stack.enter_context(SERVERS[name](tmp_path_factory.mktemp(name)))

        yield start


class Suite(StoreTests[hz.Store, cpu.Buffer]):
    store_cls = hz.Store
    buffer_cls = cpu.Buffer

    @pytest.fixture(params=PLACES)
    def place(self, request, tmp_path, clouds):
        """URL and options, of a place where nothing lies."""
        kind = request.param
        prefix = f"suite/{uuid.uuid4()}"
        if kind in SERVERS:
            cloud = clouds(kind)
            return cloud.url(prefix), cloud.options
        if kind.startswith("fsspec+"):
            pytest.importorskip("fsspec")
        if kind.endswith("memory"):
            return f"{kind}://{tmp_path.as_posix().replace('/', '-')}", {}
        (tmp_path / "store").mkdir()
        return f"{kind}://{tmp_path}/store", {}

    @pytest.fixture
    def store_kwargs(self, place):
        return {"store": place[0], "storage_options": place[1]}

    @pytest.fixture
    def store(self, open_kwargs):
        return asyncio.run(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        return self.store_cls(**store_kwargs)

    # By another handle than that of the store.
    @pytest.fixture(autouse=True)
    def other(self, place):
        self.handle = hr.open_store(place[0], mode="a", storage_options=place[1])

    async def set(self, store, key, value: Buffer) -> None:
        await asyncio.to_thread(self.handle._set, key, value.to_bytes())

    async def get(self, store, key):
        found = await asyncio.to_thread(self.handle._get, key)
        if found is None:
            raise FileNotFoundError(key)
        return self.buffer_cls.from_bytes(bytes(found))

    def test_store_repr(self, store):
        assert repr(store) == f"headrace.zarr.Store({store.handle.url!r})"

    async def test_serializable_store(self, store):
        if not store.handle.url.startswith("memory:"):
            return await super().test_serializable_store(store)
        with pytest.raises(TypeError, match="this process only"):
            pickle.dumps(store)

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing


@synchronous
class TestWritten(Suite):
    pass


@synchronous
class TestCached(Suite):
    """The same behind `hr.cached`."""

    @pytest.fixture
    def store_kwargs(self, place):
        slow = hr.open_store(place[0], mode="a", storage_options=place[1])
        return {"store": hr.cached(slow, memory="1MiB")}


# --- stores that are only read ---

CONTENT = {
    "zarr.json": b'{"zarr_format": 3, "node_type": "group"}',
    "a/zarr.json": b'{"zarr_format": 3, "node_type": "group", "attributes": {"n": 1}}',
    "a/b/c/0/0": bytes(range(256)),
    "a/b/c/0/1": b"\0\1\2\3\4\5\6\7",
}
RANGES = [
    None,
    RangeByteRequest(1, 4),
    OffsetByteRequest(3),
    SuffixByteRequest(3),
    RangeByteRequest(0, 8),
]


class Files(cloud_servers.ObjectHandler):
    def do_GET(self):
        data = CONTENT.get(self.path[1:])
        if data is None:
            return self.fail(404, "NotFound")
        self.answer_object(data, {"ETag": '"1"'}, self.headers.get("Range"), True)

    do_HEAD = do_GET


@contextlib.contextmanager
def web(tmp_path):
    with cloud_servers.fake_server(Files) as (_, url):
        yield url, {}


@contextlib.contextmanager
def nginx(tmp_path):
    folder, aside = tmp_path / "files", tmp_path / "aside"
    aside.mkdir()
    for key, value in CONTENT.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(value)
    with cloud_servers.nginx(folder, aside) as url:
        yield url, {}


@contextlib.contextmanager
def archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        for key, value in CONTENT.items():
            file.writestr(key, value)
    yield f"zip://{tmp_path}/x.zip", {}


@contextlib.contextmanager
def references(tmp_path):
    data = b"".join(CONTENT.values())
    (tmp_path / "data").write_bytes(data)
    refs, at = {}, 0
    for key, value in CONTENT.items():
        refs[key] = [f"{tmp_path}/data", at, len(value)]
        at += len(value)
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    yield f"reference://{tmp_path}/refs.json", {}


@contextlib.contextmanager
def references_of_web(tmp_path):
    with web(tmp_path) as (url, _):
        refs = {key: [f"{url}/{key}", 0, len(value)] for key, value in CONTENT.items()}
        (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
        yield f"reference://{tmp_path}/refs.json", {"allow": f"{url}/"}


READ = {
    "zip": archive,
    "http": web,
    "nginx": nginx,
    "references": references,
    "references of http": references_of_web,
}


@pytest.fixture(params=[False, True], ids=["", "cached"])
def is_cached(request):
    return request.param


@pytest.fixture(params=list(READ))
def read_store(request, tmp_path, is_cached):
    with READ[request.param](tmp_path) as (url, options):
        handle = hr.open_store(url, mode="r", storage_options=options)
        if is_cached:
            handle = hr.cached(handle, memory="1MiB")
        store = hz.Store(handle, read_only=True)
        store.lists = request.param not in ("http", "nginx")
        yield store


async def gathered(names):
    return sorted([name async for name in names])


def test_what_is_only_read(read_store):
    asyncio.run(assert_content(read_store))


async def assert_content(store):
    prototype = default_buffer_prototype()
    for key, value in CONTENT.items():
        assert await store.exists(key)
        assert await store.getsize(key) == len(value)
        for wanted in RANGES:
            found = await store.get(key, prototype, wanted)
            assert found.to_bytes() == cut(value, wanted), (key, wanted)
    asked = [(key, wanted) for key in CONTENT for wanted in RANGES]
    found = await store.get_partial_values(prototype, asked)
    assert [f.to_bytes() for f in found] == [cut(CONTENT[key], wanted) for key, wanted in asked]
    assert not await store.exists("a/none")
    assert await store.get("a/none", prototype) is None
    with pytest.raises(FileNotFoundError):
        await store.getsize("a/none")
    value = cpu.Buffer.from_bytes(b"x")
    with pytest.raises((ValueError, PermissionError)):
        await store.set("a/new", value)
    with pytest.raises((ValueError, PermissionError)):
        await store.delete("zarr.json")
    if not store.lists:
        with pytest.raises(NotImplementedError):
            await gathered(store.list())
        return
    assert await gathered(store.list()) == sorted(CONTENT)
    assert await gathered(store.list_prefix("a/b")) == ["a/b/c/0/0", "a/b/c/0/1"]
    assert await gathered(store.list_dir("")) == ["a", "zarr.json"]
    assert await gathered(store.list_dir("a")) == ["b", "zarr.json"]
    assert not await store.is_empty("")
    assert await store.is_empty("none/")


def cut(value, wanted):
    match wanted:
        case RangeByteRequest(start, end):
            return value[start:end]
        case OffsetByteRequest(offset):
            return value[offset:]
        case SuffixByteRequest(suffix):
            return value[-suffix:]
    return value


@pytest.mark.parametrize("is_cached", [False, True])
def test_icechunk(tmp_path, is_cached):
    icechunk = pytest.importorskip("icechunk")
    storage = icechunk.local_filesystem_storage(str(tmp_path / "repo"))
    session = icechunk.Repository.create(storage).writable_session("main")
    root = zarr.create_group(session.store)
    root.create_array("a/b", data=np.arange(40), chunks=(7,), compressors=None)
    session.commit("all")
    handle = _core.open_store(f"icechunk://{tmp_path}/repo", "r", {})
    if is_cached:
        handle = hr.cached(handle, memory="1MiB")
    asyncio.run(assert_same_stores(hz.Store(handle, read_only=True), session.store))


async def assert_same_stores(ours, theirs):
    prototype = default_buffer_prototype()
    keys = await gathered(theirs.list())
    assert await gathered(ours.list()) == keys
    for key in keys:
        assert await ours.exists(key)
        for wanted in RANGES:
            expected = await theirs.get(key, prototype, wanted)
            if key.endswith("zarr.json"):
                if wanted is None:
                    found = await ours.get(key, prototype)
                    assert json.loads(found.to_bytes()) == json.loads(expected.to_bytes())
                continue
            assert (await ours.get(key, prototype, wanted)).to_bytes() == expected.to_bytes()
    for prefix in ("", "a", "a/b"):
        assert await gathered(ours.list_dir(prefix)) == await gathered(theirs.list_dir(prefix))
