"""The loader over stores across a network: the same batches, and requests ahead of them."""

import contextlib
import time
import urllib.parse

import cloud_servers
import headrace as hr
import numpy as np
import pytest
from headrace.loader import Loader
from helpers import assert_same

zarr = pytest.importorskip("zarr", minversion="3.1.6")

STEPS = 96
FIELDS = np.random.default_rng(5).normal(size=(STEPS, 12, 16)).astype("f4")


class Slow(cloud_servers.ObjectHandler):
    """Counts how many requests are answered at a time."""

    def do_GET(self):
        server = self.server
        with server.lock:
            server.now += 1
            server.most = max(server.most, server.now)
            server.asked.append(self.path)
        time.sleep(server.delay)
        if self.path == server.slow:
            time.sleep(1)
            server.asked_meanwhile = len(server.asked)
        with server.lock:
            server.now -= 1
        data = server.objects.get(urllib.parse.unquote(self.path)[1:])
        if data is None:
            return self.fail(404, "NoSuchKey")
        self.answer_object(data, {"ETag": '"1"'}, self.headers.get("Range"), True)

    do_HEAD = do_GET


@pytest.fixture
def server():
    with cloud_servers.fake_server(Slow) as (server, url):
        server.url, server.delay, server.now, server.most, server.asked = url, 0.0, 0, 0, []
        server.slow = None
        store = zarr.storage.MemoryStore()
        root = zarr.create_group(store)
        root.create_array("a", data=FIELDS, chunks=(1, 12, 16))
        root.create_array(
            "b",
            data=FIELDS * 2,
            chunks=(4, 6, 16),
            shards=(8, 12, 16),
            dimension_names=["t", "y", "x"],
        )
        zarr.consolidate_metadata(store)
        server.objects = {key: value.to_bytes() for key, value in store._store_dict.items()}
        server.local = store
        yield server


def arrays(place):
    group = hr.open_group(place)
    return {name: group[name] for name in ("a", "b")}


OPTIONS = {"batch_size": 8, "sample_dim": 0, "shuffle": "block", "block_chunks": 8, "seed": 3}


def on_host(values):
    return values.to_numpy() if isinstance(values, hr.DeviceArray) else np.array(values)


def batches(loader):
    return [{name: on_host(values) for name, values in batch.items()} for batch in loader]


def assert_same_batches(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])


@pytest.mark.parametrize("place", ["cpu", "simt"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"prefetch": 0},
        {"window": 3, "lead_time": [2], "normalize": {"a": (0.5, 2.0)}},
        {"shuffle": "global"},
        {"shuffle": None},
        {"memory_budget": 400_000},
    ],
)
def test_the_same_batches_as_of_a_local_store(server, more, place):
    options = OPTIONS | {"device": place} | more
    with (
        contextlib.closing(Loader(arrays(server.url), **options)) as ours,
        contextlib.closing(Loader(arrays(server.local), **options)) as theirs,
    ):
        for epoch in range(2):
            ours.set_epoch(epoch)
            theirs.set_epoch(epoch)
            assert_same_batches(batches(ours), batches(theirs))


@pytest.mark.parametrize("place", ["cpu", "simt"])
def test_requests_of_the_next_batches_are_under_way(server, place):
    server.delay = 0.05
    with contextlib.closing(Loader(arrays(server.url), device=place, **OPTIONS)) as loader:
        begin = time.monotonic()
        made = batches(loader)
        took = time.monotonic() - begin
        assert loader.stats()["chunks_decoded"] == STEPS + STEPS // 4 * 2
    assert len(made) == STEPS // 8
    assert server.most >= 16
    assert took < 5  # one after the other: 144 * 0.05
    chunks = [path for path in server.asked if "/c/" in path and path.startswith("/a/")]
    assert len(chunks) == len(set(chunks)) == STEPS


@pytest.mark.parametrize("place", ["cpu", "simt"])
@pytest.mark.parametrize("shuffle", [None, "block"])
def test_neighbours_in_a_shard_are_one_request(server, place, shuffle):
    server.delay = 0.01
    options = OPTIONS | {"shuffle": shuffle, "device": place, "block_chunks": 2}
    array = {"b": arrays(server.url)["b"]}
    with contextlib.closing(Loader(array, **options)) as loader:
        server.asked.clear()
        made = batches(loader)
        assert loader.stats()["chunks_decoded"] == STEPS // 4 * 2
        failed = loader.stats()["failed_ahead"]
    assert len(made) == STEPS // 8
    # 12 shards of four inner chunks: an index and a range each, or all at once; to a device a few
    # are divided. Alone, each chunk was a request, and most an index, too.
    assert len(server.asked) <= 30, (server.asked, failed)


@pytest.mark.parametrize("place", ["cpu", "simt"])
def test_requests_go_on_while_a_batch_waits_for_one(server, place):
    fields = np.random.default_rng(6).normal(size=(200, 3, 4)).astype("f4")
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, data=fields, chunks=(1, 3, 4))
    server.objects = {key: value.to_bytes() for key, value in store._store_dict.items()}
    array = {"x": hr.open_array(server.url)}
    server.asked.clear()
    server.slow = "/c/0/0/0"
    options = {"batch_size": 4, "sample_dim": 0, "shuffle": None, "prefetch": 1}
    with contextlib.closing(Loader(array, device=place, **options)) as loader:
        made = batches(loader)
    assert_same(np.concatenate([batch["x"][:, 0] for batch in made]), fields)
    assert server.asked_meanwhile >= 100


@pytest.mark.parametrize("place", ["cpu", "simt"])
def test_a_slow_consumer_waits_for_nothing(server, place):
    server.delay = 0.05
    with contextlib.closing(Loader(arrays(server.url), device=place, **OPTIONS)) as loader:
        waits = []
        batch = iter(loader)
        next(batch)
        for _ in range(6):
            time.sleep(0.2)
            begin = time.monotonic()
            next(batch)
            waits.append(time.monotonic() - begin)
    assert sorted(waits)[2] < 0.04, waits  # for requests: 0.05 each


@pytest.mark.parametrize("place", ["cpu", "simt"])
def test_resuming_gives_the_next_batch(server, place):
    with contextlib.closing(Loader(arrays(server.url), device=place, **OPTIONS)) as loader:
        everything = batches(loader)
    with contextlib.closing(Loader(arrays(server.url), device=place, **OPTIONS)) as loader:
        taken = iter(loader)
        for _ in range(5):
            next(taken)
        state = loader.state_dict()
    with contextlib.closing(Loader(arrays(server.url), device=place, **OPTIONS)) as loader:
        loader.load_state_dict(state)
        assert_same_batches(batches(loader), everything[5:])


@pytest.mark.parametrize("place", ["cpu", "simt"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_bad_chunk_fails_the_batch_that_needs_it(server, prefetch, place):
    server.objects["a/c/40/0/0"] = b"nonsense"
    options = OPTIONS | {"shuffle": None, "prefetch": prefetch, "device": place}
    with contextlib.closing(Loader({"a": arrays(server.url)["a"]}, **options)) as loader:
        made = iter(loader)
        for _ in range(5):
            next(made)
        with pytest.raises(hr.CorruptError, match="c/40/0/0"):
            next(made)
        assert ["c/40/0/0" in text for text in loader.stats()["failed_ahead"]] == [True]
    options["on_bad_chunk"] = "fill"
    with contextlib.closing(Loader({"a": arrays(server.url)["a"]}, **options)) as loader:
        made = np.concatenate([on_host(batch["a"])[:, 0] for batch in loader])
    assert np.isnan(made[40]).all()
    assert_same(np.delete(made, 40, axis=0), np.delete(FIELDS, 40, axis=0))


def test_a_server_that_fails_is_told_where_it_matters(server):
    del server.objects["a/c/70/0/0"]  # missing: the fill value
    options = OPTIONS | {"shuffle": None}
    with contextlib.closing(Loader({"a": arrays(server.url)["a"]}, **options)) as loader:
        made = np.concatenate([on_host(batch["a"])[:, 0] for batch in loader])
    assert (made[70] == 0).all()


@pytest.mark.parametrize("place", ["cpu", "simt"])
def test_closing_ends_what_is_under_way(server, place):
    loader = Loader(arrays(server.url), device=place, **OPTIONS)
    next(iter(loader))
    server.delay = 20
    begin = time.monotonic()
    loader.set_epoch(1)
    loader.close()
    assert time.monotonic() - begin < 5
