"""Arrays from one process to another, and from the workers of a DataLoader.

    python bench/run.py shm -- --rounds 5 --out bench/results/shm.json

100 steps of 700 x 1400 float32 (392 MB), as arrays and as one xarray Dataset. Each way has a
producer of its own, forked at the start; the ways take turns. The time is that from the word to the
producer, whose objects are ready, until the consumer holds all of them. Neither side looks at the
data meanwhile; the first round is not counted, and what it brings is compared with what was sent.
"""

import mmap
import multiprocessing
import os
import statistics
import time
from functools import partial
from itertools import chain
from multiprocessing import shared_memory
from pathlib import Path

import harness
import headrace.shm as shm
import numpy as np
import torch
import torch.multiprocessing
import xarray as xr
from torch.utils.data import DataLoader, Dataset

SHAPE = (700, 1400)
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
        self.memory = mmap.mmap(-1, field.nbytes)

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
        self.queue = ARENA.channel(len(field))


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
    results = {}
    for payload in PAYLOADS:
        for producer in producers:
            producer.round(payload, check=field)
        ways = {producer.name: partial(producer.round, payload) for producer in producers}
        results[payload] = {
            name: {
                **harness.figures(seconds, "ms", 3),
                "gb_s": round(field.nbytes / statistics.median(seconds) / 1e9, 2),
            }
            for name, seconds in harness.in_turns(ways, rounds, warm_ups=0).items()
        }
    for producer in producers:
        producer.stop()
    return results


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
    children = [fork.Process(target=echo, args=pair, daemon=True) for pair in pairs.values()]
    for child in children:
        child.start()

    def pings(there, back):
        us = []
        for _ in range(PINGS // 5):
            begin = time.perf_counter()
            there.put(MESSAGE)
            assert back.get() == MESSAGE
            us.append((time.perf_counter() - begin) * 1e6)
        return us

    rounds = harness.in_turns({name: partial(pings, *pair) for name, pair in pairs.items()}, 4)
    for (there, _), child in zip(pairs.values(), children, strict=True):
        there.put(None)
        child.join(30)
    return {
        name: {
            "median_us": round(statistics.median(us), 1),
            "p90_us": round(statistics.quantiles(us, n=10)[-1], 1),
        }
        for name, us in ((name, list(chain(*of_name))) for name, of_name in rounds.items())
    }


class Steps(Dataset):
    def __init__(self, field):
        self.field = field

    def __len__(self):
        return len(self.field)

    def __getitem__(self, i):
        return self.field[i]


def epoch(loader):
    """Samples a second; every element is read once, as a network would."""
    begin = time.perf_counter()
    total = sum(float(batch.sum()) for batch in loader)
    assert np.isfinite(total)
    return len(loader.dataset) / (time.perf_counter() - begin)


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
        ways = {installed: partial(epoch, loader) for installed, loader in pair.items()}
        rates = harness.in_turns(ways, rounds, warm_ups=0)
        plain, own = (statistics.median(rates[installed]) for installed in (False, True))
        results.append(
            {
                "workers": workers,
                "plain_samples_s": round(plain, 1),
                "installed_samples_s": round(own, 1),
                "ratio": round(own / plain, 2),
            }
        )
        del pair, ways
    return results


def main(args):
    field = np.random.default_rng(0).standard_normal((args.steps, *SHAPE), dtype="float32")
    report = {
        **harness.head("shm", Path("/dev/shm"), "headrace", "numpy", "torch", "xarray"),
        "settings": {
            "rounds": args.rounds,
            "nbytes": field.nbytes,
            "arrays": len(field),
            "batch": BATCH,
            "huge_pages": ARENA.stats()["huge_pages"],
        },
        "latency": latency(),
        "throughput": throughput(field, args.rounds),
        "loader": loaders(field, args.rounds),
    }
    harness.save(report, args.out)


if __name__ == "__main__":
    arguments = harness.parser(__doc__, rounds=5, steps=100).parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    ARENA = shm.Arena(max(512 << 20, arguments.steps * (2 << 30) // 100))
    main(arguments)
