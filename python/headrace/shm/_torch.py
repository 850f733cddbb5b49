"""Tensors of PyTorch on the CPU, by way of the arrays that they share memory with."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._span import Room

if TYPE_CHECKING:
    import torch

# A type that NumPy has too stands for others of its size.
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


def loaded() -> Any:
    """The module torch when this process has imported all of it."""
    torch = sys.modules.get("torch")
    return None if torch is None or getattr(torch.__spec__, "_initializing", False) else torch


def reducers() -> dict[type, Callable[[Any], tuple[Any, ...]]]:
    """By exact class; none as long as nobody has imported torch."""
    torch = loaded()
    if torch is None:
        return {}
    return {torch.Tensor: reduce_tensor, torch.nn.Parameter: reduce_tensor}


def reduce_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A tensor as an array of the same memory; what NumPy has no picture of in torch's own way."""
    if not is_plain(tensor):
        # Not its parts: torch keeps those of sparse tensors for a check that only torch.load makes.
        return pickle.loads, (pickle.dumps(tensor, 4),)
    return _tensor, (
        type(tensor),
        tensor.dtype,
        tensor.requires_grad,
        _bits(tensor),
    )


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether shape, strides and memory are all of it."""
    torch = loaded()
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_nested
        and tensor.is_leaf
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not (any(getattr(tensor, "names", ())) or tensor._backward_hooks or tensor.__dict__)
    )


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """With elements in memory as they are, where conjugation or a sign were left for later."""
    if not tensor.is_leaf or not (tensor.is_conj() or tensor.is_neg()):
        return tensor
    found = tensor.detach().resolve_conj().resolve_neg()
    if isinstance(tensor, loaded().nn.Parameter):
        return loaded().nn.Parameter(found, tensor.requires_grad)
    return found.requires_grad_(tensor.requires_grad)


def _bits_dtype(tensor: torch.Tensor) -> str:
    return _BITS[tensor.element_size()]


def _bits(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().view(getattr(loaded(), _bits_dtype(tensor))).numpy()


def _tensor(
    cls: type, dtype: torch.dtype, requires_grad: bool, bits: np.ndarray[Any, Any]
) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(_writable(bits)).view(dtype)
    if cls is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _writable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory; torch knows no read-only tensors."""
    block = array.base
    if array.flags.writeable or not isinstance(block, _core.ShmBlock):
        return array
    offset = array.__array_interface__["data"][0] - block.address
    return np.ndarray(array.shape, array.dtype, _core.shm_writable(block), offset, array.strides)


def collate_functions() -> dict[Any, Callable[..., Any]]:
    """By what `torch.utils.data.default_collate` goes; it may be changed in place."""
    from torch.utils.data._utils.collate import default_collate_fn_map

    return default_collate_fn_map


def stack(arena: Room, tensors: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """torch's own function for batches of tensors, into the arena when it has room."""
    import torch
    from torch.utils.data._utils.collate import collate_tensor_fn

    first = tensors[0]
    kinds = {(type(tensor), tensor.dtype, tensor.requires_grad) for tensor in tensors}
    if kinds == {(torch.Tensor, first.dtype, False)} and is_plain(first) and first.numel() > 0:
        memory = arena._empty_now((len(tensors), *first.shape), _bits_dtype(first))
        if memory is not None:
            return torch.stack(list(tensors), out=torch.from_numpy(memory).view(first.dtype))
    return collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)


def stack_in_worker(
    arena: Room, before: Callable[..., Any], tensors: Any, *, collate_fn_map: Any = None
) -> Any:
    """As `stack` in the workers of a `DataLoader`; as `before` elsewhere."""
    from torch.utils.data import get_worker_info

    if get_worker_info() is None:
        return before(tensors, collate_fn_map=collate_fn_map)
    return stack(arena, tensors, collate_fn_map=collate_fn_map)
