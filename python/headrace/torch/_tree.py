"""A state dict as JSON: containers and plain values, with the tensors in arrays beside it.

JSON's own strings, booleans, integers, finite floats and null stand for themselves; everything else
is an object with one member that names its kind::

    {"dict": [["weight", {"array": "weight"}], ["eps", 1e-05], ["dims", {"tuple": [1, 2]}]]}

A key is a string, number, boolean or null. The name of a leaf is its keys joined by "/"; the path
of its array is the same with what a node of Zarr cannot be called percent-encoded. Tensors that
are one memory have one array.
"""

from __future__ import annotations

import base64
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import torch

from ..errors import CorruptError
from ._parts import is_distributed, local_part

_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}

# Zarr has no such types: their bits are kept as another of the same size.
CARRIERS = {
    _DTYPES[name]: carrier
    for name, carrier in {"complex32": torch.uint32, "float4_e2m1fn_x2": torch.uint8}.items()
    if name in _DTYPES
}
_STORED = {
    _DTYPES[name]
    for name in (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn",
        "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    )
    if name in _DTYPES
} | CARRIERS.keys()  # fmt: skip
_SCALARS = (str, bool, int, type(None))


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` as "float32"."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """The type of that name; `KeyError` when torch has none."""
    return _DTYPES[name]


@dataclass(frozen=True)
class Leaf:
    """A tensor or a plain value."""

    name: str
    value: Any


def join_name(name: str, key: Any) -> str:
    return f"{name}/{key}" if name else str(key)


def _items(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Keys and values of a container; None of a leaf."""
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else None


def leaves(value: Any, name: str = "") -> Iterator[Leaf]:
    """Tensors and plain values below `value`, in order."""
    items = _items(value)
    if items is None:
        yield Leaf(name, value)
        return
    for key, inner in items:
        yield from leaves(inner, join_name(name, key))


def assignments(tree: Any, new: Mapping[str, Any]) -> list[tuple[Any, Any, Any]]:
    """What gives leaves, by name, new values: container, key and value of each; changes nothing.

    A tuple is made anew, and goes to where the old one is.

    Raises
    ------
    TypeError
        A leaf is in what takes no other value.
    """
    found = []

    def renewed(value: Any, name: str) -> Any:
        items = _items(value)
        if items is None:
            return new.get(name, value)
        pairs = [(key, inner, renewed(inner, join_name(name, key))) for key, inner in items]
        changed = [(value, key, after) for key, before, after in pairs if after is not before]
        if changed and isinstance(value, tuple):
            return _made_anew(value, [after for *_, after in pairs], name)
        if changed and not hasattr(value, "__setitem__"):
            raise TypeError(f"{name}: {type(value).__name__} takes no new values")
        found.extend(changed)
        return value

    renewed(tree, "")
    return found


def _made_anew(value: tuple[Any, ...], items: list[Any], name: str) -> tuple[Any, ...]:
    # The constructor of a named tuple takes each item by itself.
    make: Callable[[list[Any]], tuple[Any, ...]] = getattr(value, "_make", type(value))
    try:
        return make(items)
    except Exception as error:
        raise TypeError(f"{name}: {type(value).__name__} takes no new values: {error}") from error


def check_dense(tensor: torch.Tensor, name: str) -> None:
    wraps = hasattr(tensor, "__tensor_flatten__") and not is_distributed(tensor)
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or wraps:
        kind = type(tensor).__name__ if wraps else tensor.layout
        if tensor.is_quantized:
            kind = f"a quantized one of {tensor.dtype}"
        elif tensor.is_nested:
            kind = f"a nested one of layout {tensor.layout}"
        raise TypeError(f"{name}: expected a dense tensor, got {kind}")


def _node_name(key: Any) -> str:
    encoded = quote(str(key), safe="")
    if encoded.startswith((".", "__")) or encoded == "zarr.json":
        return f"%{ord(encoded[0]):02X}{encoded[1:]}"
    return encoded or "%"


def identity(tensor: torch.Tensor) -> Any:
    """Equal for two tensors that are one memory seen alike."""
    local = local_part(tensor)
    if local.numel() == 0:
        return object()  # without memory
    return (
        local.data_ptr(),
        local.device,
        local.dtype,
        local.stride(),
        local.is_conj(),
        local.is_neg(),
        tensor.shape,
        tensor.placements if is_distributed(tensor) else None,
    )


class Encoder:
    """Turns a state dict into its tree, and gathers the tensors by the paths of their arrays."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._paths: dict[Any, str] = {}

    def encode(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, "/".join(path))
        if isinstance(value, Mapping):
            items = self._items(value, path)
            if hasattr(value, "_metadata"):  # versions of the modules
                return {"module": [items, dict(value._metadata)]}
            return {"dict": items}
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.encode(x, (*path, str(i))) for i, x in enumerate(value)]}
        return _encode_plain(value, "/".join(path))

    def _items(self, mapping: Mapping[Any, Any], path: tuple[str, ...]) -> list[Any]:
        where = "/".join(path)
        seen: dict[str, Any] = {}
        items = []
        for key, value in mapping.items():
            if type(key) not in (*_SCALARS, float):
                raise TypeError(f"{where}: a key of type {type(key).__name__} cannot be stored")
            if str(key) in seen:
                raise ValueError(f"{where}: the keys {seen[str(key)]!r} and {key!r} read alike")
            seen[str(key)] = key
            encoded = self.encode(value, (*path, _node_name(key)))
            items.append([_encode_plain(key, where), encoded])
        return items

    def _tensor(self, tensor: torch.Tensor, path: str) -> Any:
        tensor = tensor.detach()
        check_dense(tensor, path)
        if tensor.device.type == "meta":
            raise ValueError(f"{path}: a tensor on the meta device has no data to store")
        if tensor.dtype not in _STORED:
            raise ValueError(f"{path}: Zarr has no type for tensors of {tensor.dtype}")
        path = self._paths.setdefault(identity(tensor), path)
        self.tensors.setdefault(path, tensor)
        if tensor.dtype in CARRIERS:
            return {"array": path, "dtype": dtype_name(tensor.dtype)}
        return {"array": path}


def _encode_plain(value: Any, name: str) -> Any:
    if type(value) in _SCALARS:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) is complex:
        return {"complex": str(value)}
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, torch.dtype):
        return {"torch.dtype": dtype_name(value)}
    raise TypeError(
        f"{name}: expected a tensor, dict, list, tuple, number, string, bytes, torch.dtype or "
        f"None, got {type(value).__name__}"
    )


@dataclass(frozen=True)
class StoredTensor:
    """A leaf whose value lies in an array; `dtype` where that of the array is only its carrier."""

    path: str
    dtype: torch.dtype | None = None


def decode(node: Any) -> Any:
    """The value that a tree stands for, with a `StoredTensor` for each tensor."""
    if type(node) in (*_SCALARS, float):
        return node
    try:
        return _decode_object(node)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"state dict: {str(node)[:80]!r} is no node of its tree") from error


def _decode_object(node: dict[str, Any]) -> Any:
    if "array" in node:
        if not isinstance(node["array"], str):
            raise TypeError("a path is a string")
        return StoredTensor(node["array"], _DTYPES[node["dtype"]] if "dtype" in node else None)
    ((kind, content),) = node.items()
    return _KINDS[kind](content)


def _decode_module(content: tuple[list[Any], dict[str, Any]]) -> OrderedDict[str, Any]:
    items, versions = content
    result: Any = OrderedDict((decode(key), decode(value)) for key, value in items)
    result._metadata = OrderedDict(versions)  # where `torch.nn.Module.load_state_dict` looks
    return result


_KINDS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda items: {decode(key): decode(value) for key, value in items},
    "module": _decode_module,
    "list": lambda items: [decode(item) for item in items],
    "tuple": lambda items: tuple(decode(item) for item in items),
    "float": float,
    "complex": complex,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "torch.dtype": _DTYPES.__getitem__,
}
