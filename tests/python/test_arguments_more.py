"""Wrong arguments, as in `test_arguments.py`: those of codecs, of cells, and of methods; and that
each argument of what is public is in one of the two tables.
"""

import inspect

import headrace as hr
import numpy as np
import pytest
import test_arguments
from headrace import codecs, shm
from headrace.loader import CellLoader
from wrong_arguments import Place, complaints


def codec(cls, argument="filters", dtype="i4", **more):
    """A call that makes an array with such a codec, writes it and reads it back."""

    def use(**arguments):
        made = cls(**arguments)
        array = hr.create_array(
            hr.memory_store(),
            shape=(6, 4),
            dtype=dtype,
            chunks=(6, 4),
            **{argument: made if argument == "serializer" else [made]},
            **more,
        )
        array[...] = np.ones((6, 4), dtype)
        return array[...]

    return use


def compressor(cls):
    return codec(cls, "compressors")


def ragged(at):
    array = hr.create_array(at.new(), shape=2, dtype=str, chunks=2)
    array[:] = ["a", "bc"]
    return array


def sampled(at, sampler):
    return CellLoader(hr.cells(at.cells()), 2, sampler=sampler)


CALLS = {
    "BZ2": lambda at: (compressor(codecs.BZ2), {"level": 1}),
    "LZ4": lambda at: (compressor(codecs.LZ4), {"acceleration": 1}),
    "LZMA": lambda at: (compressor(codecs.LZMA), {"format": 1, "check": -1, "preset": None,
        "filters": None}),
    "BitRound": lambda at: (codec(codecs.BitRound, dtype="f4"), {"keepbits": 3}),
    "Bitshuffle": lambda at: (compressor(codecs.Bitshuffle), {"itemsize": 4, "blocksize": 0}),
    "Blosc": lambda at: (compressor(codecs.Blosc), {"cname": "lz4", "clevel": 1,
        "shuffle": "shuffle", "typesize": 4, "blocksize": 0}),
    "Zstd": lambda at: (compressor(codecs.Zstd), {"level": 1, "checksum": False}),
    "Gzip": lambda at: (compressor(codecs.Gzip), {"level": 1}),
    "Zlib": lambda at: (compressor(codecs.Zlib), {"level": 1}),
    "Bytes": lambda at: (codec(codecs.Bytes, "serializer"), {"endian": "little"}),
    "CastValue": lambda at: (codec(codecs.CastValue), {"data_type": "int16",
        "rounding": "nearest-even", "out_of_range": None, "scalar_map": None}),
    "Delta": lambda at: (codec(codecs.Delta), {"dtype": "<i4", "astype": "<i4"}),
    "FixedScaleOffset": lambda at: (codec(codecs.FixedScaleOffset, dtype="f4"), {"offset": 0,
        "scale": 1, "dtype": "<f4", "astype": "<i2"}),
    "PackBits": lambda at: (codec(codecs.PackBits, "serializer", "bool"), {
        "padding_encoding": "none", "first_bit": None, "last_bit": None}),
    "Quantize": lambda at: (codec(codecs.Quantize, dtype="f4"), {"digits": 2, "dtype": "<f4",
        "astype": "<f4"}),
    "Reshape": lambda at: (codec(codecs.Reshape), {"shape": [24]}),
    "ScaleOffset": lambda at: (codec(codecs.ScaleOffset, dtype="f4"), {"offset": 0, "scale": 1}),
    "Sharding": lambda at: (codec(codecs.Sharding, "serializer", compressors=None), {
        "chunk_shape": (2, 2), "codecs": ["bytes", "zstd"], "index_codecs": ["bytes"],
        "index_location": "end"}),
    "Shuffle": lambda at: (compressor(codecs.Shuffle), {"elementsize": 4}),
    "Transpose": lambda at: (codec(codecs.Transpose), {"order": (1, 0)}),
    "Generic": lambda at: (compressor(codecs.Generic), {"generic_name": "zstd",
        "generic_configuration": {"level": 1, "checksum": False}}),
    "create_array shards": lambda at: (lambda shape, where: hr.create_array(at.new(), shape=(8, 8),
        dtype="i4", chunks=(2, 2), shards={"shape": shape, "index_location": where}), {
        "shape": (4, 4), "where": "start"}),
    "open of an array": lambda at: (hr.open, {"store": at.array(), "path": None, "mode": "r"}),
    "cached": lambda at: (hr.cached, {"store": at.group().store, "directory": at.new(),
        "disk": "1MiB"}),
    "save": lambda at: (hr.save, {"store": at.new(), "x": np.ones(3), "progress": None}),
    "references": lambda at: (hr.references, {"files": at.hdf5(), "maker": None}),
    "decode_batch": lambda at: (codecs.decode_batch, {"codec": "zstd", "inputs": [],
        "offsets": None, "out": []}),
    "encode_batch": lambda at: (codecs.encode_batch, {"codec": "zstd", "inputs": b"abcd",
        "offsets": [0, 2, 4]}),
    "CellLoader": lambda at: (lambda sampler: sampled(at, sampler), {"sampler": None}),
    "Array.read_ragged": lambda at: (lambda **k: ragged(at).read_ragged(**k), {"selection": None,
        "device": "cpu", "implementations": {}}),
    "Array.to_arrow": lambda at: (lambda **k: ragged(at).to_arrow(**k), {"selection": None,
        "device": "cpu", "implementations": {}}),
    "_Indexer.read": lambda at: (lambda **k: at.array().oindex.read(**k), {"selection": 0,
        "out": None, "device": "cpu", "stream": None, "implementations": {}}),
    "_Indexer.read_ragged": lambda at: (lambda **k: ragged(at).oindex.read_ragged(**k), {
        "selection": [0], "device": "cpu", "implementations": {}}),
    "_Indexer.to_arrow": lambda at: (lambda **k: ragged(at).oindex.to_arrow(**k), {
        "selection": [0], "device": "cpu", "implementations": {}}),
    "LazyArray.read_async": lambda at: (lambda out: at.array().lazy[0].read_async(out=out).result(
        30), {"out": None}),
    "DeviceArray.result": lambda at: (at.array().read(device="simt").result, {"timeout": 30}),
    "DeviceArray.to_numpy": lambda at: (
        lambda **k: at.array().read(device="simt").to_numpy(**k), {"stream": None}),
    "Future.result": lambda at: (at.array().read_async().result, {"timeout": 30}),
    "Future.exception": lambda at: (at.array().read_async().exception, {"timeout": 30}),
    "Array.with_implementations": lambda at: (at.array().with_implementations, {
        "implementations": {}}),
    "Attributes.get": lambda at: (at.group().attrs.get, {"key": "a", "default": 1}),
    "Attributes.pop": lambda at: (lambda name, default: at.group().attrs.pop(name, default), {
        "name": "a", "default": 1}),
    "Attributes.setdefault": lambda at: (at.group().attrs.setdefault, {"name": "a", "default": 1}),
    "Group.get": lambda at: (at.group().get, {"name": "x", "default": 1}),
    "Group.require_array": lambda at: (at.group().require_array, {"name": "x", "shape": (6, 4),
        "dtype": "f4", "exact": True}),
    "Cells.column_maps": lambda at: (hr.cells(at.cells()).column_maps, {"name": "X",
        "genes": ["0", "1"]}),
    "Cells.dtype": lambda at: (hr.cells(at.cells()).dtype, {"name": "X"}),
    "Cells.matrices": lambda at: (hr.cells(at.cells()).matrices, {"name": "X"}),
    "Cells.n_vars": lambda at: (hr.cells(at.cells()).n_vars, {"name": "X"}),
    "Cells.var_names": lambda at: (hr.cells(at.cells()).var_names, {"name": "X"}),
    "Arena.empty": lambda at: (lambda order: shm.Arena("1MiB").empty((2, 2), "f4", order=order), {
        "order": "C"}),
    "Arena.reclaim": lambda at: (lambda sent: shm.Arena("1MiB").reclaim(sent=sent), {
        "sent": False}),
    # Of what is in the batch torch speaks.
    "shm.collate": lambda at: (lambda arena: shm.collate([np.ones(3)], arena=arena), {
        "arena": shm.Arena("1MiB")}),
    "config.get": lambda at: (hr.config.get, {"name": "threads", "default": 1}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_named(call, tmp_path, monkeypatch):
    if call == "shm.collate":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    found = complaints(CALLS[call], Place(tmp_path / "stores"))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.skipif("zfp" not in {row["codec"] for row in codecs.table()}, reason="without libzfp")
def test_wrong_arguments_of_zfp(tmp_path):
    named = ("tolerance", "rate", "precision", "minbits", "maxbits", "maxprec", "minexp")
    arguments = {"mode": "reversible", **dict.fromkeys(named)}
    use = codec(codecs.Zfp, "serializer", "f4")
    assert not complaints(lambda at: (use, arguments), Place(tmp_path))


# Made by other functions, or by the library alone; and what has tests of its own.
NOT_CALLED = {
    *("Cells", "DeviceArrowArray", "Group", "QueuedBatch", "Tree.of"),
    *("shm.Channel", "shm.Publication"),
    *("Loader.dali", "Zfp", "references", "shm.attach", "shm.collate", "shm.install"),
    "shm.publish",
}


def test_each_argument_of_what_is_public_is_in_a_table(tmp_path):
    place = Place(tmp_path)
    given = {}
    for table in (test_arguments.CALLS, CALLS):
        for call, make in table.items():
            name = call.partition(" ")[0]
            if name not in NOT_CALLED:
                given.setdefault(call.partition(" ")[0], set()).update(make(place)[1])
    missing = []
    for name, function in test_arguments.public_callables(place):
        short = name.removeprefix("headrace.").removeprefix("codecs.").removeprefix("loader.")
        short = short.replace("module.", "config.").replace("shm.Arena", "Arena")
        if short in NOT_CALLED:
            continue
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            continue  # of Python's own, in C
        for one in parameters:
            if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
                continue
            if one.name not in given.get(short, ()):
                missing.append(f"{short}({one.name})")
    assert not missing
