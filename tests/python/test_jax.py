"""headrace.jax on eight CPU devices."""

import os
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import python

# JAX starts its devices when it is first used in a process.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
jax = pytest.importorskip("jax")

from headrace.jax import read, write  # noqa: E402
from jax.sharding import NamedSharding, SingleDeviceSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

CPUS = jax.devices("cpu")
DTYPES = [
    "bool", "int8", "uint16", "int32", "float16", "bfloat16", "complex64", "float8_e4m3fn",
    "float8_e5m2", "int4", "uint4",
]  # fmt: skip
SPECS = [P(), P("x"), P("y"), P("x", "y"), P(("x", "y")), P(None, "x"), P(None, ("y", "x"))]


@pytest.fixture
def mesh():
    if len(CPUS) < 8:
        pytest.skip("JAX was started with fewer devices")
    return jax.sharding.Mesh(np.array(CPUS).reshape(4, 2), ("x", "y"))


@pytest.fixture
def pair(store):
    data = np.arange(16 * 24, dtype="float32").reshape(16, 24)
    array = hr.create_array(store, shape=data.shape, dtype="float32", chunks=(3, 5))
    array[:] = data
    return array, data


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_sharded_read(pair, mesh, spec):
    array, data = pair
    sharding = NamedSharding(mesh, spec)
    x = read(array, sharding=sharding)
    assert x.sharding == sharding
    np.testing.assert_array_equal(x, data)
    for shard in x.addressable_shards:
        assert shard.data.devices() == {shard.device}
        np.testing.assert_array_equal(shard.data, data[shard.index])


def test_only_what_devices_hold_is_read(store, mesh):
    array = hr.create_array(store, shape=(8, 4), dtype="float32", chunks=(2, 4))
    array[:] = 1
    with open(f"{store}/c/3/0", "wb") as chunk:
        chunk.write(b"broken")
    first = jax.sharding.Mesh(np.array(CPUS[:3]), ("x",))
    assert read(array, np.s_[:6], sharding=NamedSharding(first, P("x"))).sum() == 24
    with pytest.raises(hr.CorruptError, match="c/3/0"):
        read(array, sharding=NamedSharding(mesh, P("x")))


@pytest.mark.parametrize("key", [np.s_[2:10], np.s_[::-1, 4:12], np.s_[3], np.s_[..., None], 5])
def test_selections(pair, mesh, key):
    array, data = pair
    np.testing.assert_array_equal(read(array, key), data[key])
    np.testing.assert_array_equal(read(array.lazy[key]), data[key])
    if data[key].shape[0] % 4 == 0:
        sharding = NamedSharding(mesh, P("x"))
        np.testing.assert_array_equal(read(array.lazy[key], sharding=sharding), data[key])


def test_device(pair):
    array, _ = pair
    device = CPUS[-1]
    assert read(array, device=device).devices() == {device}
    assert read(array).devices() == {jax.devices()[0]}
    with pytest.raises(ValueError, match="not both"):
        read(array, device=device, sharding=SingleDeviceSharding(device))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX sees no GPU")
def test_parts_on_gpus_and_hosts(pair):
    array, data = pair
    gpu = jax.devices("gpu")[0]
    x = read(array)
    assert x.devices() == {gpu}
    np.testing.assert_array_equal(x, data)
    mesh = jax.sharding.Mesh(np.array([gpu]), "x")
    x = read(array, np.s_[2:10], sharding=NamedSharding(mesh, P("x")))
    assert x.devices() == {gpu}
    np.testing.assert_array_equal(x, data[2:10])
    write(array, x := read(array) * 2)
    assert x.devices() == {gpu}
    np.testing.assert_array_equal(read(array, device=CPUS[0]), 2 * data)


def test_large_results_are_not_copied(store):
    array = hr.create_array(store, shape=(1 << 19,), dtype="float32")
    array[:] = 1
    from headrace import jax as module

    taken = []
    adopt = module._adopt
    module._adopt = lambda memory, device: taken.append(memory) or adopt(memory, device)
    try:
        x = read(array, device=CPUS[0])
    finally:
        module._adopt = adopt
    assert x.unsafe_buffer_pointer() == taken[0].ctypes.data
    taken.clear()
    assert x.sum() == 1 << 19


@pytest.mark.parametrize(
    "dtype",
    DTYPES,
)
def test_dtypes(store, dtype):
    pytest.importorskip("ml_dtypes")
    array = hr.create_array(store, shape=(8,), dtype=dtype)
    array[:] = np.arange(8).astype(array.dtype)
    x = read(array)
    assert x.dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(x).view("u1"), array[:].view("u1"))


def test_64_bits_follow_jax(store):
    array = hr.create_array(store, shape=(3,), dtype="float64")
    assert read(array).dtype == np.float32


@pytest.mark.parametrize("dtype", ["M8[s]", "S3", "U2"])
def test_dtypes_that_jax_lacks(store, dtype):
    with pytest.raises(TypeError, match="not a valid JAX array type"):
        read(hr.create_array(store, shape=(3,), dtype=dtype))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_write(store, mesh, spec):
    x = jax.device_put(np.arange(128.0, dtype="float32").reshape(8, 16), NamedSharding(mesh, spec))
    chunks = x.sharding.shard_shape(x.shape)
    array = hr.create_array(store, shape=x.shape, dtype=x.dtype, chunks=chunks)
    write(array, x)
    np.testing.assert_array_equal(array[:], x)
    with pytest.raises(ValueError, match="shape"):
        write(array, x[1:])


def test_example_runs():
    example = Path(__file__).parents[2] / "examples" / "jax_mesh.py"
    assert python(example.read_text()).endswith("(8, 25)\n")
