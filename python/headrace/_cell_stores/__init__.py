"""Stores of cells written: `headrace.cells.convert` and `headrace.cells.write`.

Here and not in `_cells`, since rows are moved by what loaders gather batches with.
"""

from __future__ import annotations

from .._cells import cells
from ._convert import convert, write

cells.convert = convert  # type: ignore[attr-defined]
cells.write = write  # type: ignore[attr-defined]

__all__ = ["cells", "convert", "write"]
