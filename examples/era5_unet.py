"""Train a small U-Net on ERA5-like fields: two time steps in, the next one out.

    python examples/era5_unet.py era5.zarr                  # batches by headrace.loader
    python examples/era5_unet.py era5.zarr --plain          # by a DataLoader over xarray
    python examples/era5_unet.py era5.zarr --device cuda --timeline timeline.svg
    python examples/era5_unet.py era5.zarr --trace trace.json    # the loader's stages, for Perfetto

The store is made when it is missing: --steps and --size say how large. Both ways train on the same
windows, normalised, in a shuffled order, and print how long the network waited for them.
"""

import argparse
import json
import resource
import time
from contextlib import nullcontext
from pathlib import Path

import headrace as hr
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VARIABLES = ("t2m", "z500")
WINDOW = 3  # two steps in, one out


def make_store(path, steps, nlat, nlon, chunk_steps):
    """Smooth waves that travel, with noise, rounded to 16 bit as GRIB packing does."""
    rng = np.random.default_rng(0)
    wavenumber = np.hypot(np.fft.fftfreq(nlat)[:, None] * nlat, np.fft.rfftfreq(nlon) * nlon)
    amplitude = (1 + wavenumber) ** -2.0
    frequency = 0.2 * np.sqrt(wavenumber)
    group = hr.create_group(path, overwrite=True)
    for name in VARIABLES:
        phase = rng.uniform(0, 2 * np.pi, wavenumber.shape)
        array = group.create_array(
            name,
            shape=(steps, nlat, nlon),
            dtype="float32",
            chunks=(min(chunk_steps, steps), nlat, nlon),
            compressors=hr.codecs.Blosc("lz4", 5, "shuffle"),
            dimension_names=("time", "lat", "lon"),
        )
        total = squares = 0.0
        for first in range(0, steps, chunk_steps):
            t = np.arange(first, min(first + chunk_steps, steps))[:, None, None]
            waves = np.fft.irfft2(amplitude * np.exp(1j * (phase - frequency * t)), s=(nlat, nlon))
            fields = waves / waves.std() + 0.02 * rng.standard_normal(waves.shape)
            block = (280 + 10 * np.round(fields * 2**10) / 2**10).astype("float32")
            array[first : first + len(block)] = block
            total += block.sum(dtype="f8")
            squares += np.square(block, dtype="f8").sum()
        mean = total / array.size
        array.attrs.update({"mean": mean, "std": (squares / array.size - mean**2) ** 0.5})
    hr.consolidate_metadata(path)


def statistics_of(group):
    return {name: (group[name].attrs["mean"], group[name].attrs["std"]) for name in VARIABLES}


def headrace_batches(args):
    """Tensors (batch, WINDOW, lat, lon) by variable, decoded and normalised on the device."""
    from headrace.loader import Loader

    group = hr.open_group(args.store)
    loader = Loader(
        {name: group[name] for name in VARIABLES},
        batch_size=args.batch,
        sample_dim="time",
        window=WINDOW - 1,
        lead_time=1,
        shuffle="block",
        normalize=statistics_of(group),
        device=args.device,
        memory_budget=args.memory_budget,
    )
    return loader.torch()


class Windows(torch.utils.data.Dataset):
    """Windows of an xarray data set, read one by one."""

    def __init__(self, path):
        import xarray as xr

        self.statistics = statistics_of(hr.open_group(path))
        self.ds = xr.open_zarr(path, chunks=None)

    def __len__(self):
        return self.ds.sizes["time"] - WINDOW + 1

    def __getitem__(self, i):
        window = self.ds.isel(time=slice(i, i + WINDOW))
        return {
            name: torch.from_numpy((window[name].values - np.float32(mean)) / np.float32(std))
            for name, (mean, std) in self.statistics.items()
        }


def plain_batches(args):
    """The same by worker processes; on the host, the training loop copies them to the device."""
    return torch.utils.data.DataLoader(
        Windows(args.store),
        batch_size=args.batch,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        pin_memory=args.device != "cpu",
    )


def convolutions(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(4, outputs),
        nn.GELU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.GELU(),
    )


class UNet(nn.Module):
    """What changes from the last step to the next."""

    def __init__(self, width):
        super().__init__()
        fields = len(VARIABLES)
        self.first = convolutions(fields * (WINDOW - 1), width)
        self.second = convolutions(width, 2 * width)
        self.bottom = convolutions(2 * width, 4 * width)
        self.third = convolutions(6 * width, 2 * width)
        self.last = convolutions(3 * width, width)
        self.head = nn.Conv2d(width, fields, 1)

    def forward(self, x):
        nlat, nlon = x.shape[-2:]
        x = F.pad(x, (0, -nlon % 4, 0, -nlat % 4), mode="replicate")
        fine = self.first(x)
        middle = self.second(F.max_pool2d(fine, 2))
        x = self.bottom(F.max_pool2d(middle, 2))
        x = self.third(torch.cat([F.interpolate(x, scale_factor=2), middle], 1))
        x = self.last(torch.cat([F.interpolate(x, scale_factor=2), fine], 1))
        return self.head(x)[..., :nlat, :nlon]


class Training:
    def __init__(self, args):
        torch.manual_seed(0)
        self.device = torch.device(args.device)
        self.net = UNet(args.width).to(self.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.mixed = args.mixed

    def step(self, batch):
        """The loss; the device has finished when it returns."""
        fields = [batch[name].to(self.device, non_blocking=True) for name in VARIABLES]
        x = torch.cat([field[:, :-1] for field in fields], 1)
        now = torch.stack([field[:, -2] for field in fields], 1)
        wanted = torch.stack([field[:, -1] for field in fields], 1)
        with torch.autocast(self.device.type, torch.bfloat16) if self.mixed else nullcontext():
            change = self.net(x)
        loss = F.mse_loss(now + change.float(), wanted)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def cpu_seconds():
    """Of this process and of workers that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def train(args):
    """The report, and when each wait and step began and ended."""
    training = Training(args)
    spans, losses, samples, nbytes = [], [], 0, 0
    cpu, begin = cpu_seconds(), time.perf_counter()
    batches = plain_batches(args) if args.plain else headrace_batches(args)
    for _ in range(args.epochs):
        asked = time.perf_counter()
        for batch in batches:
            came = time.perf_counter()
            losses.append(training.step(batch))
            samples += len(batch[VARIABLES[0]])
            nbytes += sum(batch[name].nbytes for name in VARIABLES)
            ended = time.perf_counter()
            spans.append((asked - begin, came - begin, ended - begin))
            asked = ended
    del batches  # ends the workers, so that their time counts
    seconds = spans[-1][-1]
    waits = np.array([came - asked for asked, came, _ in spans])
    report = {
        "loader": "plain" if args.plain else "headrace",
        "samples_s": round(samples / seconds, 2),
        "stall_percent": round(100 * waits.sum() / seconds, 1),
        "decoded_gb_s": round(nbytes / seconds / 1e9, 4),
        "first_batch_s": round(spans[0][1], 3),
        "wait_p50_ms": round(float(np.percentile(waits[1:], 50)) * 1e3, 2),
        "wait_p99_ms": round(float(np.percentile(waits[1:], 99)) * 1e3, 2),
        "step_p50_ms": round(float(np.median([e - c for _, c, e in spans])) * 1e3, 2),
        "cpu_s": round(cpu_seconds() - cpu, 2),
        "loss": [round(losses[0], 5), round(losses[-1], 5)],
    }
    return report, spans


def plot(path, spans, title):
    """Waits and steps of the network over time."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1.8), layout="constrained")
    axes.broken_barh([(a, c - a) for a, c, _ in spans], (0, 1), color="tab:red", label="waits")
    axes.broken_barh([(c, e - c) for _, c, e in spans], (0, 1), color="tab:green", label="trains")
    axes.set(title=title, xlabel="s", yticks=[])
    axes.legend(loc="upper right")
    figure.savefig(path)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--plain", action="store_true", help="DataLoader and xarray")
    parser.add_argument("--workers", type=int, default=2, help="of the DataLoader")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mixed", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--memory-budget", default="4GiB", help="of headrace's loader")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--width", type=int, default=16, help="channels of the first level")
    parser.add_argument("--steps", type=int, default=240, help="of a store that is made")
    parser.add_argument("--size", type=int, nargs=2, default=(181, 360), metavar=("LAT", "LON"))
    parser.add_argument("--chunk-steps", type=int, default=8)
    parser.add_argument("--timeline", type=Path, help="a plot of waits and steps")
    parser.add_argument("--trace", type=Path, help="what headrace does when, as a Chrome trace")
    args = parser.parse_args(arguments)
    if args.mixed is None:
        args.mixed = args.device != "cpu"
    return args


def main():
    args = parse()
    if not args.store.exists():
        make_store(args.store, args.steps, *args.size, args.chunk_steps)
    with hr.trace(args.trace) if args.trace else nullcontext():
        report, spans = train(args)
    print(json.dumps(report))
    if args.timeline:
        title = f"{report['loader']}: {report['stall_percent']} % of the time waiting"
        plot(args.timeline, spans, title)


if __name__ == "__main__":
    main()
