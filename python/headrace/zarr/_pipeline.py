"""zarr-python's codec pipeline, served by headrace's engine."""

from __future__ import annotations

import asyncio
import atexit
import json
import math
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from zarr.abc.codec import Codec
from zarr.abc.codec import CodecPipeline as ZarrPipeline
from zarr.abc.store import Store as ZarrStore
from zarr.codecs import ShardingCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, BufferPrototype, NDBuffer, cpu
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import StorePath

from .. import _core, _python_codecs
from .._zarr_stores.foreign import foreign_store
from .._zarr_stores.native import native_store
from ._buffer import HostBuffer
from ._buffer import NDBuffer as DeviceBuffer
from ._fallbacks import Unserved, count_fallback
from ._plan import Batch, ChunkKeys, Part, Plan, exact_shape, plan_batch
from ._threads import run_in_thread

# Reads that decode less are done by zarr's loop itself: a hop to another thread costs as much.
_INLINE_NBYTES = 256 << 10

# Handles of one array: one more for each shape it was seen to have.
_MAX_ARRAYS = 8

_HOST_PROTOTYPE = BufferPrototype(buffer=cpu.Buffer, nd_buffer=HostBuffer)

# zarr-python's GetResult, from 3.2 on.
_PRESENT = {"status": "present"}
_MISSING = {"status": "missing"}


class _Results(Sequence[dict[str, str]]):
    """One for each chunk, looked up when somebody asks: that takes a call for each, and zarr-python
    itself does not ask where missing chunks may be read."""

    def __init__(self, keys: list[str], missing: Callable[[list[str]], Collection[str]]) -> None:
        self._keys = keys
        self._look = missing
        self._all: tuple[dict[str, str], ...] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, item: Any) -> Any:
        if self._all is None:
            missing = self._look(self._keys)
            self._all = tuple(_MISSING if key in missing else _PRESENT for key in self._keys)
        return self._all[item]


# By their address, those whose arrays refer to a Python store. The garbage collector does not see
# that reference, and what it keeps alive would outlive the interpreter.
_of_foreign_stores: weakref.WeakValueDictionary[int, CodecPipeline] = weakref.WeakValueDictionary()


@atexit.register
def _let_go() -> None:
    for pipeline in list(_of_foreign_stores.values()):
        pipeline._last_place = None


class _Refused(Exception):
    """zarr-python has an error of its own for this call."""


class _Place(NamedTuple):
    """Where an array lies."""

    owner: Any  # zarr-python's store
    root: Any  # of the store, which it may move
    loop: asyncio.AbstractEventLoop | None  # that serves the store, and must not wait for it
    store: _core.Store
    path: str
    skipped: int  # characters of a chunk's key before its coordinates
    arrays: dict[tuple[tuple[int, ...], bool], _core.Array]  # by shape and write_empty_chunks


class CodecPipeline(ZarrPipeline):
    """Reads and writes the chunks of one array, as many as a selection has, in one plan.

    Chosen by name::

        zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"})

    Chunks of local folders, zip archives and `headrace.zarr.Store` are read by headrace's own
    drivers, those of any other store by the store's asynchronous methods. Codecs and data types
    that headrace lacks are left to zarr-python's own pipeline, with the same results; `fallbacks`
    counts these calls, and ``fallback`` of `headrace.config` says whether they warn or raise.
    """

    def __init__(self, metadata: Any, store: Any) -> None:
        self._metadata = metadata
        self._store = store
        self._unserved: Unserved | None = None  # why all is zarr-python's
        self._document: dict[str, Any] | None = None
        self._attributes = ""  # as JSON, of Zarr 2: netCDF's mean another shuffle
        self._keys: ChunkKeys | None = None
        self._shard_order = _shard_order(metadata)
        self._last_place: _Place | None = None
        # Made at once, for its warnings about the codecs.
        self.default = _default_pipeline(metadata)  # zarr-python's own pipeline of the same codecs

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Any) -> CodecPipeline:
        return cls(array_metadata, store)

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> BatchedCodecPipeline:
        """Of codecs without an array: zarr-python's own pipeline."""
        return BatchedCodecPipeline.from_codecs(codecs)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> CodecPipeline:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._metadata, self._store)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CodecPipeline)
            and self._metadata == other._metadata
            and self._store == other._store
        )

    def __hash__(self) -> int:
        return hash(type(self))

    # What is asked about codecs, zarr-python's pipeline answers.

    @property
    def supports_partial_decode(self) -> bool:
        return self.default.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        return self.default.supports_partial_encode

    def __iter__(self) -> Iterator[Codec]:
        return iter(self.default)

    def validate(self, **kwargs: Any) -> None:
        self.default.validate(**kwargs)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        return self.default.compute_encoded_size(byte_length, array_spec)

    async def decode(
        self, chunk_bytes_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        return await self.default.decode(chunk_bytes_and_specs)

    async def encode(
        self, chunk_arrays_and_specs: Iterable[tuple[NDBuffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        return await self.default.encode(chunk_arrays_and_specs)

    # Reading and writing.

    async def read(
        self, batch_info: Iterable[Any], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> Any:
        batch = list(batch_info)
        if not batch:
            return ()
        try:
            missing = await self._read(batch, out, drop_axes)
        except Unserved as unserved:
            count_fallback(unserved)
            return await self._read_default(batch, out, drop_axes)
        return _Results([getter.path for getter, *_ in batch], missing)

    async def write(
        self, batch_info: Iterable[Any], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        batch = list(batch_info)
        if not batch:
            return
        try:
            await self._write(batch, value, drop_axes)
        except Unserved as unserved:
            count_fallback(unserved)
            await self._write_default(batch, value, drop_axes)
        except _Refused:
            await self._write_default(batch, value, drop_axes)

    async def _read(
        self, batch: Batch, out: NDBuffer, drop_axes: tuple[int, ...]
    ) -> Callable[[list[str]], Collection[str]]:
        """Fills `out`; what tells which of keys there are no objects of."""
        spec = batch[0][1]
        if not getattr(spec.config, "read_missing_chunks", True):
            # zarr-python wants to know which chunks are missing.
            raise Unserved("read_missing_chunks=False")
        place, plan = self._plan(batch, drop_axes, out.shape)
        array = self._array(place, self._whole_chunks(plan.stops, spec.shape), False)
        fill = _filler(array, plan, out)
        if place.loop is not None:
            with place.store._python_store.missing_keys() as missing:
                await self._call(fill, inline=False)
            return lambda keys: missing
        await self._call(fill, inline=_decoded_nbytes(array, plan) <= _INLINE_NBYTES)
        return lambda keys: {key for key in keys if not place.store._exists(key)}

    async def _write(self, batch: Batch, value: NDBuffer, drop_axes: tuple[int, ...]) -> None:
        spec = batch[0][1]
        if batch[0][0].store.read_only:
            raise _Refused
        if self._shard_order is None:
            raise Unserved("shards within shards in different orders")
        data = value.as_ndarray_like()
        place, plan = self._plan(batch, drop_axes, data.shape or _unbounded(batch))
        assert self._keys is not None
        shape = self._whole_chunks(plan.stops, spec.shape)
        # What a shard holds beyond the array's end, zarr-python keeps; of a chunk it does not.
        if plan.is_basic and not drop_axes and not self.supports_partial_encode:
            shape = exact_shape(batch, shape, self._keys, place.skipped)
        array = self._array(place, shape, spec.config.write_empty_chunks)
        if array.dtype not in (data.dtype, _native(data.dtype)):
            raise Unserved("values of another type than the array's")
        await self._call(lambda: _write_plan(array, plan, data), inline=False)

    async def _call(self, function: Callable[[], Any], *, inline: bool) -> None:
        try:
            if inline:
                function()
            else:
                await run_in_thread(function)
        except NotImplementedError as error:
            # Of these values or stored bytes; the next batch may be served.
            raise Unserved("what headrace lacks", error) from error

    def _leave(self, reason: str, detail: object) -> Unserved:
        """From now on all is zarr-python's."""
        self._unserved = Unserved(reason, str(detail))
        # Another one: an exception that was raised keeps its frames, and they the batch.
        return Unserved(reason, detail)

    async def _read_default(self, batch: Batch, out: NDBuffer, drop_axes: tuple[int, ...]) -> Any:
        if not isinstance(out, DeviceBuffer):
            return await self.default.read(batch, out, drop_axes)
        if not out.is_unfilled:
            raise NotImplementedError(
                "[zarr] left to zarr-python's own pipeline, which cannot fill memory of a device: "
                "read without out="
            )
        host = HostBuffer.empty(out.shape, out.dtype)
        results = await self.default.read(_on_host(batch), host, drop_axes)
        out.adopt(host.as_numpy_array())
        return results

    async def _write_default(
        self, batch: Batch, value: NDBuffer, drop_axes: tuple[int, ...]
    ) -> None:
        if isinstance(value, DeviceBuffer):
            batch, value = _on_host(batch), HostBuffer(value.as_numpy_array())
        await self.default.write(batch, value, drop_axes)

    # From a batch to an array of headrace.

    @property
    def _shape(self) -> tuple[int, ...]:
        return self._metadata.shape

    def _plan(
        self, batch: Batch, drop_axes: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[_Place, Plan]:
        getter = batch[0][0]
        if self._unserved is not None:
            raise Unserved(self._unserved.reason, self._unserved.detail)
        # A mock says that it is a store, and counts or changes calls of one.
        if type(getter) is not StorePath or not issubclass(type(getter.store), ZarrStore):
            raise Unserved("chunks that are in no store", type(getter).__name__)
        if not batch[0][1].prototype.buffer.__module__.startswith("zarr.core."):
            # The store is to bring bytes in memory of the program's own kind.
            raise Unserved("buffers of the program's own")
        if self._keys is None:
            self._learn()
        assert self._keys is not None
        place = self._place(batch[0][0], batch[0][1].config, self._keys)
        try:
            plan = plan_batch(batch, drop_axes, self._keys, place.skipped, shape)
        except LookupError as error:
            raise Unserved("chunks that a resize has added") from error
        return place, plan

    def _whole_chunks(
        self, stops: tuple[int, ...], chunk_shape: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The extents, up to the ends of their chunks: what a resize does not change."""
        assert self._keys is not None
        return tuple(
            self._keys.grid.end(d, max(stop, extent), size)
            for d, (stop, extent, size) in enumerate(
                zip(stops, self._shape, chunk_shape, strict=True)
            )
        )

    def _learn(self) -> None:
        """What the metadata say, once."""
        metadata = self._metadata
        others = [codec for codec in _codecs(metadata) if not _comes_with_zarr(codec)]
        if others:
            raise self._leave("codecs of the program's own", type(others[0]).__name__)
        try:
            self._keys = ChunkKeys(metadata)
            self._document, self._attributes = _documents(metadata)
        except (NotImplementedError, ValueError) as error:  # or a grid that is switched off
            raise self._leave("what headrace lacks", error) from error

    def _place(self, chunk: StorePath, config: Any, keys: ChunkKeys) -> _Place:
        loop = asyncio.get_running_loop()
        place = self._last_place
        root = _root(chunk.store)
        if (
            place
            and place.owner is chunk.store
            and place.root == root
            and place.loop in (None, loop)
        ):
            return place
        try:
            store = native_store(chunk.store)
        except (FileNotFoundError, NotImplementedError) as error:
            raise Unserved("a store that headrace cannot open", error) from error
        path = keys.node_path(chunk.path)
        skipped = keys.skipped(path)
        if store is None:
            store = foreign_store(chunk.store, loop, _coalescing(config))
            _of_foreign_stores[id(self)] = self
            place = _Place(chunk.store, root, loop, store, path, skipped, {})
        else:
            place = _Place(chunk.store, root, None, store, path, skipped, {})
        self._last_place = place
        return place

    def _array(
        self, place: _Place, shape: tuple[int, ...], write_empty_chunks: bool
    ) -> _core.Array:
        array = place.arrays.get((shape, write_empty_chunks))
        if array is None:
            try:
                with _python_codecs.left_out():
                    array = _core.open_array(
                        place.store,
                        place.path,
                        "cpu",
                        self._metadata.zarr_format,
                        metadata_json=json.dumps({**(self._document or {}), "shape": shape}),
                        attributes_json=self._attributes,
                        write_empty_chunks=write_empty_chunks,
                        shard_order=self._shard_order or "lexicographic",
                    )
                    array._check_codecs()
            except (NotImplementedError, ValueError) as error:
                raise self._leave("what headrace lacks", error) from error
            if len(place.arrays) >= _MAX_ARRAYS:
                place.arrays.clear()
            place.arrays[shape, write_empty_chunks] = array
        return array


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # NumPy's strings have no byte order to change.
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def _default_pipeline(metadata: Any) -> BatchedCodecPipeline:
    # The codecs of version 3 know their array already.
    if metadata.zarr_format == 2:
        return BatchedCodecPipeline.from_codecs([V2Codec(metadata.filters, metadata.compressor)])
    return BatchedCodecPipeline.from_codecs(metadata.codecs)


def _coalescing(config: Any) -> tuple[int, int] | None:
    """What an array's configuration says of ranges in shards, from zarr 3.4 on."""
    if not hasattr(config, "sharding_coalesce_max_bytes"):
        return None
    return config.sharding_coalesce_max_gap_bytes, config.sharding_coalesce_max_bytes


def _root(store: ZarrStore) -> Any:
    """A relative one leads elsewhere when the process has gone to another folder."""
    root = getattr(store, "root", None) or getattr(store, "path", None)
    if isinstance(root, str | os.PathLike) and not os.path.isabs(root):
        return os.path.abspath(root)
    return root


def _codecs(metadata: Any) -> Iterator[Any]:
    if metadata.zarr_format == 3:
        yield from _nested(metadata.codecs)
    else:
        yield from metadata.filters or ()
        if metadata.compressor is not None:
            yield metadata.compressor


def _nested(codecs: Iterable[Any]) -> Iterator[Any]:
    """The codecs, each before those inside it."""
    for codec in codecs:
        yield codec
        yield from _nested(getattr(codec, "codecs", ()))
        yield from _nested(getattr(codec, "index_codecs", ()))


def _shard_order(metadata: Any) -> str | None:
    """How chunks are to lie in shards; None where shards within shards differ in that."""
    # zarr 3.1 has no choice.
    orders = {
        getattr(codec, "subchunk_write_order", "morton")
        for codec in _codecs(metadata)
        if isinstance(codec, ShardingCodec)
    }
    if len(orders) > 1:
        return None
    order = orders.pop() if orders else "unordered"
    return "lexicographic" if order == "unordered" else order


def _comes_with_zarr(codec: Any) -> bool:
    """It does what headrace's codec of that name does; one of the program's own need not."""
    return type(codec).__module__.partition(".")[0] in ("zarr", "numcodecs")


def _documents(metadata: Any) -> tuple[dict[str, Any], str]:
    """zarr.json or .zarray, without the attributes, and .zattrs."""
    documents = metadata.to_buffer_dict(cpu.buffer_prototype)
    name = ".zarray" if metadata.zarr_format == 2 else "zarr.json"
    document: dict[str, Any] = json.loads(documents[name].to_bytes())
    if isinstance(metadata.fill_value, np.inexact) and np.isnan(metadata.fill_value):
        document["fill_value"] = _with_bits(metadata.fill_value)
    if metadata.zarr_format == 3:
        document["attributes"] = {}
        if document["chunk_grid"]["name"] not in ("regular", "rectilinear"):
            raise NotImplementedError(f"chunk grid {document['chunk_grid']['name']}")
        return document, ""
    return document, documents[".zattrs"].to_bytes().decode()


def _with_bits(fill: np.inexact[Any]) -> str | list[str]:
    """NaN as Zarr writes its bits: zarr-python says "NaN" of each."""
    if isinstance(fill, np.complexfloating):
        return [_bits(fill.real), _bits(fill.imag)]
    return _bits(fill)


def _bits(number: np.inexact[Any]) -> str:
    return "0x" + np.asarray(number, number.dtype.newbyteorder(">")).tobytes().hex()


def _decoded_nbytes(array: _core.Array, plan: Plan) -> float:
    """Of the chunks that a plan touches; infinite where that is work to find out."""
    part = plan.only
    if part is None or part.kind != "basic" or array.is_rectilinear:
        return math.inf
    nbytes = array.itemsize
    for item, size in zip(part.selection, array.chunks, strict=True):
        nbytes *= size
        if isinstance(item, slice):
            nbytes *= (item.stop - 1) // size - item.start // size + 1
    return nbytes


def _unbounded(batch: Batch) -> tuple[int, ...]:
    """A shape that holds the places of a scalar: they do not matter, and its own says nothing."""
    places = batch[0][3] if isinstance(batch[0][3], tuple) else (batch[0][3],)
    if any(isinstance(place, slice) and place.stop is None for place in places):
        raise Unserved("places without an end")
    return (1 << 62,) * len(places)


def _on_host(batch: Batch) -> Batch:
    return [
        (getter, replace(spec, prototype=_HOST_PROTOTYPE), *rest) for getter, spec, *rest in batch
    ]


def _indexer(array: _core.Array, part: Part) -> Any:
    return array if part.kind == "basic" else getattr(array, part.kind)


def _write_plan(array: _core.Array, plan: Plan, data: Any) -> None:
    for step in plan.steps:
        for part in step:
            value = data if part.place is None or data.shape == () else data[part.place]
            _indexer(array, part)[part.selection] = value


def _filler(array: _core.Array, plan: Plan, out: NDBuffer) -> Callable[[], Any]:
    """What reads the plan into `out`."""
    if array.dtype not in (out.dtype, _native(out.dtype)):
        # Fields of a structure, or memory of the caller's choice.
        raise Unserved("results of another type than the array's")
    if isinstance(out, DeviceBuffer):
        part = plan.only
        if part is not None and out.is_unfilled:
            return lambda: out.read(_indexer(array, part).read, part.selection)
        return lambda: out.fill(lambda data, **where: _fill(array, plan, data, **where))
    data = out.as_ndarray_like()
    if isinstance(data, np.ndarray):
        return lambda: _fill(array, plan, data)
    if hasattr(data, "__cuda_array_interface__"):
        device, stream = _cuda_place(data)
        return lambda: _fill(array, plan, data, device=device, stream=stream)
    raise Unserved("results in memory of an unknown kind")


def _fill(array: _core.Array, plan: Plan, data: Any, **where: Any) -> None:
    """Reads the plan into `data`, without a copy between, in memory of any kind."""
    swapped = isinstance(data, np.ndarray) and data.dtype != array.dtype
    if swapped and data.dtype != _native(data.dtype).newbyteorder("S"):
        filled = np.empty(data.shape, array.dtype)  # a structure of both byte orders
        _fill(array, plan, filled)
        for step in plan.steps:
            for part in step:
                data[part.place or ...] = filled[part.place or ...]
        return
    for step in plan.steps:
        targets = [data if part.place is None else data[part.place] for part in step]
        natives = [target.view(array.dtype) for target in targets] if swapped else targets
        if len(step) == 1 or where.get("stream") is not None:
            for part, native in zip(step, natives, strict=True):
                _indexer(array, part).read(part.selection, out=native, **where)
        else:  # boxes, all of them
            here = array.to(where["device"]) if where else array
            _core.read_many(
                [(here, part.selection, native) for part, native in zip(step, natives, strict=True)]
            )
        if swapped:
            for target in targets:
                target.byteswap(inplace=True)


def _cuda_place(data: Any) -> tuple[str, int | None]:
    """Device and stream of a CuPy array."""
    import cupy

    return f"cuda:{data.device.id}", cupy.cuda.get_current_stream().ptr or None
