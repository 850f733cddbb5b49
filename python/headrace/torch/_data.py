"""Datasets for `torch.utils.data.DataLoader`, in any kind of worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from .. import _check, _core
from .._array import rows_of_chunk
from ._read import as_tensor

Arrays = _core.Array | Sequence[_core.Array] | Mapping[str, _core.Array]


class _Fields:
    """One array, a tuple of them or a dict: items and batches have the same form."""

    def __init__(self, arrays: Arrays) -> None:
        self._form: Sequence[str] | None
        if isinstance(arrays, _core.Array):
            self.arrays, self._form = [arrays], None
        elif isinstance(arrays, Mapping):
            self.arrays, self._form = list(arrays.values()), list(arrays)
        else:
            self.arrays, self._form = list(arrays), ()
        lengths = {len(array) for array in self.arrays}
        if len(lengths) != 1:
            raise ValueError(f"arrays: expected equal lengths, got {sorted(lengths)}")
        (self.length,) = lengths

    def pack(self, tensors: Sequence[torch.Tensor]) -> Any:
        if self._form is None:
            return tensors[0]
        return dict(zip(self._form, tensors, strict=True)) if self._form else tuple(tensors)

    def read(self, selection: Any) -> list[torch.Tensor]:
        """In one plan."""
        results = _core.read_many([(array, selection) for array in self.arrays])
        return [as_tensor(result) for result in results]


class Batch(list[Any]):
    """Items of an `ArrayDataset` that were read together; `stacked` is the whole batch."""

    def __init__(self, items: Sequence[Any], stacked: Any) -> None:
        super().__init__(items)
        self.stacked = stacked


def collate(items: Sequence[Any]) -> Any:
    """A batch as it was read; as `torch.utils.data.default_collate` for items of other datasets."""
    return items.stacked if isinstance(items, Batch) else default_collate(items)


class ArrayDataset(Dataset[Any]):
    """Items along the first dimension of arrays of equal length.

    A batch is one plan for all arrays: with ``collate_fn=collate`` it is not copied again. Workers
    may be started in any way; arrays of ``memory://`` can only be forked. For another device than
    the host use no workers, or those that are spawned.

    Parameters
    ----------
    arrays
        An `Array`, a sequence of them (items are tuples) or a mapping (items are dicts).
    transform
        Called with each item; then `collate` stacks what it gives.

    Raises
    ------
    ValueError
        Arrays of unequal length.
    TypeError
        Torch has no such data type (dates, strings, structures).

    Examples
    --------
    >>> dataset = ArrayDataset({"image": images, "label": labels})
    >>> DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4, collate_fn=collate)
    """

    def __init__(self, arrays: Arrays, transform: Callable[[Any], Any] | None = None) -> None:
        self._fields = _Fields(arrays)
        self._transform = transform

    def __len__(self) -> int:
        return self._fields.length

    def __getitem__(self, index: int) -> Any:
        item = self._fields.pack(self._fields.read(int(index)))
        return item if self._transform is None else self._transform(item)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        tensors = self._fields.read([int(index) for index in indices])
        items = [self._fields.pack(row) for row in zip(*tensors, strict=True)]
        if self._transform is not None:
            return [self._transform(item) for item in items]
        return Batch(items, self._fields.pack(tensors))


class IterableArrayDataset(IterableDataset[Any]):
    """Batches along the first dimension, read block by block and one block ahead.

    Every block is read once an epoch, by one worker of one rank.

    Parameters
    ----------
    arrays
        As of `ArrayDataset`.
    batch_size
        Items in a batch; None gives single items.
    block_size
        Items that are read, and shuffled, together; the longest chunk when None.
    shuffle
        Blocks in another order, and the items of each block.
    seed
        Of the order; with the same seed and epoch it is the same.
    rank, world_size
        Which part of the blocks this process has; those of `torch.distributed` when None.

    Examples
    --------
    >>> dataset = IterableArrayDataset((images, labels), batch_size=64, shuffle=True)
    >>> for epoch in range(3):
    ...     dataset.set_epoch(epoch)
    ...     for image, label in DataLoader(dataset, batch_size=None, num_workers=2):
    ...         ...
    """

    def __init__(
        self,
        arrays: Arrays,
        *,
        batch_size: int | None = None,
        block_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self._fields = _Fields(arrays)
        _check.positive("batch_size", batch_size)
        _check.positive("block_size", block_size)
        self._batch_size = batch_size
        self._block_size = block_size or max(map(rows_of_chunk, self._fields.arrays))
        self._shuffle, self._seed = shuffle, seed
        # Shared with workers that are there already.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        # Asked here: there is no process group in a worker.
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if rank is None:
            rank = torch.distributed.get_rank() if distributed else 0
        if world_size is None:
            world_size = torch.distributed.get_world_size() if distributed else 1
        _check.positive("world_size", world_size)
        _check.integer("rank", rank)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank: expected 0 to {world_size - 1}, got {rank}")
        self._rank, self._world_size = rank, world_size

    def set_epoch(self, epoch: int) -> None:
        """Another order from the next iteration on."""
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Any]:
        rest: list[torch.Tensor] | None = None
        for block in self._read_blocks():
            if self._batch_size is None:
                yield from map(self._fields.pack, zip(*block, strict=True))
                continue
            if rest is not None:
                block = [torch.cat(pair) for pair in zip(rest, block, strict=True)]
                rest = None
            for batch in zip(*(tensor.split(self._batch_size) for tensor in block), strict=True):
                if len(batch[0]) == self._batch_size:
                    yield self._fields.pack(batch)
                else:
                    rest = list(batch)
        if rest is not None:
            yield self._fields.pack(rest)

    def _read_blocks(self) -> Iterator[list[torch.Tensor]]:
        ahead: deque[list[_core.Future[Any]]] = deque()
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + int(self._epoch))
        for start in self._starts(generator):
            block = slice(start, start + self._block_size)
            ahead.append([array.read_async(block) for array in self._fields.arrays])
            if len(ahead) > 1:
                yield self._finished(ahead.popleft(), generator)
        while ahead:
            yield self._finished(ahead.popleft(), generator)

    def _starts(self, generator: torch.Generator) -> list[int]:
        """Of the blocks of this worker."""
        starts = torch.arange(0, self._fields.length, self._block_size)
        if self._shuffle:
            starts = starts[torch.randperm(len(starts), generator=generator)]
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        return starts[self._rank * workers + number :: self._world_size * workers].tolist()

    def _finished(
        self, futures: Sequence[_core.Future[Any]], generator: torch.Generator
    ) -> list[torch.Tensor]:
        tensors = [as_tensor(future.result()) for future in futures]
        if not self._shuffle:
            return tensors
        order = torch.randperm(len(tensors[0]), generator=generator)
        return [tensor[order.to(tensor.device)] for tensor in tensors]
