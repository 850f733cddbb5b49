"""One loader in a process of its own, for loader.py.

It imports the peer and says hello; asked to go, with a job, it goes through epochs. Each peer
generates batches, dicts of arrays with a sample a row, and None after each epoch.
"""

import contextlib
import gc
import platform
import resource
import sys
import time
from pathlib import Path

import numpy as np
from e2e.worker import serve
from harness import versions

SEED = 7


class Peer:
    packages: tuple[str, ...] = ()
    ranks = True  # whether it shares an epoch between processes

    def facts(self):
        """What the library itself says of an epoch."""
        return {}


class Headrace(Peer):
    packages = ("headrace",)

    def __init__(self):
        import headrace
        from headrace.loader import Loader

        self._open_group, self._loader = headrace.open_group, Loader
        self._stats = None

    def budget(self, job):
        return {}

    def batches(self, job):
        group = self._open_group(job["path"])
        loader = self._loader(
            {name: group[name] for name in job["variables"]},
            batch_size=job["batch"],
            sample_dim="time",
            shuffle="block",
            block_chunks=job["block_chunks"],
            seed=SEED,
            device="cpu",
            drop_last=False,
            **self.budget(job),
        )
        while True:
            for batch in loader:
                yield {name: np.asarray(values)[:, 0] for name, values in batch.items()}
                self._stats = loader.stats
            yield None

    def facts(self):
        return {"decoded_amplification": round(self._stats()["read_amplification"], 3)}


class HeadraceLean(Headrace):
    def budget(self, job):
        chunk = job["chunk_steps"] * job["sample_nbytes"]
        batch = job["batch"] * job["sample_nbytes"]
        return {"memory_budget": 2 * job["block_chunks"] * chunk + 4 * batch}


class Steps:
    """Steps of arrays of zarr-python, for a DataLoader; opened where they are read."""

    def __init__(self, path, variables, count):
        self.path, self.variables, self.count = path, variables, count
        self._arrays = None

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        import zarr

        if self._arrays is None:
            group = zarr.open_group(self.path, mode="r")
            self._arrays = {name: group[name] for name in self.variables}
        return {name: array[i] for name, array in self._arrays.items()}


class ShuffledSteps:
    """Single steps of a rank in random order, for workers of DALI: the time and the variables."""

    def __init__(self, job):
        self._names = ["time", *job["variables"]]
        self._steps = Steps(job["path"], self._names, job["steps"])
        self._rank, self._ranks = job["rank"], job["gpus"]
        self._batches = job["steps"] // job["gpus"] // job["batch"]

    def __call__(self, info):
        if info.iteration >= self._batches:
            raise StopIteration
        order = np.random.default_rng([SEED, info.epoch_idx]).permutation(len(self._steps))
        step = self._steps[order[self._rank :: self._ranks][info.idx_in_epoch]]
        return tuple(np.asarray(step[name]) for name in self._names)


class DataLoaderOfZarr(Peer):
    packages = ("torch", "zarr")
    pipeline = None  # zarr-python's default

    def __init__(self):
        import torch
        import zarr

        self._torch = torch
        if self.pipeline:
            zarr.config.set({"codec_pipeline.path": self.pipeline})  # of the workers too

    def dataset(self, job):
        return Steps(job["path"], job["variables"], job["steps"])

    def loader(self, job, dataset, **options):
        return self._torch.utils.data.DataLoader(
            dataset,
            batch_size=job["batch"],
            num_workers=job["workers"],
            persistent_workers=job["workers"] > 0,
            **options,
        )

    def batches(self, job):
        order = self._torch.Generator().manual_seed(SEED)
        loader = self.loader(job, self.dataset(job), shuffle=True, generator=order)
        while True:
            for batch in loader:
                yield {name: np.asarray(values) for name, values in batch.items()}
            yield None


class DataLoaderOfZarrs(DataLoaderOfZarr):
    packages = ("torch", "zarr", "zarrs")
    pipeline = "zarrs.ZarrsCodecPipeline"

    def __init__(self):
        import zarrs  # noqa: F401

        super().__init__()


class Fields:
    """Data sets of one step as dicts of arrays, with their times where those are given."""

    def __init__(self, batches, times):
        self._batches, self._times = batches, times

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, i):
        step = {name: field.values[0] for name, field in self._batches[i].items()}
        return step if self._times is None else {"time": self._times[i], **step}


class Xbatcher(DataLoaderOfZarr):
    packages = ("torch", "xbatcher", "xarray", "zarr")

    def __init__(self):
        import xarray
        import xbatcher

        super().__init__()
        self._xarray, self._xbatcher = xarray, xbatcher

    def dataset(self, job):
        ds = self._xarray.open_zarr(job["path"], chunks=None)[job["variables"]]
        return Fields(self._xbatcher.BatchGenerator(ds, {**ds.sizes, "time": 1}), job.get("times"))


class Insitubatch(Peer):
    packages = ("insitubatch", "zarr", "obstore")

    def __init__(self):
        import insitubatch

        self._library = insitubatch

    def dataset(self, job):
        library = self._library
        store = library.obstore_store(f"file://{job['path']}")
        geometries = library.open_geometries(store, variables=job["variables"])
        manifest = library.split_by_chunk(
            geometries[job["variables"][0]], fractions=(1.0, 0.0, 0.0)
        )
        return library.InSituDataset(
            store,
            manifest,
            geometries=geometries,
            batch_size=job["batch"],
            block_chunks=job["block_chunks"],
            seed=SEED,
        )

    def batches(self, job):
        dataset = self.dataset(job)
        with contextlib.closing(dataset):
            for epoch in range(sys.maxsize):
                dataset.set_epoch(epoch)
                for batch in dataset.train:
                    yield batch.arrays
                yield None


class Beluga(Peer):
    packages = ("zarr-beluga",)

    def __init__(self):
        import beluga

        self._library = beluga

    def reader(self, job):
        path = Path(job["path"])
        return self._library.open_zarr_group(
            str(path.parent), path.name, variables=job["variables"]
        )

    def batches(self, job):
        reader = self.reader(job)
        random = np.random.default_rng(SEED)
        while True:
            order = random.permutation(job["steps"]).tolist()
            samples = (np.from_dlpack(s)[0] for s in reader.stream(order, frames=1))
            for first in range(0, len(order), job["batch"]):
                count = min(job["batch"], len(order) - first)
                batch = np.stack([next(samples) for _ in range(count)])
                yield dict(zip(job["variables"], np.moveaxis(batch, 1, 0), strict=True))
            yield None


PEERS = {
    "headrace": Headrace,
    "headrace-lean": HeadraceLean,
    "dataloader-zarr": DataLoaderOfZarr,
    "dataloader-zarrs": DataLoaderOfZarrs,
    "xbatcher": Xbatcher,
    "insitubatch": Insitubatch,
    "beluga": Beluga,
}


def cpu_seconds() -> float:
    """Of this process and of the children that it waited for."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def read_nbytes() -> int:
    """What read calls gave, of this process and of the children that it waited for."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


class Marks:
    """Tells by the sums of the fields' first rows, which are exact, which steps came."""

    def __init__(self, job):
        self._step_of = {
            name: {mark: i for i, mark in enumerate(marks)} for name, marks in job["marks"].items()
        }
        self._steps = list(range(job["steps"]))
        self._seen = []

    def take(self, batch) -> int:
        steps = [
            [self._step_of[name][mark] for mark in fields[:, 0].sum(axis=1, dtype="f8").tolist()]
            for name, fields in batch.items()
        ]
        if len(steps) != len(self._step_of) or any(of_one != steps[0] for of_one in steps):
            raise ValueError(f"a batch of different steps: {steps}")
        self._seen += steps[0]
        return len(steps[0])

    def end_epoch(self) -> None:
        if sorted(self._seen) != self._steps:
            raise ValueError("an epoch without each step once")
        self._seen.clear()


def measure(peer, job) -> dict:
    marks = Marks(job)
    waits = []
    samples = epochs = 0
    cpu, read = cpu_seconds(), read_nbytes()
    begin = time.perf_counter()
    batches = peer.batches(job)
    while True:
        asked = time.perf_counter()
        batch = next(batches)
        now = time.perf_counter()
        if batch is None:
            marks.end_epoch()
            epochs += 1
        else:
            waits.append(now - asked)
            samples += marks.take(batch)
            del batch
        late = now - begin > job["seconds"] and len(waits) > 1
        if late or epochs == job["epochs"]:
            break
    seconds = time.perf_counter() - begin
    facts = peer.facts()
    batches.close()  # ends its workers, so that what they did counts
    del batches
    gc.collect()
    nbytes = samples * job["sample_nbytes"]
    steady = waits[1:] or waits
    return {
        "seconds": round(seconds, 3),
        "samples": samples,
        "epochs": epochs,
        "samples_s": round(samples / seconds, 1),
        "decoded_gb_s": round(nbytes / seconds / 1e9, 3),
        "cpu_s_per_gb": round((cpu_seconds() - cpu) / (nbytes / 1e9), 3),
        "first_batch_s": round(waits[0], 4),
        "wait_p50_ms": round(float(np.percentile(steady, 50)) * 1e3, 3),
        "wait_p99_ms": round(float(np.percentile(steady, 99)) * 1e3, 3),
        "read_nbytes": read_nbytes() - read,
        **facts,
    }


class Worker:
    def __init__(self, name):
        self._peer = PEERS[name]()

    def hello(self, _) -> dict:
        found = {"python": platform.python_version(), **versions("numpy", *self._peer.packages)}
        return {"versions": found}

    def go(self, job) -> dict:
        return measure(self._peer, job)


if __name__ == "__main__":
    sys.exit(serve(Worker))
