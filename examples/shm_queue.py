"""Send large arrays from worker processes: one line more than without shared memory."""

from concurrent.futures import ProcessPoolExecutor

import headrace.shm
import numpy as np


def simulate(seed):
    return {"seed": seed, "field": np.random.default_rng(seed).normal(size=(500, 700))}


if __name__ == "__main__":
    headrace.shm.install(nbytes="128MiB")  # this line
    with ProcessPoolExecutor(2) as executor:
        for result in executor.map(simulate, range(8)):
            print(result["seed"], f"{result['field'].mean():+.4f}")
