"""Children of a process whose loaders are at work: none may hang, crash or get other batches.

    python tests/python/loader_stress.py --forks 1000 --json bench/results/loader-processes.json
    python tests/python/loader_stress.py --forks 0 --worker-forks 1000 --starts 50

Bare forks (``--forks``) go round all pairs of what the parent is busy with and what the child does;
they end by turns through ``os._exit``, as an interpreter does, and killed in the middle. Workers of
`torch.utils.data.DataLoader` are forked (``--worker-forks``, two a DataLoader) and started with
spawn and forkserver (``--starts`` DataLoaders each). Every process has an alarm that writes the
stacks of its threads and ends it. At the end the parent's own loaders must have gone on, unharmed.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import headrace as hr
import numpy as np
from forking import fork
from headrace.loader import Loader

SHAPE = (120, 16, 16)
OPTIONS = {"batch_size": 6, "window": 2, "drop_last": False, "block_chunks": 8}
TAKEN = 5  # batches that a parent took before it forks
WORKERS = 2
ALARM_S = 60


def watch() -> None:
    """Ends this process with the stacks of its threads unless it calls again in time.

    An alarm is of one process: a child after fork has none until it calls.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)
    signal.alarm(ALARM_S)


class Stores:
    """An array in chunks and the same in shards, with the batches of an epoch of it."""

    def __init__(self, folder: str) -> None:
        data = np.random.default_rng(0).normal(size=SHAPE).astype("f4")
        self.paths = [f"{folder}/chunks.zarr", f"{folder}/shards.zarr"]
        for path, shards in zip(self.paths, (None, (16, 16, 16)), strict=True):
            array = hr.create_array(
                path, shape=SHAPE, dtype="f4", chunks=(4, 16, 16), shards=shards
            )
            array[...] = data
        self.wanted = [batches(self.loader()), batches(self.loader(1))]

    def loader(self, number: int = 0, **options) -> Loader:
        return Loader({"x": hr.open_array(self.paths[number])}, **OPTIONS, **options)


def host(batch: dict) -> bytes:
    values = batch["x"]
    return (values if isinstance(values, np.ndarray) else values.to_numpy()).tobytes()


def batches(loader: Loader) -> list[bytes]:
    return [host(batch) for batch in loader]


def check(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


# ---- what the parent is busy with


class Busy:
    """Threads that repeat something until the end; what they did is counted, their errors kept."""

    def __init__(self, *bodies: Callable[[], None]) -> None:
        self._stop, self.errors = threading.Event(), []
        self.rounds = [0] * len(bodies)
        self._threads = [
            threading.Thread(target=self._repeat, args=(number, body))
            for number, body in enumerate(bodies)
        ]

    def _repeat(self, number: int, body: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                body()
                self.rounds[number] += 1
        except BaseException:
            self.errors.append(traceback.format_exc())

    def __enter__(self) -> Busy:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()  # in a child they are over

    def check(self) -> None:
        """That nothing went wrong, and that it went on to the end."""
        check(not self.errors, "\n".join(self.errors))
        check(all(self.rounds), "a thread of the parent stands still")


def epoch_is(loader: Loader, wanted: list[bytes]) -> None:
    loader.set_epoch(0)
    check(batches(loader) == wanted, "the parent got other batches")
    loader._core.seek(0, 0)


def read_ahead(array, wanted: bytes) -> None:
    futures = [array.read_async() for _ in range(4)]
    for future in futures:
        check(np.asarray(future.result(ALARM_S)).tobytes() == wanted, "the parent read others")


def open_and_drop(stores: Stores) -> None:
    loader = stores.loader(prefetch=4)
    check(host(next(loader)) == stores.wanted[0][0], "the parent got another first batch")
    loader.close()


def resting(stores: Stores) -> Busy:
    return Busy()


def taking(stores: Stores) -> Busy:
    return Busy(
        partial(epoch_is, stores.loader(), stores.wanted[0]),
        partial(epoch_is, stores.loader(1, prefetch=0), stores.wanted[1]),
    )


def taking_on_a_device(stores: Stores) -> Busy:
    return Busy(partial(epoch_is, stores.loader(1, device="simt"), stores.wanted[1]))


def reading(stores: Stores) -> Busy:
    array = hr.open_array(stores.paths[1])
    return Busy(partial(read_ahead, array, array[...].tobytes()))


def opening(stores: Stores) -> Busy:
    return Busy(partial(open_and_drop, stores), partial(open_and_drop, stores))


PARENTS = (resting, taking, taking_on_a_device, reading, opening)

# ---- what the child does, with a loader of the parent that has given TAKEN batches


def go_on(stores: Stores, loader: Loader) -> None:
    check(batches(loader) == stores.wanted[0][TAKEN:], "not what comes next")
    epoch_is(loader, stores.wanted[0])


def start_anew(stores: Stores, loader: Loader) -> None:
    (x,) = loader._sources[0]["variables"]  # an array of the parent's
    epoch_is(Loader({"x": x["array"]}, **OPTIONS), stores.wanted[0])
    epoch_is(stores.loader(1, device="simt"), stores.wanted[1])


def leave_in_the_middle(stores: Stores, loader: Loader) -> None:
    check(host(next(loader)) == stores.wanted[0][TAKEN], "not what comes next")
    next(stores.loader(1, prefetch=4))


def fork_again(stores: Stores, loader: Loader) -> None:
    own = stores.loader()
    for _ in range(TAKEN):
        next(own)
    forked(partial(go_on, stores, own), leave_at_once)
    forked(partial(go_on, stores, loader), leave_as_interpreters_do)
    go_on(stores, own)


CHILDREN = (go_on, start_anew, leave_in_the_middle, fork_again)

# ---- how it ends


def leave_at_once() -> None:
    os._exit(0)


def leave_as_interpreters_do() -> None:
    raise SystemExit(0)  # up to the end of the program, with what is registered for it


def leave_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


ENDS = {leave_at_once: 0, leave_as_interpreters_do: 0, leave_killed: -signal.SIGKILL}


def forked(body: Callable[[], None], leave: Callable[[], None]) -> None:
    """Runs it in a child after fork, which may take ALARM_S."""
    child = fork()
    if child == 0:
        try:
            watch()
            body()
            leave()
        except SystemExit:
            raise
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    check(code == ENDS[leave], f"{body}, {leave.__name__}: a child ended with {code}")


def run_forks(stores: Stores, rounds: int) -> None:
    for parent in PARENTS:
        with parent(stores) as busy:
            loader = stores.loader(prefetch=4)
            for _ in range(TAKEN):
                next(loader)
            for child, leave in rounds * list(product(CHILDREN, ENDS)):
                watch()
                forked(partial(child, stores, loader), leave)
            go_on(stores, loader)
        busy.check()


# ---- workers of a DataLoader


@contextmanager
def workers(loader: Loader, method: str, persistent: bool) -> Iterator:
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*use of fork.*", DeprecationWarning)
        yield torch.utils.data.DataLoader(
            loader.torch(),
            batch_size=None,
            num_workers=WORKERS,
            multiprocessing_context=multiprocessing.get_context(method),
            worker_init_fn=_watch_worker,
            persistent_workers=persistent,
            timeout=ALARM_S,
        )


def _watch_worker(_: int) -> None:
    watch()


def samples(values: Iterator[bytes]) -> Counter:
    nbytes = 2 * SHAPE[1] * SHAPE[2] * 4
    return Counter(b[i : i + nbytes] for b in values for i in range(0, len(b), nbytes))


def run_dataloaders(stores: Stores, method: str, count: int) -> None:
    wanted = [samples(of_store) for of_store in stores.wanted]
    with taking(stores) as busy:
        for number in range(count):
            watch()
            which, way = number % 2, number % 3
            loader = stores.loader(which)
            with workers(loader, method, persistent=way == 1) as source:
                if way == 2:  # left in the middle
                    next(iter(source))
                    continue
                got = samples(batch["x"].numpy().tobytes() for batch in source)
                check(got == wanted[which], "workers gave other samples")
                if way == 1:  # the workers' next epoch
                    check(sum(len(batch["x"]) for batch in source) == SHAPE[0] - 1, "not an epoch")
    busy.check()


def run(args: argparse.Namespace, stores: Stores) -> dict[str, dict]:
    """What was done, by name: how often, and in how many seconds."""
    rounds = math.ceil(args.forks / len(PARENTS) / len(CHILDREN) / len(ENDS))
    dataloaders = math.ceil(args.worker_forks / WORKERS)
    work = {
        "forks": (run_forks, (rounds,), rounds * len(PARENTS) * len(CHILDREN) * len(ENDS)),
        "forked workers": (run_dataloaders, ("fork", dataloaders), WORKERS * dataloaders),
        "spawn": (run_dataloaders, ("spawn", args.starts), args.starts),
        "forkserver": (run_dataloaders, ("forkserver", args.starts), args.starts),
    }
    done = {}
    for name, (body, arguments, count) in work.items():
        if count == 0:
            continue
        begin = time.perf_counter()
        body(stores, *arguments)
        done[name] = {"count": count, "seconds": round(time.perf_counter() - begin, 1)}
        print(f"{name}: {count} in {done[name]['seconds']} s", flush=True)
    return done


def report(done: dict[str, dict]) -> dict:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "e2e"))
    import machine

    return {
        "schema": 1,
        "what": "loader-processes",
        "date": machine.now(),
        "commit": machine.commit(),
        "machine": machine.describe(Path(tempfile.gettempdir())),
        "python": platform.python_version(),
        "settings": {"workers": WORKERS, "alarm_s": ALARM_S},
        "done": done,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forks", type=int, default=60)
    parser.add_argument("--worker-forks", type=int, default=0)
    parser.add_argument("--starts", type=int, default=0, help="of DataLoaders, by each method")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    owner, folder = os.getpid(), tempfile.mkdtemp()
    try:
        done = run(args, Stores(folder))
    finally:
        if os.getpid() == owner:  # a child that leaves as interpreters do comes by
            shutil.rmtree(folder)
    if args.json:
        args.json.write_text(json.dumps(report(done), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
