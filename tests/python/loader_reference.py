"""What a `Loader` must give, by NumPy, from the origins of its samples."""

import numpy as np

WIDE = {"int32", "uint32", "int64", "uint64", "float64"}


def steps_of(window=1, stride=1, lead_time=()):
    steps = [stride * i for i in range(window)]
    return steps + [steps[-1] + lead for lead in lead_time]


def starts(extent, steps, excluded=()):
    """First steps of all samples, in order."""
    last = max(steps)
    return [t for t in range(extent - last) if not any(t + s in excluded for s in steps)]


def patch_starts(extent, size):
    return [min(k * size, extent - size) for k in range(-(-extent // size))]


def cut_patch(data, axis, begin, size, halo, padding):
    """A patch with its halo along one axis."""
    index = np.arange(begin - halo, begin + size + halo)
    extent = data.shape[axis]
    patch = np.take(data, index % extent, axis)
    if padding == "zero":
        outside = (index < 0) | (index >= extent)
        return patch, outside
    return patch, np.zeros(len(index), bool)


def converted(values, dtype, mean=None, std=None, fill_nan=None):
    dtype = values.dtype if dtype is None else np.dtype(dtype)
    if dtype == values.dtype and mean is None and fill_nan is None:
        return values
    wide = values.dtype.name in WIDE or dtype.name == "float64"
    kind = np.float64 if wide else np.float32
    values = values.astype(kind)
    if mean is not None:
        values = (values - np.asarray(mean, kind)) / np.asarray(std, kind)
    if fill_nan is not None:
        values = np.where(np.isnan(values), kind(fill_nan), values)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def channels(sample, layout):
    """(steps, *rest) as a layout has it."""
    if layout is None:
        return sample
    image = sample.reshape(-1, *sample.shape[-2:])
    return image if layout == "NCHW" else np.moveaxis(image, 0, -1)


def same(got, wanted):
    """Equal bits but for what NaNs hold."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    bits = f"u{got.dtype.itemsize}"
    if got.dtype.kind in "fV" or got.dtype.name == "bfloat16":
        with np.errstate(invalid="ignore"):
            nans = np.isnan(got)
            assert np.array_equal(nans, np.isnan(wanted))
        got, wanted = np.array(got), np.array(wanted)
        got[nans] = wanted[nans] = 0
    assert np.array_equal(np.ascontiguousarray(got).view(bits), wanted.copy().view(bits))
