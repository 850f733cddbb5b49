"""Selections against NumPy on the same array in memory; zarr-python writes the stores.

Decisions, where api.md is silent: `a[...]` follows NumPy for basic and for pure fancy indices;
`oindex` slices have positive steps as in zarr-python; `blocks` counts chunks of an unsharded array;
a wrong index is an IndexError, a slice step of zero a ValueError, as in NumPy and zarr-python.
"""

import itertools
import tempfile

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr.codecs as zc
from helpers import assert_same, assert_selected, values, write_zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

V3_DTYPES = ["b1", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "M8[ns]", "m8[s]"]
V2_DTYPES = ["|b1", "<i2", ">i4", ">f4", "<f8", ">c16", "|S5", "<U3", ">M8[us]", "|V3"]
V3_CODECS = {
    "none": None,
    "zstd": zc.ZstdCodec(level=1),
    "gzip": zc.GzipCodec(level=1),
    "blosc": zc.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
    "blosc-bit": zc.BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle"),
    "crc32c": zc.Crc32cCodec(),
    "zstd-crc32c": (zc.ZstdCodec(level=1), zc.Crc32cCodec()),
}
V2_CODECS = {
    "none": None,
    "zstd": numcodecs.Zstd(1),
    "zlib": numcodecs.Zlib(1),
    "lz4": numcodecs.LZ4(),
    "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
    "shuffle": numcodecs.Shuffle(4),
}


@st.composite
def arrays(draw, min_dims=0, sharding=True, min_side=0):
    """(array as headrace opened it, the same in memory)."""
    shape = draw(hnp.array_shapes(min_dims=max(1, min_dims), max_dims=4, min_side=0, max_side=13))
    shape = tuple(max(min_side, side) for side in shape)
    if min_dims == 0 and draw(st.integers(0, 9)) == 0:
        shape = ()
    chunks = tuple(draw(st.integers(1, max(1, min(side + 2, 9)))) for side in shape)
    options = {"zarr_format": draw(st.sampled_from([2, 3])), "chunks": chunks}
    if options["zarr_format"] == 3:
        dtype = draw(st.sampled_from(V3_DTYPES))
        options["compressors"] = V3_CODECS[draw(st.sampled_from(sorted(V3_CODECS)))]
        if shape and sharding and draw(st.booleans()):
            options["shards"] = tuple(c * draw(st.integers(1, 3)) for c in chunks)
        if len(shape) > 1 and draw(st.booleans()):
            options["filters"] = zc.TransposeCodec(order=draw(st.permutations(range(len(shape)))))
    else:
        dtype = draw(st.sampled_from(V2_DTYPES))
        options["compressors"] = V2_CODECS[draw(st.sampled_from(sorted(V2_CODECS)))]
        options["order"] = draw(st.sampled_from("CF"))
        separator = draw(st.sampled_from("./"))
        options["chunk_key_encoding"] = {"name": "v2", "separator": separator}
        if np.dtype(dtype).itemsize % 4 and options["compressors"] is V2_CODECS["shuffle"]:
            options["compressors"] = None
    data = values(dtype, shape, draw(st.integers(0, 99)))
    folder = tempfile.mkdtemp(dir=FOLDER.name)
    write_zarr(folder, data, overwrite=True, **options)
    return hr.open_array(folder), data


FOLDER = tempfile.TemporaryDirectory(prefix="headrace-selection-")


@given(arrays(), st.data())
def test_basic(pair, draws):
    array, data = pair
    for _ in range(4):
        index = draws.draw(hnp.basic_indices(data.shape, allow_ellipsis=True, allow_newaxis=True))
        got = array[index]
        assert_selected(got, data, index)
        if isinstance(got, np.ndarray):
            assert got.dtype == array.dtype
        assert_selected(array.read(index), data, index)


@given(arrays(min_dims=1), st.data())
def test_basic_into_out(pair, draws):
    array, data = pair
    index = draws.draw(hnp.basic_indices(data.shape, allow_ellipsis=True))
    index = index if isinstance(index, tuple) else (index,)
    wanted = data[index if any(k is ... for k in index) else (*index, ...)]
    order = draws.draw(st.permutations(range(wanted.ndim)))
    flips = [draws.draw(st.booleans()) for _ in range(wanted.ndim)]
    # A view of a larger buffer: axes in any order, gaps of one, some axes backwards.
    room = np.empty([2 * wanted.shape[axis] for axis in order], array.dtype)
    if room.size:
        room.reshape(-1).view(np.uint8).fill(0xA5)
    untouched = room.copy()
    view = room[(*[slice(None, None, 2) for _ in order], ...)].transpose(np.argsort(order))
    view = view[(*[slice(None, None, -1 if flip else 1) for flip in flips], ...)]
    assert view.shape == wanted.shape
    array.read(index, out=view)
    assert_same(view, wanted)
    for corner in itertools.product((0, 1), repeat=wanted.ndim):
        if any(corner):
            gap = tuple(slice(start, None, 2) for start in corner)
            assert_same(room[gap], untouched[gap])


@given(arrays(min_dims=1), st.data())
def test_lazy_views_compose(pair, draws):
    array, data = pair
    view, wanted = array.lazy, data
    for _ in range(3):
        if not wanted.ndim:
            break
        index = draws.draw(hnp.basic_indices(wanted.shape, allow_ellipsis=True))
        view, wanted = view[index], np.asarray(wanted[index])
        assert view.shape == wanted.shape
    assert_same(view.read(), wanted)


def axis_index(draw, side):
    kind = draw.draw(
        st.sampled_from(["slice", "list", "mask", "int"] if side else ["slice", "mask"])
    )
    if kind == "slice":
        start, stop = sorted(draw.draw(st.tuples(st.integers(0, side), st.integers(0, side))))
        return slice(start, stop, draw.draw(st.integers(1, 3)))
    if kind == "int":
        return draw.draw(st.integers(-side, side - 1))
    if kind == "list":
        picks = draw.draw(st.lists(st.integers(-side, side - 1), min_size=1, max_size=2 * side))
        return np.array(picks)
    return np.array(draw.draw(st.lists(st.booleans(), min_size=side, max_size=side)), bool)


@given(arrays(min_dims=1), st.data())
def test_orthogonal(pair, draws):
    array, data = pair
    index = tuple(axis_index(draws, side) for side in data.shape)
    wanted = data
    for axis in reversed(range(data.ndim)):
        wanted = wanted[(slice(None),) * axis + (index[axis],)]
    assert_same(array.oindex[index], wanted)


@given(arrays(min_dims=1, min_side=1), st.data())
def test_coordinates(pair, draws):
    array, data = pair
    shape = draws.draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=12))
    index = tuple(
        draws.draw(hnp.arrays(np.int64, shape, elements=st.integers(-side, side - 1)))
        for side in data.shape
    )
    assert_same(array.vindex[index], data[index])
    assert_same(array[index], data[index])


@given(arrays(min_dims=1), st.data())
def test_mask(pair, draws):
    array, data = pair
    mask = draws.draw(hnp.arrays(bool, data.shape))
    assert_same(array.vindex[mask], data[mask])
    assert_same(array[mask], data[mask])


@given(arrays(min_dims=1, sharding=False, min_side=1), st.data())
def test_blocks(pair, draws):
    array, data = pair
    index, where = [], []
    for side, chunk in zip(data.shape, array.chunks, strict=True):
        count = -(-side // chunk)
        if draws.draw(st.booleans()):
            k = draws.draw(st.integers(-count, count - 1))
            index.append(k)
            where.append(slice(k % count * chunk, (k % count + 1) * chunk))
        else:
            first = draws.draw(st.integers(0, count - 1))
            last = draws.draw(st.integers(first, count))
            index.append(slice(first, last))
            where.append(slice(first * chunk, last * chunk))
    assert_same(array.blocks[tuple(index)], data[tuple(where)])


@pytest.fixture
def grid(store):
    data = values("<i4", (10, 7))
    write_zarr(store, data, chunks=(4, 3))
    return hr.open_array(store), data


def test_lists_index_like_numpy(grid):
    array, data = grid
    assert_same(array[[0, 9, -1], [1, 1, 6]], data[[0, 9, -1], [1, 1, 6]])
    assert_same(array[[2, 5, 2]], data[[2, 5, 2]])
    assert_same(array.vindex[[1, 2], 3], data[[1, 2], 3])
    assert_same(array.oindex[[1, 2], ::2], data[[1, 2], ::2])
    assert_same(array.oindex[[3, 1]], data[[3, 1]])


def test_numpy_integers_and_index_objects_are_indices(grid):
    class Two:
        def __index__(self):
            return 2

    array, data = grid
    assert_same(array[np.int8(-1), Two()], data[-1, 2])
    assert_same(array[Two() :, np.uint64(3)], data[2:, 3])


@pytest.mark.parametrize(
    "index",
    [10, -11, (0, 7), (0, 0, 0), (..., 0, ...), "x", 1.5, [10], (0, [-8])],
    ids=repr,
)
def test_wrong_index_is_an_index_error(grid, index):
    array, data = grid
    with pytest.raises(IndexError):
        data[index]
    with pytest.raises(IndexError):
        array[index]


@pytest.mark.parametrize(
    ("how", "index"),
    [
        ("oindex", ([0, 10],)),
        ("oindex", (np.ones(9, bool),)),
        ("oindex", (0, 0, 0)),
        ("vindex", ([0, 10], [0, 0])),
        ("vindex", (np.ones((10, 6), bool),)),
        ("blocks", (3, 0)),
        ("blocks", (0, -4)),
        ("blocks", (0, 0, 0)),
    ],
)
def test_wrong_advanced_index_is_an_index_error(grid, how, index):
    with pytest.raises(IndexError):
        getattr(grid[0], how)[index]


def test_points_without_an_index_for_each_dimension(store):
    array = hr.create_array(store, data=np.zeros((2, 3, 4)), dimension_names=["t", None, "x"])
    with pytest.raises(IndexError, match=r"an index for every dimension: .* none for 1, 'x'$"):
        array.vindex[{"t": [0, 1]}]
    with pytest.raises(IndexError, match="wants an index for every dimension: array is 3-dim"):
        array.vindex[[0, 1], [1, 2]]
    assert array.vindex[{"t": [0, 1], 1: 2, "x": [3, 0]}].tolist() == [0, 0]


@pytest.mark.parametrize("how", ["oindex", "vindex", "blocks"])
def test_an_indexer_shows_what_it_is_of(grid, how):
    assert repr(getattr(grid[0], how)) == f"<{how} of {grid[0]!r}>"


def test_coordinates_that_do_not_broadcast_are_refused(grid):
    # IndexError in NumPy, ValueError in zarr-python.
    with pytest.raises((IndexError, ValueError)):
        grid[0].vindex[[0, 1, 2], [0, 1]]


def test_zero_step_is_a_value_error(grid):
    with pytest.raises(ValueError):
        grid[0][::0]


def test_slices_past_the_end_are_cut(grid):
    array, data = grid
    for index in (slice(8, 99), slice(-99, 2), slice(99, None), slice(5, 2), slice(99, -99, -4)):
        assert_same(array[index], data[index])


def test_huge_sparse_array_reads_where_asked(store):
    """Nothing may be sized by the array: 2**60 elements, no chunk."""
    import zarr

    zarr.create_array(store, shape=(2**40, 2**20), chunks=(64, 64), dtype="i2", fill_value=-3)
    array = hr.open_array(store)
    assert array.shape == (2**40, 2**20)
    assert_same(array[2**40 - 2 :, 5:8], np.full((2, 3), -3, "i2"))
    assert_same(array[:: 2**38, -1], np.full(4, -3, "i2"))
    assert_same(array.vindex[[0, 2**39], [2**20 - 1, 3]], np.full(2, -3, "i2"))
    with pytest.raises(MemoryError):
        array[...]
