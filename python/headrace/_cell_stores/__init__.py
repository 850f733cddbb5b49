"""Stores of cells written: `headrace.cells.convert`.

Here and not in `_cells`, since rows are moved by what loaders gather batches with.
"""

from __future__ import annotations

from .._cells import cells
from ._convert import convert

cells.convert = convert  # type: ignore[attr-defined]

__all__ = ["cells", "convert"]
