"""Batches for training: windows of arrays, shuffled, decoded once, on the host or a device; and
cells of AnnData stores (`CellLoader`).

Examples
--------
>>> from headrace.loader import Loader
>>> arrays = {"t2m": t2m, "z500": z500}
>>> loader = Loader(arrays, batch_size=8, sample_dim="time", window=2, lead_time=4)
>>> for batch in loader:
...     train(batch["t2m"], batch["z500"])
"""

from __future__ import annotations

from ._cell_loader import CellLoader
from ._cell_options import Transform
from ._loader import Loader, shuffle_quality

__all__ = ["CellLoader", "Loader", "Transform", "shuffle_quality"]
