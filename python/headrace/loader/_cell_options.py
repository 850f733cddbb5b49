"""What the arguments of a `CellLoader` mean."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from .. import _check
from .._cells import Cells
from . import _cell_output, _options
from ._cell_order import WindowOrder
from ._cell_windows import Selected


@dataclass(frozen=True)
class Transform:
    """What is done to each cell as it is gathered, in this order.

    Attributes
    ----------
    total
        Each cell is divided by (its sum / total), as scanpy's ``normalize_total`` does. The sum is
        over all variables of its store, whichever are kept; cells of sum 0 stay as they are.
    log1p
        ``log(1 + x)``.
    genes
        Names, numbers or a mask of the variables that are kept, in this order.

    Examples
    --------
    >>> loader = CellLoader(data, 4096, transforms=Transform(total=1e4, log1p=True))
    """

    total: float | None = None
    log1p: bool = False
    genes: Any = None


@dataclass(frozen=True)
class BatchMatrix:
    """What a batch has of one matrix."""

    selected: Selected
    transform: tuple[float | None, bool, Any]  # as _core.CellWindow takes it
    dtype: np.dtype[Any]
    output: str


def _of(given: Any, name: str) -> Any:
    """The value for all matrices, or that of this one."""
    return given.get(name) if isinstance(given, Mapping) else given


def check_names(option: str, given: Any, names: Sequence[str]) -> None:
    if isinstance(given, Mapping) and (unknown := sorted(set(given) - set(names))):
        raise ValueError(f"{option}: no matrix {unknown[0]!r}, only {', '.join(names)}")


def batch_matrix(
    cells: Cells, name: str, outputs: Any, dtypes: Any, transforms: Any, device: str
) -> BatchMatrix:
    """What a batch has of a matrix, by the arguments for all or by name."""
    output, dtype, transform = (_of(given, name) for given in (outputs, dtypes, transforms))
    output = "csr" if output is None else output
    _cell_output.check(output, device)
    if transform is None:
        transform = Transform()
    if not isinstance(transform, Transform):
        raise _check.wrong_type("transforms", "a Transform, or one by name", transform)
    total = transform.total
    if total is not None:
        _check.number("total", total)
        if not 0 < float(total) < np.inf:
            raise ValueError(f"total: expected a number above 0, got {total!r}")
    _check.flag("log1p", transform.log1p)
    stored = {np.dtype(matrix.data.dtype) for matrix in cells.matrices(name)}
    computes = total is not None or transform.log1p
    common = None
    if dtype is None:
        with contextlib.suppress(TypeError):  # float16 and bfloat16 have none
            common = cells.dtype(name)
    if dtype is None and (computes or len(stored) > 1):
        if len(stored) > 1 and not computes and not _holds(common, stored):
            raise ValueError(
                f"dtype: stores have {' and '.join(sorted(map(str, stored)))}: which is wanted?"
            )
        dtype = np.float64 if common == np.float64 else np.float32
    columns, maps = cells.column_maps(name, transform.genes)
    selected = Selected(name, cells.matrices(name), columns, maps)
    result = common if dtype is None else _cell_output.dtype_of(dtype)
    assert result is not None
    _cell_output.check_sparse(output, result, device)
    how = (
        None if total is None else float(total),
        bool(transform.log1p),
        None if dtype is None else result,
    )
    return BatchMatrix(selected, how, result, output)


def _holds(common: np.dtype[Any] | None, stored: set[np.dtype[Any]]) -> bool:
    """Whether all elements are that without loss; NumPy takes float64 for one that holds int64."""
    if common is None or common.kind != "f":
        return False
    return not any(is_wide_integer(one) for one in stored)


def is_wide_integer(dtype: np.dtype[Any]) -> bool:
    """Of which float64 does not hold all."""
    return dtype.kind in "iu" and dtype.itemsize == 8


def own_order(
    cells: Cells,
    batch_size: int | None,
    window: tuple[int, int],
    *,
    shuffle: bool,
    lanes: int | None,
    seed: int,
    drop_last: bool,
    weights: Any,
    samples_per_epoch: int | None,
) -> WindowOrder:
    if batch_size is None:
        raise TypeError("batch_size: expected an integer, got None and no sampler")
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise _check.wrong_type("window", "(rows of a run, runs)", window)
    rows, runs = window
    _options.check_numbers(batch_size=batch_size, window=rows)
    _options.check_numbers(window=runs)
    for name, value in (("batch_size", batch_size), ("window", rows), ("window", runs)):
        if value < 1:
            raise ValueError(f"{name}: expected 1 or more, got {value}")
    if index(rows) * index(runs) >= 1 << 63:
        raise ValueError(f"window: {rows} x {runs} cells are outside of 64 bits")
    if lanes is None:
        lanes = int(np.gcd(8, runs))
    _options.check_numbers(lanes=lanes)
    if lanes < 1 or runs % lanes:
        raise ValueError(f"lanes: expected a divisor of the {runs} runs of a window, got {lanes}")
    drawn = None if weights is None else _weights(cells, weights)
    if samples_per_epoch is None:
        samples_per_epoch = cells.n_obs
    elif drawn is None:
        raise ValueError("samples_per_epoch: without weights an epoch has each cell once")
    _options.check_numbers(samples_per_epoch=samples_per_epoch)
    if samples_per_epoch < 0:
        raise ValueError(f"samples_per_epoch: expected 0 or more, got {samples_per_epoch}")
    return WindowOrder(
        cells.n_obs,
        index(batch_size),
        (index(rows), index(runs)),
        lanes=index(lanes),
        shuffle=shuffle or drawn is not None,
        seed=index(seed),
        drop_last=drop_last,
        weights=drawn,
        samples=index(samples_per_epoch),
    )


def _weights(cells: Cells, given: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    if isinstance(given, str):
        column = cells.obs.get(given)
        if column is None or column.categories is None:
            raise ValueError(f"weights: no categorical column {given!r} among the obs of the cells")
        counts = np.bincount(column.values[column.values >= 0], minlength=len(column.categories))
        by_class = np.append(1.0 / np.maximum(counts, 1), 0.0)  # the last: without a class
        weights = by_class[column.values]
    else:
        with _check.argument("weights"):
            weights = np.ascontiguousarray(given, np.float64)
    if weights.shape != (cells.n_obs,):
        raise ValueError(f"weights: expected {cells.n_obs}, one for each cell, got {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError("weights: expected finite numbers, 0 or more, not all of them 0")
    with np.errstate(over="ignore"):
        if not np.isfinite(np.cumsum(weights)[-1]):
            raise ValueError("weights: their sum is more than a float64 holds")
    return weights
