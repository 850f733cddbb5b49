"""Wrong arguments: each public function gets a value of a wrong type for each of its arguments.

What comes of it is a result or an error that says which argument is wrong: never a bare
RuntimeError, `std::bad_cast`, SystemError or an abort, and no list of a function's signatures.
"""

import inspect

import headrace as hr
import numpy as np
import pytest
from headrace import shm
from headrace.loader import CellLoader, Loader, Transform, shuffle_quality
from helpers import needs_publications
from wrong_arguments import BAD_WORDS, WRONG, Place, Thing, complaints


def channel_with_one():
    channel = shm.Arena("1MiB").channel(4)
    channel.put(1)
    return channel


def attach_published(**arguments):
    publication = shm.publish("test-arguments", np.ones(3))
    try:
        return shm.attach(**arguments)
    finally:
        publication.close()


def keywords(function, **good):
    """Calls with one argument wrong; the others good."""
    return function, good


CALLS = {
    "open": lambda at: (hr.open, {"store": at.group().store, "path": "x", "mode": "r",
        "zarr_format": 3, "device": "cpu", "implementations": {}, "storage_options": None}),
    "open_array": lambda at: (hr.open_array, {"store": at.group().store, "path": "x", "mode": "r",
        "zarr_format": 3, "device": "cpu", "implementations": {}, "storage_options": None}),
    "open_group": lambda at: (hr.open_group, {"store": at.group().store, "path": "", "mode": "r",
        "zarr_format": 3, "device": "cpu", "implementations": {}, "storage_options": None,
        "use_consolidated": None}),
    "open_group a": lambda at: (hr.open_group, {"store": at.new(), "mode": "a",
        "attributes": {}}),
    "open_store": lambda at: (hr.open_store, {"store": at.new(), "mode": "a",
        "storage_options": {}}),
    "create_array": lambda at: (hr.create_array, {"store": at.new(), "name": "y", "shape": (4, 4),
        "dtype": "f4", "chunks": (2, 2), "shards": None, "filters": "auto", "compressors": "auto",
        "serializer": "auto", "fill_value": 0, "order": "C", "zarr_format": 3, "attributes": {},
        "chunk_key_encoding": None, "dimension_names": None, "overwrite": False,
        "write_empty_chunks": False, "device": "cpu", "storage_options": None}),
    "create_array v2": lambda at: (hr.create_array, {"store": at.new(), "shape": 4, "dtype": "f4",
        "chunks": 2, "filters": None, "compressors": None, "zarr_format": 2, "order": "F"}),
    "create_array data": lambda at: (hr.create_array, {"store": at.new(), "data": np.ones((2, 2)),
        "shape": (2, 2), "dtype": "f4", "chunks": {0: 1}, "shards": None}),
    "zeros": lambda at: (hr.zeros, {"shape": (2, 2), "dtype": "f4", "store": at.new(),
        "path": "x"}),
    "ones": lambda at: (hr.ones, {"shape": (2, 2), "dtype": "f4", "store": at.new(), "path": "x"}),
    "empty": lambda at: (hr.empty, {"shape": (2, 2), "dtype": "f4", "store": at.new(),
        "path": "x"}),
    "full": lambda at: (hr.full, {"shape": (2, 2), "fill_value": 1, "dtype": "f4",
        "store": at.new(), "path": "x"}),
    "array": lambda at: (hr.array, {"data": [1, 2], "dtype": "f4", "store": at.new(),
        "path": "x"}),
    "create_group": lambda at: (hr.create_group, {"store": at.new(), "path": "y", "attributes": {},
        "zarr_format": 3, "overwrite": False, "storage_options": None}),
    "consolidate_metadata": lambda at: (hr.consolidate_metadata, {"store": at.group().store,
        "path": "", "storage_options": None}),
    "save": lambda at: (lambda store, x: hr.save(store, x), {"store": at.new(), "x": np.ones(3)}),
    "save named": lambda at: (hr.save, {"store": at.new(), "x": np.ones(3), "y": np.ones(3)}),
    "load": lambda at: (hr.load, {"store": at.group().store, "path": "x", "device": "cpu",
        "progress": None}),
    "copy": lambda at: (hr.copy, {"src": at.group(), "dst": at.new(), "zarr_format": 3,
        "overwrite": False, "progress": None}),
    "rechunk": lambda at: (hr.rechunk, {"src": at.array(), "dst": at.new(), "chunks": (3, 2),
        "shards": None, "compressors": "auto", "max_memory": "1GiB", "executor": None,
        "progress": None, "verify": False, "overwrite": False}),
    "rechunk_plan": lambda at: (hr.rechunk_plan, {"src": at.array(), "chunks": (3, 2),
        "shards": None, "max_memory": "1GiB"}),
    "advise": lambda at: (hr.advise, {"src": at.array(), "window": 1, "patch": None, "batch": 1}),
    "cached": lambda at: (hr.cached, {"store": at.group().store, "memory": "1MiB",
        "block": "4KiB", "name": "n", "storage_options": None}),
    "cells": lambda at: (hr.cells, {"stores": at.cells(), "x": "X", "obs": ["_index"],
        "join": "inner"}),
    "CellLoader": lambda at: (lambda **k: next(CellLoader(**k), None), {
        "cells": hr.cells(at.cells()), "batch_size": 2, "window": (2, 2), "shuffle": True,
        "lanes": 1, "weights": np.ones(6), "samples_per_epoch": 6, "rank": 0, "world_size": 1,
        "output": "dense", "device": None, "dtype": "float32", "transforms": Transform(),
        "seed": 0, "epoch": 0, "drop_last": True, "memory_budget": "1GiB"}),
    "Transform": lambda at: (lambda **k: CellLoader(hr.cells(at.cells()), 2, output="dense",
        transforms=Transform(**k)), {"total": 1, "log1p": False, "genes": [1]}),
    "cache_stats": lambda at: (hr.cache_stats, {"store": hr.cached(at.group().store)}),
    "references": lambda at: (hr.references, {"files": at.hdf5(), "out": None, "concat_dim": None,
        "allow": (), "left_out": "raise", "storage_options": None}),
    "read_many": lambda at: (lambda **k: hr.read_many(**k), {"requests": [(at.array(), None)],
        "implementations": None}),
    "read_many of": lambda at: (lambda array, key, out: hr.read_many([(array, key, out)]),
        {"array": at.array(), "key": np.s_[:2], "out": None}),
    "set_allocator": lambda at: (lambda **k: hr.set_allocator(**k), {"device": "simt",
        "allocate": None, "free": None}),
    "config.get": lambda at: (hr.config.get, {"name": "threads"}),
    "Array.read": lambda at: (lambda **k: at.array().read(**k), {"selection": 0, "out": None,
        "device": "cpu", "stream": None, "implementations": None}),
    "Array.read_async": lambda at: (lambda **k: at.array().read_async(**k).result(30),
        {"selection": 0, "out": None, "device": "cpu", "stream": None, "implementations": None}),
    "Array.write": lambda at: (lambda **k: at.array().write(**k), {"selection": 0, "value": 1,
        "implementations": None}),
    "Array.write_async": lambda at: (lambda **k: at.array().write_async(**k).result(30),
        {"selection": 0, "value": np.ones(4, "f4"), "implementations": None}),
    "Array[]": lambda at: (lambda key: at.array()[key], {"key": 0}),
    "Array[]=": lambda at: (lambda key, value: at.array().__setitem__(key, value),
        {"key": 0, "value": 1}),
    "Array.oindex": lambda at: (lambda key: at.array().oindex[key], {"key": 0}),
    "Array.vindex": lambda at: (lambda key: at.array().vindex[key], {"key": (0, 0)}),
    "Array.blocks": lambda at: (lambda key: at.array().blocks[key], {"key": 0}),
    "Array.lazy": lambda at: (lambda key: at.array().lazy[key].read(), {"key": 0}),
    "Array.append": lambda at: (at.array().append, {"data": np.ones((1, 4), "f4"), "axis": 0}),
    "Array.verify": lambda at: (at.array().verify, {"progress": None}),
    "Array.by dimension": lambda at: (lambda item: at.array().read({0: item}), {"item": 1}),
    "LazyArray.read": lambda at: (lambda **k: at.array().lazy[0].read(**k), {"out": None,
        "device": "cpu"}),
    "Array.to": lambda at: (lambda device: at.array().to(device), {"device": "cpu"}),
    "Array.with_implementations": lambda at: (lambda i: at.array().with_implementations(i),
        {"i": {}}),
    "Array.resize": lambda at: (lambda shape: at.array().resize(shape), {"shape": (4, 4)}),
    "Array.__array__": lambda at: (lambda dtype, copy: at.array().__array__(dtype, copy),
        {"dtype": None, "copy": None}),
    "Array.__dlpack__": lambda at: (lambda **k: at.array().__dlpack__(**k), {"stream": None,
        "max_version": (1, 0), "dl_device": None, "copy": None}),
    "DeviceArray[]": lambda at: (lambda key: at.array().read(device="simt")[key], {"key": 0}),
    "DeviceArray.__dlpack__": lambda at: (
        lambda **k: at.array().read(device="simt").__dlpack__(**k),
        {"stream": None, "max_version": (1, 0), "dl_device": None, "copy": None}),
    "Group[]": lambda at: (lambda name: at.group()[name], {"name": "x"}),
    "Group.get": lambda at: (lambda name: at.group().get(name), {"name": "x"}),
    "Group.in": lambda at: (lambda name: name in at.group(), {"name": "x"}),
    "Group.create_array": lambda at: (at.group().create_array, {"name": "y", "shape": 4,
        "dtype": "f4"}),
    "Group.require_array": lambda at: (at.group().require_array, {"name": "x", "shape": (6, 4),
        "dtype": "f4"}),
    "Group[]=": lambda at: (lambda name, data: at.group().__setitem__(name, data), {"name": "y",
        "data": 1}),
    "Group.del": lambda at: (lambda name: at.group().__delitem__(name), {"name": "x"}),
    "Group.create_group": lambda at: (at.group().create_group, {"name": "y", "attributes": {},
        "overwrite": False}),
    "Attributes.put": lambda at: (at.group().attrs.put, {"attributes": {}}),
    "Attributes.update": lambda at: (lambda values: at.group().attrs.update(values),
        {"values": {}}),
    "Attributes[]": lambda at: (lambda name: at.group().attrs.get(name), {"name": "x"}),
    "Attributes[]=": lambda at: (lambda name, value: at.group().attrs.__setitem__(name, value),
        {"name": "x", "value": 1}),
    "Attributes.pop": lambda at: (lambda name: at.group().attrs.pop(name, 0), {"name": "x"}),
    "Group.require_group": lambda at: (at.group().require_group, {"name": "y"}),
    "Group.tree": lambda at: (lambda level: str(at.group().tree(level)), {"level": 1}),
    "Future.result": lambda at: (lambda t: at.array().read_async().result(t), {"t": 30}),
    "Future.exception": lambda at: (lambda t: at.array().read_async().exception(t), {"t": 30}),
    "Future.add_done_callback": lambda at: (
        lambda fn: at.array().read_async().add_done_callback(fn),
        {"fn": lambda future: None}),
    "decode_batch": lambda at: (hr.codecs.decode_batch, {"codec": "zstd", "inputs": [],
        "out_nbytes": [], "device": "cpu", "stream": None, "implementation": None}),
    "encode_batch": lambda at: (hr.codecs.encode_batch, {"codec": "zstd", "inputs": [],
        "device": "cpu", "stream": None, "implementation": None}),
    "Zstd": lambda at: (hr.codecs.Zstd, {"level": 1, "checksum": False}),
    "Blosc": lambda at: (hr.codecs.Blosc, {"cname": "lz4", "clevel": 1, "shuffle": "shuffle"}),
    "Loader": lambda at: (Loader, {"arrays": {"x": at.array()}, "weights": None,
        "samples_per_epoch": "first_exhausted", "batch_size": 1, "sample_dim": 0, "window": 1,
        "stride": 1, "lead_time": (), "patch": None, "halo": 0, "padding": "zero", "select": None,
        "exclude": None, "shuffle": "block", "block_chunks": 64, "lanes": 8, "seed": 0, "epoch": 0,
        "rank": 0, "world_size": 1, "device": "cpu", "dtype": None, "normalize": None,
        "fill_nan": None, "layout": None, "stack": None, "drop_last": True, "prefetch": 2,
        "memory_budget": "1GiB", "on_bad_chunk": "raise"}),
    "Loader patch": lambda at: (Loader, {"arrays": {"x": at.array()}, "patch": {1: 2}, "halo": 1,
        "padding": "wrap", "stack": {"s": ["x"]},
        "normalize": {"x": (0, 1)}, "fill_nan": {"x": 0}, "dtype": {"x": "float32"}}),
    "Loader select": lambda at: (Loader, {"arrays": {"x": at.array()}, "select": {1: [0, 2]}}),
    "Loader of": lambda at: (lambda array: Loader({"x": array}), {"array": at.array()}),
    "Loader.load_state_dict": lambda at: (Loader({"x": at.array()}).load_state_dict,
        {"state": Loader({"x": hr.create_array(at.new(), shape=(6, 4), dtype="f4",
            chunks=(2, 4))}).state_dict()}),
    "Loader.origins": lambda at: (Loader({"x": at.array()}).origins, {"begin": 0, "end": 2,
        "epoch": 0}),
    "Loader.share": lambda at: (Loader({"x": at.array()}).share, {"number": 0, "count": 2}),
    "shuffle_quality": lambda at: (shuffle_quality, {"loader": Loader({"x": at.array()}),
        "epoch": 0}),
    "CellLoader.set_epoch": lambda at: (CellLoader(hr.cells(at.cells()), 2).set_epoch,
        {"epoch": 1}),
    "CellLoader.load_state_dict": lambda at: (
        CellLoader(hr.cells(at.cells()), 2).load_state_dict,
        {"state": CellLoader(hr.cells(at.cells()), 2).state_dict()}),
    "doctor": lambda at: (hr.doctor, {"store": at.group().store.url, "storage_options": {}}),
    "trace": lambda at: (lambda path: hr.trace(path).__enter__(), {"path": at.new()}),
    "config.set": lambda at: (hr.config.set, {"settings": {}}),
    "parse": lambda at: (hr.codecs.parse, {"codec": "zstd"}),
    "Arena": lambda at: (shm.Arena, {"nbytes": "1MiB", "backing": "auto"}),
    "Arena.channel": lambda at: (shm.Arena("1MiB").channel, {"capacity": 4}),
    "Arena.empty": lambda at: (shm.Arena("1MiB").empty, {"shape": (2, 2), "dtype": "f4",
        "timeout": 1}),
    "Arena.reclaim": lambda at: (shm.Arena("1MiB").reclaim, {"orphans": False}),
    "Channel.put": lambda at: (shm.Arena("1MiB").channel(4).put, {"obj": 1, "timeout": 1}),
    "Channel.get": lambda at: (channel_with_one().get, {"timeout": 1, "copy": False}),
    "shm.share": lambda at: (shm.share, {"obj": np.ones(3), "arena": shm.Arena("1MiB")}),
    "shm.publish": lambda at: (lambda name, obj: shm.publish(name, obj).close(), {
        "name": "test-arguments", "obj": np.ones(3)}),
    "shm.attach": lambda at: (attach_published, {"name": "test-arguments", "timeout": 0,
        "copy": False}),
    "Loader.set_epoch": lambda at: (Loader({"x": at.array()}).set_epoch, {"epoch": 1}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=needs_publications)
        if call in ("shm.publish", "shm.attach")
        else call
        for call in CALLS
    ],
)
def test_a_wrong_argument_is_named(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = complaints(CALLS[call], Place(tmp_path / "stores"))
    assert not found, "\n" + "\n".join(found)


def public_callables(place):
    """Name and callable of all that is called by somebody who uses the package."""
    array = place.array()
    cells = hr.cells(place.cells())
    arena = shm.Arena("1MiB")
    objects = [array, array.lazy, array.lazy[0], array.oindex, array.vindex, array.blocks,
        array.store, array.attrs, array.info, array.read_async(), array.read(device="simt"),
        place.group(), place.group().tree(), Loader({"x": array}), cells, CellLoader(cells, 2),
        arena, arena.channel(4), hr.config]  # fmt: skip
    for module in (hr, hr.codecs, hr.loader, shm):
        for name in module.__all__:
            if callable(getattr(module, name)):
                yield f"{module.__name__}.{name}", getattr(module, name)
    for instance in objects:
        for name in dir(instance):
            if not name.startswith("_") and callable(getattr(instance, name)):
                yield f"{type(instance).__name__}.{name}", getattr(instance, name)


def test_wrong_names_and_too_many_arguments(tmp_path):
    found = []
    count = 0
    for name, function in public_callables(Place(tmp_path)):
        try:
            kinds = {item.kind for item in inspect.signature(function).parameters.values()}
        except (TypeError, ValueError):
            continue  # of Python's own, in C
        wrongs = []
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            wrongs.append(((), {"nonsense": 1}, "nonsense"))
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            wrongs.append(((Thing(),) * 50, {}, "takes"))
        for given, named, word in wrongs:
            count += 1
            try:
                function(*given, **named)
            except TypeError as error:
                if word in str(error) and not BAD_WORDS.search(str(error)):
                    continue
                found.append(f"{name}: {error}")
            except Exception as error:
                found.append(f"{name}: {type(error).__name__}: {error}")
            else:
                found.append(f"{name}: nothing")
    assert not found, "\n" + "\n".join(found)
    assert count > 200


def test_config_set(monkeypatch):
    before = hr.config.get()
    found = []
    try:
        for name in before:
            for kind, value in WRONG.items():
                try:
                    hr.config.set({name: value})
                except (TypeError, ValueError, NotImplementedError, hr.DeviceError) as error:
                    if BAD_WORDS.search(str(error)) or name not in str(error):
                        found.append(f"{name}={kind}: {type(error).__name__}: {error}")
                finally:
                    hr.config.set(before)
    finally:
        hr.config.set(before)
    assert not found, "\n" + "\n".join(found)


def test_attributes(tmp_path):
    group = Place(tmp_path).group()
    for value in (Thing(), {"a": Thing()}):
        with pytest.raises((TypeError, ValueError)):
            group.attrs["x"] = value
    assert "x" not in group.attrs


class Untold(TypeError):
    def __str__(self):
        raise RuntimeError("asked for its text")


@pytest.mark.parametrize("kind", [TypeError, Untold])
def test_what_a_callback_raises_is_left_as_it_is(tmp_path, kind):
    raised = kind("verify(): incompatible function arguments. The following: mine")
    cause = KeyError("inner")

    def progress(done, total):
        raise raised from cause

    array = Place(tmp_path).array()
    with pytest.raises(TypeError) as caught:
        array.verify(progress=progress)
    assert caught.value is raised and raised.__cause__ is cause


def test_what_an_argument_raises_is_told(tmp_path):
    class Value:
        def __array__(self, *args, **kwargs):
            raise TypeError("x(): incompatible function arguments.")

    with pytest.raises(TypeError, match=r"\[write\] x: expected elements of .* x\(\): incompat"):
        Place(tmp_path).array().write(0, Value())


class Unlike(str):
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise RuntimeError("compared")


def test_misfits_of_unusual_calls(tmp_path):
    array = Place(tmp_path).array()
    with pytest.raises(TypeError, match=r"^read\(\): incompatible function arguments"):
        array.read(**{Unlike("x"): 1})
    with pytest.raises(TypeError, match=r"^open_group\(\): the value of an argument is none that"):
        hr._core.open_group(array.store, "\udc80")
    with pytest.raises(TypeError, match=r"^create_group\(\): path: expected str, got int$"):
        hr._core.create_group(array.store, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.read(0, dev="cpu"), r"read\(\): unknown argument 'dev'"),
        (lambda a: a.read_async(0, dev="cpu"), r"read_async\(\): unknown argument 'dev'"),
        (lambda a: a.write(0, 1, sync=True), r"write\(\): unknown argument 'sync'"),
        (lambda a: a.write_async(0, 1, sync=True), r"write_async\(\): unknown argument 'sync'"),
        (lambda a: a.oindex.read(0, dev="cpu"), r"read\(\): unknown argument 'dev'"),
        (lambda a: a.oindex.to_arrow(0, dev="cpu"), r"to_arrow\(\): unknown argument 'dev'"),
        (lambda a: a.verify(progress_bar=True), r"'progress_bar'; did you mean 'progress'\?"),
        (lambda a: a.resize(3, 4), r"resize\(\) takes 1 argument by position \(shape\), got 2"),
        (lambda a: a.read(0, None), r"by position \(selection\), got 2; by name: out, device"),
        (lambda a: a.resize(), r"resize\(\): argument 'shape' is missing"),
        (lambda a: a.resize(3, shape=3), r"resize\(\): argument 'shape' is given twice"),
        (lambda a: type(a).verify(), r"verify\(\) is a method of Array, called without"),
        (lambda a: type(a).verify(3), r"verify\(\) is a method of Array, called with another"),
        (lambda a: type(a).__exit__(3, 1, 2), r"__exit__\(\) is a method of Array, called with an"),
        (lambda a: hr.read_many([], dev="cpu"), r"read_many\(\): unknown argument 'dev'"),
        (lambda a: hr.read_many([(np.zeros(3), None)]), "headrace arrays, got numpy.ndarray"),
        (lambda a: hr.read_many([(hr.Group, 0)]), "headrace arrays, got type"),
        (lambda a: a.read(implementations={"zstd": 1}), "implementations: expected .* got"),
        (lambda a: a.read_async().result("soon"), "timeout: expected a number .* got 'soon'"),
        (lambda a: a.read_async().add_done_callback(5), "fn: expected a function, got 5"),
        (lambda a: hr.open(a.store, 3), "path: expected a path within the store, got 3"),
        (lambda a: hr.open(a.store, zarr_format="3"), "zarr_format: expected .* got '3'"),
        (lambda a: hr.open(None), "store: expected a path, a URL or a store, got None"),
        (lambda a: hr.open(a.store, mode=5), "mode: expected one of .* got 5"),
        (lambda a: hr.open(a.store, storage_options=5), "storage_options: expected a mapping"),
        (lambda a: hr.open_group(a.store, mode="r+")[0], "members have names, got 0"),
        (lambda a: hr.open_group(a.store).get(1), "members have names, got 1"),
        (lambda a: hr.config.set({"threads": "many"}), "threads: expected .* got 'many'"),
        (lambda a: hr.config.set({"device": 5}), "device: expected .* got 5"),
        (lambda a: hr.config.set({"implementations": {1: 2}}), "implementations: expected .* got"),
        (lambda a: Loader({"t": np.zeros((4, 4))}), "headrace array for 't', got numpy.ndarray"),
        (lambda a: Loader({"t": 5}), "headrace array for 't', got 5"),
        (lambda a: Loader(5), "arrays: expected .* got 5"),
        (lambda a: Loader([5]), "arrays: expected .* got 5"),
        (lambda a: Loader(a, stack=["tp"]), r"stack: expected .* got \['tp'\]"),
        (lambda a: Loader(a, lead_time="4"), "lead_time: expected .* got '4'"),
        (lambda a: Loader(a, batch_size="4"), "batch_size: expected .* got '4'"),
        (lambda a: Loader(a, patch={1: 2}, padding=3), "padding: expected .* got 3"),
        (lambda a: Loader(a, patch={1: 2}, halo="2"), "halo: expected .* got '2'"),
        (lambda a: Loader(a, shuffle=5), "shuffle: expected .* got 5"),
    ],
)  # fmt: skip
def test_a_type_error_names_the_argument(tmp_path, call, message):
    with pytest.raises(TypeError, match=message):
        call(Place(tmp_path).array())


def test_all_public_names_are_here():
    """What is added to the package is added to this table."""
    covered = {name.partition(".")[0].partition(" ")[0] for name in CALLS}
    elsewhere = {"version", "memory_store", "config", "codecs", "lazy"}
    functions = {name for name in hr.__all__ if inspect.isroutine(getattr(hr, name))}
    assert functions - elsewhere <= covered
