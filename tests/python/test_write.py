"""What headrace writes, read back by headrace and by zarr-python.

Decisions, where api.md is silent: values are cast to the array's dtype as NumPy assigns; a chunk
that holds nothing but the fill value, bit for bit, is absent from the store; creating over an
existing node without `overwrite` is a ValueError (as ContainsArrayError of zarr-python is); a value
that does not broadcast is a ValueError; `append` returns the new shape, as zarr-python does.
"""

import json
import re
import tempfile
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import assert_same, chunk_files, read_zarr, smooth, values, write_zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

FOLDER = tempfile.TemporaryDirectory(prefix="headrace-write-")
DTYPES = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64"]


def codec(name):
    return {
        "zstd": hr.codecs.Zstd(level=1),
        "zstd-checked": hr.codecs.Zstd(level=1, checksum=True),
        "gzip": hr.codecs.Gzip(level=1),
        "blosc": hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="shuffle"),
        "none": None,
        "auto": "auto",
    }[name]


@st.composite
def created(draw):
    """(array made by headrace, the same in memory: all fill value, store)."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=12))
    chunks = tuple(draw(st.integers(1, min(side + 2, 7))) for side in shape)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    zarr_format = draw(st.sampled_from([2, 3]))
    options = {"zarr_format": zarr_format, "fill_value": draw(st.sampled_from([0, 1]))}
    names = ["none", "zstd", "gzip", "blosc", "auto"] + ["zstd-checked"] * (zarr_format == 3)
    options["compressors"] = codec(draw(st.sampled_from(names)))
    if zarr_format == 3 and draw(st.booleans()):
        options["shards"] = tuple(c * draw(st.integers(1, 3)) for c in chunks)
    if zarr_format == 2:
        options["order"] = draw(st.sampled_from("CF"))
    folder = tempfile.mkdtemp(dir=FOLDER.name) + "/a"
    array = hr.create_array(folder, shape=shape, dtype=dtype, chunks=chunks, **options)
    return array, np.full(shape, options["fill_value"], dtype), folder


@given(created(), st.data())
def test_a_series_of_writes_means_what_numpy_means(made, draws):
    array, model, folder = made
    for turn in range(3):
        index = draws.draw(hnp.basic_indices(model.shape, allow_ellipsis=True))
        target = np.asarray(model[index])
        shape = target.shape
        kind = draws.draw(st.sampled_from(["whole", "row", "scalar", "fill", "strided"]))
        if kind == "scalar":
            value = model.dtype.type(turn + 2)
        elif kind == "fill":
            value = array.fill_value
        elif kind == "row":
            value = values(model.dtype, shape[-1:], turn)
        elif kind == "strided":
            value = np.repeat(values(model.dtype, shape, turn)[..., None], 2, -1)[..., 0]
        else:
            value = values(model.dtype, shape, turn)
        model[index] = value
        if draws.draw(st.booleans()):
            array[index] = value
        else:
            array.write(index, value)
        assert_same(array[...], model)
    assert_same(read_zarr(folder), model)
    assert_same(hr.open_array(folder)[...], model)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "dtype", ["b1", "i2", "u8", "f2", "f8", "c16", "M8[ns]", "m8[s]", "S4", "U3"]
)
def test_dtypes(store, dtype, zarr_format):
    data = values(dtype, (11, 6))
    array = hr.create_array(
        store, shape=(11, 6), dtype=dtype, chunks=(4, 4), zarr_format=zarr_format
    )
    array[...] = data
    assert_same(array[...], data)
    assert_same(read_zarr(store), data)


@pytest.mark.parametrize("dtype", [">i2", ">u4", ">f4", ">f8", ">c8"])
def test_big_endian_v2(store, dtype):
    data = values(dtype, (9, 5))
    hr.create_array(store, shape=(9, 5), dtype=dtype, chunks=(4, 4), zarr_format=2)[...] = data
    assert zarr.open_array(store).dtype == np.dtype(dtype)
    assert_same(read_zarr(store), data)


@pytest.mark.filterwarnings("ignore:.*generic.*:DeprecationWarning")
@pytest.mark.parametrize("dtype", ["M8", "m8", "M8[us]", "f8"])
def test_values_of_the_other_byte_order(store, dtype):
    numbers = np.array([0, 1, -2, 100], ">i8")
    array = hr.create_array(store, shape=(4,), dtype=dtype)
    array[...] = numbers.view(f">{dtype}")
    assert array[...].view("i8").tolist() == numbers.tolist()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((), ()),
        ((0,), (3,)),
        ((4, 0), (2, 2)),
        ((1,), (1,)),
        ((5,), (100,)),
        ((2, 3, 2, 3, 2), (1, 2, 2, 2, 1)),
    ],
)
def test_shapes(store, shape, chunks, zarr_format):
    data = values("f4", shape)
    array = hr.create_array(store, shape=shape, dtype="f4", chunks=chunks, zarr_format=zarr_format)
    array[...] = data
    assert_same(array[...], data)
    assert_same(read_zarr(store), data)


@pytest.mark.parametrize(
    ("from_", "to"), [("i4", "f4"), ("f8", "f4"), ("i8", "i2"), (">f4", "<f4"), ("b1", "u1")]
)
def test_values_are_cast(store, from_, to):
    data = (values(from_, (9,)) if from_ == "b1" else smooth(from_, (9,))).astype(from_)
    array = hr.create_array(store, shape=(9,), dtype=to, chunks=(4,))
    array[...] = data
    assert_same(array[...], data.astype(to))
    array[2:5] = [1, 2, 3]
    assert_same(array[2:5], np.array([1, 2, 3], to))
    assert_same(read_zarr(store)[2:5], np.array([1, 2, 3], to))


def test_chunk_of_fill_value_is_absent(store):
    array = hr.create_array(store, shape=(10, 9), dtype="f4", chunks=(4, 4), fill_value=np.nan)
    array[...] = np.nan
    assert chunk_files(store) == {}
    array[:5] = 1
    assert sorted(chunk_files(store)) == [f"c/{y}/{x}" for y in (0, 1) for x in (0, 1, 2)]
    assert array.nchunks_initialized == 6
    array[3:6, :] = np.nan
    assert sorted(chunk_files(store)) == ["c/0/0", "c/0/1", "c/0/2"]
    array[...] = np.nan
    assert chunk_files(store) == {}


def test_edge_chunk_of_fill_value_is_absent(store):
    """Only the part inside the array counts."""
    array = hr.create_array(store, shape=(5,), dtype="i4", chunks=(4,), fill_value=7)
    array[...] = 1
    array[4] = 7
    assert list(chunk_files(store)) == ["c/0"]


def test_negative_zero_is_not_the_fill_value_zero(store):
    array = hr.create_array(store, shape=(4,), dtype="f8", chunks=(4,), fill_value=0.0)
    array[...] = -0.0
    assert_same(array[...], np.full(4, -0.0))


def test_partial_write_keeps_the_rest_of_a_foreign_chunk(store):
    data = values("f4", (20, 20))
    zarr.create_array(store, data=data, chunks=(8, 8))
    array = hr.open_array(store, mode="r+")
    array[5:11, ::3] = -1
    data[5:11, ::3] = -1
    assert_same(read_zarr(store), data)


def test_partial_write_of_a_shard_keeps_its_other_chunks(store):
    data = values("f4", (32, 32))
    zarr.create_array(store, data=data, chunks=(4, 4), shards=(16, 16))
    before = {key: path.read_bytes() for key, path in chunk_files(store).items()}
    array = hr.open_array(store, mode="r+")
    array[5:6, 2:3] = -9
    data[5:6, 2:3] = -9
    assert_same(read_zarr(store), data)
    after = {key: path.read_bytes() for key, path in chunk_files(store).items()}
    assert [key for key in before if before[key] != after[key]] == ["c/0/0"]
    array[:16, :16] = 0
    data[:16, :16] = 0
    assert_same(read_zarr(store), data)
    # A shard whose chunks are all empty is deleted.
    assert sorted(chunk_files(store)) == ["c/0/1", "c/1/0", "c/1/1"]


def test_write_through_oindex_vindex_and_blocks(store):
    model = values("i4", (12, 10))
    array = hr.create_array(store, shape=(12, 10), dtype="i4", chunks=(5, 4))
    array[...] = model
    array.oindex[[1, 5, 9], 2:7] = 100
    model[np.ix_([1, 5, 9], range(2, 7))] = 100
    array.vindex[[0, 11, 3], [9, 0, 3]] = [7, 8, 9]
    model[[0, 11, 3], [9, 0, 3]] = [7, 8, 9]
    mask = model % 3 == 0
    array.vindex[mask] = -1
    model[mask] = -1
    array.blocks[1, 0:2] = 5
    model[5:10, 0:8] = 5
    assert_same(array[...], model)
    assert_same(read_zarr(store), model)


def test_value_that_does_not_broadcast_is_refused(store):
    array = hr.create_array(store, shape=(6, 4), dtype="i4", chunks=(3, 2), fill_value=1)
    with pytest.raises(ValueError):
        array[...] = np.zeros((6, 3))
    with pytest.raises(ValueError):
        array[0] = np.zeros((2, 4))
    with pytest.raises(IndexError):
        array[6] = 0
    assert_same(array[...], np.ones((6, 4), "i4"))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_resize_and_append(store, zarr_format):
    model = values("i2", (7, 5))
    array = hr.create_array(
        store, shape=(7, 5), dtype="i2", chunks=(3, 2), fill_value=-4, zarr_format=zarr_format
    )
    array[...] = model
    array.resize((4, 9))
    wanted = np.full((4, 9), -4, "i2")
    wanted[:, :5] = model[:4]
    assert array.shape == (4, 9)
    assert_same(array[...], wanted)
    array.resize((7, 5))
    # What was cut off does not come back.
    wanted = np.full((7, 5), -4, "i2")
    wanted[:4] = model[:4]
    got = read_zarr(store)
    assert_same(got[6:], wanted[6:])
    assert_same(array[...], got)
    more = values("i2", (4, 5), 9)
    assert tuple(array.append(more)) == (11, 5)
    assert tuple(array.append(np.ones((11, 2), "i2"), axis=1)) == (11, 7)
    wanted = np.concatenate([np.concatenate([got, more]), np.ones((11, 2), "i2")], axis=1)
    assert_same(array[...], wanted)
    assert_same(read_zarr(store), wanted)
    with pytest.raises(ValueError):
        array.append(np.ones((2, 3), "i2"))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_append_to_an_array_with_chunks_of_no_extent(store, zarr_format):
    """zarr-python 2 could write them for arrays without elements; they are read as chunks of 1."""
    hr.create_array(store, shape=(0, 4), dtype="i2", chunks=(1, 4), zarr_format=zarr_format)
    document = Path(store, ".zarray" if zarr_format == 2 else "zarr.json")
    fields = json.loads(document.read_text())
    if zarr_format == 2:
        fields["chunks"] = [0, 4]
    else:
        fields["chunk_grid"]["configuration"]["chunk_shape"] = [0, 4]
    document.write_text(json.dumps(fields))

    array = hr.open_array(store, mode="r+")
    assert array.shape == (0, 4) and array.chunks == (1, 4)
    assert_same(array[...], np.empty((0, 4), "i2"))
    data = values("i2", (3, 4))
    array.append(data)
    assert_same(hr.open_array(store)[...], data)
    assert_same(read_zarr(store), data)


def test_chunks_of_no_extent_hold_no_elements(store):
    write_zarr(store, values("i2", (3, 4)), chunks=(3, 4), zarr_format=2)
    document = Path(store, ".zarray")
    document.write_text(json.dumps(json.loads(document.read_text()) | {"chunks": [0, 4]}))
    with pytest.raises(hr.CorruptError, match="chunk extent of 0 for an extent of 3"):
        hr.open_array(store)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_attributes(store, zarr_format):
    first = {"units": "K", "n": [1, 2.5, None]}
    array = hr.create_array(
        store, shape=(2,), dtype="i1", chunks=(2,), attributes=first, zarr_format=zarr_format
    )
    assert dict(array.attrs) == first
    array.attrs["\u4e2d"] = {"deep": [True]}
    array.attrs["units"] = "degC"
    del array.attrs["n"]
    wanted = {"units": "degC", "\u4e2d": {"deep": [True]}}
    assert dict(array.attrs) == wanted
    assert dict(zarr.open_array(store).attrs) == wanted
    assert dict(hr.open_array(store).attrs) == wanted
    array[...] = 3
    assert_same(read_zarr(store), np.full(2, 3, "i1"))


LONG_DOUBLES = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant == 52, reason="long doubles are doubles here"
)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.datetime64("2000-01-01", "ns"), r"datetime64\[ns\]"),
        (np.timedelta64("NaT", "s"), r"timedelta64\[s\]"),
        (np.array(["2000"], "M8[Y]"), r"datetime64\[Y\]"),
        (np.zeros(2, [("a", "i4"), ("b", "f8")]), r"\('a'"),
        (np.zeros(2, [("a", "i4"), ("b", "f8")])[0], r"\('a'"),
        (np.ma.masked, "masked"),
        (np.ma.array([1, 2], mask=[0, 1]), "masked"),
        (1 + 2j, "complex"),
        (np.complex64(1), "complex"),
        (np.clongdouble(1), "complex"),
        (np.array([1j], np.clongdouble), "complex"),
        pytest.param(np.longdouble(1) / 3, "beyond doubles", marks=LONG_DOUBLES),
        pytest.param(np.array([1, "1e4000"], np.longdouble), "beyond doubles", marks=LONG_DOUBLES),
    ],
)
def test_attributes_that_json_has_no_value_for(value, named):
    group = hr.create_group(hr.memory_store())
    with pytest.raises(TypeError, match=f"{named}.* is not a JSON value"):
        group.attrs["x"] = {"deep": [value]}
    with pytest.raises(TypeError, match=f"{named}.* is not a JSON value"):
        group.create_array("a", shape=1, dtype="i4", attributes={"x": value})
    assert not group.attrs and "a" not in group


def test_attributes_of_numpy():
    attrs = hr.create_group(hr.memory_store()).attrs
    attrs.put({"a": np.float32(0.5), "b": np.arange(2), "c": np.array(["x"]), "d": np.bool_(True)})
    attrs["e"] = np.ma.array([1, 2])
    attrs["f"] = [np.longdouble(0.1), np.array([1, np.inf], np.longdouble)]
    wanted = {"a": 0.5, "b": [0, 1], "c": ["x"], "d": True, "e": [1, 2], "f": [0.1, [1, np.inf]]}
    assert attrs.asdict() == wanted


@pytest.mark.parametrize("codec", ["json2", "msgpack2"])
def test_long_doubles_among_objects(codec):
    filters = [{"id": codec}]
    a = hr.create_array(
        hr.memory_store(), shape=2, dtype=object, zarr_format=2, filters=filters, fill_value=None
    )
    a[:] = np.array([{"x": np.longdouble(0.5)}, [np.longdouble(2)]], object)
    assert a[:].tolist() == [{"x": 0.5}, [2.0]]
    with pytest.raises(TypeError, match="is not a JSON value"):
        a[:] = np.array([{"x": np.clongdouble(1)}, 1], object)


def test_attributes_that_python_does_not_read(tmp_path):
    """An integer of more digits than Python takes: what fails changes nothing."""
    a = hr.create_array(tmp_path, shape=1, dtype="i4", attributes={"long": 0, "b": 2})
    path = tmp_path / "zarr.json"
    path.write_text(re.sub(r'"long": *0', '"long": ' + "9" * 5000, path.read_text()))
    a = hr.open_array(tmp_path, mode="r+")
    for call in (
        lambda: a.attrs.pop("b"),
        lambda: a.attrs.__delitem__("b"),
        lambda: a.attrs.popitem(),
        lambda: a.attrs.setdefault("c", 3),
    ):
        before = path.read_text()
        with pytest.raises(ValueError, match="4300 digits"):
            call()
        assert path.read_text() == before
    a.attrs["new"] = 1
    assert '"new"' in path.read_text() and "9" * 5000 in path.read_text()
    a.attrs.clear()
    assert not a.attrs


def test_errors_name_arguments_and_shapes():
    a = hr.zeros(7, "i4")
    for shape in (2**63, (2**63,), {0: 2**63}):
        with pytest.raises(ValueError, match=r"\[resize\] shape: 9223372036854775808 is outside"):
            a.resize(shape)
    with pytest.raises(ValueError, match=r"out has shape \(5,\), the selection \(7,\)"):
        a.read(out=np.zeros(5, "i4"))
    with pytest.raises(ValueError, match=r"data of shape \(5,\) into shape \(7,\)"):
        a[...] = np.zeros(5, "i4")
    for dtype in (str, "U3"):
        with pytest.raises(ValueError, match=r"fill_value: .* no text that UTF-8 can write"):
            hr.create_array(hr.memory_store(), shape=1, dtype=dtype, fill_value="\ud800")


def test_names_of_attributes_are_strings():
    store = hr.memory_store()
    group = hr.create_group(store)
    for names in ({1: 2, "1": 3}, {None: 1}):
        for call in (
            group.attrs.update,
            group.attrs.put,
            lambda names: group.create_group("g", attributes=names),
            lambda names: group.create_array("a", shape=1, dtype="i4", attributes=names),
        ):
            with pytest.raises(TypeError, match="attributes: expected names that are strings"):
                call(names)
    assert not group.attrs and not group.keys()


@pytest.mark.parametrize(
    "data",
    [
        np.ma.array([1.0, 9e9], mask=[0, 1]),
        np.ma.array([(1, 2)], [("a", "i4"), ("b", "i4")], mask=[(0, 1)]),
    ],
)
def test_masked_elements_are_refused(store, data):
    for call in (
        lambda: hr.array(data, store=store),
        lambda: hr.create_array(store, data=data),
        lambda: hr.save(store, data),
        lambda: hr.save(store, x=data),
        lambda: hr.rechunk(data, store, chunks=None),
    ):
        with pytest.raises(TypeError, match=r"masked: give (data|source)\.filled\(value\)"):
            call()
        assert not Path(store).exists()
    assert_same(hr.array(np.ma.array([1, 2]))[...], np.array([1, 2]))


def test_writes_of_masked_and_missing_elements_are_refused(store):
    data = np.ma.array([1.0, 9e9], mask=[0, 1])
    a = hr.array(np.zeros(2), store=store)
    words, names = hr.array(["a", "b"]), hr.array(["a", "b"], dtype=str)
    missing = np.array(["a", None], dtype=np.dtypes.StringDType(na_object=None))
    for array, value, why in (
        (a, data, "masked"),
        (words, missing, "missing"),
        (names, missing, "missing"),
    ):
        before = array[...]
        for call in (
            lambda array=array, value=value: array.__setitem__(..., value),
            lambda array=array, value=value: array.write(..., value),
            lambda array=array, value=value: array.write_async(..., value).result(),
            lambda array=array, value=value: array.append(value),
        ):
            with pytest.raises(TypeError, match=f"data: .* {why}"):
                call()
        assert array[...].tolist() == before.tolist()
    a[...] = np.ma.array([1.0, 2.0])
    assert_same(a[...], np.array([1.0, 2.0]))


class _Exported:
    """What `__array__()` makes an array of."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def _objects(*items):
    array = np.empty(len(items), object)
    for i, item in enumerate(items):
        array[i] = item
    return array


MASKED_ROWS = [np.ma.array([1, 2], mask=[0, 1]), np.ma.array([3, 4])]
MASKED_TEXTS = list(np.ma.array(["a", "b"], mask=[0, 1]))


@pytest.mark.parametrize(
    ("plain", "data"),
    [
        ([[1, 2], [3, 4]], MASKED_ROWS),
        ([[1, 2], [3, 4]], tuple(MASKED_ROWS)),
        ([[1, 2], [3, 4]], [[1, 2], (3, np.ma.masked)]),
        ([[1, 2], [3, 4]], _Exported(np.ma.stack(MASKED_ROWS))),
        ([1, 2], _objects(1, np.ma.masked)),
        ([1, 2], [1, np.ma.array(2, mask=True)]),
        (["a", "b"], MASKED_TEXTS),
        (["a", "b"], _objects(*MASKED_TEXTS)),
        (["a", "b"], _Exported(np.ma.array(["a", "b"], object, mask=[0, 1]))),
    ],
)
def test_masked_elements_within_others_are_refused(plain, data):
    is_text = isinstance(plain[0], str)
    a = hr.array(np.array(plain), dtype=str if is_text else None)
    rows = a.oindex
    for call in (
        lambda: a.__setitem__(..., data),
        lambda: rows.__setitem__([0, 1], data),
        lambda: a.write(..., data),
        lambda: a.write_async(..., data).result(),
        lambda: a.append(data),
        lambda: hr.array(data),
        lambda: hr.save(hr.memory_store(), data),
        lambda: hr.save(hr.memory_store(), x=data),
    ):
        with pytest.raises(TypeError, match="data: elements are masked"):
            call()
    assert a[...].tolist() == plain


def test_lists_of_what_is_not_masked_are_written():
    a = hr.array(np.zeros((2, 2), "i4"))
    a[...] = [np.ma.array([1, 2]), np.ma.array([3, 4], mask=[0, 0])]
    assert a[...].tolist() == [[1, 2], [3, 4]]
    a[...] = _Exported(np.ma.array([[5, 6], [7, 8]]))
    assert a[...].tolist() == [[5, 6], [7, 8]]
    a[0, 0] = np.int64(9)
    a[0, 1] = True
    a[1] = range(2)
    assert a[...].tolist() == [[9, 1], [0, 1]]
    endless = []
    endless.append(endless)
    with pytest.raises((TypeError, ValueError)):
        a[...] = endless


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_strings_are_refused(missing):
    dtype = np.dtypes.StringDType(na_object=missing)
    with pytest.raises(TypeError, match="strings are missing"):
        hr.array(np.array(["a", missing], dtype))
    assert hr.array(np.array(["a", "b"], dtype))[...].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("encoding", "key"),
    [
        ({"name": "default", "separator": "/"}, "c/1/2"),
        ({"name": "default", "separator": "."}, "c.1.2"),
        ({"name": "v2", "separator": "."}, "1.2"),
        ({"name": "v2", "separator": "/"}, "1/2"),
    ],
)
def test_chunk_key_encoding_and_dimension_names(store, encoding, key):
    array = hr.create_array(
        store,
        shape=(4, 6),
        dtype="u1",
        chunks=(2, 2),
        chunk_key_encoding=encoding,
        dimension_names=["y", None],
    )
    array[2:, 4:] = 5
    assert list(chunk_files(store)) == [key]
    assert zarr.open_array(store).metadata.dimension_names == ("y", None)
    assert list(array.dimension_names) == ["y", None]


def test_overwrite(store):
    hr.create_array(store, shape=(4,), dtype="i4", chunks=(1,))[...] = 1
    with pytest.raises(ValueError):
        hr.create_array(store, shape=(2,), dtype="f8", chunks=(2,))
    assert_same(read_zarr(store), np.ones(4, "i4"))
    hr.create_array(store, shape=(2,), dtype="f8", chunks=(2,), overwrite=True)
    assert chunk_files(store) == {}
    assert_same(read_zarr(store), np.zeros(2))


def test_arrays_in_groups(store):
    root = hr.create_group(store, attributes={"title": "x"})
    assert dict(root.attrs) == {"title": "x"}
    hr.create_array(store, name="a/b/t", shape=(3,), dtype="f4", chunks=(2,))[...] = 2
    assert_same(read_zarr(store, "a/b/t"), np.full(3, 2, "f4"))
    assert sorted(zarr.open_group(store)["a"].keys()) == ["b"]
    assert_same(hr.open_group(store)["a/b/t"][...], np.full(3, 2, "f4"))


def test_save_load_copy(store, tmp_path):
    data = smooth("f4", (30, 20))
    hr.save(store, data)
    assert_same(hr.load(store), data)
    assert_same(read_zarr(store), data)
    hr.copy(store, str(tmp_path / "copy.zarr"))
    assert_same(read_zarr(str(tmp_path / "copy.zarr")), data)


def test_read_only_handle_refuses_every_write(store):
    hr.create_array(store, shape=(4,), dtype="i4", chunks=(2,))[...] = 1
    array = hr.open_array(store, mode="r")
    for write in (
        lambda: array.__setitem__(..., 2),
        lambda: array.write(..., 2),
        lambda: array.resize((2,)),
        lambda: array.append(np.zeros(2, "i4")),
        lambda: array.attrs.__setitem__("a", 1),
        lambda: array.oindex.__setitem__([0], 1),
        lambda: array.write_async(..., 2).result(10),
    ):
        with pytest.raises(PermissionError):
            write()
    assert_same(read_zarr(store), np.ones(4, "i4"))


def test_nothing_but_chunks_and_metadata_is_left(store):
    array = hr.create_array(store, shape=(40, 40), dtype="f4", chunks=(8, 8))
    for k in range(3):
        array[...] = smooth("f4", (40, 40), k)
    files = {p.relative_to(store).as_posix() for p in Path(store).rglob("*") if p.is_file()}
    assert files == {"zarr.json"} | {f"c/{y}/{x}" for y in range(5) for x in range(5)}


def test_filters_of_v2_take_the_stored_byte_order(tmp_path):
    data = values(">i2", (23, 7))
    array = hr.create_array(
        str(tmp_path / "x"),
        shape=data.shape,
        dtype=">i2",
        chunks=(10, 4),
        zarr_format=2,
        filters={"id": "delta", "dtype": ">i2"},
        compressors={"id": "zlib", "level": 1},
    )
    array[...] = data
    assert_same(array[...], data)
    assert_same(read_zarr(tmp_path / "x"), data)
