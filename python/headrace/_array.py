"""The parts of `Array` and `Store` that need no speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import _core, _json, _secrets


def iterate(array: _core.Array) -> Iterator[Any]:
    """Elements along the first axis, read about one row of chunks at a time."""
    if array.ndim == 0:
        raise TypeError("iteration over an array without dimensions")

    def elements() -> Iterator[Any]:
        step = rows_of_chunk(array)
        for start in range(0, len(array), step):
            yield from array[start : start + step]

    return elements()


def rows_of_chunk(array: _core.Array) -> int:
    """The extent of a chunk along the first axis; of a rectilinear grid, of the largest."""
    if array.is_rectilinear:
        return max(array.read_chunk_sizes[0], default=1)
    return max(array.chunks[0], 1)


def metadata(array: _core.Array) -> dict[str, Any]:
    result: dict[str, Any] = _json.loads(array._metadata_json)
    return result


def describe(array: _core.Array) -> str:
    printable = _core.printable
    parts = [f"/{printable(array.path)}", f"shape={array.shape}", str(array.dtype)]
    units = ["chunks", "shards"] if array.is_sharded else ["chunks"]
    for unit in units:
        varies = array.is_rectilinear and unit == units[-1]
        parts.append(f"{unit}={'<variable>' if varies else getattr(array, unit)}")
    codecs = [name.removeprefix("numcodecs.") for name, _ in array._codec_specs]
    parts.append(f"codecs={printable('+'.join(codecs))}")
    parts.append(f"device={array.device}")
    if array.read_only:
        parts.append("read-only")
    return f"<headrace.Array {' '.join(parts)} in {printable(array.store.url)}>"


def _refuse(store: _core.Store) -> None:
    if store._python_store is not None:
        return
    if not store._can_reopen or store.url.startswith("memory:"):
        raise TypeError(f"{store.url} lives in this process only and cannot be pickled")


def _reopen_mode(store: _core.Store) -> str:
    return "r" if store._opened_read_only else "r+"


def _open_store(url: str, mode: str, options: dict[str, str], secrets: str = "") -> _core.Store:
    return _core.open_store(url, mode, _secrets.restored(options, secrets))


def _open_cached(
    reopen: Callable[..., _core.Store], arguments: tuple[Any, ...], cache: tuple[Any, ...]
) -> _core.Store:
    return _core.cached_store(reopen(*arguments), *cache)


def reduce_store(store: _core.Store) -> tuple[Callable[..., _core.Store], tuple[Any, ...]]:
    if store._cache_arguments is not None:
        return _open_cached, (*_reduce_uncached(store), store._cache_arguments)
    return _reduce_uncached(store)


def _reduce_uncached(store: _core.Store) -> tuple[Callable[..., _core.Store], tuple[Any, ...]]:
    if store._python_store is not None:
        return store._python_store.reduce()
    _refuse(store)
    options, secrets = _secrets.set_aside(store.storage_options)
    return _open_store, (store.url, _reopen_mode(store), options, secrets)


def _open_array(store: _core.Store, path: str, options: dict[str, Any]) -> _core.Array:
    return _core.open_array(store, path, **options)


def reduce_array(array: _core.Array) -> tuple[Callable[..., _core.Array], tuple[Any, ...]]:
    """A handle like this one: with its metadata, whatever the store has by then."""
    _refuse(array.store)
    return _open_array, (array.store, array.path, array._open_options)


def _copied_array(array: _core.Array, memo: object = None) -> _core.Array:
    return _open_array(array.store, array.path, array._open_options)


def _copied_store(store: _core.Store, memo: object = None) -> _core.Store:
    return store


def copyable_handles() -> None:
    """Has `copy` make handles on the same store: as it pickles, what is in memory has none."""
    for cls, copied in ((_core.Array, _copied_array), (_core.Store, _copied_store)):
        for name in ("__copy__", "__deepcopy__"):
            setattr(cls, name, copied)
