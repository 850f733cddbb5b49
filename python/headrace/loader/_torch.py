"""Batches of a `Loader` as torch tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import IterableDataset, get_worker_info

from ..torch._read import as_tensor
from ._batches import Batches


class TorchBatches(IterableDataset[dict[str, torch.Tensor]]):
    """Dicts of tensors, in this process or in the workers of a `DataLoader`."""

    def __init__(self, loader: Batches) -> None:
        self._loader = loader
        self._share: Batches | None = None  # of a worker that lives for several epochs

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for batch in self._source():
            yield {name: as_tensor(value) for name, value in batch.items()}

    def _source(self) -> Batches:
        worker = get_worker_info()
        if worker is None:
            return self._loader
        if self._share is None:
            self._share = self._loader.share(worker.id, worker.num_workers)
        return self._share
