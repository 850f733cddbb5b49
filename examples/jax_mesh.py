"""An array spread over a mesh of JAX devices: each reads, and writes, its own part."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")  # eight on one CPU

import headrace as hr
import jax
import numpy as np
from headrace.jax import read, write
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

rows = jax.device_count()
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
sharding = NamedSharding(mesh, P("rows"))
shape = (1000 * rows, 50)

a = hr.create_array(
    hr.memory_store(), shape=shape, dtype="float32", chunks=sharding.shard_shape(shape)
)
a[:] = np.arange(a.size).reshape(shape) % 1000

x = read(a, sharding=sharding)  # no device sees the rows of another
assert x.sharding == sharding and np.array_equal(x, a[:])
write(a, jax.numpy.sqrt(x))
first = read(a, np.s_[:8, ::2])  # a selection, to the default device
print(x.shape, len(x.addressable_shards), first.shape)
