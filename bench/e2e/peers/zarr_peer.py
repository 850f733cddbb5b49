"""zarr-python 3 with its default codec pipeline and default settings."""

import numcodecs
import zarr
from data import codecs_of
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


def _create(store, spec: dict):
    return zarr.create_array(
        store=store,
        shape=tuple(spec["shape"]),
        dtype="float32",
        chunks=tuple(spec["inner_chunks"] or spec["chunks"]),
        shards=tuple(spec["chunks"]) if spec["inner_chunks"] else None,
        compressors=codecs_of(spec["codec"]),
        fill_value=0.0,
    )


def create(path: str, spec: dict):
    return _create(path, spec)


def write(array, selection, data) -> None:
    array[selection] = data


def create_in_memory(spec: dict):
    return _create(zarr.storage.MemoryStore(), spec)
