"""Metadata that is malformed, absurd or asks for what is not there.

Decisions, where api.md is silent: malformed metadata is a ValueError when the node is opened
(CorruptError is one); what is legal but not known is NotImplementedError, at the latest when data
is asked for; both name the file or the field. Sizes beyond memory are a ValueError or MemoryError.
"""

import json
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same, edit_json, smooth, values, write_zarr

DATA = values("<f4", (8, 6))


@pytest.fixture
def v3(store):
    write_zarr(store, DATA, chunks=(4, 3))
    return Path(store, "zarr.json")


@pytest.fixture
def v2(store):
    write_zarr(store, DATA, chunks=(4, 3), zarr_format=2, compressors=None)
    return Path(store, ".zarray")


def read(meta):
    return hr.open_array(str(meta.parent))[...]


BROKEN_TEXT = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"{}",
    b"\x00" * 40,
    b"\xff\xfe{",
    b'{"a":' * 5000,
]


@pytest.mark.parametrize("text", BROKEN_TEXT, ids=lambda text: repr(text[:8]))
@pytest.mark.parametrize("form", ["v2", "v3"])
def test_malformed_json(request, form, text):
    meta = request.getfixturevalue(form)
    meta.write_bytes(text)
    with pytest.raises(ValueError, match=r"zarr\.json|\.zarray"):
        read(meta)


def test_every_truncation_of_the_metadata_is_an_error(v3):
    whole = v3.read_bytes().rstrip()
    for n in range(0, len(whole), 7):
        v3.write_bytes(whole[:n])
        with pytest.raises(ValueError):
            read(v3)


def test_malformed_consolidated_metadata_is_an_error(store):
    import zarr

    zarr.create_group(store, zarr_format=2)
    Path(store, ".zmetadata").write_text('{"zarr_consolidated_format": 1, "metadata": {')
    with pytest.raises(ValueError, match=r"\.zmetadata"):
        list(hr.open_group(store))


def change(*path, to):
    def edit(meta):
        at = meta
        for key in path[:-1]:
            at = at[key]
        if to is KeyError:
            del at[path[-1]]
        else:
            at[path[-1]] = to

    return edit


GRID = ("chunk_grid", "configuration", "chunk_shape")


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("shape",), [-1, 6]),
        (("shape",), [2**63, 6]),
        (("shape",), [1e300, 6]),
        (("shape",), ["8", 6]),
        (("shape",), 8),
        (("shape",), [8]),
        (("shape",), [8, 6, 1]),
        (("shape",), [8.5, 6]),
        (("shape",), [True, 6]),
        (("shape",), None),
        (("shape",), KeyError),
        (GRID, [0, 3]),
        (GRID, [-4, 3]),
        (GRID, [4]),
        (GRID, [2**64, 3]),
        (GRID, ["4", 3]),
        (GRID, KeyError),
        (("chunk_grid",), KeyError),
        (("chunk_grid",), "regular"),
        (("data_type",), KeyError),
        (("data_type",), 7),
        (("codecs",), []),
        (("codecs",), KeyError),
        (("codecs",), {}),
        (("codecs",), [7]),
        (("codecs", 0), {"configuration": {}}),
        (("codecs", 0, "configuration", "endian"), "middle"),
        (("fill_value",), "not a number"),
        (("fill_value",), [1, 2]),
        (("fill_value",), KeyError),
        (("fill_value",), "0x12"),
        (("zarr_format",), 4),
        (("zarr_format",), "3"),
        (("node_type",), "folder"),
        (("node_type",), KeyError),
        (("chunk_key_encoding", "configuration", "separator"), "-"),
        (("dimension_names",), ["y"]),
        (("dimension_names",), [1, 2]),
    ],
    ids=str,
)
def test_malformed_v3_field(v3, path, to):
    edit_json(v3, change(*path, to=to))
    with pytest.raises((ValueError, NotImplementedError)):
        read(v3)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("shape",), [-1, 6]),
        (("shape",), [2**63, 6]),
        (("shape",), KeyError),
        (("chunks",), [0, 3]),
        (("chunks",), [4]),
        (("chunks",), [-4, 3]),
        (("chunks",), KeyError),
        (("dtype",), "<f"),
        (("dtype",), "f4,i4"),
        (("dtype",), "<i99999999999999999999"),
        (("dtype",), "|S-1"),
        (("dtype",), [["a"]]),
        (("dtype",), KeyError),
        (("order",), "K"),
        (("fill_value",), "abc"),
        (("filters",), [{}]),
        (("compressor",), "zstd"),
        (("compressor",), {"level": 3}),
        (("dimension_separator",), "-"),
        (("zarr_format",), 3),
    ],
    ids=str,
)
def test_malformed_v2_field(v2, path, to):
    edit_json(v2, change(*path, to=to))
    with pytest.raises((ValueError, NotImplementedError)):
        read(v2)


UNKNOWN_V3 = {
    "codec": (("codecs", 1), {"name": "quantum7"}),
    "bare codec": (("codecs", 1), "quantum7"),
    "numcodecs codec": (("codecs", 1), {"name": "numcodecs.quantum7", "configuration": {}}),
    "data type": (("data_type",), "quantum7"),
    "data type object": (("data_type",), {"name": "quantum7", "configuration": {}}),
    "grid": (("chunk_grid",), {"name": "quantum7", "configuration": {}}),
    "key encoding": (("chunk_key_encoding",), {"name": "quantum7"}),
    "storage transformer": (("storage_transformers",), [{"name": "quantum7"}]),
}


@pytest.mark.parametrize("name", UNKNOWN_V3)
def test_unknown_extension_is_named(v3, name):
    path, to = UNKNOWN_V3[name]
    edit_json(v3, change(*path, to=to))
    # No storage transformer is known: naming the field says enough.
    wanted = "storage_transformers" if name == "storage transformer" else "quantum7"
    with pytest.raises(NotImplementedError, match=wanted):
        read(v3)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("compressor",), {"id": "quantum7"}),
        (("filters",), [{"id": "quantum7"}]),
        (("compressor",), {"id": "pickle"}),
    ],
)
def test_unknown_v2_codec_is_named(v2, path, to):
    edit_json(v2, change(*path, to=to))
    with pytest.raises(NotImplementedError, match=r"quantum7|pickle"):
        read(v2)


def test_unknown_codec_inside_shards_is_named(store):
    write_zarr(store, DATA, chunks=(4, 3), shards=(8, 6))
    inner = ("codecs", 0, "configuration", "codecs", 1)
    edit_json(Path(store, "zarr.json"), change(*inner, to={"name": "quantum7"}))
    with pytest.raises(NotImplementedError, match="quantum7"):
        hr.open_array(store)[...]


@pytest.mark.parametrize("value", [1, {}, {"must_understand": True}, {"name": "x"}, "text"])
def test_unknown_field_must_be_understood(v3, value):
    edit_json(v3, change("novelty", to=value))
    with pytest.raises((ValueError, NotImplementedError), match="novelty"):
        read(v3)


def test_field_that_need_not_be_understood(v3):
    edit_json(v3, change("novelty", to={"must_understand": False, "x": 1}))
    assert_same(read(v3), DATA)


def test_inner_chunks_that_do_not_divide_the_shard(store):
    write_zarr(store, DATA, chunks=(4, 3), shards=(8, 6))
    inner = ("codecs", 0, "configuration", "chunk_shape")
    for wrong in ([3, 3], [0, 3], [16, 6], [4], [4, 3, 1], [-4, 3]):
        edit_json(Path(store, "zarr.json"), change(*inner, to=wrong))
        with pytest.raises(ValueError):
            hr.open_array(store)[...]


@pytest.mark.parametrize("order", [[0], [0, 0], [0, 2], [1, 0, 2], [-1, 0], "A"])
def test_transpose_that_is_no_permutation(v3, order):
    codec = {"name": "transpose", "configuration": {"order": order}}
    edit_json(v3, lambda meta: meta["codecs"].insert(0, codec))
    with pytest.raises((ValueError, NotImplementedError)):
        read(v3)


HUGE = (MemoryError, ValueError, NotImplementedError)


@pytest.mark.parametrize("codec", [None, "zstd", "gzip", "blosc"])
def test_chunk_far_beyond_memory(store, codec):
    import zarr.codecs as zc

    chain = {"zstd": zc.ZstdCodec(), "gzip": zc.GzipCodec(), "blosc": zc.BloscCodec()}.get(codec)
    write_zarr(store, smooth("f8", (8, 6)), chunks=(8, 6), compressors=chain)
    edit_json(Path(store, "zarr.json"), change(*GRID, to=[2**40, 2**20]))
    with pytest.raises(HUGE):
        hr.open_array(store)[...]


def test_product_of_the_shape_overflows(v3):
    edit_json(v3, change("shape", to=[2**62, 2**62]))
    with pytest.raises(HUGE):
        read(v3)


def test_shard_index_far_beyond_memory(store):
    write_zarr(store, DATA, chunks=(1, 1), shards=(8, 6))
    edit_json(Path(store, "zarr.json"), change(*GRID, to=[2**40, 2**30]))
    with pytest.raises(HUGE):
        hr.open_array(store)[...]


@pytest.mark.parametrize("data_type", ["r8000000000", "r536870920"])
def test_an_element_of_a_gigabyte(v3, data_type):
    edit_json(v3, change("data_type", to=data_type))
    with pytest.raises(NotImplementedError, match=r"(?s)zarr.json.*item size of .* 67108864"):
        hr.open_array(str(v3.parent))


@pytest.mark.parametrize("name", ["r1", "g/r1"])
def test_a_codec_that_is_configured_badly_is_corrupt(store, name):
    write_zarr(store, DATA, name=name)
    document = Path(store, name, "zarr.json")
    edit_json(document, change("codecs", 0, to={"name": "bytes"}))
    array = hr.open_array(store, path=name)
    for use in lambda: array[...], lambda: array.verify(), lambda: array.read(device="simt"):
        with pytest.raises(
            hr.CorruptError, match=rf"(?s)store.zarr {name}/zarr.json: .*'endian' is"
        ):
            use()


def test_sharding_nested_a_thousand_times(v3):
    meta = json.loads(v3.read_text())
    codecs = json.dumps(meta.pop("codecs"))
    for _ in range(1000):  # by hand: Python's own json refuses such depth
        inner = (
            f'{{"chunk_shape": [4, 3], "codecs": {codecs}, "index_codecs": [{{"name": "bytes"}}]}}'
        )
        codecs = f'[{{"name": "sharding_indexed", "configuration": {inner}}}]'
    v3.write_text(json.dumps(meta)[:-1] + f', "codecs": {codecs}}}')
    with pytest.raises((ValueError, NotImplementedError, RecursionError)):
        read(v3)


@pytest.mark.parametrize(
    "path", ["../outside", "a/../../outside", "/../outside", "a//b/../../../outside", "."]
)
def test_paths_do_not_leave_the_store(tmp_path, path):
    inside = str(tmp_path / "inside.zarr")
    hr.create_group(inside)
    write_zarr(str(tmp_path / "outside"), DATA)
    for use in (
        lambda: hr.open_array(inside, path=path),
        lambda: hr.open_group(inside)[path],
        lambda: hr.create_array(inside, name=path, shape=(1,), dtype="i1", overwrite=True),
    ):
        with pytest.raises((ValueError, LookupError, FileNotFoundError)):
            use()
    assert_same(hr.open_array(str(tmp_path / "outside"))[...], DATA)


@pytest.mark.parametrize(
    "options",
    [
        {"shape": (-1,)},
        {"shape": (4,), "chunks": (0,)},
        {"shape": (4,), "chunks": (2, 2)},
        {"shape": (4,), "dtype": "nonsense"},
        {"shape": (4,), "dtype": object},
        {"shape": (4,), "zarr_format": 1},
        {"shape": (4,), "chunks": (2,), "shards": (3,)},
        {"shape": (4,), "chunks": (2,), "shards": (2,), "zarr_format": 2},
        {"shape": (4,), "compressors": {"name": "quantum7"}},
        {"shape": (4,), "fill_value": "text"},
        {"shape": (4,), "dimension_names": ["a", "b"]},
        {"shape": (4,), "order": "K"},
    ],
    ids=str,
)
def test_create_refuses_and_leaves_nothing(store, options):
    with pytest.raises((ValueError, TypeError, NotImplementedError)):
        hr.create_array(store, **{"dtype": "i4", "chunks": (2,), **options})
    left = [p for p in Path(store).rglob("*") if p.is_file()] if Path(store).exists() else []
    assert left == []


def test_handles_stay_good_after_errors(v3):
    good = hr.open_array(str(v3.parent))
    v3.write_text("{")
    with pytest.raises(ValueError):
        read(v3)
    assert_same(np.asarray(good), DATA)


@pytest.mark.parametrize("damage", ["no codecs", "unknown type"])
def test_a_member_that_cannot_be_opened_hides_no_other(tmp_path, damage):
    """GDAL has left out the codecs where there are none to name."""
    group = hr.create_group(tmp_path)
    for name in ("a", "b", "c"):
        group.create_array(name, shape=3, dtype="i4", dimension_names=["x"])
    group.create_group("below")

    def change(document):
        if damage == "no codecs":
            del document["codecs"]
        else:
            document["data_type"] = "of nobody"

    edit_json(tmp_path / "b/zarr.json", change)
    error = hr.CorruptError if damage == "no codecs" else NotImplementedError
    message = r'b/zarr\.json: lacks "codecs"' if damage == "no codecs" else "b/zarr.*of nobody"
    for opened in (hr.open(tmp_path), hr.consolidate_metadata(tmp_path)):
        assert opened.keys() == ["a", "b", "below", "c"]
        assert opened.array_keys() == ["a", "b", "c"] and "b" in opened
        assert [name for name, _ in opened.groups()] == ["below"]
        for text in (str(opened.tree()), str(opened.info), opened._repr_html_()):
            assert "b/zarr.json" in text and "(3,)" in text
        assert opened["a"].shape == opened["c"].shape == (3,)
        for call in (lambda of=opened: of["b"], opened.arrays, opened.items):
            with pytest.raises(error, match=message):
                call()


def test_xarray_leaves_out_what_cannot_be_opened(tmp_path):
    xr = pytest.importorskip("xarray")
    group = hr.create_group(tmp_path)
    for name in ("a", "b", "c"):
        group.create_array(name, shape=3, dtype="i4", dimension_names=["x"])
    edit_json(tmp_path / "b/zarr.json", lambda document: document.__delitem__("codecs"))
    with pytest.raises(hr.CorruptError, match='lacks "codecs"') as caught:
        xr.open_dataset(tmp_path, engine="headrace")
    assert caught.value.__notes__ == ["drop_variables='b' leaves it out"]
    for dropped, kept in (("b", ["a", "c"]), (["b"], ["a", "c"]), (iter(["b", "c"]), ["a"])):
        with xr.open_dataset(tmp_path, engine="headrace", drop_variables=dropped) as found:
            assert list(found) == kept
