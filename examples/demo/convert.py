"""NetCDF variables to Zarr by xarray: v2 with blosc, and v3 with zstd in shards."""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import numcodecs
import numpy as np
import xarray as xr
import zarr.codecs
from sources import Source, Variable

CHUNK_BYTES = 1 << 20
FORMATS = {2: "v2 blosc lz4 shuffle", 3: "v3 zstd 3, shards"}


@dataclass(frozen=True)
class Stored:
    """One variable in one Zarr store (a group: the variable and its coordinates)."""

    variable: Variable
    zarr_format: int
    path: Path

    @property
    def array(self) -> str:
        return str(self.path / self.variable.name)


def _chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Whole trailing axes as far as they fit CHUNK_BYTES, then an even part, then 1."""
    room, chunks = CHUNK_BYTES // itemsize, []
    for n in reversed(shape):
        parts = math.ceil(n / max(1, min(n, room)))
        chunks.append(math.ceil(n / parts))
        room //= chunks[-1]
    return tuple(reversed(chunks))


def _load(source: Source, variable: Variable) -> xr.DataArray:
    # Climatologies carry calendars that do not decode; the demo needs no dates.
    with xr.open_dataset(source.folder / variable.file, decode_times=False) as dataset:
        values = dataset[variable.name].reset_coords(drop=True).load()
    values.encoding.clear()
    if variable.dtype:
        cast = values.astype(variable.dtype, keep_attrs=True)
        if not np.array_equal(cast, values):
            raise ValueError(f"{variable.file} {variable.name} does not fit {variable.dtype}")
        values = cast
    return values


def _write(values: xr.DataArray, variable: Variable, zarr_format: int, path: Path) -> None:
    inner = _chunks(values.shape[1:], values.dtype.itemsize)
    encoding = {"chunks": (1, *inner)}
    if zarr_format == 2:
        encoding["compressors"] = [
            numcodecs.Blosc("lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE)
        ]
    else:
        whole = (math.ceil(n / c) * c for n, c in zip(values.shape[1:], inner, strict=True))
        encoding["shards"] = (1, *whole)
        encoding["compressors"] = [zarr.codecs.ZstdCodec(level=3)]
    partial = path.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    values.to_dataset(name=variable.name).to_zarr(
        partial,
        zarr_format=zarr_format,
        consolidated=zarr_format == 2,
        encoding={variable.name: encoding},
    )
    partial.rename(path)


def prepare(source: Source, cache: Path, nbytes: int) -> list[Stored]:
    """Write what is missing; a new first axis `tile` repeats each variable to at least nbytes."""
    stored = []
    for variable in source.variables:
        stem = f"{Path(variable.file).stem}-{variable.name}-{nbytes // 10**6}MB"
        both = [Stored(variable, f, cache / f"{stem}.v{f}.zarr") for f in FORMATS]
        stored += both
        missing = [s for s in both if not s.path.exists()]
        if missing:
            values = _load(source, variable)
            tiles = max(1, math.ceil(nbytes / values.nbytes))
            values = values.expand_dims(tile=tiles)
            for s in missing:
                _write(values, variable, s.zarr_format, s.path)
    return stored
