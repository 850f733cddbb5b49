"""What a Loader is given: whole groups and paths, data sets; and what it refuses."""

import warnings

import headrace as hr
import numpy as np
import pytest
from headrace.loader import Loader
from helpers import HAS_CUDA

STEPS = 24


@pytest.fixture
def path(tmp_path):
    group = hr.create_group(tmp_path / "era.zarr")
    rng = np.random.default_rng(0)
    for name in ("t2m", "u10"):
        array = group.create_array(
            name,
            shape=(STEPS, 4, 6),
            dtype="f4",
            chunks=(4, 4, 6),
            dimension_names=("time", "lat", "lon"),
            attributes={"coordinates": "height"},
        )
        array[:] = rng.random(array.shape, "f4")
    for name, extent in (("time", STEPS), ("lat", 4), ("lon", 6)):
        group.create_array(name, shape=extent, dtype="f8", dimension_names=(name,))[:] = range(
            extent
        )
    group.create_array("height", shape=STEPS, dtype="f4", dimension_names=("time",))[:] = 2
    group.create_array("mask", shape=(4, 6), dtype="f4", dimension_names=("lat", "lon"))[:] = 1
    return tmp_path / "era.zarr"


def first(given, **options):
    with Closing(Loader(given, shuffle=None, sample_dim="time", **options)) as loader:
        return next(loader)


class Closing:
    def __init__(self, loader):
        self.loader = loader

    def __enter__(self):
        return self.loader

    def __exit__(self, *args):
        self.loader.close()


def test_a_group_a_path_and_an_array(path):
    group = hr.open_group(path)
    for given in (group, path, str(path), f"file://{path}"):
        batch = first(given, batch_size=2)
        assert sorted(batch) == ["t2m", "u10"]
        assert np.array_equal(batch["t2m"][:, 0], group["t2m"][:2])
    zarr = pytest.importorskip("zarr")
    for given in (path / "u10", str(path / "u10"), zarr.open(path)["u10"]):
        assert np.array_equal(first({"u": given})["u"][:, 0], group["u10"][:1])
    for given in (group["u10"], path / "u10"):
        batch = first(given, batch_size=2)
        assert list(batch) == ["u10"] and np.array_equal(batch["u10"][:, 0], group["u10"][:2])
    root = hr.create_array(hr.memory_store(), shape=(4, 2), dtype="f4")
    assert list(next(Loader(root))) == ["data"]


def test_lists_of_these_are_several_stores(path):
    batch = first(
        [path, hr.open_group(path), {"t2m": hr.open(path, "t2m"), "u10": hr.open(path, "u10")}]
    )
    assert sorted(batch) == ["t2m", "u10"]
    loader = Loader([path / "t2m", path / "t2m"], sample_dim="time")
    assert loader.samples == 2 * STEPS and loader.origins().shape == (2 * STEPS, 2)


def test_data_sets(path):
    xr = pytest.importorskip("xarray")
    group = hr.open_group(path)
    ds = xr.open_dataset(path, engine="headrace")
    batch = first(ds[["t2m", "u10"]], batch_size=2)
    assert np.array_equal(batch["u10"][:, 0], group["u10"][:2])
    assert np.array_equal(first({"x": ds.t2m})["x"][:, 0], group["t2m"][:1])
    for changed in (
        ds[["t2m"]].isel(time=slice(1, None)),
        ds[["t2m"]].isel(time=slice(None, None, -1)),
        ds[["t2m"]] * 2,
        ds[["t2m"]].load(),
        xr.Dataset({"t2m": (("time",), np.zeros(4))}),
    ):
        with pytest.raises(TypeError, match="'t2m' is no whole array of a store"):
            Loader(changed, sample_dim="time")


def test_a_group_without_data(tmp_path):
    group = hr.create_group(tmp_path / "g")
    with pytest.raises(ValueError, match="no array of data"):
        Loader(group)
    group.create_array("x", shape=4, dtype="f4", dimension_names=("lat",))
    with pytest.raises(ValueError, match="with a dimension 'time'"):
        Loader(group, sample_dim="time")


def test_shuffle_as_a_boolean(path):
    group = hr.open_group(path)
    for given, meant in ((True, "block"), (False, None)):
        a = Loader(group, sample_dim="time", shuffle=given)
        b = Loader(group, sample_dim="time", shuffle=meant)
        assert a.state_dict() == b.state_dict() and np.array_equal(a.origins(), b.origins())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize": {"t2m": (0, 0)}}, "normalize: .*above 0 for 't2m'"),
        ({"normalize": {"t2m": (0, [1, 0, 1, 1])}}, "normalize"),
        ({"normalize": {"t2m": (0, -1)}}, "normalize"),
        ({"normalize": {"t2m": (float("nan"), 1)}}, "normalize"),
        ({"normalize": {"t2m": (0, float("inf"))}}, "normalize"),
        ({"exclude": [1000]}, "exclude: 1000 is not within the 24 steps"),
        ({"exclude": [-1]}, "exclude: -1 is not within"),
        ({"exclude": [(3, 25)]}, "exclude"),
        ({"exclude": [(5, 3)]}, "exclude"),
        ({"exclude": [(1, 2, 3)]}, "exclude"),
        ({"exclude": [slice(0, 9, 2)]}, "exclude"),
        ({"exclude": np.ones(23, bool)}, "exclude: expected a mask of 24 steps"),
        ({"padding": "wrap"}, "padding: got 'wrap', and there is no patch"),
        ({"padding": 3}, "padding: got 3, and there is no patch"),
        ({"halo": 2}, "halo: got 2, and there is no patch"),
        ({"halo": "2"}, "halo: got '2', and there is no patch"),
        ({"shuffle": "blocks"}, "shuffle"),
        ({"window": 2**62}, "a sample reaches over 4611686018427387904 steps of 24"),
        ({"window": 2**40, "stride": 2**40}, "window: .* overflows"),
        ({"lead_time": 2**62}, "a sample reaches over 4611686018427387905 steps of 24"),
        ({"prefetch": 2**62}, "prefetch: .* overflows"),
        ({"seed": -1}, "seed: expected 0 or more, got -1"),
        ({"seed": 2**64}, "seed: 18446744073709551616 is outside of 64 bits"),
        ({"batch_size": 2**63}, "batch_size: .* outside of 64 bits"),
    ],
)
def test_what_makes_no_sense_is_refused(path, options, message):
    with pytest.raises(ValueError, match=message):
        Loader(path, sample_dim="time", **options)


def test_integers_of_numpy_are_integers(tmp_path):
    group = hr.create_group(tmp_path)
    group["a"] = np.zeros((6, 3))
    assert len(Loader(group, sample_dim=np.int64(0), halo=np.int64(0))) == 6


def test_what_exclude_takes(path):
    def steps(exclude):
        return (
            Loader(path, sample_dim="time", shuffle=None, exclude=exclude).origins()[:, 0].tolist()
        )

    mask = np.zeros(STEPS, bool)
    mask[:20] = True
    for exclude in (
        slice(20),
        slice(None, 20),
        slice(0, -4),
        [slice(None, 20)],
        range(20),
        list(range(20)),
        np.arange(20),
        (0, 20),
        [(0, 10), (10, 20)],
        [0, (1, 7), slice(7, 20)],
        mask,
        mask.tolist(),
    ):
        assert steps(exclude) == [20, 21, 22, 23]
    assert steps(3) == [step for step in range(STEPS) if step != 3]
    assert steps([]) == list(range(STEPS))


@pytest.mark.parametrize(
    "options", [{"batch_size": STEPS + 1}, {"batch_size": 13, "rank": 0, "world_size": 2}]
)
def test_an_epoch_without_a_batch_is_told(path, options):
    with pytest.warns(UserWarning, match="an epoch has no batch: 24 samples"):
        loader = Loader(path, sample_dim="time", **options)
    assert len(loader) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loader(path, sample_dim="time", drop_last=False, **options)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda s: {}, ValueError),
        (lambda s: {**s, "samples": 8.0}, TypeError),
        (lambda s: {**s, "samples": "8"}, TypeError),
        (lambda s: {**s, "epoch": None}, TypeError),
        (lambda s: {**s, "epoch": -1}, ValueError),
        (lambda s: {**s, "samples": -1}, ValueError),
        (lambda s: {**s, "version": 2}, ValueError),
        (lambda s: {k: v for k, v in s.items() if k != "order"}, ValueError),
        (lambda s: None, TypeError),
        (lambda s: [s], TypeError),
    ],
)
def test_states_that_are_none(path, change, error):
    loader = Loader(path, sample_dim="time", batch_size=4)
    next(loader)
    state = loader.state_dict()
    with pytest.raises(error, match="load_state_dict"):
        loader.load_state_dict(change(state))
    assert loader.state_dict() == state
    loader.load_state_dict(state)
    loader.close()


# A GPU that is not there.


@pytest.mark.skipif(HAS_CUDA, reason="there is one")
def test_a_missing_gpu_is_told_alike(path):
    said = set()
    calls = [
        lambda: hr.open(path, device="cuda:0"),
        lambda: hr.open(path / "t2m", device="cuda:0"),
        lambda: hr.open_array(path / "t2m", device="cuda:0"),
        lambda: hr.open_group(path, device="cuda:0"),
        lambda: hr.open(path / "t2m").to("cuda:0"),
        lambda: hr.open(path / "t2m").read(device="cuda:0"),
        lambda: hr.open(path / "t2m").read_async(device="cuda:0"),
        lambda: hr.load(path, device="cuda:0"),
        lambda: Loader(path, device="cuda:0"),
        lambda: hr.create_array(path, "new", shape=3, dtype="f4", device="cuda:0"),
    ]
    try:
        import xarray as xr
    except ImportError:
        pass
    else:
        calls.append(lambda: xr.open_dataset(path, engine="headrace", device="cuda:0"))
    try:
        import headrace.dask
    except ImportError:
        pass
    else:
        calls.append(lambda: headrace.dask.from_zarr(path, "t2m", device="cuda:0"))
    for call in calls:
        with pytest.raises(hr.DeviceError) as info:
            call()
        said.add(str(info.value))
    assert len(said) == 1
    assert 'device "auto" takes the CPU' in said.pop()
    assert "new" not in hr.open(path)
    assert hr.open(path, device="auto")["t2m"].device == "cpu"


@pytest.mark.parametrize(
    ("weights", "samples_per_epoch", "error", "says"),
    [
        ([1e6, 1], "all_exhausted", MemoryError, r"an epoch of \d{8} samples needs some \d+ MiB"),
        ([1e300, 1e-300], "all_exhausted", MemoryError, r"an epoch of \d{12} samples"),
        ([1, 1], 2**40, MemoryError, f"an epoch of {2**40} samples"),
        ([1, 1], 2**62, ValueError, r"samples_per_epoch: expected at most 2\^60"),
    ],
)
def test_an_order_that_does_not_fit_is_refused_at_once(weights, samples_per_epoch, error, says):
    store = hr.memory_store()
    a = hr.create_array(store, "a", shape=(100, 3), dtype="f4", chunks=(7, 3))
    b = hr.create_array(store, "b", shape=(50, 3), dtype="f4", chunks=(7, 3))
    with pytest.raises(error, match=says):
        Loader(
            [{"x": a}, {"x": b}],
            weights=weights,
            samples_per_epoch=samples_per_epoch,
            memory_budget="256MiB",
        )


def test_an_epoch_without_a_next_one_is_refused():
    array = hr.create_array(hr.memory_store(), shape=(8,), dtype="f4", chunks=(2,))
    with pytest.raises(ValueError, match="epoch"):
        Loader({"x": array}, epoch=2**63 - 1)
    loader = Loader({"x": array}, epoch=2**61, batch_size=8)
    list(loader)
    state = loader.state_dict()
    assert state["epoch"] == 2**61 + 1
    loader.load_state_dict(state)
    with pytest.raises(ValueError, match="epoch"):
        loader.load_state_dict(state | {"epoch": 2**63 - 1})


def test_an_array_that_shrinks_is_named(tmp_path):
    where = tmp_path / "a.zarr"
    array = hr.create_array(where, shape=(40, 4), dtype="f4", chunks=(10, 4))
    array[...] = 1
    loader = Loader({"x": array}, batch_size=10, shuffle=None, prefetch=0)
    array.resize((10, 4))  # before anything is read ahead
    with pytest.raises(ValueError, match=r"a\.zarr"):
        list(loader)
