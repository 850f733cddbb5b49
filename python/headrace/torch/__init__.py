"""PyTorch: the weights of a network as a Zarr group, and arrays for a `DataLoader`.

Examples
--------
>>> from headrace.torch import load_state_dict, save_state_dict
>>> save_state_dict(model.state_dict(), "model.zarr", metadata={"step": 1000})
>>> load_state_dict("model.zarr", into=model)
<All keys matched successfully>
"""

from __future__ import annotations

from ._data import ArrayDataset, IterableArrayDataset, collate
from ._load import load_metadata, load_state_dict
from ._save import save_state_dict

__all__ = [
    "ArrayDataset",
    "IterableArrayDataset",
    "collate",
    "load_metadata",
    "load_state_dict",
    "save_state_dict",
]
