"""Arrays and groups cut into other chunks, within a bound on memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from . import _check, _core, _json
from ._create import _as_list, _is_auto, create_array
from ._dimensions import axes_of
from ._foreign_places import is_of_zarr, name_of, places_of
from ._info import counted
from ._open import open
from ._ops import _FILL_VALUE, _Target, blocks, say_left_out
from ._paths import join
from ._place import overlap, place_overlaps
from ._progress import Progress, showing
from ._suggest import checks_names, did_you_mean
from .config import _nbytes
from .group import Group, create_group

# Where a rechunk keeps its state and what lies between two passes (src/engine/rechunk/job.cpp).
_FOLDER = ".rechunk"


@checks_names
def rechunk(
    src: Any,
    dst: Any,
    *,
    chunks: int | Sequence[int] | Mapping[str, int] | None,
    shards: int | Sequence[int] | Mapping[str, int] | str | None = None,
    compressors: Any = "auto",
    max_memory: int | str = "1GiB",
    executor: Any = None,
    progress: Progress | bool | None = None,
    verify: bool = False,
    overwrite: bool = False,
) -> _core.Array | Group:
    """Copy an array, or a group and everything below it, into other chunks, as Zarr v3.

    Where a block of whole chunks (shards) of the destination fits into memory and reads little of
    the source more than once, the copy takes one pass; else two, with an uncompressed array
    between them, beside the destination. `rechunk_plan` says which. A call that was killed,
    cancelled or failed goes on where it stopped when it is repeated, with the same arguments and
    a source that is known to be the same: of its name and metadata. Its elements must not have
    changed. What has no name, as a store in memory, is known while the object is the same; arrays
    of other libraries by Dask's name for them, the folder of a Zarr array, or their values.

    Of a group with consolidated metadata the nodes themselves are read, where the store can list.
    What is no member of its group is left out with a `UserWarning`, as by `copy`.

    Parameters
    ----------
    src
        What `headrace.open` takes, an open `Array` or `Group`; an xarray `Dataset` or `DataArray`,
        or any array with ``shape``, ``dtype`` and slicing.
    dst
        A path or URL (made when missing), a `Store`, or a `Group`.
    chunks
        Extents, -1 for a whole dimension; None keeps those of the source. Of a group's arrays those
        with as many dimensions take them, the others keep theirs. Of one array a dict has extents
        by the names (or numbers) of dimensions, the others keep theirs: ``{"time": -1}``.
    shards
        Extents, multiples of the chunks; ``"auto"``: about 64 MiB; None: no shards.
    compressors
        As in `create_array`; ``"auto"`` is zstd.
    max_memory
        Bytes or a string (``"512MiB"``): half for the elements of a block, a quarter for the
        scratch of reading and writing it. A chunk or shard that needs more scratch takes it.
    executor
        A `dask.distributed.Client`: its workers copy the blocks, one a task; each task has a block
        and its worker's ``memory_budget``. Workers open the stores by their URLs.
    progress
        Called with the bytes done and the bytes in all; True shows a bar with rate and time left
        on standard error, by rich where that is installed.
    verify
        Compare source and destination at the end. A copy that differs stays unfinished:
        repeating the call compares again, `overwrite` begins anew.
    overwrite
        Remove what is there, also what a call with other arguments, or of another source, left
        halfway. What the same call left halfway goes on even so.

    Raises
    ------
    ValueError
        There is a node already, or a rechunk stopped halfway that had other arguments or a source
        that is not known to be this one; a member of the source is called ``.rechunk``; source and
        destination overlap; `max_memory` is less than two chunks.
    headrace.CorruptError
        A chunk of the source is damaged, or `verify` found a difference.

    Examples
    --------
    >>> hr.rechunk("era5.zarr/t2m", "series.zarr", chunks=(8760, 10, 10), max_memory="2GiB")
    """
    source = _source_of(src)
    arguments = _arguments(source.node, chunks, shards, max_memory)
    _check.place(dst, "dst")
    _check.flag("verify", verify)
    _check.flag("overwrite", overwrite)
    # Before an archive is begun anew; stores are asked again by the core.
    if overlap(source.node.store, source.node.path, dst):
        raise ValueError(
            f"rechunk: source and destination overlap: /{source.node.path} of "
            f"{source.node.store.url}"
        )
    if overwrite and source.foreign is not None:
        source.check_is_not_below(dst)
    left_out: list[tuple[str, str]] = []
    with showing(progress, "rechunk") as show, _Target(dst, overwrite=overwrite) as target:
        _core.rechunk(
            _handle(source.node),
            target.store,
            target.path,
            **arguments,
            codecs=_codecs(source.node, compressors),
            overwrite=overwrite,
            verify=verify,
            verifier=source.verify if source.foreign is not None else None,
            progress=show,
            executor=_executor(source, executor),
            source_name=name_of(source.foreign) if source.foreign is not None else "",
            left_out=lambda path, why: left_out.append((path, why)),
        )
    say_left_out("rechunk", left_out)
    if target.closes:
        return open(dst)
    return open(target.store, target.path)


@checks_names
def rechunk_plan(
    src: Any,
    *,
    chunks: int | Sequence[int] | Mapping[str, int] | None,
    shards: int | Sequence[int] | Mapping[str, int] | str | None = None,
    max_memory: int | str = "1GiB",
) -> list[dict[str, Any]]:
    """How `rechunk` with these arguments would go: a dict for each array.

    ``passes`` are one or two, each with the extents of its blocks along each dimension
    (``block_sizes``), their number (``nblocks``), the largest one's bytes (``block_nbytes``), the
    chunks that it decodes (``chunks_read``) and the bytes of decoded elements that it reads and
    writes (``nbytes_read``, ``nbytes_written``). ``amplification`` is the bytes read by all passes
    for each byte of the array.

    Examples
    --------
    >>> hr.rechunk_plan("era5.zarr/t2m", chunks=(8760, 10, 10))[0]["amplification"]
    2.0
    """
    node = _source_of(src).node
    return _core.plan_rechunk(_handle(node), **_arguments(node, chunks, shards, max_memory))


@checks_names
def advise(
    src: Any,
    *,
    window: int = 1,
    patch: Mapping[str | int, int] | None = None,
    batch: int = 1,
) -> dict[str, Any]:
    """Chunks, shards and codecs for an array that is read in samples at random places.

    Parameters
    ----------
    src
        An `Array`, or what `headrace.open` takes.
    window
        Extent of a sample along the first dimension.
    patch
        Extents along others, by name or number; those that are left out are taken whole.
    batch
        Samples at once; no chunk is proposed that is larger than a batch.

    Returns
    -------
    dict
        ``chunks``, ``shards``, ``codecs`` (name and configuration as JSON), and for the ``present``
        and the ``proposed`` layout the means over all places of a sample: ``chunks`` touched,
        ``nbytes`` decoded, ``amplification`` (decoded bytes for each byte wanted).

    Raises
    ------
    ValueError
        A sample that is larger than the array, or a dimension that it does not have.

    Examples
    --------
    >>> hr.advise("era5.zarr/t2m", window=2, patch={"lat": 256, "lon": 256}, batch=8)["chunks"]
    (1, 128, 128)
    """
    with _check.argument("src", "store"):
        array = src if isinstance(src, _core.Array) else open(src)
    if not isinstance(array, _core.Array):
        there_are = did_you_mean("", array.array_keys(), "there are")
        raise ValueError(f"advise: expected an array, got a group{there_are}")
    sample = [-1] * array.ndim
    sample[:1] = [window] * min(array.ndim, 1)
    _check.mapping("patch", patch, "extents by dimension")
    _check.integer("window", window)
    _check.integer("batch", batch)
    for name, extent in (patch or {}).items():
        sample[_axis(array, name)] = extent
    return _core.advise(array, sample, batch)


def _axis(array: _core.Array, name: str | int) -> int:
    axes: dict[str | int, int] = {axis: axis for axis in range(array.ndim)}
    axes.update((known, axis) for axis, known in enumerate(array.dimension_names or ()) if known)
    if name not in axes:
        known = [known for known in axes if isinstance(known, str)]
        hint = did_you_mean(name, known, "there are") if isinstance(name, str) else ""
        raise ValueError(f"patch: /{array.path} has no dimension {name!r}{hint}")
    return axes[name]


def _handle(node: _core.Array | Group) -> Any:
    return node._handle if isinstance(node, Group) else node


def _arguments(
    node: _core.Array | Group, chunks: Any, shards: Any, max_memory: int | str
) -> dict[str, Any]:
    if shards is not None and _is_auto(shards):
        shards = ()
    return {
        "chunks": _extents(node, "chunks", chunks),
        "shards": _extents(node, "shards", shards),
        "max_memory": _nbytes("max_memory", max_memory),
    }


def _extents(node: _core.Array | Group, name: str, extents: Any) -> Any:
    if isinstance(extents, Mapping):
        return _by_dimension(node, name, extents)
    if extents is None:
        return None
    result = _check.integers(name, extents)
    if isinstance(result, int):
        if isinstance(node, Group):
            raise ValueError("chunks, shards: an int is for an array; a group needs extents")
        return (result,) * node.ndim
    if result and isinstance(node, _core.Array) and len(result) != node.ndim:
        raise ValueError(f"{name}: expected {counted(node.ndim, 'extent')}, got {result}")
    return result


def _by_dimension(node: _core.Array | Group, name: str, given: Mapping[Any, Any]) -> list[int]:
    """The extents of an array; the dimensions that are not named keep what they have."""
    if isinstance(node, Group):
        raise ValueError(f"{name}: extents by dimension are for an array; a group needs a list")
    axes = axes_of(name, given, node.dimension_names, node.ndim)
    for extent in axes.values():
        _check.integer(name, extent, "extents by the names of dimensions")
    kept = node.shards if name == "shards" and node.shards else node.chunks
    return [index(axes.get(axis, extent)) for axis, extent in enumerate(kept)]


def _codecs(node: _core.Array | Group, compressors: Any) -> list[tuple[str, str]] | None:
    if _is_auto(compressors):
        return None
    from . import codecs

    with _check.argument("compressors", "codec"):
        chain = [codecs.parse(codec) for codec in _as_list(compressors)]
    if isinstance(node, _core.Array):
        itemsize = _core.describe_dtype(node)[1]
        chain = [codec.for_itemsize(itemsize) for codec in chain]
    return [codec.to_spec() for codec in chain]


class _Source:
    """What is copied: a node of headrace's, or one that stands for arrays of somebody else's."""

    def __init__(self, node: _core.Array | Group, foreign: dict[str, Any] | None = None) -> None:
        self.node = node
        self.foreign = foreign  # by path
        if isinstance(node, Group):
            _refuse_member_called_as_folder(node)

    def behind(self, array: _core.Array) -> Any:
        """What to read for `array`, which is below `node` or lies between two passes."""
        if self.foreign is None or array.store._identity() != self.node.store._identity():
            return array
        return self.foreign[array.path]

    def check_is_not_below(self, dst: Any) -> None:
        """Refuses a destination that is there and that what is read may lie in."""
        if not _is_finished(dst):
            return
        for path, array in (self.foreign or {}).items():
            places = places_of(array)
            if places is None:
                raise ValueError(
                    f"rechunk: it cannot be told whether /{path} is read from the destination, "
                    "which overwrite=True empties: remove that first, or write elsewhere"
                )
            if any(place_overlaps(place, dst) for place in places):
                raise ValueError(f"rechunk: source and destination overlap: /{path}")

    def verify(self, array: _core.Array, copy: _core.Array) -> None:
        read = self.behind(array)
        for block in blocks(copy.write_chunk_sizes):
            _compare(np.asarray(read[block]), copy.read(block, device="cpu"), array.path, block)


def _refuse_member_called_as_folder(group: Group) -> None:
    """A member of that name would lie where the rechunk keeps its state, and go with it."""
    where = join(group.path, _FOLDER)
    if _core.node_is_group(group.store, where, group.zarr_format) is not None:
        raise ValueError(
            f"rechunk: the source has a member {_FOLDER!r}, where the destination of a rechunk "
            "keeps its notes: give it another name"
        )


def _is_finished(dst: Any) -> bool:
    """Whether there is a node, and not only what a rechunk has made halfway."""
    try:
        node = open(dst)
    except NotImplementedError:
        return True  # one that headrace does not read, but others may
    except (OSError, ValueError):
        return False
    folder = join(node.path, _FOLDER)
    return not (node.store._list(f"{folder}/") or node.store._exists(f"{folder}.json"))


def _compare(wanted: Any, got: Any, path: str, block: tuple[slice, ...]) -> None:
    same = (wanted == got) | ((wanted != wanted) & (got != got))
    if not np.all(same):
        from .errors import CorruptError

        raise CorruptError(f"[rechunk] verify: /{path} {block} differs from the source")


def _source_of(src: Any) -> _Source:
    if isinstance(src, _core.Array | Group):
        return _Source(src)
    if isinstance(src, _core.Store) or (not hasattr(src, "shape") and not _is_dataset(src)):
        with _check.argument("src", "store"):
            return _Source(open(src))
    store = _core.memory_store()
    if not _is_dataset(src):
        return _Source(_stand_in(store, "", src), {"": _sliceable(src)})
    group = create_group(store, attributes=_attributes_of_dataset(src))
    arrays = dict(src.variables)
    for name, variable in arrays.items():
        _stand_in(store, name, variable)
    return _Source(
        Group(_core.open_group(store, group.path)),
        {name: _sliceable(variable) for name, variable in arrays.items()},
    )


def _is_dataset(src: Any) -> bool:
    return isinstance(getattr(src, "variables", None), Mapping) and hasattr(src, "data_vars")


def _sliceable(array: Any) -> Any:
    """The array whose slices are read, without the index that xarray would slice beside it."""
    return getattr(array, "variable", array)


def _stand_in(store: _core.Store, path: str, array: Any) -> _core.Array:
    """An array without chunks that has the metadata of somebody else's."""
    names = getattr(array, "dims", None)
    if _check.is_masked(array):  # before anything is made
        _check.elements("source", array)
    attributes = _attributes(getattr(array, "attrs", {}))
    fill_value = attributes.get(_FILL_VALUE)
    if is_of_zarr(array) and array.dtype.kind in "biufc":
        fill_value = array.fill_value  # and the attribute is what xarray has made of its own
    elif fill_value is not None and array.dtype.kind in "biufcSU":
        from xarray.backends.zarr import FillValueCoder

        attributes[_FILL_VALUE] = FillValueCoder.encode(fill_value, array.dtype)
    else:
        fill_value = None
    return create_array(
        store,
        path,
        shape=array.shape,
        dtype=_dtype_of(path, array),
        chunks=_chunks_of(array),
        fill_value=fill_value,
        attributes=attributes,
        dimension_names=None if names is None else [str(name) for name in names],
    )


def _dtype_of(path: str, array: Any) -> Any:
    """That of the elements; of objects what they are."""
    if array.dtype != object:
        return array.dtype
    if is_of_zarr(array):
        return _core.describe_dtype(open(array))[0]
    if getattr(array, "encoding", {}).get("dtype") is str:  # of xarray, as of NetCDF's strings
        return str
    why = (
        "they are known only in memory: load it (Dask's .compute(), xarray's .load()), or make "
        "strings of them (.astype(numpy.dtypes.StringDType()))"
    )
    variable = getattr(array, "variable", array)
    is_index = type(variable).__name__ == "IndexVariable"  # of pandas, in memory
    if isinstance(variable, np.ndarray) or is_index or getattr(variable, "_in_memory", False):
        dtype = _of_texts(np.asarray(variable))
        if dtype is not None:
            return dtype
        why = "they are not all str or all bytes: fill what is missing, or convert them"
    raise TypeError(f"rechunk: /{path} of the source has objects as elements; {why}")


def _of_texts(elements: np.ndarray[Any, Any]) -> type | None:
    """str or bytes, where all elements are that."""
    for dtype in (str, bytes):
        if all(isinstance(element, dtype) for element in elements.flat):
            return dtype
    return None


def _chunks_of(array: Any) -> Any:
    """What is read at once: Dask's blocks, the chunks of the file; else whatever suits."""
    chunks = getattr(array, "chunks", None)
    if not chunks:
        chunks = getattr(array, "encoding", {}).get("preferred_chunks")
        if isinstance(chunks, Mapping):
            chunks = [chunks.get(name, n) for name, n in zip(array.dims, array.shape, strict=True)]
    if not chunks:
        return "auto"
    largest = [extent if isinstance(extent, int) else max(extent) for extent in chunks]
    return [max(extent, 1) for extent in largest]


def _attributes_of_dataset(dataset: Any) -> dict[str, Any]:
    """Those of a data set, with the names of the coordinates that are no dimensions."""
    attributes = _attributes(dataset.attrs)
    names = [str(name) for name in dataset.coords if name not in dataset.dims]
    if names and "coordinates" not in attributes:
        attributes["coordinates"] = " ".join(names)
    return attributes


def _attributes(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes as JSON has them: xarray's may be NumPy's scalars and arrays."""
    return {
        str(name): _json.plain(value) if isinstance(value, np.ndarray | np.generic) else value
        for name, value in attributes.items()
    }


def _executor(source: _Source, client: Any) -> Any:
    """The function that copies blocks for the core; None when it does so itself."""
    if client is not None:
        if not hasattr(client, "scatter"):
            raise _check.wrong_type("executor", "a dask.distributed.Client", client)
        return lambda *work: _copy_on_cluster(source, client, *work)
    if source.foreign is not None:
        return lambda *work: _copy_in_turn(source, *work)
    return None


def _copy_in_turn(
    source: _Source,
    array: _core.Array,
    destination: _core.Array,
    boxes: list[tuple[slice, ...]],
    finished: Callable[[int], None],
) -> None:
    read = source.behind(array)
    for number, block in enumerate(boxes):
        _copy_block(read, destination, block)
        finished(number)


def _read(array: Any, block: tuple[slice, ...]) -> Any:
    if isinstance(array, _core.Array):
        return array.read(block, device="cpu")
    found = array[block]
    if isinstance(getattr(found, "_meta", None), np.ma.MaskedArray):  # of Dask
        found = found.compute()
    elements = _check.elements("source", found)
    if elements.dtype == object and _of_texts(elements) is None:  # None would become a text
        raise TypeError("rechunk: objects of the source are not all str or all bytes")
    return elements


def _copy_block(array: Any, destination: _core.Array, block: tuple[slice, ...]) -> None:
    destination.write(block, _read(array, block))


def _copy_on_worker(array: Any, destination: _core.Array, block: tuple[slice, ...]) -> None:
    _copy_block(array, destination, block)
    # The block will be noted as done by a host that may not be this one.
    destination.store.sync()


def _copy_on_cluster(
    source: _Source,
    client: Any,
    array: _core.Array,
    destination: _core.Array,
    boxes: list[tuple[slice, ...]],
    finished: Callable[[int], None],
) -> None:
    from distributed import as_completed

    read = source.behind(array)
    if not isinstance(read, _core.Array):
        # It may bring its elements: once to each worker, any of which may die, not with every task.
        read = client.scatter(read, hash=False, broadcast=True)
    futures = [
        client.submit(_copy_on_worker, read, destination, block, pure=False) for block in boxes
    ]
    numbers = {future.key: number for number, future in enumerate(futures)}
    try:
        for future in as_completed(futures):
            future.result()
            finished(numbers[future.key])
    except BaseException as error:
        client.cancel(futures)
        if type(error).__module__.partition(".")[0] in ("asyncio", "concurrent", "distributed"):
            error.add_note(
                f"rechunk: the cluster did not copy /{array.path} of {array.store.url} to the end; "
                "the same call goes on where it stopped"
            )
        raise
