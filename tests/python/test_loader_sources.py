"""Several stores as one data set, and mixed by weight, against NumPy."""

import json
import pickle

import headrace as hr
import numpy as np
import pytest
from headrace.loader import Loader, shuffle_quality
from helpers import DEVICES, chunk_files, smooth
from hypothesis import given
from hypothesis import strategies as st
from loader_reference import converted, same, starts, steps_of


def created(data, chunks, store=None, **options):
    array = hr.create_array(
        store or hr.memory_store(), shape=data.shape, dtype=data.dtype, chunks=chunks, **options
    )
    array[...] = data
    return array


def joined(batches, name="x"):
    return np.concatenate([np.asarray(batch[name]) for batch in batches])


def as_numpy(batch):
    return {k: v.to_numpy() if isinstance(v, hr.DeviceArray) else v for k, v in batch.items()}


def numbered(lengths, rest=(3,)):
    """Arrays of these lengths; each element tells its store and its step."""
    return [
        np.broadcast_to(
            (1000 * s + np.arange(n, dtype="i4")).reshape(-1, *[1] * len(rest)), (n, *rest)
        ).copy()
        for s, n in enumerate(lengths)
    ]


def stores_of(lengths, chunks=None, rest=(3,)):
    chunks = chunks or [4] * len(lengths)
    data = numbered(lengths, rest)
    return [{"x": created(d, (c, *rest))} for d, c in zip(data, chunks, strict=True)]


def largest_misfit(sources, weights):
    """How far the count of a source is from its share, at any place."""
    share = np.array(weights) / np.sum(weights)
    drawn = np.cumsum(sources[:, None] == np.arange(len(weights)), axis=0)
    return np.abs(drawn - np.arange(1, len(sources) + 1)[:, None] * share).max()


@st.composite
def cases(draw):
    count = draw(st.integers(1, 4))
    lengths = [draw(st.integers(6, 30)) for _ in range(count)]
    chunks = [draw(st.integers(1, 9)) for _ in range(count)]
    excluded = [draw(st.sets(st.integers(0, n - 1), max_size=1)) for n in lengths]
    mixing = {}
    if draw(st.booleans()):
        mixing["weights"] = [draw(st.sampled_from([0.1, 1, 2, 3, 7.5])) for _ in range(count)]
        mixing["samples_per_epoch"] = draw(
            st.sampled_from(["first_exhausted", "all_exhausted", 1, 50, 150])
        )
    options = {
        "batch_size": draw(st.integers(1, 5)),
        "window": draw(st.integers(1, 2)),
        "lead_time": draw(st.lists(st.integers(0, 2), max_size=1)),
        "shuffle": draw(st.sampled_from([None, "block", "global"])),
        "block_chunks": draw(st.integers(1, 9)),
        "lanes": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 3)),
        "prefetch": draw(st.sampled_from([0, 0, 2])),
        "drop_last": False,
    }
    return lengths, chunks, excluded, mixing, options


@given(cases())
def test_samples_are_those_of_the_stores_as_often_as_they_should_be(case):
    lengths, chunks, excluded, mixing, options = case
    data = numbered(lengths)
    steps = steps_of(options["window"], 1, options["lead_time"])
    wanted = [starts(n, steps, e) for n, e in zip(lengths, excluded, strict=True)]
    if mixing and not all(wanted):
        return
    loader = Loader(
        stores_of(lengths, chunks), exclude=[sorted(e) for e in excluded], **mixing, **options
    )
    origins = loader.origins()
    times = {(s, t): 0 for s, own in enumerate(wanted) for t in own}
    for s, t in origins.tolist():
        times[s, t] += 1
    if not mixing:
        assert set(times.values()) <= {1}
        if options["shuffle"] is None:
            assert origins.tolist() == sorted(origins.tolist())
    else:
        end = mixing["samples_per_epoch"]
        drawn = np.bincount(origins[:, 0], minlength=len(lengths))
        for s, own in enumerate(wanted):
            least = drawn[s] // len(own)
            assert {times[s, t] for t in own} <= {least, least + 1}
        if end == "first_exhausted":
            assert max(times.values()) == 1
            assert any(drawn[s] == len(own) for s, own in enumerate(wanted))
        elif end == "all_exhausted":
            assert min(times.values()) >= 1
        else:
            assert len(origins) == end
        assert largest_misfit(origins[:, 0], mixing["weights"]) < 5
    batches = list(loader)
    assert len(batches) == len(loader) == -(-len(origins) // options["batch_size"])
    if len(origins):
        same(joined(batches), np.stack([data[s][t + np.array(steps)] for s, t in origins]))


def test_one_store_in_a_list_is_that_store():
    data = smooth("f4", (40, 6))
    alone = Loader({"x": created(data, (4, 6))}, batch_size=8)
    listed = Loader([{"x": created(data, (4, 6))}], batch_size=8)
    assert np.array_equal(alone.origins(), listed.origins()[:, 1:])
    same(joined(alone), joined(listed))


def test_an_oversampled_store_comes_in_a_new_order_each_time():
    loader = Loader(stores_of([200, 20]), weights=[1, 1], samples_per_epoch="all_exhausted")
    assert abs(loader.samples - 400) <= 8
    origins = loader.origins()
    # Each pass is dealt to lanes: what a lane takes tells it.
    small = [tuple(origins[lane::8][origins[lane::8, 0] == 1][:, 1]) for lane in range(8)]
    assert len(set(small)) == 8


# ---- The laws of the order


MIXED = {"weights": [3, 1, 2], "samples_per_epoch": 130, "batch_size": 3, "seed": 5}
LENGTHS = [70, 9, 25]


@pytest.mark.parametrize("shuffle", ["block", "global"])
@pytest.mark.parametrize("mixing", [MIXED, {"batch_size": 3}])
def test_stream_does_not_depend_on_threads_prefetch_or_memory(mixing, shuffle):
    stores = stores_of(LENGTHS)

    def stream(**options):
        return joined(Loader(stores, shuffle=shuffle, window=2, **mixing, **options))

    wanted = stream(prefetch=0)
    for threads, prefetch, budget in [(1, 4, "1GiB"), (8, 0, "2KiB"), (8, 4, "2KiB")]:
        with hr.config.set({"threads": threads}):
            assert np.array_equal(stream(prefetch=prefetch, memory_budget=budget), wanted)


@pytest.mark.parametrize("mixing", [MIXED, {"batch_size": 3}])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_union_of_ranks_is_the_epoch(mixing, world_size):
    stores = stores_of(LENGTHS)
    options = {**mixing, "drop_last": False, "prefetch": 0}
    order = joined(Loader(stores, **{**options, "batch_size": 1}))
    parts = [
        list(Loader(stores, rank=rank, world_size=world_size, **options))
        for rank in range(world_size)
    ]
    got = []
    for step in zip(*parts, strict=True):
        for i in range(3):
            got += [batch["x"][i] for batch in step if i < len(batch["x"])]
    assert np.array_equal(np.array(got), order)


@pytest.mark.parametrize("mixing", [MIXED, {"batch_size": 3}])
def test_resume_is_bit_for_bit_at_every_batch_and_in_another_world(mixing):
    stores = stores_of(LENGTHS)
    loader = Loader(stores, drop_last=False, **mixing)
    batches, states = [], [loader.state_dict()]
    for batch in loader:
        batches.append(batch["x"])
        states.append(json.loads(json.dumps(loader.state_dict())))
    for i, state in enumerate(states):
        resumed = Loader(stores, drop_last=False, **mixing)
        resumed.load_state_dict(state)
        rest = [batch["x"] for batch in resumed]
        assert len(rest) == len(batches) - i
        assert all(np.array_equal(a, b) for a, b in zip(rest, batches[i:], strict=True))
    alone = {**mixing, "batch_size": 1, "world_size": 3, "drop_last": False}
    dealt = [Loader(stores, rank=rank, **alone) for rank in range(3)]
    for rank, resumed in enumerate(dealt):
        resumed.load_state_dict(states[7])
        assert np.array_equal(next(resumed)["x"][0], batches[7][rank])


def test_state_of_other_weights_or_stores_is_refused():
    loader = Loader(stores_of(LENGTHS), **MIXED)
    for lengths, other in [
        (LENGTHS, {"weights": [3, 1, 1]}),
        (LENGTHS, {"weights": None, "samples_per_epoch": "first_exhausted"}),
        (LENGTHS, {"samples_per_epoch": 131}),
        ([70, 10, 25], {}),
    ]:
        state = Loader(stores_of(lengths), **{**MIXED, **other}).state_dict()
        with pytest.raises(ValueError, match="expected the order"):
            loader.load_state_dict(state)


def test_epochs_have_one_length_and_orders_of_their_own():
    loader = Loader(stores_of([90, 30]), weights=[2, 1], batch_size=4)
    orders = [loader.origins(epoch=epoch) for epoch in range(3)]
    assert not np.array_equal(orders[0], orders[1])
    assert np.array_equal(orders[0][:, 0], orders[1][:, 0])
    for epoch in range(3):
        got = joined(loader)[:, 0, 0]
        wanted = orders[epoch] @ [1000, 1]
        assert got.tolist() == wanted[: len(got)].tolist()


def test_pickled_and_shared_loaders_go_on(tmp_path):
    stores = [
        {"x": created(data, (4, 3), str(tmp_path / f"{s}.zarr"))}
        for s, data in enumerate(numbered(LENGTHS))
    ]
    loader = Loader(stores, **MIXED)
    next(loader)
    other = pickle.loads(pickle.dumps(loader))
    assert other.origins().shape == loader.origins().shape
    shares = [joined(loader.share(number, 2)) for number in range(2)]
    rest = joined(loader)
    assert np.array_equal(joined(other), rest)
    assert np.array_equal(shares[0], rest[0::2][: len(shares[0])])


# ---- Reading


@pytest.mark.parametrize("mixing", [{}, {"weights": [3, 1]}])
def test_every_chunk_is_decoded_once_under_block_shuffle(mixing):
    stores = stores_of([768, 256], [8, 16], (64,))
    loader = Loader(stores, batch_size=8, dtype="float64", drop_last=False, **mixing)
    list(loader)
    stats = loader.stats()
    assert stats["read_amplification"] == 1
    assert loader.samples >= 1020
    assert stats["chunks_decoded"] == 768 // 8 + 256 // 16


def test_a_budget_of_few_chunks_keeps_what_is_mixed():
    """Stores have their part of block_chunks, so mixing takes no more memory than one store."""
    stores = stores_of([1536, 512], [4, 4], (64,))
    nbytes = 4 * 64 * 4
    for mixing in ({}, {"weights": [3, 1]}):
        loader = Loader(
            stores,
            batch_size=4,
            block_chunks=32,
            dtype="float64",
            prefetch=0,
            memory_budget=60 * nbytes,
            **mixing,
        )
        list(loader)
        assert loader.stats()["read_amplification"] < 1.05


def test_ranks_read_chunks_of_their_own():
    stores = stores_of([384, 128], [1, 1])
    decoded = 0
    for rank in range(4):
        loader = Loader(
            stores, weights=[3, 1], batch_size=4, rank=rank, world_size=4, dtype="float64"
        )
        origins = [loader.origins(i, i + 1)[0, 0] for i in range(rank, loader.samples, 4)]
        assert largest_misfit(np.array(origins), [3, 1]) < 5
        list(loader)
        decoded += loader.stats()["chunks_decoded"]
    assert decoded <= 512


def test_quality_of_shuffling():
    stores = stores_of([4000, 4000], [10, 10], (1,))
    assert shuffle_quality(Loader(stores))["successive"] > 0.8
    assert shuffle_quality(Loader(stores, weights=[1, 1]))["successive"] > 0.8
    assert shuffle_quality(Loader(stores, shuffle="global"))["successive"] > 0.9
    assert shuffle_quality(Loader(stores, shuffle=None))["successive"] < 0.05


@pytest.mark.parametrize("place", ["cpu", *DEVICES])
@pytest.mark.parametrize("mixing", [{}, {"weights": [1, 2], "samples_per_epoch": 50}])
def test_types_and_statistics_of_their_own(place, mixing):
    data = [smooth("f4", (20, 4, 6)), (smooth("f8", (13, 4, 6)) * 50).astype("i2")]
    statistics = [(0.25, 2.0), (3.0, 11.0)]
    loader = Loader(
        [{"x": created(d, (c, 3, 4))} for d, c in zip(data, (4, 5), strict=True)],
        batch_size=5,
        patch={1: 2, 2: 3},
        halo={2: 1},
        dtype="float32",
        normalize=[{"x": s} for s in statistics],
        drop_last=False,
        device=place,
        **mixing,
    )
    origins = loader.origins()
    got = joined(as_numpy(batch) for batch in loader)
    assert got.shape == (len(origins), 1, 2, 5)
    for (s, t, lat, lon), sample in zip(origins.tolist(), got, strict=True):
        field = np.pad(converted(data[s], "f4", *statistics[s])[t], ((0, 0), (1, 1)))
        same(sample[0], field[lat : lat + 2, lon : lon + 5])


@pytest.mark.parametrize("place", ["cpu", *DEVICES])
def test_several_arrays_stacked(place):
    stores = []
    for s, n in enumerate([12, 8]):
        x = np.full((n, 4, 5), s, "f4")
        stores.append({"x": created(x, (3, 4, 5)), "y": created(x + 10, (2, 4, 5))})
    stores[1] = dict(reversed(stores[1].items()))  # names count, not their order
    loader = Loader(
        stores, batch_size=4, stack={"z": ["y", "x"]}, layout="NCHW", weights=[1, 1], device=place
    )
    origins, at = loader.origins(), 0
    for batch in map(as_numpy, loader):
        for sample in batch["z"]:
            s = origins[at, 0]
            assert (sample[0] == 10 + s).all() and (sample[1] == s).all()
            at += 1
    assert at == 16


@pytest.mark.parametrize("policy", ["skip", "fill", "raise"])
def test_a_bad_chunk_of_one_store(tmp_path, policy):
    good, bad = (
        created(
            np.full((40, 64), s, "f4"),
            (2, 64),
            str(tmp_path / f"{s}.zarr"),
            compressors=hr.codecs.Zstd(checksum=True),
        )
        for s in (1, 2)
    )
    file = chunk_files(tmp_path / "2.zarr")["c/5/0"]
    file.write_bytes(file.read_bytes()[:-3] + b"bad")
    loader = Loader(
        [{"x": good}, {"x": bad}], weights=[1, 1], batch_size=8, on_bad_chunk=policy, prefetch=0
    )
    if policy == "raise":
        with pytest.raises(hr.CorruptError, match="c/5/0"):
            list(loader)
        return
    got, origins = joined(loader)[:, 0, 0], loader.origins(epoch=0)
    is_bad = (origins[:, 0] == 1) & (origins[:, 1] // 2 == 5)
    assert is_bad.sum() == 2
    assert np.array_equal(got[~is_bad], 1 + origins[~is_bad, 0])
    assert np.isnan(got[is_bad]).all() == (policy == "fill")
    assert loader.stats()["replaced_samples"] == (2 if policy == "skip" else 0)


# ---- Wrong calls


@pytest.mark.parametrize(
    "options, message",
    [
        ({"weights": [1]}, "weights: expected 2, one for each source, got 1"),
        ({"weights": [1, 0]}, "weights: expected positive numbers"),
        ({"weights": [1, float("nan")]}, "weights: expected positive numbers"),
        ({"samples_per_epoch": 10}, "samples_per_epoch: is for sources with weights"),
        ({"weights": [1, 1], "samples_per_epoch": 0}, "samples_per_epoch: expected 1 or more"),
        ({"weights": [1, 1], "samples_per_epoch": "some"}, "samples_per_epoch: expected one of"),
        ({"exclude": [3]}, "exclude: expected a list with one for each of the 2 stores"),
        ({"normalize": [{"x": (0, 1)}]}, "normalize: expected a list"),
        (
            {"weights": [1, 1], "exclude": [None, [slice(0, 12)]]},
            "source 1: has a weight and no samples",
        ),
    ],
)
def test_wrong_calls(options, message):
    with pytest.raises(ValueError, match=message):
        Loader(stores_of([20, 12]), **options)


def test_stores_that_do_not_fit_together():
    x = created(np.zeros((8, 3), "f4"), (2, 3))
    with pytest.raises(ValueError, match="an empty list"):
        Loader([])
    with pytest.raises(ValueError, match=r"arrays: \['y'\] in store 1, \['x'\] in store 0"):
        Loader([{"x": x}, {"y": x}])
    with pytest.raises(ValueError, match=r"source 1: a sample of x is float32 of shape \(1, 4\)"):
        Loader([{"x": x}, {"x": created(np.zeros((8, 4), "f4"), (2, 4))}])
    other = created(np.zeros((8, 3), "f8"), (2, 3))
    with pytest.raises(ValueError, match="source 1: a sample of x is float64"):
        Loader([{"x": x}, {"x": other}])
    assert len(Loader([{"x": x}, {"x": other}], dtype="float32")) == 16
    with pytest.raises(ValueError, match="source 1: patch 1 in 4, in source 0 in 3"):
        Loader([{"x": x}, {"x": created(np.zeros((8, 4), "f4"), (2, 4))}], patch={1: 2})
