"""headrace.shm.install: multiprocessing's queues, pipes, pools and executors, and torch's loader,
unchanged, in children of every start method."""

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler

import headrace.shm as shm
import numpy as np
import pytest
from helpers import python, shm_names
from shm_children import METHODS, answer, answer_pipe, block_of, facts, field, tell

ARENA_NBYTES = 8 << 20

# Python 3.12 and later, of any process with threads, such as those of a queue.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


@pytest.fixture
def arena():
    """Installed; everything that a test sends is to be gone when it ends."""
    arena = shm.install(shm.Arena(ARENA_NBYTES))
    yield arena
    shm.uninstall()
    gc.collect()
    arena.reclaim(orphans=True)
    stats = arena.stats()
    assert (stats["used_nbytes"], stats["in_transit"]) == (0, 0)


@pytest.fixture(params=METHODS)
def context(request):
    return multiprocessing.get_context(request.param)


def check_answer(found, sent):
    """What a child says about an array that it got, and one that it made of it."""
    told, made = found
    assert told == (sent.dtype.str, sent.shape, facts(sent)[2], False, True)
    assert (made == sent + 1).all()
    assert block_of(made) is not None and not made.flags.writeable


def run(context, target, *args):
    process = context.Process(target=target, args=args)
    process.start()
    return process


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "JoinableQueue"])
def test_queue(arena, context, kind):
    inbox, outbox = getattr(context, kind)(), getattr(context, kind)()
    process = run(context, answer, inbox, outbox)
    inbox.put(field())
    check_answer(outbox.get(), field())
    process.join(30)
    assert process.exitcode == 0


def test_pipe(arena, context):
    here, there = context.Pipe()
    process = run(context, answer_pipe, there)
    here.send(field())
    check_answer(here.recv(), field())
    process.join(30)
    assert process.exitcode == 0


def test_channel(arena, context):
    inbox, outbox = arena.channel(1), arena.channel(1)
    process = run(context, answer, inbox, outbox)
    inbox.put(field(), timeout=30)
    check_answer(outbox.get(timeout=30), field())
    process.join(30)
    assert process.exitcode == 0


def test_arguments_of_a_process(arena, context):
    outbox = context.SimpleQueue()
    inbox = _Given(field())
    process = run(context, answer, inbox, outbox)
    told, made = outbox.get()
    # Forked children have the sender's array itself.
    assert told[:3] == facts(field())[:3] and told[4] == (context.get_start_method() != "fork")
    assert (made == field() + 1).all()
    process.join(30)


class _Given:
    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


def test_pool(arena, context):
    fields = [field(seed) for seed in range(4)]
    with context.Pool(2) as pool:
        for sent, found in zip(fields, pool.map(tell, fields, chunksize=1), strict=True):
            check_answer(found, sent)
        check_answer(pool.apply(tell, (fields[0],)), fields[0])
        pool.close()
        pool.join()


def test_executor(arena, context):
    fields = [field(seed) for seed in range(4)]
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        for sent, found in zip(fields, executor.map(tell, fields), strict=True):
            check_answer(found, sent)


def test_manager(arena):
    with multiprocessing.get_context("spawn").Manager() as manager:
        shared = manager.dict()
        shared["x"] = field()
        assert (shared["x"] == field()).all() and (shared["x"] == field()).all()


# --- what travels ---------------------------------------------------------------------------------


def through(obj):
    return pickle.loads(ForkingPickler.dumps(obj))


def test_arrays_inside_of_objects(arena):
    x = field()
    got = through({"a": [x, {"b": (x, x[::-2])}], "small": np.arange(5), "text": "t"})
    assert got["a"][0] is got["a"][1]["b"][0]
    assert (got["a"][1]["b"][1] == x[::-2]).all() and block_of(got["a"][1]["b"][1]) is not None
    assert got["small"].flags.writeable and got["text"] == "t"


def test_layouts_and_types(arena):
    x = np.random.default_rng(0).standard_normal((60, 50, 40))
    records = np.zeros(20_000, [("a", ">i4"), ("b", "f8")])
    for array in (
        x.T,
        x[::-1],
        x[:, ::2, 3:],
        np.asfortranarray(x),
        x.astype(">f4"),
        x.astype("M8[s]"),
        records,
        records["b"],
        np.broadcast_to(x, (2, *x.shape)),
    ):
        got = through(array)
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        assert got.tobytes() == array.tobytes()
        assert block_of(got) is not None and not got.flags.writeable
    masked = np.ma.masked_less(x, 0)
    got = through(masked)
    assert (got.mask == masked.mask).all() and (got.data == x).all()
    assert block_of(got.data) is not None and block_of(got.mask) is not None


def test_masked_texts_keep_what_numpy_notes(arena):
    masked = np.ma.array(["a", "b"] * 20_000, mask=[0, 1] * 20_000)
    masked._optinfo["title"] = "letters"
    for got in (through(masked), shm.share(masked)):
        assert got.fill_value == masked.fill_value == "N/A"
        assert got._optinfo == {"title": "letters"}
        assert (got.mask == masked.mask).all() and (got.data == masked.data).all()


@pytest.mark.parametrize("given", ["64MiB", 1 << 26, object()])
def test_what_is_no_arena_is_refused(given):
    with pytest.raises(TypeError, match="arena: expected an Arena or None"):
        shm.install(given)
    with pytest.raises(TypeError, match="min_nbytes: expected an integer"):
        shm.install(min_nbytes="1KiB")


def test_what_stays_in_the_pickle(arena):
    table = np.array([[1, "a"], [None, 2.0]] * 9000, dtype=object)
    for obj in (table, field().view(np.matrix), field()[:20], "text"):
        got = through(obj)
        assert type(got) is type(obj) and block_of(got) is None
        assert (got == obj) if isinstance(obj, str) else (got == obj).all()
    assert arena.stats()["blocks"] == 0


def test_min_nbytes(arena):
    shm.install(arena, min_nbytes=100)
    assert block_of(through(np.zeros(100, "u1"))) is not None
    assert block_of(through(np.zeros(99, "u1"))) is None


def test_a_full_arena_is_passed_by(arena):
    held = arena.empty(ARENA_NBYTES - (1 << 19), "u1")
    big = np.ones(1 << 20, "u1")
    got = through([big, field()])
    assert (got[0] == big).all() and block_of(got[0]) is None and got[0].flags.writeable
    assert block_of(got[1]) is not None
    assert arena.stats()["in_band"] == 1
    assert (through(np.ones(ARENA_NBYTES * 2, "u1")) == 1).all()
    assert arena.stats()["in_band"] == 2
    del held
    assert block_of(through(big)) is not None


def test_sizes_about_that_of_the_arena(arena):
    room = arena.stats()["nbytes"]
    most = room - 64  # beside the message's own records
    behind = arena._memory.size - room  # the arena's own, in the same memory
    for more in (-64, -1, 0, 1, 63, 64, 65, behind, behind + 63, behind + 64, behind + 65):
        before = arena.stats()["in_band"]
        sent = np.resize(np.arange(251, dtype="u1"), most + more)
        got = through([sent, field()])
        assert np.array_equal(got[0], sent)
        assert (block_of(got[0]) is not None) == (more <= 0)
        # With so much there is no room for the second one.
        assert (block_of(got[1]) is not None) == (more > 0)
        assert arena.stats()["in_band"] == before + 1
        del got
    turned = np.resize(np.arange(251, dtype="u1"), (2, most // 2))[:, ::-1]
    held = arena.empty(room - (1 << 16), "u1")
    for array in (turned, turned[:, : most // 4], held):
        assert np.array_equal(through(array), array)
    queue = multiprocessing.Queue()
    queue.put(np.zeros(room, "u1"))
    assert queue.get(timeout=30).nbytes == room
    queue.close()
    queue.join_thread()


def test_a_descriptor_is_good_once(arena):
    sent = bytes(ForkingPickler.dumps(field()))
    assert (pickle.loads(sent) == field()).all()
    with pytest.raises(FileNotFoundError):
        pickle.loads(sent)


def test_what_does_not_pickle_leaves_nothing(arena):
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        ForkingPickler.dumps([field(), lambda: None])
    assert arena.stats()["in_transit"] == 0 and arena.stats()["used_nbytes"] == 0


def test_uninstall(arena):
    sent = bytes(ForkingPickler.dumps(field()))
    shm.uninstall()
    assert (pickle.loads(sent) == field()).all()
    assert np.ndarray not in ForkingPickler._extra_reducers
    assert ForkingPickler.dump is pickle.Pickler.dump
    assert block_of(through(field())) is None
    shm.uninstall()


def test_a_process_without_the_arena_attaches(arena):
    code = """
import pickle, sys
array = pickle.loads(bytes.fromhex(sys.stdin.read()))
print(float(array.sum()), array.flags.writeable)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=bytes(ForkingPickler.dumps(np.ones(20_000))).hex(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("20000.0 False\n", "")


def test_an_arena_that_is_gone_is_named():
    code = """
import numpy as np, headrace.shm as shm
from multiprocessing.reduction import ForkingPickler
shm.install(nbytes="1MiB")
print(bytes(ForkingPickler.dumps(np.ones(20_000))).hex())
"""
    with pytest.raises(FileNotFoundError, match="never had it"):
        pickle.loads(bytes.fromhex(python(code)))


def test_exit_of_an_installed_process_is_silent():
    code = """
import headrace.shm as shm, numpy as np, multiprocessing as mp
arena = shm.install(nbytes="1MiB")
channel = arena.channel()
channel.put(np.ones(3000))
kept = channel.get()
queue = mp.Queue()
queue.put(np.ones(30000))
other = queue.get()
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_is_left_in_the_system():
    def open_now():
        return len(os.listdir("/proc/self/fd")), shm_names()

    before = open_now()
    shm.install(nbytes="1MiB")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(tell, [field()] * 4)
        pool.close()
        pool.join()
    del pool
    shm.uninstall()
    gc.collect()
    assert open_now() == before


# --- what does not arrive -------------------------------------------------------------------------


class Refused(Exception):
    pass


class Forks:
    """Fails in a child that it makes while it is pickled."""

    pid = None

    def __reduce__(self):
        Forks.pid = os.fork()
        if Forks.pid == 0:
            raise Refused
        return int, ()


def test_a_child_takes_nothing_of_its_parent_back(arena):
    try:
        sent = ForkingPickler.dumps([field(), Forks()])
        os.waitpid(Forks.pid, 0)
    finally:
        if Forks.pid == 0:
            os._exit(0)
    assert (pickle.loads(sent)[0] == field()).all()


def test_reclaim_of_what_was_sent(arena):
    context = multiprocessing.get_context("fork")
    kept = arena.empty(50_000)
    kept[...] = 1
    queue = context.Queue()
    for obj in (field(), kept):
        queue.put(obj)
    queue.close()
    queue.join_thread()
    del queue
    gc.collect()
    assert arena.reclaim(orphans=True) == 0 and arena.stats()["in_transit"] == 2
    pid = os.fork()
    if pid == 0:  # what the parent sent is not the child's
        try:
            os._exit(arena.reclaim(sent=True))
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert arena.stats()["in_transit"] == 2
    assert arena.reclaim(sent=True) >= field().nbytes
    assert arena.stats()["in_transit"] == 0 and (kept == 1).all()
    assert arena.reclaim(sent=True) == 0


def test_reclaim_of_what_was_sent_leaves_what_arrived(arena):
    here, there = multiprocessing.Pipe()
    here.send(field())
    got = there.recv()
    here.send(field(1))
    assert arena.reclaim(sent=True) > 0
    assert (got == field()).all() and block_of(got) is not None
    with pytest.raises(FileNotFoundError):
        there.recv()


# --- torch ----------------------------------------------------------------------------------------


class Fields:
    """A dataset of tensors and arrays."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        import torch

        return {"x": torch.from_numpy(field(i)), "y": field(i) + 1, "i": i}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fork", {"num_workers": 2}),
        ("fork", {"num_workers": 1, "collate_fn": shm.collate, "persistent_workers": True}),
        ("spawn", {"num_workers": 1}),
        ("forkserver", {"num_workers": 1}),
    ],
)
def test_data_loader(arena, method, options):
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    loader = DataLoader(Fields(), batch_size=2, multiprocessing_context=method, **options)
    count = 0
    for batch in loader:
        for k, i in enumerate(batch["i"].tolist()):
            assert torch.equal(batch["x"][k], torch.from_numpy(field(i)))
            assert torch.equal(batch["y"][k], torch.from_numpy(field(i) + 1))
        start = arena._core.address
        assert start <= batch["x"].data_ptr() < start + ARENA_NBYTES
        count += 1
    assert count == 4
    del batch, loader


def test_tensors_that_are_conjugated_or_negated_later(arena):
    torch = pytest.importorskip("torch")
    made = torch.randn(5000, dtype=torch.complex64)
    conjugated, negated = made.conj(), made.conj().imag
    assert conjugated.is_conj() and negated.is_neg()
    parameter = torch.nn.Parameter(conjugated)
    for sent in (conjugated, negated, parameter, conjugated[:3], conjugated[::2]):
        got = through(sent)
        assert torch.equal(got.resolve_conj().resolve_neg(), sent.resolve_conj().resolve_neg())
        assert (type(got), got.requires_grad) == (type(sent), sent.requires_grad)
        del got


def test_tensors_that_torch_shares_stay_shared(arena):
    torch = pytest.importorskip("torch")
    shared = torch.zeros(20_000).share_memory_()
    got = through(shared)
    shared[0] = 5
    assert got[0] == 5
    plain = torch.zeros(20_000)
    got = through([plain, torch.nn.Parameter(plain.clone())])
    plain[0] = 5
    assert got[0][0] == 0 and isinstance(got[1], torch.nn.Parameter) and got[1].requires_grad


SPARSE = {
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
}


class SparseFields:
    """A dataset of sparse tensors, a layout each."""

    def __len__(self):
        return len(SPARSE)

    def __getitem__(self, i):
        return sparse(list(SPARSE)[i])


def sparse(kind):
    import torch

    return SPARSE[kind](torch.from_numpy(np.where(field() > 1, field(), 0)))


# Of torch, about csr and its like when one is made; about checks when one is unpickled.
@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_tensors(arena, kind):
    torch = pytest.importorskip("torch")
    sent = sparse(kind)
    for got in (through(sent), through({"x": [sent, field()]})["x"][0]):
        assert (got.layout, got.shape, got.dtype) == (sent.layout, sent.shape, sent.dtype)
        assert torch.equal(got.to_dense(), sent.to_dense())


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_of_a_data_loader(arena):
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    options = {"batch_size": None, "num_workers": 1, "timeout": 30}
    loader = DataLoader(SparseFields(), multiprocessing_context="fork", **options)
    got = list(loader)
    for kind, tensor in zip(SPARSE, got, strict=True):
        assert tensor.layout == sparse(kind).layout
        assert torch.equal(tensor.to_dense(), sparse(kind).to_dense())
    del got, tensor, loader


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensors(arena, layout):
    torch = pytest.importorskip("torch")
    parts = [torch.from_numpy(field()), torch.from_numpy(field(1)[:50])]
    got = through(torch.nested.nested_tensor(parts, layout=getattr(torch, layout)))
    assert got.is_nested and got.layout == getattr(torch, layout)
    assert all(map(torch.equal, got.unbind(), parts))


@pytest.mark.parametrize("first", ["torch", "headrace.shm"])
def test_whichever_is_imported_first(first):
    pytest.importorskip("torch")
    code = """
import importlib, pickle, sys
from multiprocessing.reduction import ForkingPickler
if sys.argv[1] == "torch":
    import torch
import headrace.shm as shm
arena = shm.install(nbytes="1MiB")
import torch, torch.multiprocessing
got = pickle.loads(ForkingPickler.dumps(torch.ones(20_000)))
assert arena.stats()["used_nbytes"] >= 80_000 and got.sum() == 20_000
shm.uninstall()
own = torch.multiprocessing.reductions.reduce_tensor
assert ForkingPickler._extra_reducers[torch.Tensor] is own
"""
    python(code, first)
