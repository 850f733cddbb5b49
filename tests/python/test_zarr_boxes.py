"""Batches of several selections joined, as annbatch and others make them for zarr-python."""

import asyncio
import gc
import threading
import warnings
import weakref

import headrace as hr
import numpy as np
import pytest
from helpers import OfTheApplication, assert_same
from hypothesis import given
from hypothesis import strategies as st

zarr = pytest.importorskip("zarr", minversion="3.1.6")

import headrace.zarr as hz  # noqa: E402
import zarr.storage as zs  # noqa: E402
from headrace.zarr import _pipeline, _plan  # noqa: E402
from zarr.core import indexing  # noqa: E402
from zarr.core.buffer import default_buffer_prototype  # noqa: E402
from zarr.core.sync import sync  # noqa: E402

OURS = "headrace.zarr.CodecPipeline"
DEFAULT = "zarr.core.codec_pipeline.BatchedCodecPipeline"


def opened(store, path=OURS):
    with zarr.config.set({"codec_pipeline.path": path}):
        return zarr.open_array(store, mode="r+")


@pytest.fixture(autouse=True)
def raise_when_left_to_zarr():
    hz.fallbacks(reset=True)
    with hr.config.set(fallback="raise"):
        yield


class Joined(indexing.Indexer):
    """Several indexers as one: their results one after the other along the first dimension.

    The order may be another one, and later places may lie over earlier ones.
    """

    def __init__(self, indexers, order=None, overlap=0):
        counts = [indexer.shape[0] for indexer in indexers]
        self.offsets = [max(sum(counts[:i]) - overlap, 0) for i in range(len(counts))]
        length = max((o + n for o, n in zip(self.offsets, counts, strict=True)), default=0)
        self.shape = (length, *indexers[0].shape[1:])
        self.drop_axes = indexers[0].drop_axes
        self.indexers = indexers
        self.order = order or range(len(indexers))

    def __iter__(self):
        for i in self.order:
            for chunk in self.indexers[i]:
                where = chunk[2]
                first = where[0] if isinstance(where, tuple) else where
                moved = moved_by(first, self.offsets[i])
                where = (moved, *where[1:]) if isinstance(where, tuple) else moved
                yield type(chunk)(chunk[0], chunk[1], where, chunk[3])


def moved_by(where, offset):
    if isinstance(where, slice):
        return slice(where.start + offset, where.stop + offset)
    return where + offset


def grid_of(array):
    # From zarr 3.2 on the metadata have another class.
    found = getattr(array._async_array, "_chunk_grid", None)
    return array.metadata.chunk_grid if found is None else found


def indexer_of(array, kind, key):
    made = {
        "basic": indexing.BasicIndexer,
        "oindex": indexing.OrthogonalIndexer,
        "vindex": indexing.CoordinateIndexer,
        "mask": indexing.MaskIndexer,
        "block": indexing.BlockIndexer,
    }[kind]
    return made(key, array.shape, grid_of(array))


def read(array, indexer, out=None):
    prototype = default_buffer_prototype()
    buffer = None if out is None else prototype.nd_buffer(out)
    return sync(array._async_array._get_selection(indexer, prototype=prototype, out=buffer))


def write(array, indexer, value):
    prototype = default_buffer_prototype()
    return sync(array._async_array._set_selection(indexer, value, prototype=prototype))


@st.composite
def arrays(draw):
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = tuple(draw(st.integers(1, n + 2)) for n in shape)
    zarr_format = draw(st.sampled_from((2, 3)))
    shards = None
    if zarr_format == 3 and draw(st.booleans()):
        shards = tuple(c * draw(st.integers(1, 3)) for c in chunks)
    return {
        "shape": shape,
        "chunks": chunks,
        "shards": shards,
        "dtype": draw(st.sampled_from(("u1", "i4", ">f4", "f8", "S3"))),
        "order": draw(st.sampled_from("CF")),
        "compressors": draw(st.sampled_from((None, "auto"))),
        "fill_value": None if zarr_format == 3 else 0,
        "zarr_format": zarr_format,
    }


def filled(shape, dtype):
    return np.random.default_rng(1).integers(1, 9, shape).astype(dtype)


def stored(options, store):
    options = dict(options)
    if options["zarr_format"] == 2 and options["dtype"] == "S3":
        options["fill_value"] = b""
    if options["zarr_format"] == 3 and options.pop("fill_value") is None:
        options.pop("order")
    with warnings.catch_warnings(), zarr.config.set({"codec_pipeline.path": DEFAULT}):
        warnings.simplefilter("ignore")
        array = zarr.create_array(store, **options)
        # The rest are missing chunks.
        array[: max(1, array.shape[0] // 2)] = filled(array.shape, array.dtype)[
            : max(1, array.shape[0] // 2)
        ]
    return array


def slices(n):
    return st.tuples(st.integers(0, n), st.integers(0, n), st.integers(1, 3)).map(
        lambda t: slice(min(t[:2]), max(t[:2]), t[2])
    )


def indices(n):
    return st.lists(st.integers(0, n - 1), min_size=1, max_size=6).map(np.array)


@st.composite
def joined(draw, array, kinds=("basic", "oindex", "vindex", "mask", "block")):
    """Indexers of one kind and one shape but in the first dimension."""
    kind = draw(st.sampled_from(kinds))
    n, *rest = array.shape
    count = draw(st.integers(1, 5))
    if kind == "vindex":
        keys = []
        for _ in range(count):
            m = draw(st.integers(1, 6))
            keys.append(
                tuple(
                    np.array(draw(st.lists(st.integers(0, e - 1), min_size=m, max_size=m)))
                    for e in array.shape
                )
            )
    elif kind == "mask":
        masks = [np.random.default_rng(i).random(array.shape) < 0.4 for i in range(count)]
        keys = [mask for mask in masks if mask.any()] or [np.ones(array.shape, bool)]
    elif kind == "block":
        blocks = -(-n // (array.shards or array.chunks)[0])
        keys = [(draw(st.integers(0, blocks - 1)),) for _ in range(count)]
    elif kind == "oindex":
        tail = [draw(st.one_of(st.integers(0, e - 1), slices(e), indices(e))) for e in rest]
        keys = [(draw(indices(n)), *tail) for _ in range(count)]
    else:
        tail = [draw(st.one_of(st.integers(0, e - 1), slices(e))) for e in rest]
        keys = [(draw(slices(n)), *tail) for _ in range(count)]
    return [indexer_of(array, kind, key) for key in keys]


def pair(options, kind, tmp):
    store = zs.MemoryStore() if kind == "memory" else zs.LocalStore(tmp)
    stored(options, store)
    return opened(store), opened(store, DEFAULT)


@given(options=arrays(), data=st.data())
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_reads_joined_selections_as_zarr_python_does(tmp_path_factory, kind, options, data):
    ours, default = pair(options, kind, tmp_path_factory.mktemp("joined"))
    indexers = data.draw(joined(ours))
    order = data.draw(st.permutations(range(len(indexers))))
    one = Joined(indexers, order)
    wanted = [read(default, indexer) for indexer in indexers]
    got = read(ours, one)
    if 0 in one.shape:
        return
    assert_same(np.asarray(got), np.concatenate(wanted))
    # A caller's memory, of either order, is filled where it lies; what is around it stays.
    for layout in "CF":
        around = np.zeros([n + 2 for n in one.shape], ours.dtype, order=layout)
        inside = around[tuple(slice(1, -1) for _ in one.shape)]
        read(ours, one, inside)
        assert_same(inside.copy(), np.concatenate(wanted))
        assert around[0].tobytes() == np.zeros_like(around[0]).tobytes()


@given(options=arrays(), data=st.data())
def test_the_last_of_places_that_overlap_wins(tmp_path_factory, options, data):
    ours, default = pair(options, "local", tmp_path_factory.mktemp("overlap"))
    indexers = data.draw(joined(ours, ("basic", "oindex")))
    one = Joined(indexers, overlap=data.draw(st.integers(0, 3)))
    if 0 in one.shape:
        return
    wanted = np.zeros(one.shape, ours.dtype)
    for offset, indexer in zip(one.offsets, indexers, strict=True):
        wanted[offset : offset + indexer.shape[0]] = read(default, indexer)
    out = np.zeros(one.shape, ours.dtype)
    read(ours, one, out)
    assert_same(out, wanted)


@given(options=arrays(), data=st.data())
def test_writes_joined_selections_in_their_order(tmp_path_factory, options, data):
    ours, _ = pair(options, "local", tmp_path_factory.mktemp("ours"))
    other, default = pair(options, "local", tmp_path_factory.mktemp("default"))
    indexers = data.draw(joined(ours, ("basic", "vindex")))
    one = Joined(indexers)
    if 0 in one.shape:
        return
    value = filled(one.shape, ours.dtype)
    write(ours, one, value)
    for offset, indexer in zip(one.offsets, indexers, strict=True):
        if 0 not in indexer.shape:
            write(other, indexer, value[offset : offset + indexer.shape[0]])
    assert_same(opened(ours.store, DEFAULT)[...], default[...])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0)])
def test_chunks_of_a_box_in_another_order(tmp_path, order):
    """The first and the last chunk, and their number, are those of a box; the others are not."""
    data = np.arange(40.0)
    stored = zarr.create_array(tmp_path / "x", data=data, chunks=10)
    array = opened(stored.store)
    runs = [indexer_of(array, "basic", slice(i * 10, i * 10 + 10)) for i in order]
    assert_same(read(array, Joined(runs)), data.reshape(4, 10)[list(order)].ravel())


def test_products_that_differ_from_chunk_to_chunk(tmp_path):
    data = np.arange(80).reshape(8, 10)
    array = opened(zarr.create_array(tmp_path / "x", data=data, chunks=(4, 10)).store)
    keys = [([0, 2], [1, 3]), ([5, 4], [8, 2])]
    runs = [indexer_of(array, "oindex", tuple(map(np.array, key))) for key in keys]
    wanted = np.concatenate([data[np.ix_(*key)] for key in keys])
    assert_same(read(array, Joined(runs)), wanted)


def test_joined_selections_to_a_device(tmp_path, device):
    data = np.arange(600, dtype="f4").reshape(40, 15)
    store = zarr.create_array(tmp_path / "x", data=data, chunks=(4, 4), shards=(8, 8)).store
    array = opened(store)
    starts = (30, 3, 17, 0)
    runs = [indexer_of(array, "basic", slice(i, i + 6)) for i in starts]
    wanted = np.concatenate([data[i : i + 6] for i in starts])
    with hr.config.set(device=device):
        got = sync(array._async_array._get_selection(Joined(runs), prototype=hz.buffer_prototype))
        assert isinstance(got, hr.DeviceArray)
        assert_same(got.to_numpy(), wanted)
        # The caller's memory is filled, and none takes its place.
        mine = hz.NDBuffer.create(shape=wanted.shape, dtype="f4", fill_value=-1)
        memory = mine.as_ndarray_like()
        read_into = array._async_array._get_selection(
            Joined(runs), prototype=hz.buffer_prototype, out=mine
        )
        assert sync(read_into) is memory
        assert_same(memory.to_numpy(), wanted)


def test_out_is_filled_without_a_copy(tmp_path, monkeypatch):
    data = np.arange(400.0).reshape(40, 10)
    array = opened(zarr.create_array(tmp_path / "x", data=data, chunks=(4, 10)).store)
    targets = []
    original = hr._core.read_many

    def spy(requests):
        targets.extend(out for _, _, out in requests)
        return original(requests)

    monkeypatch.setattr(hr._core, "read_many", spy)
    runs = [indexer_of(array, "basic", slice(i, i + 6)) for i in (30, 3, 17)]
    out = np.zeros((18, 10))
    read(array, Joined(runs), out)
    assert len(targets) == 3 and all(target.base is out for target in targets)
    assert_same(out, np.concatenate([data[i : i + 6] for i in (30, 3, 17)]))


# What is left to zarr-python is counted.


def left_to_zarr(path):
    return zarr.create_array(
        path, shape=40, chunks=7, dtype="i4", zarr_format=2, compressors=OfTheApplication()
    )


def test_fallbacks_are_counted_and_told(tmp_path):
    array = opened(left_to_zarr(tmp_path / "x").store)
    with pytest.raises(NotImplementedError, match="left to zarr-python's own pipeline"):
        array[:]
    with hr.config.set(fallback="warn"), pytest.warns(hz.FallbackWarning, match="zarr-python"):
        array[:]
    with hr.config.set(fallback="silent"), warnings.catch_warnings():
        warnings.simplefilter("error")
        array[:] = 3
    assert sum(hz.fallbacks().values()) == 3
    assert sum(hz.fallbacks(reset=True).values()) == 3
    assert hz.fallbacks() == {}


def test_a_fallback_gives_what_zarr_python_gives(tmp_path):
    data = np.arange(40, dtype="i4")
    array = opened(zarr.create_array(tmp_path / "x", data=data, chunks=7).store)
    out = np.zeros(40, "f8")  # NumPy converts
    with hr.config.set(fallback="silent"):
        read(array, indexer_of(array, "basic", slice(None)), out)
    assert_same(out, data.astype("f8"))
    assert hz.fallbacks() == {"results of another type than the array's": 1}


def test_no_fallback_is_lost_among_threads(tmp_path):
    array = opened(left_to_zarr(tmp_path / "x").store)

    async def many():
        await asyncio.gather(*(array._async_array.getitem(slice(3)) for _ in range(20)))

    seen = []
    with hr.config.set(fallback="silent"):
        threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            seen.append(sum(hz.fallbacks(reset=True).values()))
        for thread in threads:
            thread.join()
    assert sum(seen) + sum(hz.fallbacks().values()) == 80


def test_the_setting_is_checked():
    with pytest.raises(ValueError, match="fallback"):
        hr.config.set(fallback="loud")
    assert hr.config.get("fallback") == "raise"
    with hr.config.set(fallback="warn"):
        assert hr.config.get()["fallback"] == "warn"
    assert hr.config.get("fallback") == "raise"


def test_boxes_of_the_grid_are_planned_as_all_others(monkeypatch):
    store = zs.MemoryStore()
    with zarr.config.set({"codec_pipeline.path": OURS}):
        array = zarr.create_array(store, shape=(23, 17, 9), chunks=(2, 5, 4), dtype="i4")
    values = np.arange(23 * 17 * 9, dtype="i4").reshape(array.shape)
    array[:] = values
    plan_batch, grid_box = _plan.plan_batch, _plan._grid_box
    short = []

    def both_ways(*args):
        plan = plan_batch(*args)
        short.append(grid_box(args[0], *args[2:]) is not None)
        with monkeypatch.context() as patch:
            patch.setattr(_plan, "_grid_box", lambda *args: None)
            assert plan_batch(*args) == plan
        return plan

    monkeypatch.setattr(_pipeline, "plan_batch", both_ways)
    taken = [np.s_[:], np.s_[1:22, 3:16, 2:9], np.s_[5, 3:16], np.s_[:, 16, :3], np.s_[4:5, 1, 8]]
    for selection in taken:
        assert_same(array[selection], values[selection])
        array[selection] = values[selection]
    assert all(short) and len(short) >= 2 * len(taken)
    short.clear()
    for selection in (np.s_[::3], np.s_[1:20:5, ::2, ::4]):
        assert_same(array[selection], values[selection])
    assert not any(short)


class Points(indexing.Indexer):
    """Of a chunk each: its number, indices in it, and their places."""

    drop_axes = ()

    def __init__(self, count, *chunks):
        self.shape = (count,)
        self.chunks = chunks

    def __iter__(self):
        for i, indices, places in self.chunks:
            yield indexing.ChunkProjection((i,), (np.asarray(indices),), np.array(places), False)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i8"])
def test_points_of_small_types_lie_in_their_own_chunk(dtype):
    values = np.arange(1000, dtype="i4")
    array = zarr.create_array(zs.MemoryStore(), shape=(1000,), chunks=(100,), dtype="i4")
    array[:] = values
    array = opened(array.store)
    picked = np.array([90, 99], dtype)
    chunks = Points(4, (2, picked, [0, 1]), (7, picked, [2, 3]))
    assert_same(read(array, chunks), values[[290, 299, 790, 799]])
    write(array, chunks, np.array([-1, -2, -3, -4], "i4"))
    values[[290, 299, 790, 799]] = [-1, -2, -3, -4]
    assert_same(array[:], values)


def test_points_of_several_chunks_take_the_same_values():
    array = zarr.create_array(zs.MemoryStore(), shape=(20,), chunks=(10,), dtype="i4")
    array = opened(array.store)
    chunks = Points(3, *((i, [1, 2, 3], [0, 1, 2]) for i in (0, 1)))
    write(array, chunks, np.array([7, 8, 9], "i4"))
    expected = np.zeros(20, "i4")
    expected[1:4] = expected[11:14] = [7, 8, 9]
    assert_same(array[:], expected)
    assert_same(read(array, chunks), expected[11:14])  # the last one counts


def test_what_is_left_to_zarr_is_not_kept(tmp_path):
    array = opened(left_to_zarr(tmp_path).store)
    value = np.ones(array.shape, array.dtype)
    gone = weakref.ref(value)
    with hr.config.set(fallback="silent"):
        array[:] = value
    assert hz.fallbacks()
    del value
    gc.collect()
    assert gone() is None
