"""Arrays from one process to another, and from the workers of a DataLoader.

    python bench/e2e/shm.py --out bench/results/shm.json

100 steps of 700 x 1400 float32 (392 MB), as 100 arrays and as one xarray Dataset. Each way has a
producer of its own, forked at the start; the ways take turns. The time is that from the word to the
producer, whose objects are ready, until the consumer holds all of them. Neither side looks at the
data meanwhile; the first round is not counted, and what it brings is compared with what was sent.
"""

import argparse
import json
import mmap
import multiprocessing
import os
import statistics
import sys
import time
from importlib.metadata import version
from multiprocessing import shared_memory
from pathlib import Path

import headrace.shm as shm
import machine
import numpy as np
import torch
import torch.multiprocessing
import xarray as xr
from torch.utils.data import DataLoader, Dataset
from turns import in_turn

STEPS, SHAPE = 100, (700, 1400)
NBYTES = STEPS * SHAPE[0] * SHAPE[1] * 4
PAYLOADS = ("arrays", "dataset")
MESSAGE = b"x" * 64
PINGS = 2000
BATCH = 4
WORKERS = (1, 2, 4)
fork = multiprocessing.get_context("fork")


def dataset_of(field):
    return xr.Dataset({"t2m": (("time", "latitude", "longitude"), field, {"units": "K"})})


class Queue:
    """multiprocessing.Queue; pickles through a pipe."""

    installed = False

    def __init__(self, field):
        self.field = field
        self.queue = fork.Queue()

    def prepare(self, payload):
        """Objects that are ready to send; in the producer, untimed."""
        return list(self.field) if payload == "arrays" else [dataset_of(self.field)]

    def send(self, objects):
        for obj in objects:
            self.queue.put(obj)

    def receive(self, count):
        return [self.queue.get() for _ in range(count)]

    def end_round(self):
        """In the producer, when the consumer has dropped what it got."""

    def field_of(self, obj):
        return obj["t2m"].values if isinstance(obj, xr.Dataset) else np.asarray(obj)


class InstalledQueue(Queue):
    """The same after headrace.shm.install()."""

    installed = True


class Torch(Queue):
    """torch.multiprocessing, of tensors that are not shared yet; the Dataset as a dict of one."""

    strategy = "file_descriptor"

    def __init__(self, field):
        super().__init__(field)
        self.queue = torch.multiprocessing.get_context("fork").Queue()

    def prepare(self, payload):
        torch.multiprocessing.set_sharing_strategy(self.strategy)
        tensors = torch.from_numpy(self.field.copy())
        return [t.clone() for t in tensors] if payload == "arrays" else [{"t2m": tensors}]

    def receive(self, count):
        torch.multiprocessing.set_sharing_strategy(self.strategy)
        return super().receive(count)

    def field_of(self, obj):
        return (obj["t2m"] if isinstance(obj, dict) else obj).numpy()


class TorchFiles(Torch):
    strategy = "file_system"


class Segments(Queue):
    """multiprocessing.shared_memory, a segment for each array; its name through a pipe."""

    def __init__(self, field):
        super().__init__(field)
        self.reader, self.writer = fork.Pipe(duplex=False)
        self.segments = []

    def prepare(self, payload):
        return list(self.field) if payload == "arrays" else [self.field]

    def send(self, objects):
        for array in objects:
            segment = shared_memory.SharedMemory(create=True, size=array.nbytes)
            np.ndarray(array.shape, array.dtype, segment.buf)[...] = array
            self.segments.append(segment)
            self.writer.send((segment.name, array.shape, array.dtype.str))

    def receive(self, count):
        return [self._attach(*self.reader.recv()) for _ in range(count)]

    def _attach(self, name, shape, dtype):
        segment = shared_memory.SharedMemory(name)
        segment.unlink()
        return segment, shape, dtype

    def end_round(self):
        for segment in self.segments:
            segment.close()
        self.segments.clear()

    def field_of(self, obj):
        segment, shape, dtype = obj
        return np.ndarray(shape, dtype, segment.buf).copy()


class Ring(Queue):
    """By hand: one segment, used again in each round; places in it through a pipe."""

    def __init__(self, field):
        super().__init__(field)
        self.reader, self.writer = fork.Pipe(duplex=False)
        self.memory = mmap.mmap(-1, NBYTES)

    prepare = Segments.prepare

    def send(self, objects):
        at = 0
        for array in objects:
            self._place(at, array.shape, array.dtype.str)[...] = array
            self.writer.send((at, array.shape, array.dtype.str))
            at += array.nbytes

    def _place(self, at, shape, dtype):
        return np.ndarray(shape, dtype, self.memory, at)

    def receive(self, count):
        return [self._place(*self.reader.recv()) for _ in range(count)]


class Channel(Queue):
    """headrace.shm: objects whose arrays are in private memory."""

    def __init__(self, field):
        super().__init__(field)
        self.queue = ARENA.channel(STEPS)


class ChannelInPlace(Channel):
    """The same with the arrays in the arena already."""

    def prepare(self, payload):
        field = ARENA.empty(self.field.shape, self.field.dtype)
        field[...] = self.field
        return list(field) if payload == "arrays" else [dataset_of(field)]


class Memcpy(Queue):
    """The yardstick: one copy to memory that was used before, in one process."""

    def __init__(self, field):
        super().__init__(field)
        self.target = np.zeros_like(field)
        self.done = fork.SimpleQueue()

    prepare = Segments.prepare

    def send(self, objects):
        for source, target in zip(objects, self.target.reshape(len(objects), -1), strict=True):
            np.copyto(target, source.reshape(-1))
        self.done.put(None)

    def receive(self, count):
        self.done.get()
        return []


WAYS = {
    "multiprocessing.Queue": Queue,
    "torch, file_descriptor": Torch,
    "torch, file_system": TorchFiles,
    "shared_memory, fresh segments": Segments,
    "a ring by hand": Ring,
    "headrace, Queue after install()": InstalledQueue,
    "headrace, channel": Channel,
    "headrace, in place": ChannelInPlace,
    "memcpy": Memcpy,
}


def produce(way, orders):
    """The producer: a payload, ready, go, done."""
    if way.installed:
        shm.install(ARENA)
    while (payload := orders.recv()) is not None:
        objects = way.prepare(payload)
        orders.send(len(objects))
        orders.recv()
        way.send(objects)
        del objects
        orders.recv()
        way.end_round()
        orders.send("done")
    orders.close()


class Producer:
    def __init__(self, name, field):
        self.name, self.way = name, WAYS[name](field)
        self.orders, theirs = fork.Pipe()
        self.process = fork.Process(target=produce, args=(self.way, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def round(self, payload, check=None):
        self.orders.send(payload)
        count = self.orders.recv()
        begin = time.perf_counter()
        self.orders.send("go")
        objects = self.way.receive(count)
        seconds = time.perf_counter() - begin
        if check is not None and objects:
            got = np.stack([self.way.field_of(obj) for obj in objects]).reshape(check.shape)
            assert np.array_equal(got, check), self.name
        self.close_segments(objects)
        del objects
        self.orders.send("dropped")
        assert self.orders.recv() == "done"
        return seconds

    def close_segments(self, objects):
        for obj in objects:
            if isinstance(obj, tuple):
                obj[0].close()

    def stop(self):
        self.orders.send(None)
        self.process.join(30)


def throughput(field, rounds):
    producers = [Producer(name, field) for name in WAYS]
    results = {payload: {name: [] for name in WAYS} for payload in PAYLOADS}
    for payload in PAYLOADS:
        for producer in producers:
            producer.round(payload, check=field)
        for r in range(rounds):
            for producer in in_turn(producers, r):
                results[payload][producer.name].append(producer.round(payload))
    for producer in producers:
        producer.stop()
    return {
        payload: {name: summary(seconds) for name, seconds in by_name.items()}
        for payload, by_name in results.items()
    }


def summary(seconds):
    median = statistics.median(seconds)
    return {
        "median_ms": round(median * 1e3, 3),
        "min_ms": round(min(seconds) * 1e3, 3),
        "max_ms": round(max(seconds) * 1e3, 3),
        "gb_s": round(NBYTES / median / 1e9, 2),
    }


def echo(inbox, outbox):
    while (message := inbox.get()) is not None:
        outbox.put(message)


def latency():
    """Microseconds of a message of 64 bytes there and back."""
    pairs = {
        "multiprocessing.Queue": (fork.Queue(), fork.Queue()),
        "multiprocessing.SimpleQueue": (fork.SimpleQueue(), fork.SimpleQueue()),
        "headrace, channel": (ARENA.channel(8), ARENA.channel(8)),
    }
    times = {name: [] for name in pairs}
    children = [fork.Process(target=echo, args=pair, daemon=True) for pair in pairs.values()]
    for child in children:
        child.start()
    for r in range(5):
        for name, (there, back) in pairs.items():
            for _ in range(PINGS // 5):
                begin = time.perf_counter()
                there.put(MESSAGE)
                assert back.get() == MESSAGE
                times[name].append((time.perf_counter() - begin) * 1e6)
            if r == 0:
                times[name].clear()
    for (there, _), child in zip(pairs.values(), children, strict=True):
        there.put(None)
        child.join(30)
    return {
        name: {
            "median_us": round(statistics.median(us), 1),
            "p90_us": round(statistics.quantiles(us, n=10)[-1], 1),
        }
        for name, us in times.items()
    }


class Steps(Dataset):
    def __init__(self, field):
        self.field = field

    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        return self.field[i]


def epoch(loader):
    """Samples a second; every element is read once, as a network would."""
    begin = time.perf_counter()
    total = sum(float(batch.sum()) for batch in loader)
    assert np.isfinite(total)
    return STEPS / (time.perf_counter() - begin)


def loaders(field, rounds):
    results = []
    for workers in WORKERS:
        pair = {}
        for installed in (False, True):
            if installed:
                shm.install(ARENA)
            pair[installed] = DataLoader(
                Steps(field), BATCH, num_workers=workers, persistent_workers=True
            )
            epoch(pair[installed])
        shm.uninstall()
        rates = {installed: [] for installed in pair}
        for _ in range(rounds):
            for installed, loader in pair.items():
                rates[installed].append(epoch(loader))
        plain, own = (statistics.median(rates[installed]) for installed in (False, True))
        results.append(
            {
                "workers": workers,
                "plain_samples_s": round(plain, 1),
                "installed_samples_s": round(own, 1),
                "ratio": round(own / plain, 2),
            }
        )
        del pair
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    field = np.random.default_rng(0).standard_normal((STEPS, *SHAPE), dtype="float32")
    report = {
        **machine.head("shm", Path("/dev/shm")),
        "versions": {name: version(name) for name in ("headrace", "numpy", "torch", "xarray")},
        "settings": {
            "rounds": args.rounds,
            "nbytes": NBYTES,
            "arrays": STEPS,
            "batch": BATCH,
            "huge_pages": ARENA.stats()["huge_pages"],
        },
        "latency": latency(),
        "throughput": throughput(field, args.rounds),
        "loader": loaders(field, args.rounds),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    ARENA = shm.Arena("2GiB")
    sys.exit(main())
