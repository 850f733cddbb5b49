"""Trains a small classifier of cell types with PyTorch, on cells that CellLoader gives as tensors.

    python examples/cells_torch.py [STORE ...] [--label cell_type] [--epochs 4] [--device cpu]

STORE is AnnData in Zarr; without one, two small stores of made-up counts are written. A fifth of
the cells, drawn by a seed, are kept out of training and tell how good it is. Needs torch.
"""

import argparse
import tempfile

import headrace as hr
import numpy as np
import torch
from cells import write_store
from headrace.loader import CellLoader, Transform


def batches(data, device, epoch):
    """Batches of an epoch, in which each cell comes once, as dense tensors."""
    loader = CellLoader(
        data,
        128,
        window=(16, 32),
        output="torch_dense",
        device=device,
        transforms=Transform(total=1e4, log1p=True),
        seed=0,
    )
    loader.set_epoch(epoch)
    return loader


def train(data, label, epochs, device):
    torch.manual_seed(0)
    classes = len(data.obs[label].categories)
    model = torch.nn.Sequential(
        torch.nn.Linear(data.n_vars(), 32), torch.nn.ReLU(), torch.nn.Linear(32, classes)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    held_out = torch.from_numpy(np.random.default_rng(0).random(data.n_obs) < 0.2)
    for epoch in range(epochs):
        right = tested = 0
        for batch in batches(data, device, epoch):
            x, labels = batch["X"], batch["obs"][label].long()
            kept = held_out[torch.as_tensor(batch["index"])].to(x.device)
            known = labels >= 0  # -1: a cell without a type
            scores = model(x)
            train_on = known & ~kept
            loss = torch.nn.functional.cross_entropy(scores[train_on], labels[train_on])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((scores.argmax(1) == labels)[known & kept].sum())
            tested += int((known & kept).sum())
        print(f"epoch {epoch}: {right / max(tested, 1):.0%} of {tested} cells kept out are right")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="*")
    parser.add_argument("--label", default="cell_type")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stores = arguments.stores
        if not stores:
            for number in range(2):
                write_store(f"{folder}/{number}.zarr", 3000, number + 1)
            stores = f"{folder}/*.zarr"
        data = hr.cells(stores, obs=[arguments.label])
        train(data, arguments.label, arguments.epochs, arguments.device)


if __name__ == "__main__":
    main()
