"""One array and its group under all kinds of writers and readers, checked against a model.

Threads and processes run seeded operations and note what each was told, when it began and when it
was over. The model is an array as a sequence of blocks that only `append`, `resize` and `overwrite`
change; what every operation was told must be explained by some order of all of them that keeps to
the times. The order of appends, shrinks and overwrites is known from what the store itself says:
each of them writes its number into what it stores (an append in its rows, the others in an
attribute), so no search is needed.

HEADRACE_TEST_STEPS is the number of operations of all tests together; HEADRACE_TEST_SEED the seed.
"""

import json
import os
import subprocess
import sys
import threading
import time
import warnings

import headrace as hr
import numpy as np
import pytest

STEPS = int(os.environ.get("HEADRACE_TEST_STEPS", "2400"))
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "0"))

GRIDS = {
    "v2": {"zarr_format": 2, "chunks": 5},
    "v3": {"chunks": 5},
    "shards": {"chunks": 2, "shards": 6},
    "rectilinear": {"chunks": [[3, 5]]},
    "uncompressed": {"chunks": 4, "compressors": None},
}
# Cells in front that writers own, one each; then appended rows.
CELLS = 8
GONE = (FileNotFoundError, KeyError)
# What a call may answer when the array was overwritten under its hands.
REPLACED = (*GONE, hr.ConflictError)


class Worker:
    """What one thread does, with handles of its own."""

    def __init__(self, number, seed, store, grid, nsteps):
        self.number = number
        self.rng = np.random.default_rng([seed, number])
        self.store = store
        self.grid = GRIDS[grid]
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
            # Two who shrink to less than they saw would make each other grow it.
            kind = "append" if kind == "shrink" and self.number > 0 else kind
            if self.rng.random() < 0.2:
                self.array = hr.open_array(self.store, "a", mode="r+")
            self.turn += 1
            began = time.monotonic_ns()
            answer = getattr(self, kind)()
            self.log.append((self.number, self.turn, kind, began, time.monotonic_ns(), answer))
        return self.log

    def tag(self):
        return self.number * 1_000_000 + self.turn

    # Each returns what it was told.

    def append(self):
        nrows = int(self.rng.integers(1, 8))
        (end,) = self.array.append(np.full(nrows, self.tag(), "i8"))
        return [end - nrows, end, self.tag()]

    def write(self):
        """A cell of its own, in a chunk that it shares with all the others."""
        self.array[self.number] = self.tag()
        assert hr.open_array(self.store, "a")[self.number] == self.tag(), "a write was lost"
        return self.tag()

    def write_all_cells(self):
        """All that a stale handle takes for the array, as far as it is this worker's."""
        self.array[self.number : self.number + 1] = [self.tag()]
        return self.tag()

    def read(self):
        return hr.open_array(self.store, "a")[CELLS:].tolist()

    def shrink(self):
        """To somewhere in the appended rows; they are told by what is left."""
        array = hr.open_array(self.store, "a", mode="r+")
        rows = array.shape[0]
        to = int(self.rng.integers(CELLS, rows + 1))
        array.resize(to)
        return to

    def describe(self):
        self.array.attrs[f"{self.number}.{self.turn}"] = self.tag()
        return f"{self.number}.{self.turn}"

    def describe_group(self):
        self.group.attrs[f"{self.number}.{self.turn}"] = self.tag()
        return f"{self.number}.{self.turn}"

    def forget(self):
        """Sets an attribute and takes it back."""
        name = f"gone {self.number}"
        self.array.attrs[name] = self.tag()
        assert self.array.attrs.pop(name) == self.tag()
        return name

    def consolidate(self):
        hr.consolidate_metadata(self.store)
        return None

    def create(self):
        name = f"b{int(self.rng.integers(3))}"
        try:
            made = hr.create_array(
                self.store,
                name,
                shape=4,
                chunks=2,
                dtype="i8",
                attributes={"by": self.tag()},
                zarr_format=self.group.zarr_format,
            )
        except ValueError as error:
            assert "already" in str(error)
            return [name, None]
        made[...] = self.tag()
        return [name, self.tag()]

    def overwrite(self):
        """Another array in the place of one that `create` makes."""
        name = f"b{int(self.rng.integers(3))}"
        made = hr.create_array(
            self.store,
            name,
            shape=4,
            chunks=2,
            dtype="i8",
            attributes={"by": self.tag()},
            overwrite=True,
            zarr_format=self.group.zarr_format,
        )
        return [name, self.tag() if made.shape == (4,) else None]

    def look(self):
        """A member, its attribute and data are of one creation, or the data is not there yet."""
        name = f"b{int(self.rng.integers(3))}"
        try:
            found = hr.open_array(self.store, name)
        except GONE:
            return None
        by = found.attrs.get("by")
        # It has no elements while it is removed; Zarr 2 has another file for attributes.
        assert found.shape[0] in {0, 4, *range(6, 4 + 2 * 8 + 1, 2)}, found.shape
        assert by is not None or found.zarr_format == 2
        return [name, by]

    def grow_member(self):
        """append() to what others overwrite."""
        name = f"b{int(self.rng.integers(3))}"
        try:
            hr.open_array(self.store, name, mode="r+").append(np.full(2, self.tag(), "i8"))
            hr.open_array(self.store, name, mode="r+").resize(4)
        except REPLACED:
            return None
        return name


APPENDS = {
    "append": 4,
    "write": 3,
    "write_all_cells": 1,
    "read": 3,
    "describe": 2,
    "describe_group": 2,
    "forget": 1,
    "consolidate": 0.3,
    "create": 0.5,
}
SHRINKS = APPENDS | {"shrink": 2}
OVERWRITES = {
    "create": 2,
    "overwrite": 2,
    "look": 4,
    "describe_group": 2,
    "consolidate": 0.5,
    "append": 1,
    "write": 1,
    "grow_member": 1,
}


def start(store, grid):
    options = GRIDS[grid]
    group = hr.create_group(store, zarr_format=options.get("zarr_format", 3))
    array = hr.create_array(store, "a", shape=CELLS, dtype="i8", fill_value=-1, **options)
    array[...] = 0
    return group


# --- the checks


def check_numbered(log, store):
    """Attributes: what was set is there, what was taken back is not."""
    for kind, node in (
        ("describe", hr.open_array(store, "a")),
        ("describe_group", hr.open_group(store, use_consolidated=False)),
    ):
        expected = {entry[5]: entry[0] * 1_000_000 + entry[1] for entry in log if entry[2] == kind}
        found = {name: value for name, value in node.attrs.items() if name != "by"}
        assert found == expected, kind


def check_cells(log, store):
    last = {}
    for number, turn, kind, *_ in log:
        if kind in ("write", "write_all_cells"):
            last[number] = max(last.get(number, 0), number * 1_000_000 + turn)
    cells = hr.open_array(store, "a")[:CELLS]
    for number, tag in last.items():
        assert cells[number] == tag, "a write was lost"


def check_appends(log, store):
    """Without shrinks: intervals are disjoint and whole, in an order that keeps to the times."""
    appends = sorted((e[5], e[3], e[4]) for e in log if e[2] == "append")
    rows = hr.open_array(store, "a")[CELLS:].tolist()
    place = CELLS
    latest = 0
    for (first, end, tag), began, over in appends:
        assert first == place, "an append lost its rows or shares them"
        assert rows[first - CELLS : end - CELLS] == [tag] * (end - first)
        assert over >= latest, "an append was over before one in front of it began"
        latest = max(latest, began)
        place = end
    assert place - CELLS == len(rows)
    ends = [(end, began, over) for (_, end, _), began, over in appends]
    for *_, kind, began, over, seen in log:
        if kind != "read":
            continue
        assert seen == rows[: len(seen)], "a read saw rows that are not there"
        assert len(seen) + CELLS in {CELLS, *(end for end, *_ in ends)}, "a read saw a part"
        done = max((end for end, _, after in ends if after < began), default=CELLS)
        begun = max((end for end, before, _ in ends if before < over), default=CELLS)
        assert done <= len(seen) + CELLS <= begun, "a read is out of order"


def blocks_in(rows):
    """(tag, number of rows) of the appends in it."""
    blocks = []
    for row in rows:
        if blocks and blocks[-1][0] == row:
            blocks[-1][1] += 1
        else:
            blocks.append([row, 1])
    return blocks


def check_shrunk(log, store):
    """Each row was appended once; of a block the first rows are left, without fill values."""
    sizes = {e[5][2]: e[5][1] - e[5][0] for e in log if e[2] == "append"}
    rows = hr.open_array(store, "a")[CELLS:].tolist()
    shrinks = any(e[2] == "shrink" for e in log)
    views = [(e[5], e[3], e[4]) for e in log if e[2] == "read"] + [(rows, None, None)]
    for seen, *_ in views:
        tags = [tag for tag, _ in blocks_in(seen) if tag != -1]
        # A read takes its time: beside a shrink it may see chunks from before and after.
        assert seen is not rows or len(tags) == len(set(tags)), "a block is there twice"
        for tag, count in blocks_in(seen):
            # A chunk may be erased between the look at the shape and the read of it.
            assert tag in sizes or tag == -1, f"{tag} was never appended"
            assert tag == -1 or count <= sizes[tag]
    assert -1 not in rows, "a row of the end state was erased"
    # What an append was told, and nobody shrank afterwards, is there.
    last = max((e[4] for e in log if e[2] == "shrink"), default=0)
    after = [e[5] for e in log if e[2] == "append" and e[3] > last]
    for first, end, tag in after:
        assert rows[first - CELLS : end - CELLS] == [tag] * (end - first)
    assert shrinks or sum(sizes.values()) == len(rows)


def check_members(log, store):
    made = {e[5][1] for e in log if e[2] in ("create", "overwrite")}
    for _, _, kind, _, _, seen in log:
        if kind == "look" and seen and seen[1] is not None:
            assert seen[1] in made
    group = hr.open_group(store, use_consolidated=False)
    for name in ("b0", "b1", "b2"):
        creations = [e for e in log if e[2] in ("create", "overwrite") and e[5][0] == name]
        tags = {e[5][1] for e in creations} - {None}
        if not tags:
            assert name not in group
            continue
        found = group[name]
        by = found.attrs["by"]
        assert by in tags
        # None that began after this one was over.
        mine = next(e for e in creations if e[5][1] == by)
        overwrites = [e for e in creations if e[2] == "overwrite" and e[0:2] != mine[0:2]]
        assert not [e for e in overwrites if e[3] > mine[4]], "an overwrite was undone"
        assert found.shape == (4,)


CHECKS = {
    "appends": (APPENDS, [check_numbered, check_cells, check_appends, check_members]),
    "shrinks": (SHRINKS, [check_numbered, check_cells, check_shrunk, check_members]),
    "overwrites": (OVERWRITES, [check_numbered, check_cells, check_appends, check_members]),
}


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


def check(what, log, store):
    for each in CHECKS[what][1]:
        each(log, store)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("what", CHECKS)
def test_threads(tmp_path, grid, what):
    store = str(tmp_path / "s")
    start(store, grid)
    nsteps = max(STEPS // (len(GRIDS) * len(CHECKS) * 2 * 4), 1)
    workers = [Worker(i, SEED, store, grid, nsteps) for i in range(4)]
    check(what, run_threads(workers, CHECKS[what][0]), store)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("what", CHECKS)
def test_processes(tmp_path, grid, what):
    """Of two threads each. A cell belongs to one process, and so does the chunk of the cells, as
    chunks are not shared among processes: only the first one writes there."""
    store = str(tmp_path / "s")
    start(store, grid)
    nsteps = max(STEPS // (len(GRIDS) * len(CHECKS) * 2 * 4), 1)
    children = [
        subprocess.Popen(
            [sys.executable, __file__, store, grid, what, str(first), str(nsteps)],
            stdout=subprocess.PIPE,
        )
        for first in (0, 2)
    ]
    log = []
    for child in children:
        log += [tuple(entry) for entry in json.loads(child.stdout.read())]
        child.stdout.close()
        assert child.wait() == 0
    check(what, log, store)


def main(store, grid, what, first, nsteps):
    kinds = dict(CHECKS[what][0])
    if first != "0":
        for kind in ("write", "write_all_cells"):
            kinds.pop(kind, None)
    workers = [Worker(int(first) + i, SEED, store, grid, int(nsteps)) for i in range(2)]
    warnings.simplefilter("error")
    print(json.dumps(run_threads(workers, kinds), default=int))


if __name__ == "__main__":
    main(*sys.argv[1:])
