"""Batches of a `Loader` as torch tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import IterableDataset, get_worker_info

from ..torch._read import as_tensor
from ._batches import Batches


class Place:
    """Where a loader was sent last, for the workers that have copies of it: in shared memory."""

    def __init__(self) -> None:
        self._numbers = torch.zeros(3, dtype=torch.int64).share_memory_()

    def tell(self, epoch: int, samples: int) -> None:
        times = int(self._numbers[0])
        self._numbers.copy_(torch.tensor([times + 1, epoch, samples]))

    def look(self) -> tuple[int, int, int]:
        """How often it was sent, and where to."""
        times, epoch, samples = self._numbers.tolist()
        return times, epoch, samples


class TorchBatches(IterableDataset[dict[str, torch.Tensor]]):
    """Dicts of tensors, in this process or in the workers of a `DataLoader`."""

    def __init__(self, loader: Batches, place: Place) -> None:
        self._loader = loader
        self._place = place
        # Of a worker that lives for several iterations.
        self._share: Batches | None = None
        self._times = 0
        self._epoch = 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        # At once, and not with the first batch: each iteration counts in each worker.
        return self._tensors(self._source())

    def _tensors(self, batches: Batches) -> Iterator[dict[str, torch.Tensor]]:
        for batch in batches:
            yield {name: as_tensor(value) for name, value in batch.items()}

    def _source(self) -> Batches:
        worker = get_worker_info()
        if worker is None:
            return self._loader
        times, epoch, samples = self._place.look()
        if self._share is None:
            self._share = self._loader.share(worker.id, worker.num_workers)
            self._epoch = self._share.epoch
        elif times != self._times:
            self._epoch = epoch
            self._share._seek(epoch, samples)
        else:
            # What the iteration before left is nobody's: batches of it were on their way.
            self._epoch += 1
            self._share._seek(self._epoch, 0)
        self._times = times
        return self._share
