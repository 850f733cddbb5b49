"""Trains a classifier of cell types on AnnData stores, and resumes where it was stopped.

    python examples/cells.py [STORE ...] [--label cell_type] [--steps 200] [--state state.json]

STORE is AnnData in Zarr; without one, two small stores of made-up counts are written. The model is
a softmax regression of the logarithms of normalised counts, in NumPy: it stands for a network.
Needs SciPy. Run it under torchrun as it is: each rank gets its own cells.
"""

import argparse
import json
import tempfile
from pathlib import Path

import headrace as hr
import numpy as np
from headrace.loader import CellLoader, Transform

TYPES = ["B cell", "NK cell", "T cell"]
GENES = 200


def write_store(path, cells, seed):
    """AnnData as far as it is needed here; anndata itself writes the same and more."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(len(TYPES), size=cells)
    rates = np.random.default_rng(0).gamma(0.3, size=(len(TYPES), GENES))  # of all stores
    counts = rng.poisson(rates[codes] * rng.gamma(4, size=(cells, 1)))
    rows, columns = np.nonzero(counts)
    root = hr.create_group(path, attributes={"encoding-type": "anndata"})
    shape = {"encoding-type": "csr_matrix", "shape": list(counts.shape)}
    matrix = hr.create_group(path, "X", attributes=shape)
    save(matrix, "data", counts[rows, columns].astype("float32"))
    save(matrix, "indices", columns.astype("int32"))
    save(matrix, "indptr", np.searchsorted(rows, np.arange(cells + 1)))
    frame = {"encoding-type": "dataframe", "_index": "_index", "column-order": ["cell_type"]}
    for name, count in (("obs", cells), ("var", GENES)):
        hr.create_group(path, name, attributes=frame)
        save(root[name], "_index", [f"{name}{number}" for number in range(count)])
    label = hr.create_group(path, "obs/cell_type", attributes={"encoding-type": "categorical"})
    save(label, "codes", codes.astype("int8"))
    save(label, "categories", TYPES)


def save(group, name, values):
    dtype = str if isinstance(values, list) else values.dtype
    array = hr.create_array(group, name, shape=len(values), dtype=dtype, chunks=8192)
    array[...] = values


def train(data, label, steps, state_file):
    transform = Transform(total=1e4, log1p=True)
    loader = CellLoader(
        data, 128, window=(16, 32), weights=label, transforms={"X": transform}, seed=0
    )
    weights, done = np.zeros((data.n_vars(), len(data.obs[label].categories))), 0
    if state_file and state_file.exists():
        saved = json.loads(state_file.read_text())
        loader.load_state_dict(saved["loader"])
        weights, done = np.array(saved["weights"]), saved["done"]
    while done < steps:
        for batch in loader:  # an epoch, or the rest of one
            x, labels = batch["X"], batch["obs"][label]
            scores = x @ weights
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            right = (chances.argmax(axis=1) == labels).mean()
            chances[np.arange(len(labels)), labels] -= 1
            weights -= 0.01 / len(labels) * (x.T @ chances)
            done += 1
            if done == steps:
                break
    if state_file:
        saved = {"loader": loader.state_dict(), "weights": weights.tolist(), "done": done}
        state_file.write_text(json.dumps(saved))
    print(f"step {done}, epoch {loader.epoch}: {right:.0%} of the last batch are right")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="*")
    parser.add_argument("--label", default="cell_type")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--state", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stores = arguments.stores
        if not stores:
            for number in range(2):
                write_store(f"{folder}/{number}.zarr", 3000, number + 1)
            stores = f"{folder}/*.zarr"
        data = hr.cells(stores, obs=[arguments.label])
        train(data, arguments.label, arguments.steps, arguments.state)


if __name__ == "__main__":
    main()
