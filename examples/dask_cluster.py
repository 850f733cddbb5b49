"""Read and write Zarr arrays from the workers of a Dask cluster, a whole shard a task.

    python examples/dask_cluster.py STORE [--array x] [--scheduler tcp://host:8786]

Writes the array's deviation from its mean along the first axis beside it, as "anomaly". Without a
scheduler's address a cluster of two workers is started on this machine.
"""

import argparse

import headrace as hr
import headrace.dask
from distributed import Client, LocalCluster


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--array", default="x")
    parser.add_argument("--scheduler")
    arguments = parser.parse_args()
    cluster = arguments.scheduler or LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    )
    with Client(cluster) as client:
        source = hr.open_array(arguments.store, arguments.array)
        x = hr.dask.from_zarr(source)
        done = hr.dask.to_zarr(
            x - x.mean(axis=0, dtype=x.dtype),
            arguments.store,
            "anomaly",
            chunks=source.chunks,
            shards=source.shards,
            overwrite=True,
        )
        print(f"{done!r} by {len(client.scheduler_info()['workers'])} workers")
    if arguments.scheduler is None:
        cluster.close()


if __name__ == "__main__":
    main()
