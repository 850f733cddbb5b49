"""zarr-python 3 with its default codec pipeline and default settings."""

import numcodecs
import zarr
from e2e.data import create
from zarr.buffer.cpu import NDBuffer

MEMORY = True


def versions() -> dict:
    return {"zarr": zarr.__version__, "numcodecs": numcodecs.__version__}


def open_array(path: str):
    return zarr.open_array(path, mode="r")


def read(array, selection):
    return array[selection]


def read_out(array, selection, out) -> None:
    array.get_basic_selection(selection, out=NDBuffer.from_numpy_array(out))


def write(array, selection, data) -> None:
    array[selection] = data


def create_in_memory(spec: dict):
    return create(zarr.storage.MemoryStore(), spec)
