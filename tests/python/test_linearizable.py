"""One array and its group under all kinds of writers and readers, checked against a model.

Threads and processes run seeded operations and note what each was told, when it began and when it
was over. One order of all of them must explain that (history.py, array_model.py) for each of: the
rows of the array (append, resize, read), its first cells (write, read), the attributes of the array
and of the group (set, taken back, read all at once), arrays of the group that come and go (create,
overwrite, remove, look).

HEADRACE_TEST_STEPS is the number of operations of all tests together, HEADRACE_TEST_SEED the first
seed, HEADRACE_TEST_RESULTS a file for the numbers of what was done. long_runs.py makes many runs.
"""

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from array_model import CELLS, CHECKS, FILL

STEPS = int(os.environ.get("HEADRACE_TEST_STEPS", "4800"))
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "0"))
RESULTS = os.environ.get("HEADRACE_TEST_RESULTS")

GRIDS = {
    "v2": {"zarr_format": 2, "chunks": 5},
    "v3": {"chunks": 5},
    "shards": {"chunks": 2, "shards": 6},
    "rectilinear": {"chunks": [[3, 5]]},
    "uncompressed": {"chunks": 4, "compressors": None},
}
WORKERS = 4
SPELLINGS = ["{}", "{}-link", "file://{}", "{}-link/../s/."]
# Of a worker in one history: documents grow with it, so many short ones do more than a long one.
LONGEST = 60
GONE = (FileNotFoundError, KeyError)
# What a call may answer when the array was overwritten under its hands.
REPLACED = (*GONE, hr.ConflictError)


class Refused(Exception):
    """An answer."""


class Worker:
    """What one thread does, with handles of its own."""

    def __init__(self, number, seed, store, nsteps):
        self.number = number
        self.rng = np.random.default_rng([seed, number])
        # Whatever it is called, it is one store.
        self.store = store if isinstance(store, hr.Store) else SPELLINGS[number].format(store)
        self.nsteps = nsteps
        self.log = []
        self.turn = 0
        self.array = hr.open_array(store, "a", mode="r+")
        self.group = hr.open_group(store, mode="r+")

    def run(self, kinds):
        names = list(kinds)
        weights = np.array([kinds[name] for name in names], float)
        for _ in range(self.nsteps):
            kind = self.rng.choice(names, p=weights / weights.sum())
            if self.rng.random() < 0.2:
                self.array = hr.open_array(self.store, "a", mode="r+")
            self.turn += 1
            getattr(self, kind)()
        return self.log

    def tag(self):
        return self.number * 1_000_000 + self.turn

    def told(self, kind, act):
        """Does it and notes what it was told."""
        began = time.monotonic_ns()
        try:
            answer = act()
        except Refused as refused:
            kind, (answer,) = "refused", refused.args
        self.log.append((self.number, self.turn, kind, began, time.monotonic_ns(), answer))
        return answer

    def append(self):
        nrows = int(self.rng.integers(1, 8))

        def act():
            (end,) = self.array.append(np.full(nrows, self.tag(), "i8"))
            return [end - nrows, end, self.tag()]

        self.told("append", act)

    def write(self):
        """A cell of its own, in a chunk that it shares with others."""

        def act():
            self.array[self.number] = self.tag()
            return self.tag()

        self.told("write", act)
        found = self.told("cells", lambda: hr.open_array(self.store, "a")[:CELLS].tolist())
        assert found[self.number] == self.tag(), "a write was lost"

    def read(self):
        self.told("read", lambda: hr.open_array(self.store, "a")[...].tolist())

    def look_at_shape(self):
        self.told("shape", lambda: hr.open_array(self.store, "a").shape[0])

    def resize(self):
        """To somewhere in the rows that it saw: others may have shrunk it to less since."""
        array = hr.open_array(self.store, "a", mode="r+")
        to = int(self.rng.integers(CELLS, array.shape[0] + 1))

        def act():
            array.resize(to)
            return to

        self.told("resize", act)

    def shrink(self):
        """A resize that never grows, as one worker alone does it and all others append."""
        if self.number == 0:
            self.resize()
        else:
            self.append()

    def _set(self, kind, node, name):
        def act():
            node.attrs[name] = self.tag()
            return ["set", name, self.tag()]

        self.told(kind, act)

    def describe(self):
        self._set("attributes", self.array, f"{self.number}.{self.turn}")

    def describe_group(self):
        self._set("group attributes", self.group, f"{self.number}.{self.turn}")

    def forget(self):
        """Sets an attribute and takes it back."""
        name = f"gone {self.number}"
        self._set("attributes", self.array, name)
        self.told("attributes", lambda: ["pop", name, self.array.attrs.pop(name)])

    def read_attributes(self):
        self.told("attributes", lambda: ["all", dict(hr.open_array(self.store, "a").attrs), 0])

    def read_group_attributes(self):
        def act():
            return ["all", dict(hr.open_group(self.store, use_consolidated=False).attrs), 0]

        self.told("group attributes", act)

    def consolidate(self):
        hr.consolidate_metadata(self.store)
        # Of members it may be older than they are, but it describes some.
        assert hr.open_group(self.store, use_consolidated=True)["a"].ndim == 1

    # Members that come and go.

    def _name(self):
        return f"b{int(self.rng.integers(3))}"

    def _make(self, name, **options):
        return hr.create_array(
            self.store,
            name,
            shape=4,
            chunks=2,
            dtype="i8",
            attributes={"by": self.tag()},
            zarr_format=self.group.zarr_format,
            **options,
        )

    @contextmanager
    def may_be_refused(self, name):
        """After a removal `create` writes chunks of nobody, which the next `create` refuses; those
        of Zarr 2 have names that a user's files may have as well."""
        try:
            yield
        except ValueError as error:
            assert "is no Zarr node" in str(error) and self.group.zarr_format == 2
            raise Refused([name, None]) from error

    def create(self):
        name = self._name()

        def act():
            try:
                self.made = self._make(name)
            except ValueError as error:
                if "chunks of an array that is gone" in str(error):
                    raise Refused([name, None]) from error
                assert "already" in str(error)
                return [name, None]
            return [name, self.tag()]

        if self.told("create", act)[1] is not None:
            self.made[...] = self.tag()

    def overwrite(self):
        """Another array in the place of one that `create` makes."""
        name = self._name()

        def act():
            with self.may_be_refused(name):
                self._make(name, overwrite=True)
            return [name, self.tag()]

        self.told("overwrite", act)

    def remove(self):
        name = self._name()

        def act():
            with self.may_be_refused(name):
                self.group.store._remove_nodes(name)
            return [name, None]

        self.told("remove", act)

    def look(self):
        name = self._name()

        def act():
            try:
                found = hr.open_array(self.store, name)
                return [name, found.attrs.get("by"), found.shape[0], found[...].tolist()]
            except GONE:
                return [name, None, None, None]

        self.told("look", act)

    def grow_member(self):
        """append() to what others overwrite."""
        name = self._name()

        def act():
            try:
                hr.open_array(self.store, name, mode="r+").append(np.full(2, self.tag(), "i8"))
                hr.open_array(self.store, name, mode="r+").resize(4)
            except REPLACED:
                return [name, None]
            return [name, self.tag()]

        self.told("grow", act)


APPENDS = {
    "append": 4,
    "write": 3,
    "read": 3,
    "look_at_shape": 1,
    "describe": 2,
    "read_attributes": 1,
    "describe_group": 2,
    "read_group_attributes": 1,
    "forget": 1,
    "consolidate": 0.3,
    "create": 0.5,
}
SHRINKS = APPENDS | {"shrink": 2}
RESIZES = APPENDS | {"resize": 2}
OVERWRITES = {
    "create": 2,
    "overwrite": 2,
    "remove": 1,
    "look": 4,
    "describe_group": 2,
    "read_group_attributes": 1,
    "consolidate": 0.5,
    "append": 1,
    "write": 1,
    "grow_member": 1,
}
KINDS = {"appends": APPENDS, "shrinks": SHRINKS, "resizes": RESIZES, "overwrites": OVERWRITES}


def start(store, grid):
    options = GRIDS[grid]
    hr.create_group(store, zarr_format=options.get("zarr_format", 3))
    array = hr.create_array(store, "a", shape=CELLS, dtype="i8", fill_value=FILL, **options)
    array[...] = 0


# --- the runs


def run_threads(workers, kinds):
    failures = []

    def run(worker):
        try:
            worker.run(kinds)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [entry for worker in workers for entry in worker.log]


class Child:
    """A process of two workers at a time."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, words):
        print(json.dumps(words), file=self.process.stdin, flush=True)

    def answer(self):
        line = self.process.stdout.readline()
        assert line, f"a child has ended: {self.process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["log"]

    def close(self):
        with self.process:
            self.process.stdin.close()
            assert self.process.wait(60) == 0

    def kill(self):
        self.process.kill()
        self.process.communicate()


def be_child():
    for line in sys.stdin:
        store, what, first, seed, nsteps = json.loads(line)
        try:
            kinds = dict(KINDS[what])
            if first != 0:  # a chunk of cells is one process's
                del kinds["write"]
            workers = [Worker(first + i, seed, store, nsteps) for i in range(WORKERS // 2)]
            print(json.dumps({"log": []}), flush=True)
            sys.stdin.readline()
            answer = {"log": run_threads(workers, kinds)}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


@pytest.fixture(scope="module")
def children():
    both = [Child(), Child()]
    yield both
    for child in both:
        child.close()


@pytest.fixture(scope="module")
def tally():
    """The numbers of what all tests did."""
    done = Counter(seed=SEED, steps=0, histories=0, violations=0)
    begin = time.perf_counter()
    yield done
    if RESULTS:
        result = {**done, "seconds": round(time.perf_counter() - begin, 1)}
        Path(RESULTS).write_text(json.dumps(result))


def run_histories(tmp_path, tally, grid, run, in_memory=False):
    steps = max(STEPS // (len(GRIDS) * len(KINDS) * 3 * WORKERS), 1)
    for seed in range(SEED, SEED + -(-steps // LONGEST)):
        nsteps = min(LONGEST, steps - (seed - SEED) * LONGEST)
        if in_memory:
            store = hr.memory_store()
        else:
            folder = tmp_path / f"{seed}"
            folder.mkdir()
            (folder / "s-link").symlink_to("s")
            store = str(folder / "s")
        start(store, grid)
        tally["violations"] += 1  # until it is seen that it is none
        log = run(store, seed, nsteps)
        tally["steps"] += WORKERS * nsteps
        tally["histories"] += 1
        (tmp_path / f"{seed}.json").write_text(json.dumps(log, default=int))
        for check in CHECKS:
            check(log, store)
        tally["violations"] -= 1


@pytest.mark.parametrize("where", ["folder", "memory"])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("what", KINDS)
def test_threads(tmp_path, tally, grid, what, where):
    def run(store, seed, nsteps):
        workers = [Worker(i, seed, store, nsteps) for i in range(WORKERS)]
        return run_threads(workers, KINDS[what])

    run_histories(tmp_path, tally, grid, run, in_memory=where == "memory")


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("what", KINDS)
def test_processes(tmp_path, tally, children, grid, what):
    """Of two threads each. A cell belongs to one process, and so does the chunk of the cells, as
    chunks are not shared among processes: only the first one writes there."""

    def run(store, seed, nsteps):
        for first, child in zip((0, 2), children, strict=True):
            child.tell([store, what, first, seed, nsteps])
        for child in children:
            child.answer()
        for child in children:
            child.tell("go")
        return [tuple(entry) for child in children for entry in child.answer()]

    try:
        run_histories(tmp_path, tally, grid, run)
    except BaseException:
        for child in children:
            child.kill()
        children[:] = [Child(), Child()]
        raise


if __name__ == "__main__":
    be_child()
