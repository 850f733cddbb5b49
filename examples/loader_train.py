"""Trains a linear forecast on windows of a field, and resumes where it was stopped.

    python examples/loader_train.py [STORE] [--steps 200] [--state state.json]

STORE is an array of (time, lat, lon); without one, a small field of travelling waves is made. The
model predicts the next step of each point from two steps before, by least mean squares in batches:
it stands for a network. Run it under torchrun as it is: each rank gets its own samples.
"""

import argparse
import json
import tempfile
from pathlib import Path

import headrace as hr
import numpy as np
from headrace.loader import Loader


def travelling_waves(path):
    time, lat, lon = np.ogrid[0:512, 0:32, 0:64]
    field = np.sin(0.2 * lon + 0.3 * time) + np.cos(0.1 * lat - 0.2 * time)
    array = hr.create_array(
        path,
        shape=field.shape,
        dtype="float32",
        chunks=(8, 32, 64),
        dimension_names=["time", "lat", "lon"],
    )
    array[...] = field
    return array


def train(array, steps, state_file):
    loader = Loader({"x": array}, batch_size=16, sample_dim="time", window=2, lead_time=1, seed=0)
    weights, done = np.zeros(2), 0
    if state_file and state_file.exists():
        saved = json.loads(state_file.read_text())
        loader.load_state_dict(saved["loader"])
        weights, done = np.array(saved["weights"]), saved["done"]
    while done < steps:
        for batch in loader:  # an epoch, or the rest of one
            x = batch["x"].astype("float64")
            before, after = x[:, :2], x[:, 2]
            error = np.einsum("s,bsij->bij", weights, before) - after
            weights -= 0.3 * np.einsum("bij,bsij->s", error, before) / error.size
            done += 1
            if done == steps:
                break
    if state_file:
        saved = {"loader": loader.state_dict(), "weights": weights.tolist(), "done": done}
        state_file.write_text(json.dumps(saved))
    stats = loader.stats()
    print(f"step {done}, epoch {loader.epoch}: error {np.sqrt(np.mean(error**2)):.4f}")
    print(f"waited {stats['stall_s']:.3f} s, read amplification {stats['read_amplification']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", nargs="?")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--state", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        array = (
            hr.open_array(arguments.store)
            if arguments.store
            else travelling_waves(f"{folder}/waves.zarr")
        )
        train(array, arguments.steps, arguments.state)


if __name__ == "__main__":
    main()
