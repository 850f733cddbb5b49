"""The loader in threads, children, workers of a `DataLoader`, and after a kill."""

import faulthandler
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from headrace.loader import Loader
from helpers import python, smooth
from test_threads_fork import in_fork

OPTIONS = {"batch_size": 3, "window": 2, "drop_last": False}
DATA = smooth("f4", (60, 4, 4))


@pytest.fixture
def array(store):
    array = hr.create_array(store, shape=DATA.shape, dtype="f4", chunks=(4, 4, 4))
    array[...] = DATA
    return array


def values(loader):
    return [batch["x"].tobytes() for batch in loader]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_control_c_ends_the_wait_for_a_slow_store(store, prefetch):
    """A batch would take 8 s; it is whole at the next call."""
    array = hr.create_array(store, shape=(32,), dtype="i4", chunks=(1,))
    array[...] = np.arange(32)
    code = """
import signal, sys, time, headrace as hr, numpy as np, zarr
from headrace.loader import Loader

class Slow(zarr.storage.WrapperStore):
    delay, reads = 0, 0
    async def get(self, *args, **kwargs):
        if Slow.delay:
            Slow.reads += 1
            if Slow.reads == 1:
                print("reading", flush=True)
            time.sleep(Slow.delay)
        return await super().get(*args, **kwargs)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
hr.config.set({"threads": 1})
array = hr.open_array(Slow(zarr.storage.LocalStore(sys.argv[1])))
loader = Loader({"x": array}, batch_size=32, shuffle=None, prefetch=int(sys.argv[2]))
Slow.delay = 0.25
try:
    next(loader)
except KeyboardInterrupt:
    reads, Slow.delay = Slow.reads, 0
    print("stopped", reads, flush=True)
assert (next(loader)["x"][:, 0] == np.arange(32)).all()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, store, str(prefetch)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        stopped, reads = process.stdout.readline().split()
        assert stopped == "stopped" and int(reads) < 8  # of 32
        assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("prefetch", [0, 2])
def test_child_after_fork_goes_on_from_what_was_delivered(array, prefetch):
    wanted = values(Loader({"x": array}, **OPTIONS))
    loader = Loader({"x": array}, prefetch=prefetch, **OPTIONS)
    for i in range(4):
        assert next(loader)["x"].tobytes() == wanted[i]

    def child():
        assert values(loader) == wanted[4:]
        loader.set_epoch(0)
        assert values(loader) == wanted

    in_fork(child)
    assert values(loader) == wanted[4:]


def stress(*args):
    """loader_stress.py in a process of its own, which has alarms of its own for what hangs."""
    faulthandler.cancel_dump_traceback_later()  # thousands of forks take minutes
    script = Path(__file__).with_name("loader_stress.py")
    command = [sys.executable, "-W", "error", str(script), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_children_of_a_process_whose_loaders_are_at_work():
    stress("--forks", os.environ.get("HEADRACE_LOADER_FORKS", 60))


def test_workers_of_a_process_whose_loaders_are_at_work(torch):
    starts = int(os.environ.get("HEADRACE_LOADER_STARTS", 0))
    stress("--forks", 0, "--worker-forks", max(12, 20 * starts), "--starts", starts)


def test_two_threads_at_once_are_refused(array):
    loader = Loader({"x": array}, **OPTIONS)
    refused = []

    def take():
        for _ in range(300):
            try:
                next(loader, None)
            except ValueError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(refused) <= {"[loader] another thread is using the loader"}
    assert next(loader, {}) is not None


def test_ranks_of_torchrun(array, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    mine = values(Loader({"x": array}, **OPTIONS))
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert mine == values(Loader({"x": array}, rank=1, world_size=2, **OPTIONS))


def test_store_of_python_and_a_loader_that_is_dropped():
    zarr = pytest.importorskip("zarr")
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, shape=DATA.shape, dtype="f4", chunks=(1, 4, 4))[...] = DATA
    array = hr.open_array(store)
    for _ in range(10):
        loader = Loader({"x": array}, batch_size=2, prefetch=8)
        next(loader)
        del loader


def test_interpreter_ends_in_the_middle_of_an_epoch():
    code = """
import headrace as hr, numpy as np, zarr
from headrace.loader import Loader
store = zarr.storage.MemoryStore()
zarr.create_array(store, shape=(64, 8), dtype="f4", chunks=(1, 8))[...] = 1
loader = Loader({"x": hr.open_array(store)}, batch_size=2, prefetch=4)
next(loader)
print("end")
"""
    for _ in range(3):
        assert python(code) == "end\n"


def test_import_brings_in_nothing():
    code = "import sys, headrace; print('headrace.loader' in sys.modules, 'torch' in sys.modules)"
    assert python(code) == "False False\n"
    code = "import sys, headrace.loader; print('torch' in sys.modules, 'jax' in sys.modules)"
    assert python(code) == "False False\n"


TRAIN = """
import json, os, sys
import headrace as hr
from headrace.loader import Loader
store, log, state = sys.argv[1:]
loader = Loader({"x": hr.open_array(store)}, batch_size=3, window=2, drop_last=False)
if os.path.exists(state):
    loader.load_state_dict(json.load(open(state)))
print("begin", flush=True)
for batch in loader:
    record = json.dumps({"state": loader.state_dict(), "sum": batch["x"].tobytes().hex()})
    with open(log, "a") as file:
        file.write(record + "\\n")
    with open(state + ".new", "w") as file:
        json.dump(loader.state_dict(), file)
    os.replace(state + ".new", state)
    print("step", flush=True)
"""


def test_killed_training_resumes(array, store, tmp_path):
    wanted = [value.hex() for value in values(Loader({"x": array}, **OPTIONS))]
    log, state = tmp_path / "log", tmp_path / "state"
    for steps in (3, 1, 5):
        command = [sys.executable, "-c", TRAIN, store, str(log), str(state)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(1 + steps):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    python(TRAIN, store, log, state)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    # A step whose state was not stored any more is taken again.
    by_step = {record["state"]["samples"] or 59: record["sum"] for record in records}
    assert [by_step[step] for step in sorted(by_step)] == wanted
    assert len(records) <= len(wanted) + 3


def test_memory_stays_within_the_budget(tmp_path):
    code = """
import resource, sys
import headrace as hr, numpy as np
from headrace.loader import Loader
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
array = hr.create_array(sys.argv[1], shape=(640, 256, 256), dtype="f4", chunks=(4, 256, 256),
                        compressors=hr.codecs.Zstd(level=1))
for t in range(0, 640, 4):
    array[t : t + 4] = np.arange(t, t + 4, dtype="f4")[:, None, None]
loader = Loader({"x": array}, batch_size=4, window=2, dtype="float16", memory_budget="8MiB",
                block_chunks=32)
before = peak()
for batch in loader:
    pass
print(peak() - before, loader.stats()["peak_cache_bytes"])
"""
    grown, cached = map(int, python(code, tmp_path / "a.zarr").split())
    budget = 8 << 20  # of 160 MiB
    assert cached <= budget
    # The pool's stacks and the blocks that base/buffer keeps for the next one are not the budget's.
    assert grown < 4 * budget


# ---- torch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_torch_tensors(array, torch):
    loader = Loader({"x": array}, dtype="bfloat16", **OPTIONS)
    batches = list(loader.torch())
    assert batches[0]["x"].dtype == torch.bfloat16
    wanted = np.stack([DATA[t : t + 2] for t in loader.origins(epoch=0)[:, 0]])
    got = torch.cat([batch["x"] for batch in batches])
    assert torch.equal(got, torch.from_numpy(wanted).to(torch.bfloat16))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_of_a_dataloader(array, torch, method):
    loader = Loader({"x": array}, **OPTIONS)
    workers = torch.utils.data.DataLoader(
        loader.torch(),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=multiprocessing.get_context(method),
    )
    next(loader)
    loader.set_epoch(1)
    order = loader.origins(epoch=1)[:, 0]
    got = [sample.numpy() for batch in workers for sample in batch["x"]]
    key = lambda sample: sample.tobytes()  # noqa: E731
    wanted = sorted((DATA[t : t + 2] for t in order), key=key)
    assert np.array_equal(sorted(got, key=key), wanted)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_that_live_on(array, torch):
    loader = Loader({"x": array}, **OPTIONS)
    workers = torch.utils.data.DataLoader(
        loader.torch(),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="fork",
        persistent_workers=True,
    )

    def first_batches(epoch):
        """Of each worker, as a loader of its share gives them."""
        shares = [loader.share(number, 2) for number in range(2)]
        for share in shares:
            share.set_epoch(epoch)
        return {next(share)["x"].tobytes() for share in shares}

    def given(count=None):
        batches = [batch["x"].numpy().tobytes() for batch in itertools.islice(workers, count)]
        return batches, set(batches[:2])

    samples = sorted(loader.origins(epoch=0)[:, 0])
    assert sorted(loader.origins(epoch=7)[:, 0]) == samples
    whole, first = given()
    assert first == first_batches(0)
    assert given()[1] == first_batches(1)  # the next one, untold
    assert given(3)[1] == first_batches(2)  # left in the middle
    again, first = given()
    assert first == first_batches(3)
    assert len(b"".join(again)) == len(b"".join(whole))
    loader.set_epoch(7)
    assert given()[1] == first_batches(7)
    loader.set_epoch(7)
    assert given()[1] == first_batches(7)
    assert given()[1] == first_batches(8)
    other = Loader({"x": array}, **OPTIONS)
    next(other)
    loader.load_state_dict(other.state_dict())
    rest, _ = given()
    assert len(b"".join(rest)) == len(b"".join(batch["x"].tobytes() for batch in other))


def test_jax_arrays(array):
    jax = pytest.importorskip("jax")
    loader = Loader({"x": array}, **OPTIONS)
    batch = next(loader.jax())
    assert isinstance(batch["x"], jax.Array)
    wanted = np.stack([DATA[t : t + 2] for t in loader.origins(0, 3)[:, 0]])
    assert np.array_equal(batch["x"], wanted)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [1, None])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_dataloader_of_the_loader_itself(array, torch, workers, batch_size):
    loader = Loader({"x": array}, **OPTIONS)
    given = torch.utils.data.DataLoader(
        loader, batch_size=batch_size, num_workers=workers, multiprocessing_context=None
    )
    with pytest.raises(TypeError, match=r"pass loader\.torch\(\) to torch's DataLoader"):
        next(iter(given))
