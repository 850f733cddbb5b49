"""Whole arrays and groups at once."""

from __future__ import annotations

import base64
import itertools
import struct
import warnings
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from . import _check, _core, _json
from ._create import create_array, elements_of
from ._open import open
from ._paths import is_archive, join, node_path
from ._place import overlap
from ._progress import Progress, showing
from ._stores import discarding, resolve_store
from ._suggest import checks_names
from .group import Group, create_group

# Where xarray keeps the names of dimensions in Zarr 2.
_DIMENSIONS = "_ARRAY_DIMENSIONS"
# Its mark of missing elements, which it writes as text where JSON has no number for it.
_FILL_VALUE = "_FillValue"


def save(store: Any, *args: Any, progress: Progress | bool | None = None, **kwargs: Any) -> None:
    """Write arrays to a store, replacing what is there.

    What is there may be among what is written: it is in memory before it is removed.

    Parameters
    ----------
    store
        A path or URL, a `Store`, or a `Group`.
    *args
        One array is stored at the root; several are stored in a group as ``arr_0``, ``arr_1``.
    progress
        Called with the bytes done and the bytes in all; True shows a bar on standard error (by rich
        where that is installed).
    **kwargs
        Arrays of a group, by name.

    Raises
    ------
    ValueError
        No array, a name that no node can have, or two names of which one is within the other.
        Nothing is written then.

    Examples
    --------
    >>> hr.save("one.zarr", np.arange(10))
    >>> hr.save("two.zarr", u=np.zeros(3), v=np.ones(3))
    """
    if not args and not kwargs:
        raise ValueError("save: no array was given")
    for data in args:
        _refuse_named_arrays(data)
    if len(args) == 1 and not kwargs:
        data, dtype = elements_of(args[0])
        with _Tally(progress, "save", data.nbytes) as tally, _Target(store) as target:
            _save_one(target.store, target.path, data, dtype, tally)
        return
    named = _by_path(args, kwargs)
    _check.place(store)
    # All at once: any of them may be a view of what makes room for the others.
    elements = {path: elements_of(data) for path, data in named.items()}
    for data, dtype in elements.values():  # what no array can have, while what is there still is
        create_array(_core.memory_store(), shape=data.shape, dtype=dtype)
    total = sum(data.nbytes for data, _ in elements.values())
    with _Tally(progress, "save", total) as tally, _Target(store) as target:
        create_group(target.store, target.path, overwrite=True)
        for path, (data, dtype) in elements.items():
            _save_one(target.store, join(target.path, path), data, dtype, tally)


class _Tally:
    """What a call has done, for those who want to see it; None asks for nothing."""

    def __init__(self, progress: Progress | bool | None, label: str, total: int) -> None:
        self._showing = showing(progress, label)
        self._show: Progress | None = None
        self._done, self._total = 0, total

    def __enter__(self) -> _Tally:
        self._show = self._showing.__enter__()
        if self._show is not None:
            self._show(0, self._total)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._showing.__exit__(kind, error, traceback)

    def __bool__(self) -> bool:
        return self._show is not None

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        if self._show is not None and self._done <= self._total:
            self._show(self._done, self._total)


def _refuse_named_arrays(data: Any) -> None:
    # NumPy would make an array of the names of a data set's variables.
    if hasattr(data, "data_vars"):
        raise TypeError(
            "save: expected arrays, got a data set of xarray: ds.to_zarr(path) writes it, and "
            "xr.open_dataset(path, engine='headrace') reads it"
        )
    if isinstance(data, Mapping):
        raise TypeError(
            f"save: expected arrays, got {type(data).__name__}: those of a group are passed by "
            "their names, save(store, **arrays)"
        )


def _by_path(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a group by their paths, which differ and lie beside each other."""
    named: dict[str, Any] = {}
    given = [(f"arr_{number}", data) for number, data in enumerate(args)]
    for name, data in [*given, *kwargs.items()]:
        path = node_path(name, "save")
        if not path:
            raise ValueError(f"save: {name!r} names no array")
        if path in named:
            raise ValueError(f"save: two arrays are named {path!r}")
        named[path] = data
    for path in named:
        for above in _above(path):
            if above in named:
                raise ValueError(f"save: {path!r} is within {above!r}, and an array has no members")
    return named


def _above(path: str) -> list[str]:
    return [path[:at] for at, character in enumerate(path) if character == "/"]


def _save_one(
    store: _core.Store, path: str, data: np.ndarray[Any, Any], dtype: Any, tally: _Tally
) -> None:
    array = create_array(store, path, shape=data.shape, dtype=dtype, overwrite=True)
    if not tally:
        array[...] = data
        return
    for rows in _steps(array):
        array[rows] = data[rows]
        tally.add(data[rows].nbytes)


_STEP_NBYTES = 64 << 20


def _steps(array: _core.Array) -> Iterator[Any]:
    """Runs of whole chunks along the first axis, of some 64 MiB where chunks are not larger."""
    if array.ndim == 0:
        yield ...
        return
    row_nbytes = max(array.nbytes // max(array.shape[0], 1), 1)
    begin = end = 0
    for size in array.write_chunk_sizes[0]:
        end += size
        if (end - begin) * row_nbytes >= _STEP_NBYTES:
            yield slice(begin, end)
            begin = end
    if end > begin:
        yield slice(begin, end)


@checks_names
def load(
    store: Any,
    path: str | None = None,
    *,
    device: str | None = None,
    progress: Progress | bool | None = None,
) -> Any:
    """Read a whole array, or all arrays of a group as a dict.

    Parameters
    ----------
    store, path, device
        As of `open`.
    progress
        Called with the bytes done and the bytes in all; True shows a bar on standard error (by rich
        where that is installed). Arrays are read one after the other then, those on the host some
        64 MiB at a time.

    Examples
    --------
    >>> hr.load("one.zarr")
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    node = open(store, path, device=device)
    if progress is not None and progress is not False:
        return _load_and_tell(node, progress)
    if isinstance(node, _core.Array):
        return node.read()
    arrays = node.arrays()
    values = _core.read_many([(array, None, None) for _, array in arrays])
    return {name: value for (name, _), value in zip(arrays, values, strict=True)}


def _load_and_tell(node: _core.Array | Group, progress: Progress | bool | None) -> Any:
    if isinstance(node, _core.Array):
        with _Tally(progress, "load", node.nbytes) as tally:
            return _read_and_tell(node, tally)
    arrays = node.arrays()
    with _Tally(progress, "load", sum(array.nbytes for _, array in arrays)) as tally:
        return {name: _read_and_tell(array, tally) for name, array in arrays}


def _read_and_tell(array: _core.Array, tally: _Tally) -> Any:
    if array.device != "cpu" or array.dtype.kind in "OT" or array.ndim == 0:
        result = array.read()
        tally.add(array.nbytes)
        return result
    result = np.empty(array.shape, array.dtype)
    for rows in _steps(array):
        array.read(rows, out=result[rows])
        tally.add(result[rows].nbytes)
    return result


@checks_names
def copy(
    src: Any,
    dst: Any,
    *,
    zarr_format: int | None = None,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
) -> _core.Array | Group:
    """Copy an array, or a group and everything below it, chunk by chunk.

    The copy has the shape, chunks, codecs, fill value, names and attributes of the source, and
    consolidated metadata where the source has them. These may be older than the nodes, which
    are what is copied where the store can list them. What lies in a group and is no member of it
    (nodes of the other format, nodes in a folder without a group's document, chunks without an
    array's, links that lead back) is left out with a `UserWarning`.

    Parameters
    ----------
    src
        An `Array`, a `Group`, or what `headrace.open` takes.
    dst
        A path or URL (created when missing), a `Store`, or a `Group`.
    zarr_format
        2 or 3; that of the source when `None`. Zarr 2 keeps the names of dimensions as xarray
        does, in the attribute ``_ARRAY_DIMENSIONS``; what a format has no place for, as shards in
        Zarr 2, raises `NotImplementedError`.
    overwrite
        Remove what is there.
    progress
        Called with the bytes of elements done and in all; True shows a bar on standard error (by
        rich where that is installed).

    Raises
    ------
    ValueError
        Something is there already; or one of the two is within the other, or is the other, by
        whatever name.

    Examples
    --------
    >>> hr.copy("era5.zarr", "copy.zip")
    """
    with _check.argument("src", "store"):
        node = src if isinstance(src, _core.Array | Group) else open(src)
    _check.place(dst, "dst")
    _check.zarr_format(zarr_format)
    if overlap(node.store, node.path, dst):
        raise ValueError(f"copy: source and destination overlap: /{node.path} of {node.store.url}")
    _check.flag("overwrite", overwrite)
    wanted = progress is not None and progress is not False
    stored = _as_stored(node)
    total = _nbytes_of(stored) if wanted else 0
    if overwrite:
        _refuse_what_cannot_be_copied(stored, zarr_format)
    left_out: list[tuple[str, str]] = []
    with _Tally(progress, "copy", total) as tally, _Target(dst, overwrite=overwrite) as target:
        _copy_node(stored, target.store, target.path, zarr_format, overwrite, tally, left_out)
        if isinstance(node, Group) and node.consolidated:
            _core.consolidate_metadata(target.store, target.path)
    say_left_out("copy", left_out)
    if target.closes:
        return open(dst)
    if isinstance(node, Group):
        return Group(_core.open_group(target.store, target.path))
    return _core.open_array(target.store, target.path)


def _refuse_what_cannot_be_copied(node: _core.Array | Group, zarr_format: int | None) -> None:
    """While what would make room for it is still there."""
    if isinstance(node, _core.Array):
        create_like(node, _core.memory_store(), "", zarr_format=zarr_format)
    else:
        for member in node.values():
            _refuse_what_cannot_be_copied(member, zarr_format)


def say_left_out(what: str, nodes: list[tuple[str, str]]) -> None:
    """Of a public function that `checks_names`: what lies in its source and was not copied."""
    if nodes:
        said = _core.printable("; ".join(f"/{path}: {why}" for path, why in sorted(nodes)))
        warnings.warn(f"{what}: left out {said}", UserWarning, stacklevel=4)


def _as_stored(node: _core.Array | Group) -> _core.Array | Group:
    if isinstance(node, _core.Array):
        return node
    return Group(node._handle.as_stored(), node._device, node._implementations)


def _nbytes_of(node: _core.Array | Group) -> int:
    if isinstance(node, _core.Array):
        return node.nbytes
    return sum(_nbytes_of(member) for member in node.values())


def _copy_node(
    node: _core.Array | Group,
    store: _core.Store,
    path: str,
    zarr_format: int | None,
    overwrite: bool,
    tally: _Tally,
    left_out: list[tuple[str, str]],
    relative: str = "",
) -> None:
    if isinstance(node, _core.Array):
        _copy_array(node, store, path, zarr_format, overwrite, tally)
        return
    create_group(
        store,
        path,
        attributes=node.attrs.asdict(),
        zarr_format=zarr_format or node.zarr_format,
        overwrite=overwrite,
    )
    members, others = node._handle.members_and_left_out()
    left_out += [(join(relative, name), why) for name, why in others]
    for name, is_group in members:
        member, below = node._member(name, is_group), join(relative, name)
        _copy_node(member, store, join(path, name), zarr_format, False, tally, left_out, below)


def _copy_array(
    src: _core.Array,
    store: _core.Store,
    path: str,
    zarr_format: int | None,
    overwrite: bool,
    tally: _Tally,
) -> None:
    dst = create_like(src, store, path, zarr_format=zarr_format, overwrite=overwrite)
    for block in blocks(src.write_chunk_sizes):
        data = src.read(block, device="cpu")
        dst.write(block, data)
        tally.add(data.nbytes)


def create_like(
    src: _core.Array,
    store: _core.Store,
    path: str,
    *,
    zarr_format: int | None = None,
    overwrite: bool = False,
) -> _core.Array:
    """An empty array with the metadata of `src`, in its format or another."""
    zarr_format = zarr_format or src.zarr_format
    grid = _grid_of(src)
    if zarr_format == 2 and "edges" in grid:
        raise NotImplementedError(f"{src.path}: Zarr 2 has no rectilinear chunk grids")
    separator, v2_keys = _key_encoding(src) if zarr_format == src.zarr_format else ("", False)
    attributes = _attributes_for(src, zarr_format)
    fill_value = src.fill_value
    if zarr_format == 2 and src.zarr_format == 3:
        attributes, fill_value = _mark_in_v2(src, attributes)
    return _core.create_array(
        store,
        path,
        shape=src.shape,
        dtype=src,  # its dtype does not tell objects apart
        # Sharding is one of the codecs, so the stored unit is the chunk here.
        **grid,
        codecs=src._codec_specs,
        fill_value=fill_value,
        null_fill_value=zarr_format == 2 and fill_value is None,
        zarr_format=zarr_format,
        dimension_separator=separator,
        v2_chunk_keys=v2_keys,
        attributes=attributes,
        dimension_names=list(src.dimension_names or ()) if zarr_format == 3 else [],
        overwrite=overwrite,
    )


def _grid_of(src: _core.Array) -> dict[str, Any]:
    """Extents of the stored unit; of a rectilinear grid, its edges up to the array's end."""
    if not src.is_rectilinear:
        return {"chunks": src.shards or src.chunks}
    dimensions = src.metadata["chunk_grid"]["configuration"]["chunk_shapes"]
    return {
        "edges": [
            _edges_up_to(edges, extent) for edges, extent in zip(dimensions, src.shape, strict=True)
        ]
    }


def _edges_up_to(edges: int | list[int | list[int]], extent: int) -> int | list[int]:
    if isinstance(edges, int):
        return edges
    runs = ([edge, 1] if isinstance(edge, int) else edge for edge in edges)
    kept: list[int] = []
    end = 0
    for size, count in runs:
        needed = min(count, max(-(-(extent - end) // size), 0 if kept else 1))
        kept += [size] * needed
        end += size * needed
    return kept


def _attributes_for(src: _core.Array, zarr_format: int) -> str:
    if zarr_format == 3:
        return _core.attributes_in_v3(src)
    names = src.dimension_names
    if src.ndim == 0:
        names = ()  # which nobody writes down
    if zarr_format == src.zarr_format or names is None or None in names:
        return src._attributes_json()
    return _json.dumps({**src.attrs.asdict(), _DIMENSIONS: list(names)})


def _mark_in_v2(src: _core.Array, attributes: str) -> tuple[str, Any]:
    """Attributes and fill value in Zarr 2, where xarray takes the fill value for the mark of
    missing elements that in Zarr 3 is an attribute: `_FillValue`, else null in place of zeros."""
    if src.dimension_names is None and src.ndim > 0:
        return attributes, src.fill_value
    found = _json.loads(attributes or "{}")
    mark = _mark(found.get(_FILL_VALUE), src.dtype)
    if mark is not None:
        del found[_FILL_VALUE]
        return _json.dumps(found), mark
    fill_value = src.fill_value
    if isinstance(fill_value, str | bytes):
        return attributes, fill_value or None
    has_bits = src.dtype.kind not in "biufcmM" or any(np.asarray(fill_value).tobytes())
    return attributes, fill_value if has_bits else None


def _mark(value: Any, dtype: Any) -> Any:
    """An attribute `_FillValue` of Zarr 3, as xarray writes it; None where there is none."""
    if isinstance(value, bool):
        return value if dtype.kind == "b" else None
    if isinstance(value, int) and dtype.kind in "iuf":
        return value
    if isinstance(value, float) and dtype.kind == "f":
        return value
    if isinstance(value, str) and dtype.kind == "f":
        try:
            return struct.unpack("<d", base64.b64decode(value, validate=True))[0]
        except (ValueError, struct.error):
            return None
    return None


def _key_encoding(array: _core.Array) -> tuple[str, bool]:
    metadata = array.metadata
    if array.zarr_format == 2:
        return metadata.get("dimension_separator", "."), False
    encoding = metadata["chunk_key_encoding"]
    if isinstance(encoding, str):
        return "", encoding == "v2"
    separator = encoding.get("configuration", {}).get("separator", "")
    return separator, encoding["name"] == "v2"


def blocks(sizes: tuple[tuple[int, ...], ...]) -> Iterator[tuple[slice, ...]]:
    """The selections of the chunks of these sizes along each dimension, in C order."""
    ranges = [
        [slice(end - size, end) for size, end in zip(row, itertools.accumulate(row), strict=True)]
        for row in sizes
    ]
    return itertools.product(*ranges)


class _Target:
    """A store to write to; a zip archive that was made here appears at the end, or not at all."""

    def __init__(self, store: Any, *, overwrite: bool = True) -> None:
        self.closes = is_archive(store)
        mode = ("w" if overwrite else "w-") if self.closes else "a"
        self.store, self.path = resolve_store(store, mode)
        self._discarding = discarding(store, self.store)

    def __enter__(self) -> _Target:
        self._discarding.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.closes:
            self.store.__exit__(*error)
        else:
            self._discarding.__exit__(*error)
