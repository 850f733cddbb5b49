"""Creating nodes: from the arguments that zarr-python takes to a chain of codecs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any, NotRequired, TypedDict

import numpy as np

from . import _check, _core, _json
from ._dimensions import axes_of
from ._paths import is_archive, join, node_path
from ._stores import discarding, resolve_store
from ._suggest import checks_names, did_you_mean


def creation_store(
    store: Any, at_root: bool, overwrite: bool, storage_options: dict[str, Any] | None
) -> tuple[_core.Store, str]:
    # A zip archive is written from new: overwriting its root is a new archive.
    mode = "w" if at_root and overwrite and is_archive(store) else "a"
    return resolve_store(store, mode, storage_options)


def _check_node(
    argument: str, path: Any, zarr_format: Any, attributes: Any, overwrite: Any
) -> None:
    """What arrays and groups have in common, before anything is made."""
    with _check.argument(argument, "path"):
        _check.path("path", path)
        if path:
            node_path(path)
    _check.zarr_format(zarr_format)
    _check.attributes(attributes)
    _check.flag("overwrite", overwrite)


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "bfloat16", "complex64", "complex128", "string", "bytes",
)  # fmt: skip


def check_dtype(dtype: Any) -> None:
    if dtype is None:
        raise _check.wrong_type("dtype", "a data type", dtype)
    if isinstance(dtype, str):
        _check.text("dtype", dtype)
    try:
        _core.describe_dtype(dtype)
    except (NotImplementedError, TypeError, ValueError) as error:
        hint = did_you_mean(dtype, _DTYPES) if isinstance(dtype, str) else ""
        text = str(error).removeprefix("dtype: ")
        raise type(error)(f"dtype: {text}{hint}") from None


def codec_chain(
    dtype: Any, filters: Any, serializer: Any, compressors: Any, zarr_format: int
) -> list[tuple[str, str]] | None:
    """Codecs as the core takes them; None for its default."""
    _, itemsize, big_endian = _core.describe_dtype(dtype)
    if big_endian and _is_auto(serializer):
        serializer = {"name": "bytes", "configuration": {"endian": "big"}}
    if _is_auto(filters) and _is_auto(serializer) and _is_auto(compressors):
        return None
    from . import codecs

    def parsed(argument: str, given: Any) -> list[Any]:
        with _check.argument(argument, "codec"):
            return [codecs.parse(codec) for codec in _as_list(given)]

    chain = [] if _is_auto(filters) else parsed("filters", filters)
    if serializer is not None and not _is_auto(serializer):
        # Filters of v2 take what is stored, in its byte order.
        at = 0 if zarr_format == 2 else len(chain)
        chain[at:at] = parsed("serializer", [serializer])
    chain += [codecs.Zstd()] if _is_auto(compressors) else parsed("compressors", compressors)
    return [codec.for_itemsize(itemsize).to_spec() for codec in chain]


def _key_encoding(encoding: Any, zarr_format: int) -> dict[str, Any]:
    if encoding is None:
        return {}
    if hasattr(encoding, "to_dict"):
        encoding = encoding.to_dict()
    if isinstance(encoding, str):
        # "/" and "." in the manner of v2, else the name of an encoding.
        encoding = {"separator": encoding} if encoding in "/." else {"name": encoding}
    if not isinstance(encoding, Mapping):
        raise _check.wrong_type("chunk_key_encoding", "a name, a separator or both", encoding)
    configuration = {**encoding, **encoding.get("configuration", {})}
    name = configuration.get("name", "default" if zarr_format == 3 else "v2")
    if name not in ("default", "v2"):
        raise NotImplementedError(f"chunk_key_encoding: unknown encoding {name!r}")
    return {
        "v2_chunk_keys": name == "v2" and zarr_format == 3,
        "dimension_separator": configuration.get("separator", ""),
    }


def _default_fill_value(dtype: Any) -> Any:
    # As zarr-python: dates default to NaT, everything else to zero.
    name = _core.describe_dtype(dtype)[0]
    return "NaT" if name.startswith(("numpy.datetime64", "numpy.timedelta64")) else None


def _listed(extents: Any) -> Any:
    """What an iterator gives, which can be asked once; NumPy's integers as Python's."""
    if isinstance(extents, np.ndarray):
        return extents.tolist()
    return list(extents) if isinstance(extents, Iterator) else extents


def _is_rectilinear(extents: Any) -> bool:
    """Whether some dimension has a list of extents."""
    if isinstance(extents, str | int) or not isinstance(extents, Iterable):
        return False
    return any(isinstance(extent, Iterable) and not isinstance(extent, str) for extent in extents)


def _edges(name: str, extents: Iterable[Any]) -> list[int | list[int]]:
    def extent(value: Any) -> int:
        _check.integer(name, value, "integers, or lists of integers")
        return index(value)

    return [
        [extent(value) for value in dimension]
        if isinstance(dimension, Iterable)
        else extent(dimension)
        for dimension in extents
    ]


def _grid(
    chunks: Any, shards: Any, shape: tuple[int, ...], names: Sequence[str | None] | None
) -> dict[str, Any]:
    """The arguments of the core that say how the array is cut."""
    chunks, shards = _listed(chunks), _listed(shards)
    if isinstance(chunks, Mapping):
        axes = axes_of("chunks", chunks, names, len(shape))
        chunks = [axes.get(axis, -1) for axis in range(len(shape))]
    if isinstance(shards, Mapping):
        axes = axes_of("shards", shards, names, len(shape))
        if not isinstance(chunks, Sequence) or isinstance(chunks, str):
            raise ValueError("chunks: expected extents beside shards by dimension")
        shards = [axes.get(axis, extent) for axis, extent in enumerate(chunks)]
    if _is_rectilinear(chunks):
        if shards is not None:
            raise ValueError(
                "shards: inner chunks have one shape; give lists of extents as shards instead"
            )
        return {"edges": _edges("chunks", chunks)}
    inner = _extents("chunks", chunks, shape)
    if _is_rectilinear(shards):
        if inner is None:
            raise ValueError("chunks: expected extents beside shards of several shapes")
        return {"chunks": inner, "edges": _edges("shards", shards)}
    return {"chunks": inner, "shards": _extents("shards", shards, shape)}


def _shards(shards: Any, names: Sequence[str | None] | None) -> tuple[Any, str]:
    """Extents of shards, and where their index stands, of what zarr-python takes as well."""
    if not isinstance(shards, Mapping) or "shape" in (names or ()):
        return shards, "end"
    if "shape" not in shards:
        if "index_location" in shards and "index_location" not in (names or ()):
            raise ValueError("shards: expected 'shape' beside 'index_location'")
        return shards, "end"
    for key in shards:
        if key not in ("shape", "index_location"):
            raise ValueError(f"shards: expected 'shape' and 'index_location', got {key!r}")
    location = shards.get("index_location")
    location = "end" if location is None else getattr(location, "value", location)
    if not isinstance(location, str) or location not in ("start", "end"):
        wanted = f'"start" or "end", got {_check.described(location)}'
        raise ValueError(f"shards: index_location: expected {wanted}")
    return shards["shape"], location


def _with_index_in_front(arguments: dict[str, Any]) -> dict[str, Any]:
    """For the core, which puts the index of shards behind their chunks by itself."""
    like = _core.create_array(_core.memory_store(), "", **{**arguments, "device": None})
    ((name, text),) = like._codec_specs
    sharding = {**_json.loads(text), "index_location": "start"}
    stored = None if "edges" in arguments else arguments["shards"]
    return {
        **arguments,
        "chunks": stored,
        "shards": None,
        "codecs": [(name, _json.dumps(sharding))],
    }


def _extents(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    """An int stands for that extent in every dimension."""
    if isinstance(value, str):
        if value != "auto" or name == "shards":
            wanted = "extents" if name == "shards" else "extents or 'auto'"
            raise ValueError(f"{name}: expected {wanted}, got {value!r}")
        return None
    if value is None:
        return None
    given = _check.integers(name, value)
    if isinstance(given, int):
        given = (given,) * len(shape)
    if len(given) == len(shape):
        # -1: the whole dimension, of which an array that is to grow may have nothing yet.
        return [
            max(whole, 1) if extent == -1 else extent
            for extent, whole in zip(given, shape, strict=True)
        ]
    return given


class _Data:
    """The elements that an array is to have, its shape and its type."""

    def __init__(self, data: Any, dtype: Any, shape: Any) -> None:
        if _on_a_device(data):
            self.elements = data
            # "torch.float32"
            own: Any = str(data.dtype).rpartition(".")[2]
        else:
            self.elements = _check.elements("data", data)
            own = _dtype_of(self.elements)
        self.shape = tuple(self.elements.shape)
        self.dtype = own if dtype is None else dtype
        if shape is not None and (wanted := _check.shape(shape)) != self.shape:
            raise ValueError(f"shape: expected that of data, {self.shape}, got {wanted}")

    def convert(self, arguments: dict[str, Any]) -> None:
        """Raises for elements that the array cannot hold, before anything is made or removed."""
        found = self.elements
        if not isinstance(found, np.ndarray) or self.dtype is found.dtype:
            return
        try:
            like = _core.create_array(_core.memory_store(), "", **{**arguments, "device": None})
        except (NotImplementedError, TypeError, ValueError):  # which tells where it should be made
            return
        if like.dtype == object:
            like.write(None, found)
        elif found.dtype.kind != like.dtype.kind or found.dtype.kind in "SUTVO":
            with _check.argument("data"):
                self.elements = np.asarray(found, like.dtype)


def _on_a_device(data: Any) -> bool:
    if isinstance(data, _core.DeviceArray) or hasattr(data, "__cuda_array_interface__"):
        return True
    if isinstance(data, np.ndarray | np.generic) or not hasattr(data, "__dlpack_device__"):
        return False
    return int(data.__dlpack_device__()[0]) != _DLPACK_CPU


_DLPACK_CPU = 1


def elements_of(data: Any) -> tuple[np.ndarray[Any, Any], Any]:
    """An array of NumPy, and the type of the array that keeps it."""
    data = _check.elements("data", data)
    return data, _dtype_of(data)


def _dtype_of(data: np.ndarray[Any, Any]) -> Any:
    if data.dtype != object:
        return data.dtype
    for dtype in (str, bytes):
        if all(isinstance(element, dtype) for element in data.flat):
            return dtype
    raise TypeError("data: an array of objects must hold nothing but str or nothing but bytes")


Extents = int | Sequence[int | Sequence[int]] | Mapping[str, int]


class ShardsConfig(TypedDict):
    """Shards as zarr-python takes them, too."""

    shape: int | Sequence[int | Sequence[int]]
    index_location: NotRequired[str | None]


@checks_names
def create_array(
    store: Any,
    name: str | None = None,
    *,
    shape: int | Sequence[int] | None = None,
    dtype: Any = None,
    data: Any = None,
    chunks: Extents | str | None = "auto",
    shards: Extents | ShardsConfig | None = None,
    filters: Any = "auto",
    compressors: Any = "auto",
    serializer: Any = "auto",
    fill_value: Any = None,
    order: str = "C",
    zarr_format: int | None = 3,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    overwrite: bool = False,
    write_empty_chunks: bool = False,
    device: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> _core.Array:
    """Create an array.

    Parameters
    ----------
    store
        A path or URL (created when missing), a `Store`, or a `Group`.
    name
        Path within the store; the root when left away.
    shape, dtype
        Those of ``data`` where it is given. Extents, and anything `numpy.dtype` takes or the name
        of a Zarr v3 data type. ``str`` and ``bytes`` are strings of variable length; ``object`` is
        what a filter of Zarr v2 makes of it (``vlen-utf8``, ``vlen-bytes``, ``vlen-array``,
        ``json2``, ``msgpack2``, ``categorize``).
    data
        The elements: anything NumPy makes an array of, or an array of a device. They are converted
        to ``dtype`` where that is given.
    chunks
        Extents of a chunk, an int for all dimensions, or ``"auto"``. -1 is a whole dimension; a
        dict has extents by the names (or numbers) of dimensions, those it leaves out are whole:
        ``{"time": 1}``. A list in place of an extent
        makes a rectilinear grid (v3): the extents of all chunks along that dimension, which reach
        to the end of the array at least.
    shards
        Extents of a shard, a multiple of ``chunks``; None stores every chunk by itself. In a dict
        dimensions that are left out have the extent of a chunk. Lists of
        extents make a rectilinear grid of shards. ``{"shape": extents, "index_location": "start"}``
        as zarr-python takes it says also where the index stands, ``"end"`` without it; it is a dict
        by dimension where ``dimension_names`` has ``"shape"``.
    filters, serializer, compressors
        Codecs: objects of `headrace.codecs`, metadata dicts, zarr-python or numcodecs objects, or a
        list of them. ``"auto"`` is no filter, little-endian bytes and zstd; None is none.
    fill_value
        What missing chunks read as; zero (NaT for dates) when None.
    order
        ``"F"`` stores chunks in column order (v2 only; in v3 use `headrace.codecs.Transpose`).
    zarr_format
        2 or 3.
    attributes
        User attributes, JSON values.
    chunk_key_encoding
        ``{"name": "default" or "v2", "separator": "/" or "."}``.
    dimension_names
        Name of each dimension.
    overwrite
        Remove what is there.
    write_empty_chunks
        Store chunks that hold nothing but the fill value, too.
    device
        Of the handle that is returned.
    storage_options
        Options of the store, see `open_store`.

    Returns
    -------
    Array
        Open for reading and writing.

    Raises
    ------
    ValueError
        Something is there already, or an argument makes no array.

    Examples
    --------
    >>> a = hr.create_array("new.zarr", shape=(1000, 1000), dtype="float32", chunks=(100, 1000))
    >>> a[:] = 1.0
    >>> hr.create_array("days.zarr", data=days, dimension_names=["time", "x"], chunks={"time": 1})
    """
    _check_node("name", name, zarr_format, attributes, overwrite)
    zarr_format = 3 if zarr_format is None else zarr_format
    given = None if data is None else _Data(data, dtype, shape)
    if given is not None:
        shape, dtype = given.shape, given.dtype
    if shape is None:
        raise TypeError("create_array(): shape or data is missing")
    shape = _check.shape(shape)
    check_dtype(dtype)
    _check.text("order", order, '"C" or "F"')
    _check.flag("write_empty_chunks", write_empty_chunks)
    if dimension_names is not None:
        wanted = "a name or None for each dimension"
        if isinstance(dimension_names, str) or not isinstance(dimension_names, Iterable):
            raise _check.wrong_type("dimension_names", wanted, dimension_names)
        dimension_names = list(dimension_names)
        for dimension in dimension_names:
            if dimension is not None:
                _check.text("dimension_names", dimension, wanted)
    if order == "F" and zarr_format == 3:
        raise ValueError("order='F': zarr_format 3 has no order, use the filter codecs.Transpose")
    shards, index_location = _shards(shards, dimension_names)
    codecs = codec_chain(dtype, filters, serializer, compressors, zarr_format)
    if fill_value is None:
        fill_value = _default_fill_value(dtype)
    elif isinstance(fill_value, str):
        _check.text("fill_value", fill_value)
    arguments = {
        **_grid(chunks, shards, shape, dimension_names),
        "shape": shape,
        "dtype": dtype,
        "codecs": codecs,
        "fill_value": fill_value,
        "zarr_format": zarr_format,
        "order": order,
        "attributes": _json.dumps(dict(attributes)) if attributes else "",
        "dimension_names": list(dimension_names or ()),
        "overwrite": overwrite,
        "write_empty_chunks": write_empty_chunks,
        "device": device,
        **_key_encoding(chunk_key_encoding, zarr_format),
    }
    if given is not None:
        given.convert(arguments)
    handle, base = creation_store(store, not name, overwrite, storage_options)
    with discarding(store, handle):
        try:
            if index_location == "start":
                arguments = _with_index_in_front(arguments)
            array = _core.create_array(handle, join(base, name), **arguments)
        except NotImplementedError as error:
            hint = _codec_hint(codecs, str(error))
            if not hint:
                raise
            raise NotImplementedError(f"{error}{hint}") from None
        if given is not None:
            array.write(None, given.elements)
        return array


def _codec_hint(chain: list[tuple[str, str]] | None, message: str) -> str:
    """What was meant by the codec of a chain that, so the message, nobody knows."""
    known = sorted({row["codec"] for row in _core.codec_table()})
    unknown = (name for name, _ in chain or () if f"codec {name} is not known" in message)
    name = next(unknown, None)
    return "" if name is None else did_you_mean(name, [one for one in known if one != name])


CREATION_ARGUMENTS = frozenset(inspect.signature(create_array).parameters) - {"store", "name"}


def group_handle(
    store: Any,
    path: str | None,
    attributes: Mapping[str, Any] | None,
    zarr_format: int | None,
    overwrite: bool,
    storage_options: dict[str, Any] | None,
) -> _core.GroupHandle:
    """What `headrace.create_group` makes a group of."""
    _check_node("path", path, zarr_format, attributes, overwrite)
    text = _json.dumps(dict(attributes)) if attributes else ""
    handle, base = creation_store(store, not path, overwrite, storage_options)
    with discarding(store, handle):
        return _core.create_group(handle, join(base, path), text, zarr_format or 3, overwrite)
