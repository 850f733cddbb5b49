"""Values of the golden arrays: functions of the index alone, with no Zarr library involved."""

import numpy as np


def _noise(n, seed):
    """n well-mixed uint64, a splitmix64 stream (https://prng.di.unimi.it/splitmix64.c)."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed * 1000003)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def random_bytes(n, seed=0):
    return _noise((n + 7) // 8, seed).astype("<u8").tobytes()[:n]


def _floats(n, seed, dtype):
    i = np.arange(n, dtype=np.float64)
    x = np.sin(i * 0.1 + seed) * 100 + (_noise(n, seed) % np.uint64(16)).astype(np.float64) / 16
    x = x.astype(dtype)
    for at, special in enumerate((np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).tiny)):
        if n > 3 + 7 * at:
            x[3 + 7 * at] = special
    return x


def values(dtype, shape, seed=0):
    """Values that reach the ends of the range of `dtype`, in the byte order of `dtype`."""
    dtype = np.dtype(dtype)
    shape = tuple(shape)
    n = int(np.prod(shape, dtype=np.int64))
    native = dtype.newbyteorder("=")
    if dtype.fields:
        out = np.zeros(n, dtype)
        for at, name in enumerate(dtype.names):
            field = dtype[name]
            out[name] = values(field.base, (n, *field.shape), seed + at)
    elif dtype.kind == "b":
        out = (_noise(n, seed) % np.uint64(3)) == 0
    elif dtype.kind in "iu":
        # Three of four elements are small steps, so that codecs have something to do.
        bits = 8 * dtype.itemsize
        wide = (_noise(n, seed) >> np.uint64(64 - bits)).astype(f"u{dtype.itemsize}").view(native)
        narrow = (np.arange(n) // 3 % 120).astype(native)
        out = np.where(np.arange(n) % 4 == 0, wide, narrow)
        if n > 2:
            out[1], out[2] = np.iinfo(native).min, np.iinfo(native).max
    elif dtype.kind == "f":
        out = _floats(n, seed, native)
    elif dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        out = np.empty(n, native)
        out.real, out.imag = _floats(n, seed, part), _floats(n, seed + 1, part)[::-1]
    elif dtype.kind in "mM":
        ticks = (_noise(n, seed) % np.uint64(2_000_000)).astype("i8") - 1_000_000
        out = ticks.view(native)
        if n > 5:
            out[5] = np.array("NaT", native)
    elif dtype.kind == "S":
        words = _noise(n, seed)
        out = np.array([(b"%x" % w)[: int(w) % (dtype.itemsize + 1)] for w in words], dtype)
    elif dtype.kind == "U":
        length = dtype.itemsize // 4
        alphabet = "abc\u00e9\u00df\u4e2d\u6587\U0001f600 z"
        words = [
            "".join(alphabet[(int(w) >> (4 * k)) % len(alphabet)] for k in range(length))
            for w in _noise(n, seed)
        ]
        out = np.array([w[: k % (length + 1)] for k, w in enumerate(words)], dtype)
    elif dtype.kind == "V":
        out = np.frombuffer(random_bytes(n * dtype.itemsize, seed), dtype)
    else:
        raise TypeError(dtype)
    return out.astype(dtype).reshape(shape)


def smooth(dtype, shape, seed=0):
    """A field like a climate variable, quarter steps: exact in every float of 16 bits and more."""
    i = np.indices(shape, dtype=np.float64)
    x = 250 + seed + sum(np.cos(axis / (3 + k)) * 20 for k, axis in enumerate(i))
    return (np.round(x * 4) / 4).astype(dtype)


def masked(expected, chunks, fill, written):
    """`expected` with each chunk that `written(index)` refuses replaced by `fill`."""
    out = np.array(expected, order="C")
    grid = [range(-(-s // c)) for s, c in zip(expected.shape, chunks, strict=True)]
    for index in np.ndindex(*[len(g) for g in grid]):
        if not written(index):
            where = tuple(slice(k * c, (k + 1) * c) for k, c in zip(index, chunks, strict=True))
            out[where] = fill
    return out
