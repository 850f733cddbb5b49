"""The loaders that loader.py measures, each as batches in the memory of its rank's device.

A peer generates the times of a batch's steps with a dict of tensors, (x - mean) / std in bfloat16,
and None after each epoch. What a library has for pinned memory and copies ahead is used.
"""

import contextlib
import sys
from itertools import islice
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import loader_worker


def ready(job, name, values):
    """The elements of a variable as the training takes them."""
    mean, std = job["statistics"][name]
    return ((values.to(job["device"], non_blocking=True) - mean) / std).to(torch.bfloat16)


class Headrace:
    packages = ("headrace", "torch")

    def __init__(self, job):
        import headrace

        headrace.config.set(threads=job["cores"])
        self._open_group = headrace.open_group

    def batches(self, job):
        from headrace.loader import Loader

        group = self._open_group(job["path"])
        self.loader = Loader(
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


class DataLoaderOfZarr:
    packages = ("torch", "zarr")
    pipeline = "zarr.core.codec_pipeline.BatchedCodecPipeline"

    def __init__(self, job):
        import zarr

        zarr.config.set({"codec_pipeline.path": self.pipeline})  # of the workers too

    def dataset(self, job):
        return loader_worker.Steps(job["path"], ["time", *job["variables"]], job["steps"])

    def batches(self, job):
        from torch.utils.data import DataLoader, DistributedSampler

        dataset = self.dataset(job)
        sampler = DistributedSampler(dataset, job["gpus"], job["rank"], seed=loader_worker.SEED)
        loader = DataLoader(
            dataset,
            batch_size=job["batch"],
            sampler=sampler,
            num_workers=job["cores"],
            pin_memory=job["device"] != "cpu",
            persistent_workers=True,
        )
        for epoch in range(sys.maxsize):
            sampler.set_epoch(epoch)
            for batch in loader:
                times = batch.pop("time").flatten().tolist()
                yield times, {name: ready(job, name, values) for name, values in batch.items()}
            yield None

    def facts(self):
        return {}


class DataLoaderOfZarrs(DataLoaderOfZarr):
    packages = ("torch", "zarr", "zarrs")
    pipeline = "zarrs.ZarrsCodecPipeline"

    def __init__(self, job):
        import zarrs  # noqa: F401

        super().__init__(job)


class FieldsWithTime(loader_worker.Fields):
    def __init__(self, batches, times):
        super().__init__(batches)
        self._times = times

    def __getitem__(self, i):
        return {"time": self._times[i], **super().__getitem__(i)}


class Xbatcher(DataLoaderOfZarr):
    packages = ("torch", "xbatcher", "xarray", "zarr")

    def __init__(self, job):
        import xarray
        import xbatcher

        super().__init__(job)
        self._xarray, self._xbatcher = xarray, xbatcher

    def dataset(self, job):
        ds = self._xarray.open_zarr(job["path"], chunks=None)[job["variables"]]
        batches = self._xbatcher.BatchGenerator(ds, {**ds.sizes, "time": 1})
        return FieldsWithTime(batches, job["times"])


class Insitubatch:
    packages = ("insitubatch", "torch", "zarr", "obstore")

    def __init__(self, job):
        import insitubatch
        import insitubatch.frameworks

        if job["gpus"] > 1:
            raise ImportError("insitubatch 0.2.0 has no ranks")
        self._library = insitubatch

    def batches(self, job):
        frameworks = self._library.frameworks
        dataset = loader_worker.Insitubatch.dataset(self._library, job)
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

    def facts(self):
        return {}


class Beluga:
    packages = ("zarr-beluga", "torch")

    def __init__(self, job):
        import beluga
        import beluga.torch

        self._library = beluga

    def batches(self, job):
        path = Path(job["path"])
        reader = self._library.open_zarr_group(
            str(path.parent), path.name, variables=job["variables"]
        )
        dataset = self._library.torch.BelugaDataset(
            reader,
            frames=1,
            seed=loader_worker.SEED,
            rank=job["rank"],
            world_size=job["gpus"],
            pin_memory=job["device"] != "cpu",
        )
        for epoch in range(sys.maxsize):
            dataset.set_epoch(epoch)
            steps = iter(dataset.order(epoch).tolist())
            samples = iter(self._library.torch.DeviceLoader(dataset, job["device"]))
            while taken := [sample[0] for sample in islice(samples, job["batch"])]:
                fields = torch.stack(taken).unbind(1)
                times = [job["times"][next(steps)] for _ in taken]
                named = zip(job["variables"], fields, strict=True)
                yield times, {name: ready(job, name, values) for name, values in named}
            yield None

    def facts(self):
        return {}


class DaliOfZarr:
    """DALI's external source, fed by zarr-python in worker processes."""

    packages = ("nvidia-dali-cuda130", "torch", "zarr")

    def __init__(self, job):
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

    def facts(self):
        return {}


PEERS = {
    "headrace": Headrace,
    "dataloader-zarr": DataLoaderOfZarr,
    "dataloader-zarrs": DataLoaderOfZarrs,
    "xbatcher": Xbatcher,
    "insitubatch": Insitubatch,
    "beluga": Beluga,
    "dali-zarr": DaliOfZarr,
}
