"""zarr-python's results as arrays of MLX."""

import numpy as np
import pytest
from helpers import assert_same

mx = pytest.importorskip("mlx.core")
zarr = pytest.importorskip("zarr", minversion="3.1.6")

from headrace.zarr import CodecPipeline  # noqa: E402
from headrace.zarr._fallbacks import Unserved  # noqa: E402
from headrace.zarr.mlx import NDBuffer  # noqa: E402


@pytest.fixture(autouse=True)
def results_of_mlx():
    settings = {
        "codec_pipeline.path": "headrace.zarr.CodecPipeline",
        "ndbuffer": f"{NDBuffer.__module__}.{NDBuffer.__qualname__}",
    }
    with zarr.config.set(settings):
        yield


def create(path, data, **options):
    return zarr.create_array(path, data=data, chunks=(4, 4), **options)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int64", "f2", "f4", "c8"])
@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_results_are_filled_in_place(tmp_path, dtype, shards):
    data = np.arange(300).reshape(20, 15).astype(dtype)
    array = create(tmp_path, data, shards=shards)
    x = array[3:17:2, ::3]
    assert isinstance(x, mx.array)
    assert_same(np.array(x), data[3:17:2, ::3])
    nothing = array[3:3]
    assert isinstance(nothing, mx.array) and nothing.shape == (0, 15)
    assert_same(np.array(array.oindex[[9, 2], 3:9]), data[[9, 2], 3:9])
    assert_same(np.array(array[...] == mx.array(data)), np.ones((20, 15), bool))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_chunks_that_zarr_python_decodes(tmp_path, monkeypatch, dtype):
    data = np.random.default_rng(0).random((20, 15)).astype(dtype)
    array = create(tmp_path, data)
    served = CodecPipeline._read_default
    left = []

    async def count(self, *arguments):
        left.append(self)
        return await served(self, *arguments)

    monkeypatch.setattr(CodecPipeline, "_read_default", count)
    monkeypatch.setattr(CodecPipeline, "_read", _refuse)
    x = array[3:17:2]
    assert left and isinstance(x, mx.array)
    assert_same(np.array(x), data[3:17:2])


async def _refuse(*arguments):
    raise Unserved("as the test wants it")


def test_values_come_from_numpy(tmp_path):
    data = np.arange(300, dtype="f4").reshape(20, 15)
    array = create(tmp_path, np.zeros_like(data))
    array[...] = np.array(mx.array(data))
    assert_same(np.array(array[...]), data)


def test_types_that_mlx_lacks(tmp_path):
    array = zarr.create_array(tmp_path, data=np.zeros(3, "c16"))
    with pytest.raises(TypeError, match="MLX has no data type complex128"):
        array[...]
