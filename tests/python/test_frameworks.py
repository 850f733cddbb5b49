"""MLX, Numba, TensorFlow and CuPy: what they take from headrace, and give to it."""

from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import DEVICES, assert_same, library, python

EXAMPLE = Path(__file__).parents[2] / "examples" / "frameworks.py"


@pytest.fixture
def pair(store):
    data = np.arange(600, dtype="float32").reshape(20, 30)
    array = hr.create_array(store, shape=data.shape, dtype="float32", chunks=(7, 11))
    array[:] = data
    return array, data


def test_example_runs():
    lines = python(EXAMPLE.read_text()).splitlines()
    assert lines[0].startswith("numpy: ")
    assert len({line.partition(":")[2] for line in lines}) == 1, lines


def test_mlx_reads_into_its_memory(pair):
    mx = pytest.importorskip("mlx.core")
    from headrace.mlx import read

    array, data = pair
    assert_same(np.array(read(array)), data)
    assert_same(np.array(read(array, np.s_[3:9, ::-2])), data[3:9, ::-2])
    assert_same(np.array(read(array.lazy[4])), data[4])
    assert float(mx.sum(read(array))) == data.sum()


def test_mlx_arrays_are_written(pair):
    mx = pytest.importorskip("mlx.core")
    array, data = pair
    array[:] = mx.array(data) * 2
    assert_same(array[:], data * 2)


@pytest.mark.parametrize("name", ["bool", "int8", "uint32", "float16", "bfloat16", "complex64"])
def test_mlx_dtypes(store, name):
    mx = pytest.importorskip("mlx.core")
    from headrace.mlx import read

    array = hr.create_array(store, shape=(4,), dtype=name)
    array[:] = np.array([0, 1, 0, 1]).astype(array.dtype)
    x = read(array)
    assert x.dtype == getattr(mx, "bool_" if name == "bool" else name)
    assert x.astype(mx.float32).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("name", ["M8[s]", "S3", "complex128", "float8_e5m2"])
def test_dtypes_that_mlx_lacks(store, name):
    pytest.importorskip("mlx.core")
    from headrace.mlx import read

    with pytest.raises(TypeError, match="MLX has no data type"):
        read(hr.create_array(store, shape=(4,), dtype=name))


def test_numba_works_on_results(pair):
    numba = pytest.importorskip("numba")
    array, data = pair

    @numba.njit
    def double(x):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                x[i, j] *= 2

    x = array[:]
    double(x)
    array[:] = x
    assert_same(array[:], data * 2)


@pytest.mark.parametrize("device", DEVICES)
def test_numba_takes_device_arrays(pair, device):
    cuda = library("numba.cuda", device)
    array, data = pair
    assert_same(cuda.as_cuda_array(array.to(device)[...]).copy_to_host(), data)


@pytest.mark.parametrize("device", DEVICES)
def test_cupy_takes_and_gives_arrays(pair, device):
    cupy = library("cupy", device)
    array, data = pair
    x = cupy.from_dlpack(array.to(device)[...])
    assert_same(cupy.asnumpy(x), data)
    array[:] = x * 2
    assert_same(array[:], data * 2)


def test_tensorflow_takes_and_gives_arrays(pair):
    tf = pytest.importorskip("tensorflow")
    array, data = pair
    x = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    assert_same(x.numpy(), data)
    array[:] = x * 2
    assert_same(array[:], data * 2)
