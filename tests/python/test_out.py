"""`out=`: filled in place when it fits, refused untouched when it does not.

Decisions, where api.md is silent: wrong shape, dtype, byte order or a read-only `out` is a
ValueError (TypeError for what is no buffer, BufferError where the buffer itself refuses); `read`
returns `out`; bytes that the strides of `out` skip are never written.
"""

import array as std_array
import ctypes

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same, values, write_zarr

REFUSED = (ValueError, TypeError, BufferError)


@pytest.fixture(params=["whole", "shards", "raw", "transposed"])
def pair(request, store):
    from zarr.codecs import TransposeCodec

    data = values("f4", (20, 15))
    options = {
        "whole": {"chunks": (8, 8)},
        "shards": {"chunks": (4, 4), "shards": (8, 8)},
        "raw": {"chunks": (8, 15), "compressors": None},
        "transposed": {"chunks": (8, 8), "filters": TransposeCodec(order=(1, 0))},
    }[request.param]
    write_zarr(store, data, **options)
    return hr.open_array(store), data


def test_result_is_out(pair):
    array, data = pair
    out = np.empty((20, 15), "f4")
    assert array.read(out=out) is out
    assert_same(out, data)


def guarded(shape, make_view):
    """A view into a larger buffer of a known pattern, and a check that the rest is untouched."""
    room = np.full(shape, -7.25, "f4")
    view = make_view(room)

    def check(wanted):
        assert_same(view, wanted)
        reached = np.zeros(shape, bool)
        make_view(reached)[...] = True
        assert (room[~reached] == np.float32(-7.25)).all()

    return view, check


VIEWS = {
    "part": ((24, 20), lambda room: room[2:22, 3:18]),
    "column order": ((15, 20), lambda room: room.T),
    "rows backwards": ((20, 15), lambda room: room[::-1]),
    "all backwards": ((20, 15), lambda room: room[::-1, ::-1]),
    "columns spaced": ((20, 45), lambda room: room[:, ::3]),
    "both spaced": ((60, 30), lambda room: room[1::3, ::2]),
    "turned and backwards": ((15, 40), lambda room: room.T[::-2][:20, ::-1]),
    "inner of three": ((20, 4, 15), lambda room: room[:, 2]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_strided_out(pair, name):
    array, data = pair
    view, check = guarded(*VIEWS[name])
    assert view.shape == data.shape
    array.read(out=view)
    check(data)


@pytest.mark.parametrize("name", VIEWS)
def test_strided_out_of_a_selection(pair, name):
    array, data = pair
    shape, make_view = VIEWS[name]
    view, check = guarded(shape, lambda room: make_view(room)[3:13, 5:12])
    array.read((slice(17, 7, -1), slice(1, 15, 2)), out=view)
    check(data[17:7:-1, 1:15:2])


def test_out_of_an_orthogonal_selection_by_lazy_view_matches(pair):
    array, data = pair
    out = np.empty((3, 15), "f4")
    array.read((slice(None, None, 9),), out=out)
    assert_same(out, data[::9])


def test_missing_chunks_fill_out(store):
    import zarr

    zarr.create_array(store, shape=(9, 6), chunks=(4, 4), dtype="f4", fill_value=2.5)
    view, check = guarded((18, 6), lambda room: room[::-2])
    hr.open_array(store).read(out=view)
    check(np.full((9, 6), 2.5, "f4"))


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((20, 14), "f4"),
        np.zeros((15, 20), "f4"),
        np.zeros((300,), "f4"),
        np.zeros((1, 20, 15), "f4"),
        np.zeros((), "f4"),
        np.zeros((20, 15), "f8"),
        np.zeros((20, 15), "i4"),
        np.zeros((20, 15), "u4"),
        np.zeros((20, 15), ">f4"),
        np.zeros((20, 15), "c8"),
        np.zeros((20, 15), "V4"),
        np.zeros((20, 15), "M8[ns]"),
    ],
    ids=lambda out: f"{out.dtype.str}-{out.shape}",
)
def test_wrong_out_is_refused_untouched(pair, out):
    before = out.tobytes()
    with pytest.raises(REFUSED) as error:
        pair[0].read(out=out)
    assert out.tobytes() == before
    # Says what was wanted and what was found.
    assert "20" in str(error.value) or "float32" in str(error.value)


def test_read_only_out_is_refused(pair):
    out = np.zeros((20, 15), "f4")
    out.flags.writeable = False
    with pytest.raises(REFUSED):
        pair[0].read(out=out)
    with pytest.raises(REFUSED):
        pair[0].read(out=bytes(1200))
    with pytest.raises(REFUSED):
        pair[0].read(out=np.broadcast_to(np.zeros(15, "f4"), (20, 15)))
    assert not out.any()


@pytest.mark.parametrize(
    "out", [3, "text", [[0.0] * 15] * 20, object()], ids=lambda out: type(out).__name__
)
def test_what_is_no_buffer_is_refused(pair, out):
    with pytest.raises(REFUSED):
        pair[0].read(out=out)


def test_wrong_shape_for_the_selection(pair):
    with pytest.raises(REFUSED):
        pair[0].read((slice(0, 3),), out=np.zeros((20, 15), "f4"))


def test_other_buffers(store):
    data = values("f8", (12,))
    write_zarr(store, data, chunks=(5,))
    array = hr.open_array(store)
    plain = std_array.array("d", [0.0] * 12)
    array.read(out=plain)
    assert_same(np.array(plain), data)
    raw = (ctypes.c_double * 12)()
    array.read(out=raw)
    assert_same(np.ctypeslib.as_array(raw), data)
    view = memoryview(bytearray(96)).cast("d")
    array.read(out=view)
    assert_same(np.asarray(view), data)


def test_zero_length_and_zero_dimensions(store, tmp_path):
    write_zarr(store, np.zeros((0, 3), "i4"), chunks=(2, 3))
    out = np.zeros((0, 3), "i4")
    assert hr.open_array(store).read(out=out) is out
    where = str(tmp_path / "scalar")
    write_zarr(where, np.array(-5, "i8"), chunks=())
    scalar = np.zeros((), "i8")
    hr.open_array(where).read(out=scalar)
    assert scalar[()] == -5


@pytest.mark.parametrize("dtype", ["b1", "u1", "f2", "c16", "M8[ns]", "S5", "U3", "V6"])
def test_every_kind_of_dtype(store, dtype):
    data = values(dtype, (10, 6))
    write_zarr(store, data, chunks=(4, 4), zarr_format=2, compressors=None)
    out = np.zeros((6, 20), dtype).T[::-2]
    hr.open_array(store).read(out=out)
    assert_same(out, data)


def test_foreign_byte_order_into_its_own(store):
    data = values(">f4", (10, 6))
    write_zarr(store, data, chunks=(4, 4), zarr_format=2, compressors=None)
    array = hr.open_array(store)
    out = np.zeros((10, 6), array.dtype)
    array.read(out=out)
    assert_same(out, data)
