"""`save_state_dict`."""

from __future__ import annotations

import os
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .. import _core, _json
from .._create import create_array, creation_store
from .._open import consolidate_metadata, open_group
from .._paths import is_archive, join
from .._stores import resolve_store
from ..group import create_group
from ._layout import Layout
from ._parts import Part, common_grid, is_distributed, local_part
from ._ranks import Ranks
from ._tree import CARRIERS, Encoder, dtype_name, leaves

# The member of the root's attributes that makes a group a state dict. It is written last.
ATTRIBUTE = "headrace_state_dict"
VERSION = 1
# As long as it is being written.
_UNFINISHED = "headrace_unfinished_state_dict"
_WRITES_AT_A_TIME = 8


def save_state_dict(
    state_dict: Mapping[Any, Any],
    store: Any,
    path: str | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    compressors: Any = None,
    filters: Any = "auto",
    chunk_nbytes: int = 4 << 20,
    shard_nbytes: int = 64 << 20,
    overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
    process_group: Any = None,
) -> None:
    """Write a state dict as a Zarr group (v3), one array a tensor.

    Nothing is pickled. What makes the group a state dict is written last: a save that failed, or
    has not ended, cannot be mistaken for one.

    Parameters
    ----------
    state_dict
        Dicts, lists and tuples, nested at will, of tensors on any device and of numbers, strings,
        bytes, `torch.dtype` and None: what ``state_dict()`` of modules and optimizers gives. Of
        their subclasses, such as named tuples, dict, list and tuple come back, and a bytearray as
        bytes.
        Tensors that are one memory are stored once. With a `DTensor` in it every process of
        `process_group` calls this: each writes the part that it holds, and plain tensors are those
        of the first process.
    store, path
        A path or URL (created when missing; one file when it ends in ``.zip``), a `Store` or a
        `Group`, and a path within it.
    metadata
        JSON values to keep with it, see `load_metadata`.
    compressors, filters
        As in `headrace.create_array`, but None, the default, stores the bytes as they are: weights
        hardly compress. ``filters=hr.codecs.Shuffle(), compressors=hr.codecs.Zstd(1)`` finds what
        there is.
    chunk_nbytes, shard_nbytes
        Tensors are cut into chunks of about this many bytes, which are stored together in objects
        of about that many: the units of partial reads, and of the store.
    overwrite
        Replace what is there; it is gone even when the save fails.
    storage_options
        Options of the store, see `headrace.open_store`.
    process_group
        Whose processes call this, when there is a `DTensor`; all by default.

    Raises
    ------
    ValueError
        Something is there already, two names cannot be told apart, a process has what the first
        lacks or lacks a `DTensor` of it, or has another place of that name, or a tensor is of a
        type that Zarr lacks, such as uint1 and int4.
    TypeError
        A value that has no place in a store: a sparse or quantized tensor, or any other object.

    Examples
    --------
    >>> save_state_dict(model.state_dict(), "model.zarr", metadata={"step": 1000})
    >>> save_state_dict({"model": model.state_dict(), "optimizer": opt.state_dict()}, "run.zarr")
    """
    together = any(is_distributed(leaf.value) for leaf in leaves(state_dict))
    ranks = Ranks(together, process_group)
    target = _Target(store, path, storage_options)
    if target.is_zip and together:
        raise ValueError(f"{store}: several processes cannot write one zip archive")
    encoder = Encoder()
    described = ranks.each(lambda: _describe(state_dict, encoder))
    _refuse_more_than_the_first([a.names for a in described])
    plans = _plan([a.tensors for a in described])
    document = {"version": VERSION, "tree": described[0].tree, "metadata": dict(metadata or {})}
    _json.dumps(document)  # what is no JSON is refused before anything is written

    layout = Layout(chunk_nbytes, shard_nbytes)
    codecs = {"compressors": compressors, "filters": filters}
    with target:
        ranks.first(lambda: target.create(plans, layout, codecs, overwrite))
        made = ranks.each(lambda: target.made)[0]
        ranks.each(lambda: target.open(made))
        regular = [plan for plan in plans if plan.regular]
        ranks.each(lambda: target.write(regular, encoder.tensors, ranks.rank))
        irregular = [plan for plan in plans if not plan.regular]
        if irregular:
            ranks.in_turn(lambda: target.write(irregular, encoder.tensors, ranks.rank))
        ranks.first(lambda: target.finish(document))


# By the path of its array: shape and type of a tensor, and the part that a process has of it.
_Tensors = dict[str, tuple[tuple[int, ...], torch.dtype, Part]]


@dataclass(frozen=True)
class _Described:
    """A process's state dict, without the elements of its tensors."""

    names: list[str]  # of its leaves
    tree: Any
    tensors: _Tensors


def _describe(state_dict: Mapping[Any, Any], encoder: Encoder) -> _Described:
    """Of the tensors what is to be stored, which the encoder gathers."""
    names = Counter(leaf.name for leaf in leaves(state_dict))
    alike = [name for name, count in names.items() if count > 1]
    if alike:
        raise ValueError(f"two values are called {', '.join(map(repr, alike))}")
    tree = encoder.encode(state_dict)
    tensors = {
        path: (tuple(tensor.shape), tensor.dtype, Part.of(tensor))
        for path, tensor in encoder.tensors.items()
    }
    return _Described(list(names), tree, tensors)


def _refuse_more_than_the_first(names: list[list[str]]) -> None:
    """The tree that is stored is the first process's: what it lacks would be left out."""
    first = set(names[0])
    for rank, others in enumerate(names):
        more = [name for name in others if name not in first]
        if more:
            raise ValueError(f"{', '.join(more)}: rank {rank} has what the first process lacks")


@dataclass(frozen=True)
class _Plan:
    """One array: its grid, and which process writes which part."""

    path: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    parts: dict[int, Part]  # by rank; of equal parts only the first
    cell: tuple[int, ...] | None  # what the parts are cells of

    @property
    def regular(self) -> bool:
        """Whether processes may write at the same time: no two of them share a chunk."""
        return self.cell is not None

    @property
    def carrier(self) -> torch.dtype:
        return CARRIERS.get(self.dtype, self.dtype)

    def chunks(self, layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Shapes of chunks and shards."""
        if self.cell is None or self.cell == self.shape:
            return layout.whole(self.shape, self.dtype.itemsize)
        return layout.part(self.cell, self.dtype.itemsize)


def _plan(described: list[_Tensors]) -> list[_Plan]:
    plans = []
    for path, (shape, dtype, first) in described[0].items():
        parts: dict[int, Part] = {}
        for rank, tensors in enumerate(described):
            if path not in tensors:
                raise ValueError(f"{path}: rank {rank} lacks this tensor of the first process")
            *kind, part = tensors[path]
            if kind != [shape, dtype]:
                raise ValueError(f"{path}: rank {rank} has {kind}, expected {[shape, dtype]}")
            if not part.empty and part not in parts.values():
                parts[rank] = part
        plans.append(_Plan(path, shape, dtype, parts, common_grid([first, *parts.values()])))
    return plans


class _Target:
    """The group that is being written."""

    def __init__(self, store: Any, path: str | None, options: dict[str, Any] | None) -> None:
        self._name = os.fspath(store) if isinstance(store, os.PathLike) else store
        self._path, self._options = path, options
        self.is_zip = is_archive(self._name)
        self._handle: _core.Store | None = None
        self._where = ""
        self._arrays: dict[str, _core.Array] = {}
        self.made: str | None = None  # which group it is, where this process creates it

    def __enter__(self) -> _Target:
        return self

    def __exit__(self, *raised: object) -> None:
        """Publishes an archive, or discards what came of it before the failure."""
        if self.is_zip and self._handle is not None:
            self._handle.__exit__(*raised)

    def create(
        self, plans: list[_Plan], layout: Layout, codecs: dict[str, Any], overwrite: bool
    ) -> None:
        """The group and its arrays, empty."""
        handle, base = creation_store(self._name, not self._path, overwrite, self._options)
        self._handle, self._where = handle, join(base, self._path)
        if overwrite and _core.node_is_group(handle, self._where):
            # From here on what is there is no state dict: its chunks go one by one.
            open_group(handle, self._where, mode="r+").attrs.clear()
        self.made = uuid.uuid4().hex
        create_group(handle, self._where, attributes={_UNFINISHED: self.made}, overwrite=overwrite)
        for plan in plans:
            chunks, shards = plan.chunks(layout)
            self._arrays[plan.path] = create_array(
                handle,
                join(self._where, plan.path),
                shape=plan.shape,
                dtype=dtype_name(plan.carrier),
                chunks=chunks,
                shards=shards,
                device="cpu",
                **codecs,
            )

    def open(self, made: str | None) -> None:
        """In the processes that did not create it.

        On another machine the same path may lead to what was saved there before.
        """
        if self._handle is not None:
            return
        handle, base = resolve_store(self._name, "r+", self._options)
        self._where = join(base, self._path)
        if open_group(handle, self._where).attrs.get(_UNFINISHED) != made:
            raise ValueError(
                f"/{self._where} in {_core.printable(handle.url)} is not what the first process "
                "made there: all have to write to one place"
            )
        self._handle = handle

    def write(self, plans: list[_Plan], tensors: Mapping[str, torch.Tensor], rank: int) -> None:
        """The parts that fall to this process."""
        _finish_all(
            partial(self._start, plan, tensors[plan.path], plan.parts[rank])
            for plan in plans
            if rank in plan.parts
        )

    def _start(self, plan: _Plan, tensor: torch.Tensor, part: Part) -> _core.Future[Any]:
        array = self._arrays.get(plan.path)
        if array is None:
            assert self._handle is not None
            array = _core.open_array(self._handle, join(self._where, plan.path), "cpu")
        data = local_part(tensor).resolve_conj().resolve_neg()
        if data.device.type not in ("cpu", "cuda"):
            data = data.cpu()
        return array.write_async(part.selection, data.view(plan.carrier))

    def finish(self, document: dict[str, Any]) -> None:
        assert self._handle is not None
        group = consolidate_metadata(self._handle, self._where)
        group.attrs.put({ATTRIBUTE: document})


def _finish_all(starts: Iterable[Callable[[], _core.Future[Any]]]) -> None:
    """Some at a time; after an error nothing is left under way."""
    pending: deque[_core.Future[Any]] = deque()
    try:
        for start in starts:
            if len(pending) == _WRITES_AT_A_TIME:
                pending.popleft().result()
            pending.append(start())
        while pending:
            pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        for future in pending:
            future.exception()
