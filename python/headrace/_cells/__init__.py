"""Stores of AnnData as one data set of cells: what `headrace.cells` is made of."""

from __future__ import annotations

from ._columns import ObsColumn
from ._data import Cells, cells

__all__ = ["Cells", "ObsColumn", "cells"]
