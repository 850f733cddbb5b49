"""A DataLoader whose workers send batches by shared memory: install() is the only change.

python examples/shm_dataloader.py --workers 2 --arena 1GiB
"""

import argparse
import time

import headrace.shm
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Fields(Dataset):
    """Steps of a field, as a file would give them."""

    def __init__(self, steps, shape):
        self.steps, self.shape = steps, shape

    def __len__(self):
        return self.steps

    def __getitem__(self, i):
        return torch.from_numpy(np.full(self.shape, i, "float32"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--arena", default="1GiB")
    args = parser.parse_args()

    # Room for what is on its way: batches times workers times prefetch_factor, and those in use.
    arena = headrace.shm.install(nbytes=args.arena)
    # Copies to a GPU are at full speed from pinned memory: the arena itself, not a copy of it.
    if torch.cuda.is_available():
        arena.pin()
    loader = DataLoader(Fields(args.steps, (700, 1400)), batch_size=4, num_workers=args.workers)
    begin = time.perf_counter()
    total = sum(float(batch.mean()) * len(batch) for batch in loader)
    seconds = time.perf_counter() - begin
    print(f"mean {total / args.steps:.2f}, {args.steps / seconds:.0f} samples/s", end=", ")
    print(f"{arena.stats()['in_band']} of them pickled")


if __name__ == "__main__":
    main()
