"""The loaders that loader.py measures, each as batches in the memory of its rank's device.

A peer generates the times of a batch's steps with a dict of tensors, (x - mean) / std in bfloat16,
and None after each epoch. What a library has for pinned memory and copies ahead is used.
"""

import contextlib
import sys
from itertools import islice

import torch
from e2e import loader_worker


def ready(job, name, values):
    """The elements of a variable as the training takes them."""
    mean, std = job["statistics"][name]
    return ((values.to(job["device"], non_blocking=True) - mean) / std).to(torch.bfloat16)


class Headrace(loader_worker.Headrace):
    packages = ("headrace", "torch")

    def batches(self, job):
        import headrace

        headrace.config.set(threads=job["cores"])
        group = self._open_group(job["path"])
        self.loader = self._loader(
            {"time": group["time"], **{name: group[name] for name in job["variables"]}},
            batch_size=job["batch"],
            sample_dim="time",
            block_chunks=job["block_chunks"],
            seed=loader_worker.SEED,
            device=job["device"],
            dtype=dict.fromkeys(job["variables"], "bfloat16"),
            normalize=job["statistics"],
            memory_budget=job["memory_budget"],
            drop_last=False,
        )
        while True:
            for batch in self.loader.torch():
                yield batch.pop("time").flatten().tolist(), batch
            yield None

    def facts(self):
        numbers = self.loader.stats().items()
        return {name: value for name, value in numbers if isinstance(value, (int, float))}


class FromDataLoader:
    """What is asked of a DataLoader here, before the peer whose it is."""

    def batches(self, job):
        dataset = self.dataset(job)
        sampler = torch.utils.data.DistributedSampler(
            dataset, job["gpus"], job["rank"], seed=loader_worker.SEED
        )
        loader = self.loader(job, dataset, sampler=sampler, pin_memory=job["device"] != "cpu")
        for epoch in range(sys.maxsize):
            sampler.set_epoch(epoch)
            for batch in loader:
                times = batch.pop("time").flatten().tolist()
                yield times, {name: ready(job, name, values) for name, values in batch.items()}
            yield None


class DataLoaderOfZarr(FromDataLoader, loader_worker.DataLoaderOfZarr):
    def dataset(self, job):
        return loader_worker.Steps(job["path"], ["time", *job["variables"]], job["steps"])


class DataLoaderOfZarrs(DataLoaderOfZarr, loader_worker.DataLoaderOfZarrs):
    pass


class Xbatcher(FromDataLoader, loader_worker.Xbatcher):
    pass


class Insitubatch(loader_worker.Insitubatch):
    packages = ("insitubatch", "torch", "zarr", "obstore")
    ranks = False  # 0.2.0 has none

    def batches(self, job):
        from insitubatch import frameworks

        dataset = self.dataset(job)
        if job["device"] != "cpu":
            frameworks.pin_host_buffers(dataset.train)
        with contextlib.closing(dataset):
            for epoch in range(sys.maxsize):
                dataset.set_epoch(epoch)
                for batch in dataset.train:
                    fields = frameworks.to_torch(batch, device=job["device"])
                    times = [job["times"][i] for i in batch.sample_indices]
                    yield times, {name: ready(job, name, x) for name, x in fields.items()}
                yield None


class Beluga(loader_worker.Beluga):
    packages = ("zarr-beluga", "torch")

    def batches(self, job):
        import beluga.torch

        dataset = beluga.torch.BelugaDataset(
            self.reader(job),
            frames=1,
            seed=loader_worker.SEED,
            rank=job["rank"],
            world_size=job["gpus"],
            pin_memory=job["device"] != "cpu",
        )
        for epoch in range(sys.maxsize):
            dataset.set_epoch(epoch)
            steps = iter(dataset.order(epoch).tolist())
            samples = iter(beluga.torch.DeviceLoader(dataset, job["device"]))
            while taken := [sample[0] for sample in islice(samples, job["batch"])]:
                fields = torch.stack(taken).unbind(1)
                times = [job["times"][next(steps)] for _ in taken]
                named = zip(job["variables"], fields, strict=True)
                yield times, {name: ready(job, name, values) for name, values in named}
            yield None


class DaliOfZarr(loader_worker.Peer):
    """DALI's external source, fed by zarr-python in worker processes."""

    packages = ("nvidia-dali-cuda130", "torch", "zarr")

    def __init__(self):
        from nvidia.dali import fn, pipeline_def
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        self._fn, self._pipeline_def, self._iterator = fn, pipeline_def, DALIGenericIterator

    def _pipeline(self, job):
        on_gpu = job["device"] != "cpu"

        @self._pipeline_def(
            batch_size=job["batch"],
            num_threads=job["cores"],
            device_id=job["rank"] if on_gpu else None,
            py_num_workers=job["cores"],
            py_start_method="spawn",
        )
        def define():
            times, *fields = self._fn.external_source(
                source=loader_worker.ShuffledSteps(job),
                num_outputs=1 + len(job["variables"]),
                batch=False,
                parallel=True,
            )
            return times, *(field.gpu() if on_gpu else field for field in fields)

        return define()

    def batches(self, job):
        names = ["time", *job["variables"]]
        iterator = self._iterator(self._pipeline(job), names, auto_reset=True)
        while True:
            for (batch,) in iterator:
                times = batch.pop("time").flatten().tolist()
                yield times, {name: ready(job, name, values) for name, values in batch.items()}
            yield None


PEERS = {
    "headrace": Headrace,
    "dataloader-zarr": DataLoaderOfZarr,
    "dataloader-zarrs": DataLoaderOfZarrs,
    "xbatcher": Xbatcher,
    "insitubatch": Insitubatch,
    "beluga": Beluga,
    "dali-zarr": DaliOfZarr,
}
