"""Batches of cells as the libraries want them."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any

import numpy as np

from .. import _check, _core
from . import _cell_jax

_OUTPUTS = ("csr", "dense", "torch_csr", "torch_dense", "jax", "jax_dense")
_DTYPES = ("float16", "bfloat16", "float32", "float64")


def check(output: Any, device: str) -> None:
    """Whether it is one that can be made here: said now, not with the first batch."""
    _check.text("output", output, f"one of {', '.join(_OUTPUTS)}")
    if output not in _OUTPUTS:
        raise ValueError(f"output: expected one of {', '.join(_OUTPUTS)}, got {output!r}")
    library = library_of(output, device)
    if library == "cupy":
        import cupyx.scipy.sparse  # noqa: F401
    elif output == "csr":
        import scipy.sparse  # noqa: F401
    elif library == "torch":
        import torch  # noqa: F401
    elif library == "jax":
        import jax.experimental.sparse  # noqa: F401


def is_sparse(output: str) -> bool:
    return output in ("csr", "torch_csr", "jax")


def check_sparse(output: str, dtype: np.dtype[Any], device: str) -> None:
    """Whether the library of a sparse output has this type."""
    if output != "csr":
        return
    if library_of(output, device) == "cupy":
        if dtype.name not in ("bool", "float32", "float64"):
            raise ValueError(
                f"dtype: CuPy has no sparse matrices of {dtype}: choose float32 or float64, or "
                "another output"
            )
    elif dtype.itemsize == 2 and dtype.kind not in "iu":
        raise ValueError(
            f"dtype: SciPy does not compute with sparse matrices of {dtype}: choose float32, or "
            "another output"
        )


def library_of(output: str, device: str) -> str | None:
    """Whose arrays an output is: "torch", "jax", "cupy", "numpy"; None is headrace's own."""
    if output.startswith(("torch", "jax")):
        return output.partition("_")[0]
    if device == "cpu":
        return "numpy"
    if output == "dense":
        return None
    return "cupy" if device.startswith("cuda") else "numpy"  # "simt" is memory of the host


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """One of those that elements are converted to."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if isinstance(dtype, str):
        _check.text("dtype", dtype)
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise _check.wrong_type("dtype", " or ".join(_DTYPES), dtype) from None
    if found.name not in _DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(_DTYPES)}, got {found}")
    return found


def room_for(nnz: int, output: str) -> int:
    """Elements that the memory of a sparse batch has."""
    return _cell_jax.room_for(nnz) if output == "jax" else nnz


def csr(data: Any, indices: Any, offsets: Any, shape: tuple[int, int], output: str) -> Any:
    """A matrix of SciPy, or a tensor of torch, of this memory; or one of JAX."""
    if output == "jax":
        return _cell_jax.bcoo(data, indices, offsets, shape)
    narrow = len(data) <= np.iinfo(np.int32).max
    indptr = offsets.astype(np.int32) if narrow else offsets
    if not narrow:  # both have one type
        indices = indices.astype(np.int64)
    if output == "csr":
        import scipy.sparse

        return scipy.sparse.csr_matrix((data, indices, indptr), shape=shape, copy=False)
    import torch

    _settle_invariants()
    return torch.sparse_csr_tensor(
        torch.from_numpy(indptr),
        torch.from_numpy(indices),
        _tensor(data),
        size=shape,
        check_invariants=False,
    )


def exported(values: _core.DeviceArray, library: str | None) -> Any:
    """Memory of a device as an array of this library, without a copy."""
    if library == "jax":
        return _cell_jax.array(values)
    if library == "torch":
        import torch

        return torch.from_dlpack(values)
    if library == "cupy":
        import cupy

        return cupy.from_dlpack(values)
    return np.from_dlpack(values) if library == "numpy" else values


def csr_on_device(
    data: _core.DeviceArray,
    indices: _core.DeviceArray,
    offsets: np.ndarray[Any, Any],
    shape: tuple[int, int],
    output: str,
) -> Any:
    """A matrix of CuPy, or a tensor of torch, of this memory; SciPy's where that is the host's."""
    if output == "jax":
        return _cell_jax.bcoo(data, indices, offsets, shape)
    device = data.device
    library = library_of(output, device)
    narrow = data.size <= np.iinfo(np.int32).max
    indptr: Any = offsets.astype(np.int32) if narrow else offsets
    indptr, columns, values = (
        exported(part, library) for part in (_core.to_device(indptr, device), indices, data)
    )
    if library == "torch":
        import torch

        _settle_invariants()
        return torch.sparse_csr_tensor(
            indptr,
            columns if narrow else columns.to(torch.int64),
            values,
            size=shape,
            check_invariants=False,
        )
    current: Any = contextlib.nullcontext()
    if library == "cupy":
        from cupyx.scipy import sparse

        current = values.device  # else kernels run on whatever device is current
    else:
        from scipy import sparse
    with current:
        if not narrow:  # both have one type
            columns = columns.astype(np.int64)
        return sparse.csr_matrix((values, columns, indptr), shape=shape, copy=False)


@functools.cache
def _settle_invariants() -> None:
    """Some torch warns, once in a process, of checks that are off by default, even if told so."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1), check_invariants=False)


def column_on_device(values: Any, device: str, library: str | None) -> Any:
    """A column as the matrices of the batch are; strings stay where they are."""
    values = _filled(values)
    if values.dtype.kind not in "biuf":
        return values
    return exported(_core.to_device(values, device), library)


def _filled(values: Any) -> Any:
    """NaN for what is missing."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    return values


def on_host(batch: dict[str, Any], library: str, outputs: dict[str, str]) -> dict[str, Any]:
    """A batch of host memory, with columns as the library of its matrices wants them."""
    if library == "torch":
        return _as_torch(batch, outputs)
    if library != "jax":
        return batch
    columns = {}
    for name, values in batch["obs"].items():
        filled = _filled(values)
        columns[name] = _cell_jax.array(filled) if filled.dtype.kind in "biuf" else filled
    return {**batch, "obs": columns}


def _as_torch(batch: dict[str, Any], outputs: dict[str, str]) -> dict[str, Any]:
    """Tensors of dense matrices that are to be such, of the index, and of all columns but strings.

    Of numbers of which some are missing NaN stands for those.
    """
    dense = [name for name, output in outputs.items() if output == "torch_dense"]
    return {
        **batch,
        **{name: _tensor(batch[name]) for name in dense},
        "obs": {name: _column(values) for name, values in batch["obs"].items()},
        "index": _tensor(batch["index"]),
    }


def _column(values: Any) -> Any:
    values = _filled(values)
    return _tensor(values) if values.dtype.kind in "biuf" else values


def _tensor(values: Any) -> Any:
    import torch

    if values.dtype.name == "bfloat16":  # which NumPy has from elsewhere
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)
