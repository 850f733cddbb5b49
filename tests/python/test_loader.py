"""Batches of the loader against NumPy, for every option."""

import itertools
import json
import pickle

import headrace as hr
import numpy as np
import pytest
from headrace.loader import Loader, shuffle_quality
from helpers import DEVICES, chunk_files, smooth
from hypothesis import given
from hypothesis import strategies as st
from loader_reference import (
    WIDE,
    channels,
    converted,
    cut_patch,
    patch_starts,
    same,
    starts,
    steps_of,
)


def created(store, data, chunks, **options):
    array = hr.create_array(store, shape=data.shape, dtype=data.dtype, chunks=chunks, **options)
    array[...] = data
    return array


def memory_array(data, chunks, names=None):
    return created(hr.memory_store(), data, chunks, dimension_names=names)


def epoch_of(loader):
    return list(loader)


def joined(batches, name="x"):
    return np.concatenate([batch[name] for batch in batches])


SERIES = smooth("f4", (40, 3, 4))


@pytest.fixture(scope="module")
def series():
    return memory_array(SERIES, (4, 2, 4), ["time", "lat", "lon"])


@st.composite
def cases(draw):
    """An array, a loader of it and what numbers of samples to expect."""
    extent = draw(st.integers(6, 40))
    options = {
        "batch_size": draw(st.integers(1, 5)),
        "window": draw(st.integers(1, 3)),
        "stride": draw(st.integers(1, 2)),
        "lead_time": draw(st.lists(st.integers(0, 3), max_size=2)),
        "shuffle": draw(st.sampled_from([None, "block", "global"])),
        "block_chunks": draw(st.integers(1, 9)),
        "lanes": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 5)),
        "prefetch": draw(st.sampled_from([0, 0, 2])),
        "drop_last": False,
    }
    excluded = draw(st.sets(st.integers(0, extent - 1), max_size=3))
    axis = draw(st.integers(0, 2))
    shape = [draw(st.integers(1, 5)) for _ in range(3)]
    shape[axis] = extent
    chunks = tuple(draw(st.integers(1, max(1, n // 2))) for n in shape)
    return tuple(shape), chunks, axis, excluded, options


@pytest.mark.filterwarnings("ignore:an epoch has no batch")
@given(cases())
def test_every_sample_once_and_as_numpy_has_it(case):
    shape, chunks, axis, excluded, options = case
    data = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    steps = steps_of(options["window"], options["stride"], options["lead_time"])
    wanted = starts(shape[axis], steps, excluded)
    loader = Loader(
        {"x": memory_array(data, chunks)}, sample_dim=axis, exclude=sorted(excluded), **options
    )
    assert loader.samples == len(wanted)
    assert len(loader) == -(-len(wanted) // options["batch_size"])
    origins = loader.origins()[:, 0]
    assert sorted(origins.tolist()) == wanted
    if options["shuffle"] is None:
        assert origins.tolist() == wanted
    batches = epoch_of(loader)
    assert len(batches) == len(loader)
    if wanted:
        moved = np.moveaxis(data, axis, 0)
        same(joined(batches), np.stack([moved[t + np.array(steps)] for t in origins]))
    assert loader.epoch == 1


@pytest.mark.parametrize("source", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("target", ["float16", "float32", "float64", "bfloat16"])
def test_numbers_are_converted_and_normalised(source, target):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.random.default_rng(1).integers(0, 2**64, 300, "u8")
    check_conversion(values.view(source)[: 300 * 8].copy().reshape(-1, 50), target, ml_dtypes)


@pytest.mark.parametrize("source", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("target", ["float16", "float32", "float64", "bfloat16"])
def test_floats_of_all_bits_are_converted(source, target):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(source)
    bits = np.random.default_rng(2).integers(0, 2**64, 4096, "u8").view(f"u{dtype.itemsize}")
    if dtype.itemsize == 2:
        bits = np.arange(1 << 16, dtype="u2")
    check_conversion(bits.copy().view(dtype).reshape(-1, 64), target, ml_dtypes)
    near = np.random.default_rng(3).normal(size=4096) * 10.0 ** np.arange(-9, 7).repeat(256)
    with np.errstate(over="ignore"):
        near = near.astype(dtype)
    check_conversion(near.reshape(-1, 64), target, ml_dtypes)


def check_conversion(data, target, ml_dtypes):
    array = memory_array(data, (4, 16))
    dtype = np.dtype(target) if target != "bfloat16" else np.dtype(ml_dtypes.bfloat16)
    for mean, std, fill in [(None, None, None), (3.25, 0.7, None), (-1e3, 11, 5.5)]:
        loader = Loader(
            {"x": array},
            batch_size=len(data),
            shuffle=None,
            dtype=target,
            normalize=None if mean is None else {"x": (mean, std)},
            fill_nan=fill,
        )
        with np.errstate(all="ignore"):
            wanted = converted(data, dtype, mean, std, fill)
            if target == "bfloat16" and data.dtype.name in WIDE:
                wanted = converted(data, "f8", mean, std, fill).astype("f4").astype(dtype)
        same(next(loader)["x"][:, 0], wanted)


@st.composite
def patch_cases(draw):
    shape = tuple(draw(st.integers(3, 9)) for _ in range(3))
    sizes = [draw(st.integers(1, n)) for n in shape[1:]]
    halos = [draw(st.integers(0, min(2, n))) for n in shape[1:]]
    paddings = [draw(st.sampled_from(["zero", "wrap"])) for _ in range(2)]
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    return shape, chunks, sizes, halos, paddings


@given(patch_cases(), st.booleans())
def test_patches_with_halo(case, converts):
    shape, chunks, sizes, halos, paddings = case
    data = np.arange(1, np.prod(shape) + 1, dtype="i2").reshape(shape)
    loader = Loader(
        {"x": memory_array(data, chunks)},
        batch_size=3,
        patch={1: sizes[0], 2: sizes[1]},
        halo={1: halos[0], 2: halos[1]},
        padding={1: paddings[0], 2: paddings[1]},
        dtype="float32" if converts else None,
        drop_last=False,
    )
    corners = itertools.product(
        range(shape[0]), patch_starts(shape[1], sizes[0]), patch_starts(shape[2], sizes[1])
    )
    origins = loader.origins()
    assert sorted(map(tuple, origins.tolist())) == sorted(corners)
    got = joined(epoch_of(loader))
    for i, (t, lat, lon) in enumerate(origins):
        wanted, above = cut_patch(data[t], 0, lat, sizes[0], halos[0], paddings[0])
        wanted, beside = cut_patch(wanted, 1, lon, sizes[1], halos[1], paddings[1])
        wanted = np.where(above[:, None] | beside[None, :], 0, wanted)
        same(got[i, 0], wanted.astype(got.dtype))


@given(st.sampled_from([None, "NCHW", "NHWC"]), st.booleans(), st.integers(1, 3))
def test_selection_channels_and_layout(layout, per_level, window):
    data = smooth("f4", (9, 4, 5, 6))
    array = memory_array(data, (2, 3, 5, 4), ["time", "level", "lat", "lon"])
    levels, mean, std = [3, 0, 1], [1.0, 2.0, 3.0], [0.5, 1.5, 2.5]
    if not per_level:
        mean, std = mean[:1], std[:1]
    loader = Loader(
        {"x": array},
        batch_size=2,
        sample_dim="time",
        window=window,
        select={"level": levels, "lon": slice(1, 5)},
        normalize={"x": (mean, std)},
        layout=layout,
    )
    origins, got = loader.origins()[:, 0], epoch_of(loader)
    wanted = converted(
        data[:, levels, :, 1:5], "f4", np.reshape(mean, (-1, 1, 1)), np.reshape(std, (-1, 1, 1))
    )
    samples = [channels(wanted[t : t + window], layout) for t in origins]
    same(joined(got), np.stack(samples)[: 2 * len(got)])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_stack_of_variables_of_different_chunks(layout):
    a, b = smooth("f4", (12, 5, 6)), smooth("f4", (12, 2, 5, 6)) * 3
    arrays = {"a": memory_array(a, (1, 5, 6)), "b": memory_array(b, (5, 1, 4, 3))}
    loader = Loader(
        {**arrays, "alone": arrays["a"]},
        batch_size=4,
        window=2,
        lead_time=3,
        stack={"x": ["b", "a"]},
        dtype="float32",
        layout=layout,
        drop_last=False,
    )
    steps = np.array(steps_of(2, 1, [3]))
    origins, batches = loader.origins()[:, 0], epoch_of(loader)
    assert list(batches[0]) == ["x", "alone"]
    axis = 0 if layout == "NCHW" else -1
    both = [
        np.concatenate([channels(b[t + steps], layout), channels(a[t + steps], layout)], axis)
        for t in origins
    ]
    same(joined(batches), np.stack(both))
    same(joined(batches, "alone"), np.stack([channels(a[t + steps], layout) for t in origins]))


def test_structures_and_dates_come_as_they_are():
    data = np.arange(24).astype("M8[h]").reshape(12, 2)
    loader = Loader({"x": memory_array(data, (5, 2))}, batch_size=12, shuffle="global")
    assert np.array_equal(next(loader)["x"][:, 0], data[loader.origins(epoch=0)[:, 0]])
    with pytest.raises(NotImplementedError, match="numbers are converted"):
        Loader({"x": memory_array(data, (5, 2))}, dtype="float32")


def test_rectilinear_and_sharded_arrays(tmp_path):
    data = smooth("f4", (30, 8))
    rectilinear = hr.create_array(
        hr.memory_store(), shape=data.shape, dtype="f4", chunks=[[7, 7, 10, 6], 4]
    )
    sharded = hr.create_array(
        str(tmp_path / "s.zarr"), shape=data.shape, dtype="f4", chunks=(2, 4), shards=(10, 8)
    )
    rectilinear[...] = sharded[...] = data
    loader = Loader({"x": rectilinear, "y": sharded}, batch_size=5, window=3, drop_last=False)
    origins, batches = loader.origins()[:, 0], epoch_of(loader)
    wanted = np.stack([data[t : t + 3] for t in origins])
    same(joined(batches), wanted)
    same(joined(batches, "y"), wanted)


# ---- Order


def stream(array, epochs=1, **options):
    loader = Loader({"x": array}, sample_dim="time", window=2, lead_time=3, **options)
    return [joined(epoch_of(loader)) for _ in range(epochs)]


@pytest.mark.parametrize("shuffle", ["block", "global"])
def test_stream_does_not_depend_on_threads_prefetch_or_memory(series, shuffle):
    wanted = stream(series, batch_size=3, shuffle=shuffle, prefetch=0, epochs=2)
    assert not np.array_equal(*wanted)
    for threads, prefetch, budget in itertools.product((1, 8), (0, 4), ("1GiB", "6KiB")):
        with hr.config.set({"threads": threads}):
            got = stream(
                series,
                batch_size=3,
                shuffle=shuffle,
                prefetch=prefetch,
                memory_budget=budget,
                epochs=2,
            )
        assert np.array_equal(got, wanted)
    assert not np.array_equal(stream(series, batch_size=3, shuffle=shuffle, seed=1)[0], wanted[0])


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("world_size", range(1, 9))
def test_union_of_ranks_is_the_set(series, world_size, drop_last):
    options = {"batch_size": 2, "sample_dim": "time", "drop_last": drop_last, "prefetch": 0}
    whole = Loader({"x": series}, **{**options, "batch_size": 1, "drop_last": False})
    order = joined(epoch_of(whole))
    parts = []
    for rank in range(world_size):
        loader = Loader({"x": series}, rank=rank, world_size=world_size, **options)
        batches = epoch_of(loader)
        assert (
            len(batches)
            == len(loader)
            == (40 // (2 * world_size) if drop_last else -(-40 // (2 * world_size)))
        )
        parts.append(batches)
    # Each global batch is dealt one sample after the other.
    got = []
    for step in zip(*parts, strict=True):
        dealt = [list(batch["x"]) for batch in step]
        for i in range(2):
            got += [samples[i] for samples in dealt if i < len(samples)]
    assert np.array_equal(np.array(got), order[: len(got)])
    assert len(got) == (40 - 40 % (2 * world_size) if drop_last else 40)


def test_ranks_read_chunks_of_their_own():
    data = np.zeros((512, 4), "f4")
    array = memory_array(data, (1, 4))
    read = 0
    for rank in range(4):
        loader = Loader({"x": array}, batch_size=4, rank=rank, world_size=4, dtype="float64")
        epoch_of(loader)
        read += loader.stats()["chunks_decoded"]
    assert read == 512


def test_resume_is_bit_for_bit_at_every_batch(series):
    options = {"batch_size": 3, "sample_dim": "time", "window": 2, "drop_last": False, "seed": 7}
    loader = Loader({"x": series}, **options)
    batches, states = [], [loader.state_dict()]
    for batch in loader:
        batches.append(batch["x"])
        states.append(loader.state_dict())
    assert states[0]["samples"] == 0 and states[-1]["samples"] == loader.samples
    for i, state in enumerate(states):
        resumed = Loader({"x": series}, **{**options, "prefetch": i % 3})
        resumed.load_state_dict(json.loads(json.dumps(state)))
        rest = [batch["x"] for batch in resumed]
        assert len(rest) == len(batches) - i
        assert all(np.array_equal(a, b) for a, b in zip(rest, batches[i:], strict=True))
        assert resumed.epoch == 1


def test_resume_with_another_world_size(series):
    options = {"sample_dim": "time", "drop_last": False, "prefetch": 0}
    order = joined(epoch_of(Loader({"x": series}, batch_size=1, **options)))

    def steps(world_size, batch_size, state, count):
        loaders = [
            Loader({"x": series}, batch_size=batch_size, rank=r, world_size=world_size, **options)
            for r in range(world_size)
        ]
        got = []
        for loader in loaders:
            if state:
                loader.load_state_dict(state)
        for _ in range(count):
            dealt = [list(next(loader)["x"]) for loader in loaders]
            got += [s for row in itertools.zip_longest(*dealt) for s in row if s is not None]
        states = [loader.state_dict() for loader in loaders]
        assert all(other == states[0] for other in states)
        return got, states[0]

    got, state = [], None
    for world_size, batch_size, count in [(3, 2, 2), (8, 1, 1), (1, 5, 2), (4, 2, 2)]:
        part, state = steps(world_size, batch_size, state, count)
        got += part
    assert state["samples"] == 40
    assert np.array_equal(np.array(got), order)


def test_state_of_another_order_is_refused(series):
    loader = Loader({"x": series}, sample_dim="time")
    for other in ({"seed": 1}, {"window": 2}, {"lanes": 4}, {"shuffle": None}, {"exclude": [3]}):
        state = Loader({"x": series}, sample_dim="time", **other).state_dict()
        with pytest.raises(ValueError, match="expected the order"):
            loader.load_state_dict(state)
    with pytest.raises(ValueError, match="no position"):
        loader.load_state_dict({**loader.state_dict(), "samples": 41})


def test_coordinates_do_not_lengthen_blocks(store):
    fields = hr.create_array(store, "x", shape=(96, 16, 16), dtype="f4", chunks=(4, 16, 16))
    fields[...] = np.arange(fields.size, dtype="f4").reshape(fields.shape)
    times = hr.create_array(store, "time", shape=(96,), dtype="i8", chunks=(96,))
    times[...] = np.arange(96)
    alone = Loader({"x": fields}, block_chunks=8)
    both = Loader({"x": fields, "time": times}, block_chunks=8, batch_size=4)
    assert both.origins().tolist() == alone.origins().tolist()
    got = joined(epoch_of(both), "time")
    assert got.ravel().tolist() == both.origins(epoch=0)[:, 0].tolist()
    assert both.stats()["read_amplification"] == 1


def test_few_chunks_are_mixed_when_few_are_wanted(store):
    array = hr.create_array(store, shape=(256, 64), dtype="f4", chunks=(8, 64))
    array[...] = 1
    loader = Loader({"x": array}, block_chunks=2)
    chunks = loader.origins()[:, 0] // 8
    for first in range(0, 256 - 16, 16):
        assert len(set(chunks[first : first + 16].tolist())) <= 4


def test_epochs(series):
    loader = Loader({"x": series}, sample_dim="time", batch_size=8)
    first = joined(epoch_of(loader))
    second = joined(epoch_of(loader))
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first, 0), np.sort(second, 0))
    loader.set_epoch(0)
    next(loader)
    loader.set_epoch(0)  # goes on
    assert np.array_equal(joined(loader), first[8:])
    loader.set_epoch(1)
    assert np.array_equal(joined(loader), second)


def test_pickled_loader_goes_on(store):
    array = created(store, SERIES, (4, 2, 4))
    loader = Loader({"x": array}, batch_size=8)
    next(loader)
    other = pickle.loads(pickle.dumps(loader))
    assert np.array_equal(joined(other), joined(loader))


def test_quality_of_shuffling():
    array = memory_array(np.zeros((20000, 1), "u1"), (10, 1))
    quality = {
        shuffle: shuffle_quality(Loader({"x": array}, shuffle=shuffle))
        for shuffle in (None, "block", "global")
    }
    more = shuffle_quality(Loader({"x": array}, block_chunks=512))
    assert all(abs(quality["global"][key] - 1) < 0.1 for key in ("successive", "nearest"))
    assert all(quality[None][key] < 0.05 for key in ("successive", "nearest"))
    assert quality["block"]["successive"] > 0.85
    assert quality["block"]["nearest"] < more["nearest"] < 1


# ---- Reading


@pytest.mark.parametrize("chunk", [1, 8, 32])
def test_every_chunk_is_decoded_once_under_block_shuffle(chunk):
    data = smooth("f4", (512, 6, 5))
    loader = Loader({"x": memory_array(data, (chunk, 6, 5))}, batch_size=8, normalize={"x": (1, 2)})
    epoch_of(loader)
    stats = loader.stats()
    assert stats["read_amplification"] == 1
    assert stats["decoded_bytes"] == data.nbytes
    assert stats["samples"] == 512


def index_bytes(inner_chunks):
    return 16 * inner_chunks + 4  # with its checksum


@pytest.mark.parametrize("shards", [None, (16, 8)])
@pytest.mark.parametrize("codec", [None, hr.codecs.Zstd()])
@pytest.mark.parametrize("place", ["cpu", *DEVICES])
def test_compressed_bytes_are_those_of_the_stored_chunks(store, shards, codec, place):
    data = smooth("f4", (64, 8))
    array = hr.create_array(
        store, shape=data.shape, dtype="f4", chunks=(4, 8), shards=shards, compressors=codec
    )
    array[:16] = data[:16]
    array[48:] = data[48:]  # what lies between is missing
    files = [file.stat().st_size for file in chunk_files(store).values()]
    stored = sum(files) - (index_bytes(4) * len(files) if shards else 0)
    loader = Loader({"x": array}, batch_size=4, device=place)
    assert loader.stats()["compressed_bytes"] == 0
    epoch_of(loader)
    stats = loader.stats()
    assert stats["decoded_bytes"] == data.nbytes
    assert stats["compressed_bytes"] == stored
    assert (stored == data.nbytes // 2) == (codec is None)


def test_compressed_bytes_of_missing_chunks_are_none(store):
    array = hr.create_array(store, shape=(16, 8), dtype="f4", chunks=(4, 8))
    loader = Loader({"x": array}, batch_size=4)
    epoch_of(loader)
    assert loader.stats()["compressed_bytes"] == 0 < loader.stats()["decoded_bytes"]


@pytest.mark.parametrize("budget, most", [("64MiB", 1), ("100KiB", 1.5)])
def test_windows_that_overlap_share_chunks(budget, most):
    data = smooth("f4", (1024, 16))
    loader = Loader(
        {"x": memory_array(data, (4, 16))},
        batch_size=4,
        window=4,
        lead_time=2,
        memory_budget=budget,
    )
    epoch_of(loader)
    assert loader.stats()["read_amplification"] <= most
    assert loader.stats()["peak_cache_bytes"] <= 100 << 10 or budget == "64MiB"


def test_chunks_that_are_one_sample_go_straight_into_the_batch():
    data = smooth("f4", (32, 6, 5))
    loader = Loader({"x": memory_array(data, (1, 6, 5))}, batch_size=4)
    got = joined(epoch_of(loader))
    assert np.array_equal(got[:, 0], data[loader.origins(epoch=0)[:, 0]])
    assert loader.stats()["peak_cache_bytes"] == 0


def test_memory_budget_that_is_too_small_is_told_at_once(series):
    with pytest.raises(MemoryError, match=r"memory_budget: 4 batches of 384 bytes"):
        Loader({"x": series}, sample_dim="time", batch_size=8, memory_budget="1KiB")


def test_ideal_loader_repeats_a_batch(series):
    loader = Loader({"x": series}, sample_dim="time", batch_size=8)
    first = next(Loader({"x": series}, sample_dim="time", batch_size=8))["x"]
    assert [np.array_equal(batch["x"], first) for batch in loader.ideal()] == [True] * 5
    assert loader.state_dict()["samples"] == 0


def test_trace_has_spans_of_the_loader(series, tmp_path):
    with hr.trace(str(tmp_path / "trace.json")):
        epoch_of(Loader({"x": series}, sample_dim="time", batch_size=8, dtype="f8"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"gather", "plan", "wait"} <= {event["name"] for event in events}


# ---- Bad chunks


@pytest.fixture
def corrupt(store):
    """40 steps in chunks of 2, the one of steps 10 and 11 broken."""
    array = hr.create_array(
        store, shape=(40, 64), dtype="f4", chunks=(2, 64), compressors=hr.codecs.Zstd(checksum=True)
    )
    array[...] = np.arange(40, dtype="f4")[:, None] * np.ones(64, "f4")
    file = next(path for key, path in chunk_files(store).items() if key == "c/5/0")
    file.write_bytes(file.read_bytes()[:-3] + b"bad")
    return array


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_bad_chunk_raises_when_its_batch_comes_and_again(corrupt, prefetch):
    loader = Loader({"x": corrupt}, batch_size=2, shuffle=None, prefetch=prefetch, dtype="f2")
    for step in range(5):
        assert next(loader)["x"][0, 0, 0] == 2 * step
    for _ in range(3):
        with pytest.raises(hr.CorruptError, match="chunk c/5/0"):
            next(loader)
    assert loader.state_dict()["samples"] == 10


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_bad_chunk_is_replaced_by_the_next_good_sample(corrupt, dtype):
    loader = Loader({"x": corrupt}, batch_size=4, shuffle=None, on_bad_chunk="skip", dtype=dtype)
    got = joined(epoch_of(loader))[:, 0, 0]
    wanted = np.arange(40)
    wanted[[10, 11]] = 8  # the last of its batch: counted around
    assert got.tolist() == wanted.tolist()
    stats = loader.stats()
    assert stats["replaced_samples"] == 2
    assert len(stats["bad_chunks"]) == 1 and "c/5/0" in stats["bad_chunks"][0]
    assert 0 < stats["compressed_bytes"] < stats["decoded_bytes"]


def test_batch_without_a_good_sample_raises(corrupt):
    loader = Loader({"x": corrupt}, batch_size=2, shuffle=None, on_bad_chunk="skip", prefetch=0)
    with pytest.raises(hr.CorruptError, match="no sample of a batch is good"):
        epoch_of(loader)


@pytest.mark.parametrize("fill_nan, wanted", [(None, np.nan), (-5, -5)])
def test_bad_chunk_is_filled(corrupt, fill_nan, wanted):
    loader = Loader(
        {"x": corrupt}, batch_size=4, shuffle=None, on_bad_chunk="fill", fill_nan=fill_nan
    )
    got = joined(epoch_of(loader))[:, 0]
    assert np.array_equal(got[10:12], np.full((2, 64), wanted, "f4"), equal_nan=True)
    assert got[[9, 12], 5].tolist() == [9, 12]


@pytest.mark.parametrize("device", ["cpu", "simt"])
@pytest.mark.parametrize(
    "codec",
    [hr.codecs.Blosc(), hr.codecs.Blosc(cname="zstd"), hr.codecs.Zstd(), hr.codecs.Gzip()],
    ids=["lz4", "blosc-zstd", "zstd", "gzip"],
)
def test_a_chunk_of_zeros_as_a_crash_leaves_is_a_bad_one(store, codec, device):
    array = hr.create_array(store, shape=(8, 900), dtype="f4", chunks=(2, 900), compressors=codec)
    array[...] = 1
    file = chunk_files(store)["c/1/0"]
    file.write_bytes(bytes(file.stat().st_size))
    loader = Loader(
        {"x": array}, batch_size=2, shuffle=None, on_bad_chunk="fill", fill_nan=-5, device=device
    )
    batches = [batch["x"] if device == "cpu" else batch["x"].to_numpy() for batch in loader]
    assert np.concatenate(batches)[:, 0, 0].tolist() == [1, 1, -5, -5, 1, 1, 1, 1]
    assert "c/1/0" in loader.stats()["bad_chunks"][0]


# ---- Wrong calls


@pytest.mark.parametrize(
    "options, message",
    [
        ({"batch_size": 0}, "batch_size: expected 1 or more, got 0"),
        ({"sample_dim": "depth"}, 'sample_dim "depth": no variable has it'),
        ({"window": 41}, "a sample reaches over 41 steps of 40"),
        ({"lead_time": -1}, "lead_time: expected 0 or more"),
        ({"patch": {"lat": 4}}, "patch .* size 4 and halo 0 in 3"),
        ({"patch": {"time": 4}}, "the sample dimension has neither patches nor a selection"),
        ({"halo": {"lat": 1}}, "halo: 'lat' has no patches"),
        ({"shuffle": "some"}, "shuffle: expected one of"),
        ({"rank": 2, "world_size": 2}, "rank: expected 0 to 1, got 2"),
        ({"normalize": {"y": (0, 1)}}, "normalize: no array 'y'"),
        ({"normalize": {"x": ([0, 1], [1, 1])}}, "2 means or stds"),
        ({"memory_budget": "4 apples"}, "memory_budget: expected bytes"),
        ({"stack": {"y": ["x"]}, "layout": "NCHW", "select": {"lat": []}}, "no indices"),
        ({"stack": {"y": ["z"]}}, "stack y: no variable z"),
        ({"exclude": [slice(0, 10, 2)]}, "exclude: expected steps of 1"),
    ],
)
def test_wrong_calls(series, options, message):
    with pytest.raises(ValueError, match=message):
        Loader({"x": series}, **{"sample_dim": "time", **options})


def test_arrays_of_different_extents_are_refused(series):
    other = memory_array(np.zeros((41, 3)), (4, 3), ["time", "lat"])
    with pytest.raises(ValueError, match='sample_dim "time": y has 41, another variable 40'):
        Loader({"x": series, "y": other}, sample_dim="time")


def test_exclusions_as_masks_and_ranges(series):
    mask = np.zeros(40, bool)
    mask[[3, 4, 20]] = True
    by_mask = Loader({"x": series}, sample_dim="time", exclude=mask, shuffle=None)
    by_range = Loader(
        {"x": series}, sample_dim="time", exclude=[slice(3, 5), (20, 21)], shuffle=None
    )
    assert by_mask.origins().tolist() == by_range.origins().tolist()
    assert by_mask.samples == 37
