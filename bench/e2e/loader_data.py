"""ERA5-like stores for loaders, of any size: float32 fields over time, Zarr 2 as xarray has it.

The fields are those of data.py, of another seed for each variable. A chunk holds whole fields.
"""

import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from e2e import data

CODECS = ("blosc", "zstd")
VARIABLES = ("t2m", "z500", "u10", "v10", "msl", "q700")


@dataclass(frozen=True)
class Store:
    steps: int
    nlat: int
    nlon: int
    variables: int
    chunk_steps: int
    codec: str

    @property
    def names(self) -> tuple[str, ...]:
        return VARIABLES[: self.variables]

    @property
    def sample_nbytes(self) -> int:
        """Of one step of all variables."""
        return 4 * self.nlat * self.nlon * self.variables

    @property
    def folder_name(self) -> str:
        shape = f"{self.steps}x{self.nlat}x{self.nlon}x{self.variables}"
        return f"loader-v{data.FORMAT}-{shape}-{self.chunk_steps}-{self.codec}.zarr"


def _compressor(codec: str):
    import numcodecs

    return {
        "blosc": numcodecs.Blosc("lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE),
        "zstd": numcodecs.Zstd(level=3),
    }[codec]


def _write_coordinates(group, store: Store) -> None:
    hours = 6 * np.arange(store.steps)
    coordinates = {
        "time": (hours, {"units": "hours since 2020-01-01", "calendar": "proleptic_gregorian"}),
        "latitude": (np.linspace(90, -90, store.nlat), {"units": "degrees_north"}),
        "longitude": (np.arange(store.nlon) * 360 / store.nlon, {"units": "degrees_east"}),
    }
    for name, (values, attributes) in coordinates.items():
        array = group.create_array(name, shape=values.shape, dtype=values.dtype)
        array[...] = values
        array.attrs.update({"_ARRAY_DIMENSIONS": [name], **attributes})


def _write_variable(path: str, store: Store, number: int, name: str) -> None:
    import zarr

    array = zarr.open_group(path, mode="r+").create_array(
        name,
        shape=(store.steps, store.nlat, store.nlon),
        dtype="float32",
        chunks=(min(store.chunk_steps, store.steps), store.nlat, store.nlon),
        compressors=_compressor(store.codec),
    )
    array.attrs["_ARRAY_DIMENSIONS"] = ["time", "latitude", "longitude"]
    fields = data.fields(store.steps, store.nlat, store.nlon, seed=data.SEED + number)
    first = 0
    while block := list(islice(fields, store.chunk_steps)):
        array[first : first + len(block)] = np.stack(block)
        first += len(block)


def prepare(folder: Path, store: Store) -> Path:
    """The path of the store; made when missing."""
    import zarr

    path = folder / store.folder_name
    if path.exists():
        return path
    partial = path.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    group = zarr.open_group(str(partial), mode="w", zarr_format=2)
    _write_coordinates(group, store)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(_write_variable, str(partial), store, number, name)
            for number, name in enumerate(store.names)
        ]
        for job in jobs:
            job.result()
    zarr.consolidate_metadata(str(partial), zarr_format=2)
    partial.rename(path)
    return path


def chunk_files(path: Path, store: Store) -> list[Path]:
    files = (f for name in store.names for f in sorted((path / name).iterdir()))
    return [f for f in files if not f.name.startswith(".z")]


def stored_nbytes(path: Path, store: Store) -> int:
    """Bytes of the chunks of the variables."""
    return sum(f.stat().st_size for f in chunk_files(path, store))


def job(path: Path, store: Store, args, **more) -> dict:
    """What a process that runs a loader is told of the store and of the run."""
    return {
        "path": str(path),
        "variables": list(store.names),
        "steps": store.steps,
        "sample_nbytes": store.sample_nbytes,
        "chunk_steps": store.chunk_steps,
        "batch": args.batch,
        "seconds": args.seconds,
        **more,
    }
