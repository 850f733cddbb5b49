"""Batches of samples from a Zarr store by Ray Data, read by the tasks of a Ray cluster.

    python examples/ray_batches.py STORE [--columns t2m u10] [--dim time] [--batch-size 32]

Prints the mean of each column over all rows, computed batch by batch. Without a cluster's address
in RAY_ADDRESS, Ray is started on this machine.
"""

import argparse
import collections

import headrace.ray


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--columns", nargs="+")
    parser.add_argument("--dim")
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    ds = headrace.ray.read_zarr(arguments.store, columns=arguments.columns, dim=arguments.dim)
    sums, rows = collections.Counter(), 0
    for batch in ds.iter_batches(batch_size=arguments.batch_size):
        rows += len(next(iter(batch.values())))
        for name, values in batch.items():
            if values.dtype.kind in "fiu":
                sums[name] += values.astype("f8").mean(axis=tuple(range(1, values.ndim))).sum()
    for name, total in sorted(sums.items()):
        print(f"{name}: mean {total / rows:.6g} of {rows} rows")


if __name__ == "__main__":
    main()
