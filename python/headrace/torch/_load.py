"""`load_state_dict` and `load_metadata`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX, _IncompatibleKeys

from .. import _core
from .._open import open_group
from ..errors import CorruptError
from ..group import Group
from ._parts import Part, local_part
from ._read import Placement, Source, fill, new_tensors
from ._save import ATTRIBUTE, VERSION
from ._tree import (
    CARRIERS,
    Leaf,
    StoredTensor,
    assignments,
    decode,
    dtype_named,
    join_name,
    leaves,
)

Names = Collection[str] | Callable[[str], bool]
DeviceOf = Any  # torch.device, str, int, or a function of the name that gives one


def load_metadata(
    store: Any, path: str | None = None, *, storage_options: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What `save_state_dict` was given as ``metadata``; no tensor is read.

    Examples
    --------
    >>> load_metadata("model.zarr")
    {'step': 1000}
    """
    return _Saved(store, path, storage_options).document["metadata"]


def load_state_dict(
    store: Any,
    path: str | None = None,
    *,
    into: torch.nn.Module | Mapping[Any, Any] | None = None,
    device: DeviceOf = None,
    dtype: torch.dtype | None = None,
    names: Names | None = None,
    strict: bool = True,
    storage_options: dict[str, Any] | None = None,
) -> Any:
    """Read what `save_state_dict` wrote, straight to the device of each tensor.

    Nothing is unpickled: loading runs no code of the store's.

    Parameters
    ----------
    store, path
        Where it was saved.
    into
        A module, or a state dict: its tensors are filled in place, converted where their dtype is
        another. Of a `DTensor` each process reads its own part, however the tensor was saved.
        Tensors on the meta device are replaced by new ones on `device`, and values that are no
        tensors by those of the store; tuples with such ones are made anew. Hooks of a module that
        rename keys do not run: for these, load a state dict and give it to the module.
    device
        Where new tensors are made, or a function of the name that says so; the host when None.
    dtype
        New floating point tensors are converted to it.
    names
        Load these only: a collection of names, or a function that says whether. The names within a
        nested state dict are joined by "/": "optimizer/state/0/exp_avg".
    strict
        Raise, before anything is read, where names are missing or unexpected.
    storage_options
        Options of the store, see `headrace.open_store`.

    Returns
    -------
    dict or NamedTuple
        Without `into` the state dict; tensors that were one are one again. What `names` leaves
        out is not in its dicts, and None in its lists and tuples. With `into`, as
        `torch.nn.Module.load_state_dict`, ``missing_keys`` and ``unexpected_keys``.

    Raises
    ------
    FileNotFoundError
        There is nothing.
    ValueError
        There is no state dict, or its save did not finish.
    RuntimeError
        Names or shapes do not fit `into`; the text is that of torch.
    TypeError
        `into` has values to be replaced in a container that cannot be changed.
    KeyError
        `names` has one that is not there.

    Examples
    --------
    >>> load_state_dict("model.zarr", into=model)
    <All keys matched successfully>
    >>> weights = load_state_dict("model.zarr", device="cuda:0", dtype=torch.bfloat16)
    >>> load_state_dict("model.zarr", names=lambda name: name.startswith("encoder."))
    """
    saved = _Saved(store, path, storage_options)
    chosen = _chooser(names)
    if strict and names is not None and not callable(names):
        known = {leaf.name for leaf in saved.leaves}
        absent = [name for name in names if name not in known]
        if absent:
            raise KeyError(f"not in {saved.group!r}: {', '.join(map(repr, absent))}")
    placed = Placement(device, dtype)
    if into is None:
        return _load_new(saved, chosen, placed)
    return _load_into(saved, into, chosen, placed, strict)


def _chooser(names: Names | None) -> Callable[[str], bool]:
    if names is None:
        return lambda name: True
    if callable(names):
        return names
    if isinstance(names, str):
        raise TypeError(f"names: expected a collection of names, got {names!r}")
    return frozenset(names).__contains__


class _Saved:
    """A state dict in a store."""

    def __init__(
        self, store: Any, path: str | None, storage_options: dict[str, Any] | None
    ) -> None:
        self.group: Group = open_group(store, path, storage_options=storage_options)
        document = self.group.attrs.get(ATTRIBUTE)
        if not isinstance(document, dict):
            raise ValueError(
                f"{self.group!r} holds no state dict: save_state_dict did not write it, or did not "
                "finish"
            )
        if document.get("version") != VERSION:
            raise NotImplementedError(
                f"{self.group!r}: version {document.get('version')!r} of a state dict, expected "
                f"{VERSION}"
            )
        self.document = document
        self.value = decode(document.get("tree"))
        self.leaves = list(leaves(self.value))

    def source(self, stored: StoredTensor) -> Source:
        array = self.group[stored.path]
        if not isinstance(array, _core.Array):
            raise CorruptError(f"{array!r}: expected an array")
        try:
            dtype = dtype_named(array.dtype.name)
        except KeyError:
            raise CorruptError(f"{array!r}: torch has no data type {array.dtype}") from None
        if stored.dtype is not None and CARRIERS.get(stored.dtype) != dtype:
            raise CorruptError(f"{array!r}: does not carry {stored.dtype}")
        return Source(array, stored.dtype or dtype, array.shape)


def _load_new(saved: _Saved, chosen: Callable[[str], bool], placed: Placement) -> Any:
    stored = {
        leaf.name: leaf.value
        for leaf in saved.leaves
        if isinstance(leaf.value, StoredTensor) and chosen(leaf.name)
    }
    sources = {tensor: saved.source(tensor) for tensor in stored.values()}
    wanted = {name: (sources[tensor], placed.device(name)) for name, tensor in stored.items()}
    tensors = new_tensors(wanted.values(), placed.dtype)

    def finished(name: str, value: Any) -> Any:
        if not chosen(name):
            return _LEFT_OUT
        return tensors[wanted[name]] if name in wanted else value

    return _rebuild(saved.value, finished)


_LEFT_OUT = object()


def _rebuild(value: Any, finished: Callable[[str, Any], Any], name: str = "") -> Any:
    def below(key: Any, inner: Any) -> Any:
        return _rebuild(inner, finished, join_name(name, key))

    if isinstance(value, dict):
        items = ((key, below(key, inner)) for key, inner in value.items())
        result: Any = type(value)((key, inner) for key, inner in items if inner is not _LEFT_OUT)
        if hasattr(value, "_metadata"):
            result._metadata = value._metadata
        return result
    if isinstance(value, list | tuple):
        items = (below(i, inner) for i, inner in enumerate(value))
        return type(value)(None if inner is _LEFT_OUT else inner for inner in items)
    return finished(name, value)


def _load_into(
    saved: _Saved,
    into: torch.nn.Module | Mapping[Any, Any],
    chosen: Callable[[str], bool],
    placed: Placement,
    strict: bool,
) -> _IncompatibleKeys:
    module: Any = into if isinstance(into, torch.nn.Module) else None
    state = into if module is None else module.state_dict(keep_vars=True)
    targets = {leaf.name: leaf for leaf in leaves(state) if chosen(leaf.name)}
    stored = {leaf.name: leaf.value for leaf in saved.leaves if chosen(leaf.name)}
    keys = _IncompatibleKeys(
        [name for name in targets if name not in stored],
        [name for name in stored if name not in targets],
    )
    pairs = [(leaf, stored[name]) for name, leaf in targets.items() if name in stored]
    sources = {value: saved.source(value) for _, value in pairs if isinstance(value, StoredTensor)}
    errors = _misfits(keys, strict) + [
        error for leaf, value in pairs if (error := _misfit(leaf, value, sources))
    ]
    if errors:
        kind = "state dict" if module is None else type(into).__name__
        raise RuntimeError("\n\t".join([f"Error(s) in loading state_dict for {kind}:", *errors]))
    tensors = [(leaf, sources[value]) for leaf, value in pairs if isinstance(value, StoredTensor)]
    absent = {
        leaf.name: (source, placed.device_for_meta(leaf))
        for leaf, source in tensors
        if leaf.value.device.type == "meta"
    }
    new = new_tensors(absent.values(), placed.dtype)
    values = {
        leaf.name: new[absent[leaf.name]] if leaf.name in absent else value
        for leaf, value in pairs
        if leaf.name in absent or not isinstance(value, StoredTensor)
    }
    # Before anything is filled: what cannot be put there is told while all is as it was.
    changes = assignments(state, values)
    fill(
        [
            (source.part(part), local_part(leaf.value.detach()))
            for leaf, source in tensors
            if leaf.name not in absent and not (part := Part.of(leaf.value)).empty
        ]
    )
    for holder, key, value in changes:
        holder[key] = value
    if module is not None:
        # What a module only gave out, or is to hold as a new parameter.
        changed = {
            name: value
            for name, value in state.items()
            if name in absent or name.endswith(_EXTRA_STATE_KEY_SUFFIX)
        }
        module.load_state_dict(changed, strict=False, assign=True)
    return keys


def _misfits(keys: _IncompatibleKeys, strict: bool) -> list[str]:
    """What torch says of names that do not match."""
    kinds = (("Missing", keys.missing_keys), ("Unexpected", keys.unexpected_keys))
    return [
        f"{kind} key(s) in state_dict: {', '.join(map(_quoted, names))}. "
        for kind, names in kinds
        if strict and names
    ]


def _quoted(name: str) -> str:
    return f'"{name}"'


def _misfit(leaf: Leaf, value: Any, sources: Mapping[StoredTensor, Source]) -> str | None:
    """Why a stored value does not fit where it is to go."""
    if isinstance(leaf.value, torch.Tensor) != isinstance(value, StoredTensor):
        found, wanted = (
            ("a tensor", "no tensor")
            if isinstance(value, StoredTensor)
            else (type(value).__name__, "a tensor")
        )
        return f"{leaf.name}: expected {wanted}, the store has {found}."
    if isinstance(value, StoredTensor) and sources[value].shape != tuple(leaf.value.shape):
        found = torch.Size(sources[value].shape)
        return (
            f"size mismatch for {leaf.name}: copying a param with shape {found} from checkpoint, "
            f"the shape in current model is {leaf.value.shape}."
        )
    return None
