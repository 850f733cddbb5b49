"""The loader's batches in the memory of a device, against those of the host."""

import headrace as hr
import numpy as np
import pytest
from headrace.loader import Loader
from helpers import chunk_files, smooth
from loader_reference import same

OPTIONS = [
    {"window": 3, "stride": 2, "lead_time": [4]},
    {"dtype": "float16", "normalize": {"x": (0.5, 2.0)}},
    {"dtype": "bfloat16", "fill_nan": -1, "layout": "NCHW", "window": 2},
    {"dtype": "float64", "normalize": {"x": ([1, 2, 3], [4, 5, 6])}, "select": {1: [2, 0, 3]}},
    {"layout": "NHWC", "window": 2, "dtype": "float32"},
    {"patch": {2: 4, 3: 3}, "halo": {2: 1, 3: 2}, "padding": {2: "zero", 3: "wrap"}},
    {"patch": {3: 3}, "halo": 1, "dtype": "float32", "normalize": {"x": (1, 3)}},
    {"stack": {"z": ["x", "y"]}, "layout": "NCHW", "dtype": "float32"},
    {"shuffle": "global"},
]


def batches(arrays, device, **options):
    loader = Loader(arrays, device=device, **options)
    result = []
    for batch in loader:
        assert all(device == "cpu" or isinstance(v, hr.DeviceArray) for v in batch.values())
        result.append({k: v if device == "cpu" else v.to_numpy() for k, v in batch.items()})
    return result, loader


def fields(dtype):
    x = (smooth("f4", (18, 4, 6, 7)) * 100).astype(dtype)
    if x.dtype.kind == "f":
        x[3, 1, 2] = np.nan
    return x


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", ["f4", "i2", "f8"])
@pytest.mark.parametrize("codec", [None, hr.codecs.Zstd(), hr.codecs.Blosc()])
def test_device_gives_what_the_host_gives(device, options, dtype, codec):
    if options.get("dtype") == "bfloat16":
        pytest.importorskip("ml_dtypes")
    data = fields(dtype)
    x = hr.create_array(
        hr.memory_store(), shape=data.shape, dtype=dtype, chunks=(2, 3, 6, 4), compressors=codec
    )
    y = hr.create_array(
        hr.memory_store(), shape=(18, 6, 7), dtype=dtype, chunks=(1, 6, 7), compressors=codec
    )
    x[...] = data
    y[...] = data[:, 0]
    options = {"batch_size": 3, "drop_last": False, "prefetch": 1, **options}
    arrays = {"x": x, "y": y} if "stack" in options else {"x": x}
    got, loader = batches(arrays, device, **options)
    wanted, _ = batches(arrays, "cpu", **options)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            same(a[name], b[name])
    assert loader.stats()["read_amplification"] == 1


@pytest.fixture
def corrupt(store):
    """40 steps in chunks of 2, the one of steps 10 and 11 broken."""
    array = hr.create_array(
        store, shape=(40, 64), dtype="f4", chunks=(2, 64), compressors=hr.codecs.Zstd(checksum=True)
    )
    array[...] = np.arange(40, dtype="f4")[:, None] * np.ones(64, "f4")
    file = chunk_files(store)["c/5/0"]
    file.write_bytes(file.read_bytes()[:-3] + b"bad")
    return array


def test_bad_chunk_raises_when_its_batch_comes(device, corrupt):
    loader = Loader({"x": corrupt}, device=device, batch_size=2, shuffle=None, dtype="f2")
    for step in range(5):
        assert next(loader)["x"].to_numpy()[0, 0, 0] == 2 * step
    with pytest.raises(hr.CorruptError, match="chunk c/5/0"):
        next(loader)


@pytest.mark.parametrize("dtype", [None, "float16"])
@pytest.mark.parametrize("policy", ["skip", "fill"])
def test_bad_chunks(device, corrupt, policy, dtype):
    options = {"batch_size": 4, "on_bad_chunk": policy, "dtype": dtype}
    got, loader = batches({"x": corrupt}, device, **options)
    wanted, _ = batches({"x": corrupt}, "cpu", **options)
    for a, b in zip(got, wanted, strict=True):
        same(a["x"], b["x"])
    assert ["c/5/0" in text for text in loader.stats()["bad_chunks"]] == [True]


def test_small_budget_reads_again_and_gives_the_same(device):
    data = smooth("f4", (160, 32))
    array = hr.create_array(hr.memory_store(), shape=data.shape, dtype="f4", chunks=(4, 32))
    array[...] = data
    options = {"batch_size": 8, "window": 3, "shuffle": "global", "dtype": "float64"}
    wanted, _ = batches({"x": array}, "cpu", **options)
    # Two batches of 6 KiB beside those that are made, and a handful of chunks of 512 bytes.
    got, loader = batches({"x": array}, device, prefetch=0, memory_budget="24KiB", **options)
    assert loader.stats()["read_amplification"] > 1.5
    for a, b in zip(got, wanted, strict=True):
        same(a["x"], b["x"])


def test_torch_tensors_of_a_device_share_memory(device):
    torch = pytest.importorskip("torch")
    if device != "cuda":
        pytest.skip("torch knows GPUs")
    array = hr.create_array(hr.memory_store(), shape=(8, 4), dtype="f4", chunks=(2, 4))
    array[...] = 1
    (batch,) = Loader({"x": array}, device=device, batch_size=8).torch()
    assert batch["x"].device.type == "cuda" and torch.all(batch["x"] == 1)
