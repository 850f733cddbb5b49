"""A program that uses headrace, for the type checker alone: what users annotate has these types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import headrace as hr
import headrace.shm
import numpy as np
from headrace.attributes import Attributes
from headrace.lazy import LazyArray
from headrace.loader import CellLoader, Transform


def opened(path: str) -> None:
    node = hr.open(path)
    assert_type(node, hr.Array | hr.Group)
    if isinstance(node, hr.Group):
        assert_type(node["x"], hr.Array | hr.Group)
        assert_type(list(node), list[str])
    assert_type(hr.open(path, mode="w", shape=(2, 3), dtype="float32"), hr.Array)
    assert_type(hr.open_array(path), hr.Array)
    assert_type(hr.open_group(path), hr.Group)
    assert_type(hr.create_array(path, shape=3, dtype=np.int32), hr.Array)
    assert_type(hr.create_group(path), hr.Group)
    with hr.open_store(path) as store:
        assert_type(store, hr.Store)
        assert_type(hr.cached(store), hr.Store)


def facts(array: hr.Array) -> None:
    assert_type(array.dtype, np.dtype[Any])
    assert_type(array.shape, tuple[int, ...])
    assert_type(array.shards, tuple[int, ...] | None)
    assert_type(array.dimension_names, tuple[str | None, ...] | None)
    assert_type(array.attrs, Attributes)
    assert_type(array.attrs["units"], Any)
    assert_type(array.metadata, dict[str, Any])
    assert_type(array.codecs, list[hr.codecs.Codec])
    assert_type(array.lazy[0:3], LazyArray)
    assert_type(np.asarray(array), np.ndarray[tuple[Any, ...], np.dtype[Any]])


def read_and_written(array: hr.Array) -> None:
    buffer = np.empty(array.shape, array.dtype)
    array.read(np.s_[0:3, ..., ::-1], out=buffer, implementations={"zstd": "libzstd"})
    array[0, :] = buffer
    array.oindex[[1, 2], :] = 0
    array.write(None, buffer)
    array.resize((3, 4))
    assert_type(array.append([[1, 2]], axis=0), tuple[int, ...])
    assert_type(array.verify(), list[tuple[str, str]])
    assert_type(array.read_ragged(), tuple[Any, Any])
    array.oindex.to_arrow([1, 2], device="cpu")
    for x, y in zip(array, hr.read_many([(array, None), (array, np.s_[0])]), strict=False):
        assert_type((x, y), tuple[Any, Any])


async def waited_for(array: hr.Array) -> None:
    read = array.read_async(np.s_[0])
    assert_type(read, hr.Future[Any])
    write = array.write_async(None, 3)
    assert_type(write, hr.Future[None])
    write.add_done_callback(lambda future: print(future.cancel()))
    assert_type(write.exception(timeout=1), BaseException | None)
    assert_type(await read, Any)


def nodes(group: hr.Group) -> Iterator[str]:
    group.attrs["title"] = "a title"
    for name, member in group.items():
        if isinstance(member, hr.Array):
            yield name
        else:
            yield from nodes(member)


def settings() -> None:
    with hr.config.set({"threads": 3}, memory_budget="1GiB"):
        assert_type(hr.config.get("threads"), Any)
    codec = hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="bitshuffle")
    assert_type(codec, hr.codecs.Blosc)
    assert_type(hr.codecs.parse("zstd"), hr.codecs.Codec)


def shared() -> None:
    arena = headrace.shm.Arena("64MiB")
    x = arena.empty((3, 4), "float32", order="F")
    assert_type(x, np.ndarray[Any, Any])
    channel = arena.channel(capacity=4)
    channel.put({"x": x}, timeout=1)


def cells(path: str) -> None:
    data = hr.cells(path, {"rna": "X"}, obs=["cell_type"], join="outer")
    assert_type(data, hr.Cells)
    transforms = {"rna": Transform(total=1e4, log1p=True, genes=["MS4A1"])}
    loader = CellLoader(data, 4096, window=(256, 64), output="dense", transforms=transforms)
    for batch in loader:
        assert_type(batch, dict[str, Any])
    loader.load_state_dict(loader.state_dict())


def caught(path: str) -> str:
    try:
        hr.open_array(path)[:]
    except (hr.CorruptError, hr.CancelledError, hr.DeviceError) as error:
        return str(error)
    return hr.__version__


# What is no use of it: the checker refuses each of these lines, or says that the note is unused.
def refused(array: hr.Array) -> None:
    array.read(dev="cpu")  # type: ignore[call-arg]
    array.shape = (3, 4)  # type: ignore[misc]
    array.write_async(None, 3).result() + 1  # type: ignore[operator]
    hr.create_array("x.zarr", shapes=3, dtype="int8")  # type: ignore[call-arg]
    hr.open_array(array.path, mode=3)  # type: ignore[arg-type]
