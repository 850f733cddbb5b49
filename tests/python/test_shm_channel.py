"""headrace.shm: arenas, and what comes out of a channel, compared with what pickle makes of it."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time

import headrace as hr
import headrace.shm as shm
import numpy as np
import pytest
from helpers import (
    HAS_CUDA,
    assert_same,
    is_asleep,
    needs_memfd,
    python,
    shm_names,
    wait_until,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from shm_children import block_of, field

ARENA_NBYTES = 16 << 20


BACKINGS = [pytest.param("memfd", marks=needs_memfd), "posix"]


@pytest.fixture(scope="module", params=BACKINGS)
def shared(request):
    arena = shm.Arena(ARENA_NBYTES, backing=request.param)
    return arena, arena.channel(4)


@pytest.fixture
def arena(shared):
    """Everything that a test puts into the arena is to be gone when it ends."""
    arena = shared[0]
    before = arena.stats()
    yield arena
    gc.collect()
    after = arena.stats()
    assert (after["used_nbytes"], after["in_transit"]) == (before["used_nbytes"], 0)


@pytest.fixture
def channel(arena, shared):
    return shared[1]


def through(channel, obj, **options):
    channel.put(obj, timeout=5)
    return channel.get(timeout=5, **options)


def assert_equal_arrays(got, wanted):
    assert type(got) is type(wanted)
    assert_same(got, wanted)


def equal(got, wanted):
    """Equality of nested objects, arrays by type and bits."""
    if isinstance(wanted, np.ma.MaskedArray):
        assert_equal_arrays(got.data, wanted.data)
        assert_equal_arrays(np.ma.getmaskarray(got), np.ma.getmaskarray(wanted))
        assert np.array(got.fill_value).tobytes() == np.array(wanted.fill_value).tobytes()
        assert got.hardmask == wanted.hardmask
    elif isinstance(wanted, np.ndarray) and not wanted.dtype.hasobject:
        assert_equal_arrays(got, wanted)
    elif isinstance(wanted, np.ndarray):
        assert type(got) is type(wanted) and got.dtype == wanted.dtype and got.shape == wanted.shape
        equal(got.tolist(), wanted.tolist())
    elif isinstance(wanted, dict):
        assert type(got) is type(wanted) and list(got) == list(wanted)
        for key in wanted:
            equal(got[key], wanted[key])
    elif isinstance(wanted, list | tuple):
        assert type(got) is type(wanted) and len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            equal(a, b)
    else:
        assert type(got) is type(wanted) and got == wanted


# --- round trips ----------------------------------------------------------------------------------

_fields = st.lists(st.sampled_from(["i1", "<f8", ">i4", "S3", "M8[s]"]), min_size=1, max_size=3)
DTYPES = st.one_of(
    st.sampled_from(
        ["?", "u1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16", "<f4", "g"]
    ),
    st.sampled_from(["M8[ns]", ">M8[D]", "m8[us]", "S5", "U3", ">U2", "V7", "S0"]),
    _fields.map(lambda types: [(f"f{i}", t) for i, t in enumerate(types)]),
).map(np.dtype)

SHAPES = st.one_of(
    st.just(()),
    hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=6),
    st.sampled_from([(3000,), (0, 7), (70, 80), (2, 1, 900), (5, 30, 20)]),
)


@st.composite
def arrays(draw):
    """Arrays of every kind of type and of memory: order, steps, negative steps, transposes,
    broadcast axes, fields of a structure."""
    dtype, shape = draw(DTYPES), draw(SHAPES)
    nbytes = int(np.prod(shape, dtype=int)) * dtype.itemsize
    noise = np.random.default_rng(draw(st.integers(0, 9))).bytes(nbytes)
    if dtype.kind == "U":  # any bytes are no text
        noise = np.frombuffer(noise, "u1").astype("u4").clip(65, 90).tobytes()[:nbytes]
    array = np.ndarray(shape, dtype, noise)
    if draw(st.booleans()):
        array = array.copy(draw(st.sampled_from("CF")))
    if array.ndim and draw(st.booleans()):
        array = array.transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()):
        steps = st.sampled_from([1, 1, 2, -1, -3])
        array = array[tuple(slice(None, None, draw(steps)) for _ in array.shape)]
    if dtype.names and draw(st.booleans()):
        array = array[draw(st.sampled_from(dtype.names))]
    if draw(st.integers(0, 5)) == 0:
        array = np.broadcast_to(array, (2, *array.shape))
    return np.asarray(array)


@given(data=st.data())
def test_arrays_come_out_as_pickle_makes_them(shared, data):
    array = data.draw(arrays())
    copy = data.draw(st.booleans())
    got = through(shared[1], array, copy=copy)
    wanted = pickle.loads(pickle.dumps(array, 4))  # in the byte order of this machine
    assert_same(got, wanted)
    large = array.nbytes >= 2048
    assert type(got) is np.ndarray and got.dtype == (array if large else wanted).dtype
    assert got.flags.writeable == (copy or not large)
    assert (block_of(got) is not None) == (large and not copy)


@st.composite
def masked(draw):
    data = draw(arrays())
    mask = np.random.default_rng(1).integers(0, 2, data.shape).astype(bool)
    return np.ma.MaskedArray(data, mask=draw(st.sampled_from([mask, np.ma.nomask])))


LEAVES = st.one_of(
    arrays(),
    masked(),
    st.none(),
    st.integers(),
    st.text(max_size=5),
    st.binary(max_size=9),
    st.just(np.array([1, "two", None, [3.0]], dtype=object)),
)
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.tuples(inner, inner),
    ),
    max_leaves=6,
)


@given(obj=OBJECTS, copy=st.booleans())
def test_objects_come_out_as_pickle_makes_them(shared, obj, copy):
    equal(through(shared[1], obj, copy=copy), pickle.loads(pickle.dumps(obj)))


def test_nothing_of_the_round_trips_is_left(arena):
    assert arena.stats()["blocks"] == 1  # the channel


def test_ml_dtypes(channel):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "int4"):
        array = np.arange(4096).astype(getattr(ml_dtypes, name)).reshape(64, 64)
        for view in (array, array[::-1], array.T, array[:, ::2]):
            assert_equal_arrays(through(channel, view), np.ascontiguousarray(view))


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 1")
def test_strings_of_variable_length(channel):
    array = np.array(["a", "bc" * 50, ""] * 1000, np.dtypes.StringDType())
    got = through(channel, array)
    assert got.dtype == array.dtype and (got == array).all()


class Labelled(np.ndarray):
    pass


def test_subclasses_keep_their_class(channel):
    for array in (np.ones((50, 50)).view(np.matrix), np.ones((50, 50)).view(Labelled)):
        got = through(channel, array)
        assert type(got) is type(array) and (got == array).all()
    record = np.zeros(500, [("x", "f8")]).view(np.recarray)
    assert through(channel, record).x.shape == (500,)


def test_one_array_met_twice_stays_one(channel):
    x = field()
    got = through(channel, {"a": x, "b": [x, x.copy()]})
    assert got["a"] is got["b"][0] and got["a"] is not got["b"][1]


def test_pandas(channel):
    pd = pytest.importorskip("pandas")
    index = pd.MultiIndex.from_product([range(50), list("abcd")], names=["n", "s"])
    frame = pd.DataFrame(
        {
            "x": np.random.default_rng(0).standard_normal(200),
            "time": pd.date_range("2000", periods=200, tz="UTC"),
            "name": ["p", "q"] * 100,
            "kind": pd.Categorical(["u", "v"] * 100),
            "maybe": pd.array([1, None] * 100, dtype="Int64"),
        },
        index=index,
    )
    frame = pd.concat([frame] * 20)
    frame.attrs["source"] = "test"
    for copy in (False, True):
        got = through(channel, frame, copy=copy)
        pd.testing.assert_frame_equal(got, frame)
        assert got.attrs == frame.attrs
        pd.testing.assert_series_equal(through(channel, frame["x"], copy=copy), frame["x"])
        pd.testing.assert_index_equal(through(channel, frame.index, copy=copy), frame.index)
        got["x"] = 1.0  # the frame is the receiver's own, whatever its columns are


def test_arrow_strings_of_pandas(channel):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    series = pd.Series(["some text", None, "more"] * 2000, dtype="string[pyarrow]")
    pd.testing.assert_series_equal(through(channel, series), series)


def dataset():
    xr = pytest.importorskip("xarray")
    time = np.arange("2000-01-01", "2000-03-01", dtype="M8[D]").astype("M8[ns]")
    data = np.arange(time.size * 20 * 30, dtype="f4").reshape(-1, 20, 30)
    ds = xr.Dataset(
        {"t": (("time", "y", "x"), data, {"units": "K"}), "m": (("y", "x"), np.eye(20, 30) > 0)},
        coords={"time": time, "y": np.arange(20.0), "height": 2.0},
        attrs={"title": "test"},
    )
    ds["t"].encoding = {"dtype": "int16", "scale_factor": 0.1}
    return ds


def test_xarray(channel):
    ds = dataset()
    xr = sys.modules["xarray"]
    got = through(channel, ds)
    xr.testing.assert_identical(got, ds)
    assert got["t"].encoding == ds["t"].encoding
    assert block_of(got["t"].values) is not None and not got["t"].values.flags.writeable
    assert through(channel, ds, copy=True)["t"].values.flags.writeable
    xr.testing.assert_identical(through(channel, ds["t"]), ds["t"])


def test_lazy_variables_of_xarray_stay_lazy(channel, tmp_path):
    xr = pytest.importorskip("xarray")
    path = str(tmp_path / "lazy.zarr")
    dataset().drop_encoding().to_zarr(path, zarr_format=2, consolidated=False)
    with xr.open_dataset(path, engine="headrace", consolidated=False) as lazy:
        got = through(channel, lazy)
        assert not got["t"].variable._in_memory
        xr.testing.assert_identical(got.load(), dataset())


@pytest.mark.filterwarnings("ignore:Sparse invariant")  # of torch, when it unpickles one
def test_tensors(channel):
    torch = pytest.importorskip("torch")
    base = torch.randn(8, 30, 20, 4)
    tensors = [
        base,
        base.permute(0, 3, 1, 2),
        base.to(memory_format=torch.channels_last),
        base[:, ::3],
        base.expand(2, 8, 30, 20, 4),
        base.bfloat16(),
        base.to(torch.float8_e4m3fn).view(torch.uint8),
        base > 0,
        torch.complex(base, base),
        torch.complex(base, base).conj(),
        torch.randn(30, 40, requires_grad=True),
        torch.tensor(3.0),
        torch.empty(0, 4),
        torch.randn(50, 50).to_sparse(),
        torch.nn.Parameter(torch.randn(30, 40)),
    ]
    for tensor in tensors:
        for copy in (False, True):
            got = through(channel, tensor, copy=copy)
            assert type(got) is type(tensor) and got.dtype == tensor.dtype
            assert (got.layout, got.shape) == (tensor.layout, tensor.shape)
            assert got.requires_grad == tensor.requires_grad
            dense = [t.detach().resolve_conj().to_dense().contiguous() for t in (got, tensor)]
            assert torch.equal(*dense)
    model = torch.nn.Linear(60, 70)
    got = through(channel, model.state_dict())
    assert all(torch.equal(got[name], value) for name, value in model.state_dict().items())
    x = through(channel, base)
    x.numpy()[0] = 1  # what torch cannot mark read-only is nobody else's memory here


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensors(channel, layout):
    torch = pytest.importorskip("torch")
    parts = [torch.randn(60, 70), torch.randn(20, 70)]
    got = through(channel, torch.nested.nested_tensor(parts, layout=getattr(torch, layout)))
    assert got.is_nested and got.layout == getattr(torch, layout)
    assert all(map(torch.equal, got.unbind(), parts))


# --- memory ---------------------------------------------------------------------------------------


def address(array):
    return array.__array_interface__["data"][0]


def test_arrays_in_the_arena_are_not_copied(arena, channel):
    x = arena.empty((200, 300), "float32")
    x[...] = field()
    for view in (x, x[3:9], x[::-2, ::3], x.T, x[:, 7:20]):
        got = through(channel, view)
        assert address(got) == address(view) and got.strides == view.strides
        assert not got.flags.writeable and (got == view).all()


def test_received_arrays_are_passed_on_without_a_copy(channel):
    first = through(channel, field())
    assert address(through(channel, first[::2])) == address(first)


def test_a_view_is_sent_without_its_base(arena, channel):
    base = np.zeros((1000, 1000))
    before = arena.stats()["used_nbytes"]
    for view in (base[5:8], base[:, :3], base[::-500, ::2]):
        got = through(channel, view)
        assert arena.stats()["used_nbytes"] - before < view.nbytes + 8192
        assert_equal_arrays(got, np.ascontiguousarray(view))
        del got


def test_memory_is_free_when_the_last_view_is_gone(arena, channel):
    before = arena.stats()["used_nbytes"]
    got = through(channel, {"a": field(), "b": field(1)})
    part = got["a"][5:, ::2]
    wanted = part.copy()
    del got
    assert arena.stats()["used_nbytes"] > before
    assert (part == wanted).all()
    del part
    assert arena.stats()["used_nbytes"] == before


def test_empty(arena):
    assert arena.empty(3, "i2").shape == (3,)
    fortran = arena.empty((30, 40), order="F")
    assert fortran.dtype == float and fortran.flags.f_contiguous and fortran.flags.writeable
    assert arena.empty((0, 5), "f4").shape == (0, 5)
    assert arena.empty((), "f4").shape == ()
    assert arena.empty(10, [("a", "i4"), ("b", "f8")]).dtype.names == ("a", "b")
    with pytest.raises(TypeError, match="Python objects"):
        arena.empty(3, object)
    with pytest.raises(ValueError, match="negative"):
        arena.empty((-1, 3), "f4")
    with pytest.raises(ValueError):
        arena.empty(ARENA_NBYTES + 1, "u1")


def test_full_arena_times_out(arena, channel):
    held = arena.empty(ARENA_NBYTES - (1 << 20), "u1")
    for act in (
        lambda: arena.empty(2 << 20, "u1", timeout=0.05),
        lambda: channel.put(np.zeros(2 << 20, "u1"), timeout=0.05),
    ):
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            act()
        assert 0.04 < time.monotonic() - begin < 5
    assert channel.empty()
    del held
    assert through(channel, np.zeros(2 << 20, "u1")).size == 2 << 20


def test_pin(arena):
    if HAS_CUDA:
        arena.pin()
        arena.pin()
    else:
        with pytest.raises((NotImplementedError, hr.DeviceError)):
            arena.pin()


# --- the channel ----------------------------------------------------------------------------------


def test_order_and_counts(channel):
    assert (channel.qsize(), channel.empty(), channel.full()) == (0, True, False)
    for i in range(4):
        channel.put(i)
    assert (channel.qsize(), channel.empty(), channel.full()) == (4, False, True)
    assert [channel.get() for _ in range(4)] == [0, 1, 2, 3]


def test_full_and_empty_channels_time_out(channel):
    with pytest.raises(TimeoutError, match="empty"):
        channel.get(timeout=0)
    with pytest.raises(TimeoutError, match="empty"):
        channel.get(timeout=0.05)
    for i in range(4):
        channel.put(i)
    with pytest.raises(TimeoutError, match="full"):
        channel.put(4, timeout=0.05)
    assert [channel.get() for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="nan"):
        channel.get(timeout=float("nan"))


def test_what_is_larger_than_the_arena_is_an_error(channel):
    with pytest.raises(ValueError):
        channel.put(np.zeros(ARENA_NBYTES, "u1"))
    assert channel.empty()


def test_what_does_not_pickle_leaves_nothing(arena, channel):
    before = arena.stats()["used_nbytes"]
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        channel.put([field(), field()[:, ::2], lambda: None])
    assert channel.empty() and arena.stats()["used_nbytes"] == before


def test_an_object_that_fails_to_load_is_gone(arena, channel):
    before = arena.stats()["used_nbytes"]
    channel.put([field(), Unloadable()])
    with pytest.raises(ZeroDivisionError):
        channel.get()
    gc.collect()
    assert channel.empty() and arena.stats()["used_nbytes"] == before


class Unloadable:
    def __reduce__(self):
        return divmod, (1, 0)


def test_only_multiprocessing_hands_over(arena, channel):
    for shared in (arena, channel):
        with pytest.raises(TypeError, match="multiprocessing"):
            pickle.dumps(shared)
    second = arena.channel(2)
    second.put("found")
    got = through(channel, (arena, second))
    assert got[0] is arena and got[1].get(timeout=1) == "found"


def test_descriptions(arena, channel):
    assert repr(channel) == "<headrace.shm.Channel 0 of 4>"
    assert "Arena" in repr(arena) and str(ARENA_NBYTES) in repr(arena)


def test_wrong_options():
    for options in ({"backing": "disk"}, {"huge_pages": "some"}, {"nbytes": "lots"}):
        with pytest.raises(ValueError):
            shm.Arena(**{"nbytes": 1 << 20, **options})
    with pytest.raises(ValueError):
        shm.Arena(1 << 20).channel(0)


def test_keyboard_interrupt_ends_a_wait():
    code = """
import signal
import headrace.shm as shm
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have taken away
channel = shm.Arena("1MiB").channel()
print("waiting", flush=True)
try:
    channel.get()
except KeyboardInterrupt:
    print("interrupted")
"""
    command = [sys.executable, "-W", "error", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "waiting\n"
        wait_until(lambda: is_asleep(child.pid))
        child.send_signal(signal.SIGINT)
        assert child.stdout.read() == "interrupted\n"
        assert child.wait(30) == 0


def test_import_of_headrace_does_not_import_it():
    python("import sys, headrace; assert 'headrace.shm' not in sys.modules")


def test_import_of_shm_imports_no_heavy_module():
    code = "import sys, headrace.shm; print([n for n in {} if n in sys.modules])"
    assert python(code.format(["torch", "pandas", "xarray"])).strip() == "[]"


@pytest.mark.parametrize("backing", BACKINGS)
def test_arenas_leave_nothing(backing):
    def open_now():
        return len(os.listdir("/proc/self/fd")), shm_names()

    before = open_now()
    for _ in range(5):
        arena = shm.Arena(1 << 20, backing=backing)
        channel = arena.channel(2)
        x = through(channel, field())
        del arena, channel
        assert x.sum() == field().sum()
        del x
    gc.collect()
    assert open_now() == before
