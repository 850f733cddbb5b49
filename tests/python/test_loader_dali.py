"""`Loader.dali` in pipelines of DALI: on the host, and on GPUs where there are some."""

import gc
import importlib
import weakref

import headrace as hr
import numpy as np
import pytest
from headrace.loader import Loader
from helpers import DEVICES, smooth

OPTIONS = {"batch_size": 4, "window": 2, "block_chunks": 4, "prefetch": 1}
DATA = smooth("f4", (66, 30, 40))
CUDA = [place for place in DEVICES if place != "simt"]
QUEUES = [{"exec_dynamic": False, "prefetch_queue_depth": n} for n in (1, 2, 3)]
QUEUES += [{"exec_dynamic": True, "prefetch_queue_depth": n} for n in (1, 3)]


@pytest.fixture
def arrays(store):
    group = hr.create_group(store)
    for name, data in (("x", DATA), ("y", (DATA * 100).astype("i2"))):
        array = hr.create_array(store, name, shape=data.shape, dtype=data.dtype, chunks=(4, 30, 40))
        array[...] = data
    return {name: group[name] for name in ("x", "y")}


def epochs(loader, count):
    """What a loader gives without DALI."""
    host = lambda values: values if isinstance(values, np.ndarray) else values.to_numpy()  # noqa: E731
    return [[[host(v) for v in batch.values()] for batch in loader] for _ in range(count)]


def pipeline(source, count, device="cpu", no_copy=True, **queue):
    pytest.importorskip("nvidia.dali")
    from nvidia.dali import fn, pipeline_def

    gpu = device != "cpu"

    @pipeline_def(batch_size=4, num_threads=1, device_id=0 if gpu else None, **queue)
    def define():
        outputs = fn.external_source(
            source=source,
            num_outputs=count,
            device="gpu" if gpu else "cpu",
            no_copy=no_copy,
            cycle="raise",
        )
        return (*outputs, outputs[0] + 1)

    return define()


def host_of(output):
    return np.asarray((output.as_cpu() if hasattr(output, "as_cpu") else output).as_array())


def run_epoch(pipe):
    batches = []
    with pytest.raises(StopIteration):
        while True:
            batches.append([host_of(output).copy() for output in pipe.run()])
    pipe.reset()
    return batches


def same_epochs(pipe, wanted):
    for of_epoch in wanted:
        got = run_epoch(pipe)
        assert len(got) == len(of_epoch)
        for batch, values in zip(got, of_epoch, strict=True):
            *outputs, more = batch
            assert all(np.array_equal(a, b) for a, b in zip(outputs, values, strict=True))
            assert np.array_equal(more, values[0] + 1)


@pytest.mark.parametrize("no_copy", [True, False])
@pytest.mark.parametrize("queue", QUEUES)
def test_pipeline_gives_the_batches_epoch_after_epoch(arrays, queue, no_copy):
    wanted = epochs(Loader(arrays, **OPTIONS), 3)
    source = Loader(arrays, **OPTIONS).dali(queue["prefetch_queue_depth"])
    same_epochs(pipeline(source, 2, no_copy=no_copy, **queue), wanted)


@pytest.mark.parametrize("place", CUDA)
@pytest.mark.parametrize("no_copy", [True, False])
@pytest.mark.parametrize("queue", QUEUES)
def test_pipeline_on_a_gpu_gives_the_batches(arrays, place, queue, no_copy):
    wanted = epochs(Loader(arrays, device="cpu", **OPTIONS), 3)
    source = Loader(arrays, device="cuda:0", **OPTIONS).dali(queue["prefetch_queue_depth"])
    same_epochs(pipeline(source, 2, "cuda:0", no_copy=no_copy, **queue), wanted)


def test_batches_stay_alive_while_the_pipeline_may_read_them(arrays):
    batches = iter(Loader(arrays, **OPTIONS).dali(prefetch_queue_depth=2))
    alive = [weakref.ref(next(batches)[0]) for _ in range(5)]
    gc.collect()
    assert [ref() is not None for ref in alive] == [False, False, True, True, True]


def test_last_batch_may_be_smaller(arrays):
    options = {**OPTIONS, "drop_last": False}
    wanted = epochs(Loader(arrays, **options), 2)
    assert len(wanted[0][-1][0]) == 1
    same_epochs(pipeline(Loader(arrays, **options).dali(), 2), wanted)


def test_stacks_come_first(arrays):
    loader = Loader(arrays, stack={"z": ["y"]}, layout="NCHW", dtype={"y": "float32"}, **OPTIONS)
    assert loader.names == tuple(next(loader)) == ("z", "x")


def test_state_counts_what_the_pipeline_took(arrays):
    loader = Loader(arrays, **OPTIONS)
    pipe = pipeline(loader.dali(), 2, prefetch_queue_depth=2)
    for _ in range(3):
        pipe.run()
    assert loader.state_dict()["samples"] == (3 + 1) * OPTIONS["batch_size"]


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64"])
def test_types_that_dali_lacks(arrays, store, dtype):
    pytest.importorskip("ml_dtypes")
    if dtype == "bfloat16":
        loader = Loader({"x": arrays["x"]}, dtype=dtype, **OPTIONS)
    else:
        array = hr.create_array(store, "c", shape=(8, 2), dtype=dtype, chunks=(2, 2))
        loader = Loader({"x": array}, **OPTIONS)
    with pytest.raises(TypeError, match=f"x is {dtype}"):
        pipeline(loader.dali(), 1).run()


def test_memory_of_simt_is_none_of_dalis(arrays):
    with pytest.raises(TypeError, match="to_numpy"):
        pipeline(Loader(arrays, device="simt", **OPTIONS).dali(), 2).run()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_iterators_of_dali(arrays, library):
    pytest.importorskip(library)
    pytest.importorskip("nvidia.dali")
    plugin = {"torch": "pytorch", "jax": "jax"}[library]
    plugin = importlib.import_module(f"nvidia.dali.plugin.{plugin}")
    loader = Loader(arrays, **OPTIONS)
    iterator = plugin.DALIGenericIterator(
        pipeline(loader.dali(), 2), [*loader.names, "more"], auto_reset=True
    )
    for of_epoch in epochs(Loader(arrays, **OPTIONS), 2):
        for step, values in zip(iterator, of_epoch, strict=True):
            (step,) = step if library == "torch" else (step,)
            assert all(
                np.array_equal(np.asarray(step[name]), of_name)
                for name, of_name in zip(loader.names, values, strict=True)
            )
