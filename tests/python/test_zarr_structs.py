"""zarr-python's pipeline: structures of several byte orders, and which chunks are missing."""

import json

import headrace as hr
import numpy as np
import pytest
import zarr
import zarr.core.sync
from headrace.zarr import CodecPipeline
from zarr.storage import LocalStore, MemoryStore, WrapperStore

NAME = "headrace.zarr.CodecPipeline"

MIXED = [
    [("a", ">i4"), ("b", "<f4")],
    [("a", "<i4"), ("b", ">f4"), ("c", "S2")],
    [("a", ">u2"), ("b", "u1"), ("c", "<u8"), ("d", ">c16")],
    [("a", ">i8"), ("b", ">f4"), ("c", "S3")],
    [("a", "<i8"), ("b", "<f4")],
    [("a", "u1"), ("b", "S4")],
]


def elements(dtype):
    data = np.zeros(10, dtype)
    for number, name in enumerate(data.dtype.names):
        values = np.arange(10) + number + 1
        data[name] = values.astype("S2") if data.dtype[name].kind == "S" else values
    return data


def created(store, data, chunks, zarr_format):
    try:
        return zarr.create_array(
            store, shape=data.shape, dtype=data.dtype, chunks=chunks, zarr_format=zarr_format
        )
    except (TypeError, ValueError, KeyError) as error:
        pytest.skip(f"zarr-python: {error}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", MIXED, ids=str)
def test_structures_of_several_byte_orders(tmp_path, dtype, zarr_format):
    data = elements(dtype)
    default = created(tmp_path / "a", data, 4, zarr_format)
    default[:] = data
    with zarr.config.set({"codec_pipeline.path": NAME}):
        served = created(tmp_path / "b", data, 4, zarr_format)
        served[:] = data
        served[2:5] = data[2:5]
        reopened = zarr.open_array(tmp_path / "b")
    for selection in (np.s_[:], np.s_[1:7:2], np.s_[3], np.s_[...]):
        wanted = default[selection]
        for array in (served, reopened):
            got = array[selection]
            assert got.tolist() == wanted.tolist() == data[selection].tolist()
        assert served[selection].dtype == wanted.dtype
    assert served.oindex[[1, 8]].tolist() == data[[1, 8]].tolist()
    assert served.vindex[[8, 1]].tolist() == data[[8, 1]].tolist()
    assert zarr.open_array(tmp_path / "b")[:].tolist() == data.tolist()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["local", "wrapper", "memory"])
@pytest.mark.parametrize("shards", [None, (4,)])
def test_missing_chunks_are_reported(tmp_path, monkeypatch, kind, shards, zarr_format):
    if shards and zarr_format == 2:
        pytest.skip("Zarr 2 has no shards")
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    store = WrapperStore(store) if kind == "wrapper" else store
    with zarr.config.set({"codec_pipeline.path": NAME}):
        array = zarr.create_array(
            store,
            name="deep/x",
            shape=(16,),
            dtype="f4",
            chunks=(2,) if shards else (4,),
            shards=shards,
            fill_value=-1,
            zarr_format=zarr_format,
        )
        array[4:8] = 7
        array[12:16] = np.arange(4)

        statuses = []
        read = CodecPipeline.read

        async def reported(*args, **kwargs):
            results = await read(*args, **kwargs)
            statuses.append([result["status"] for result in results])
            return results

        monkeypatch.setattr(CodecPipeline, "read", reported)

        def run(selection):
            statuses.clear()
            values = array[selection].tolist()
            return statuses, values

        for _ in range(2):
            assert run(slice(0, 16)) == (
                [["missing", "present", "missing", "present"]],
                [-1] * 4 + [7] * 4 + [-1] * 4 + [0, 1, 2, 3],
            )
        assert run(slice(8, 10)) == ([["missing"]], [-1, -1])
        array[8:12] = 1
        assert run(slice(7, 10)) == ([["present", "present"]], [7, 1, 1])


@pytest.mark.parametrize(
    "fields",
    [
        [["a", "<i4"], ["", "|V4"], ["b", "<f8"]],
        [["", "<i4"], ["", ">f4"]],
        [["x", "|u1"], ["", "|S3"], ["", "<i2"]],
    ],
    ids=str,
)
def test_fields_without_a_name(tmp_path, fields):
    """NumPy writes padding so, and counts fields to name them."""
    dtype = np.dtype([tuple(field) for field in fields])
    data = np.frombuffer(bytes(range(120)), dtype, 5)
    document = {
        "zarr_format": 2, "shape": [5], "chunks": [5], "dtype": fields, "compressor": None,
        "filters": None, "order": "C", "fill_value": None,
    }  # fmt: skip
    (tmp_path / ".zarray").write_text(json.dumps(document))
    (tmp_path / "0").write_bytes(data.tobytes())
    wanted = zarr.open_array(tmp_path, mode="r")[:]
    array = hr.open_array(tmp_path)
    assert array.dtype == wanted.dtype == dtype
    assert array[:].tobytes() == wanted.tobytes()
    assert dtype.names[1] == "f1" and array["f1"].tobytes() == wanted["f1"].tobytes()


def test_a_field_that_has_the_name_of_one_without(tmp_path):
    fields = [["f1", "<i4"], ["", "<f4"]]
    array = hr.create_array(tmp_path, shape=2, dtype=[("a", "<i4"), ("b", "<f4")], zarr_format=2)
    document = {**array.metadata, "dtype": fields}
    (tmp_path / ".zarray").write_text(json.dumps(document))
    with pytest.raises(hr.CorruptError, match="occurs twice"):
        hr.open_array(tmp_path)
