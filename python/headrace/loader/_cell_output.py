"""Batches of cells as the libraries want them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _check

_OUTPUTS = ("csr", "dense", "torch_csr", "torch_dense")
_DTYPES = ("float16", "bfloat16", "float32", "float64")


def check(output: Any) -> None:
    if output not in _OUTPUTS:
        raise ValueError(f"output: expected one of {', '.join(_OUTPUTS)}, got {output!r}")
    if output == "csr":
        import scipy.sparse  # noqa: F401  # said now, not with the first batch
    if output.startswith("torch"):
        import torch  # noqa: F401


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """One of those that elements are converted to."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise _check.wrong_type("dtype", " or ".join(_DTYPES), dtype) from None
    if found.name not in _DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(_DTYPES)}, got {found}")
    return found


def csr(data: Any, indices: Any, offsets: Any, shape: tuple[int, int], output: str) -> Any:
    """A matrix of SciPy, or a tensor of torch, of this memory."""
    narrow = len(data) <= np.iinfo(np.int32).max
    indptr = offsets.astype(np.int32) if narrow else offsets
    if not narrow:  # both have one type
        indices = indices.astype(np.int64)
    if output == "csr":
        import scipy.sparse

        return scipy.sparse.csr_matrix((data, indices, indptr), shape=shape, copy=False)
    import torch

    return torch.sparse_csr_tensor(
        torch.from_numpy(indptr),
        torch.from_numpy(indices),
        _tensor(data),
        size=shape,
        check_invariants=False,
    )


def as_torch(batch: dict[str, Any], outputs: dict[str, str]) -> dict[str, Any]:
    """What is to be tensors: matrices by their output; where there are such, all but strings beside
    matrices, too. Of numbers of which some are missing NaN stands for those."""
    dense = [name for name, output in outputs.items() if output == "torch_dense"]
    tensors: dict[str, Any] = {name: _tensor(batch[name]) for name in dense}
    if any(output.startswith("torch") for output in outputs.values()):
        tensors["obs"] = {name: _column(values) for name, values in batch["obs"].items()}
        tensors["index"] = _tensor(batch["index"])
    return {**batch, **tensors}


def _column(values: Any) -> Any:
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    return _tensor(values) if values.dtype.kind in "biuf" else values


def _tensor(values: Any) -> Any:
    import torch

    if values.dtype.name == "bfloat16":  # which NumPy has from elsewhere
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)
