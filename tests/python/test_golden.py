"""Bytes that other libraries wrote, read by headrace. See tests/golden/README.md.

Decisions: an array keeps the byte order of its metadata or is native, values are compared native;
a result has the dtype of its array; an integer index may give a NumPy scalar or a 0-d array.
"""

import hashlib
import json
import zipfile

import headrace as hr
import numpy as np
import pytest
from helpers import GOLDEN, as_bytes, assert_same, assert_selected

MANIFESTS = {
    path.stem: json.loads(path.read_text()) for path in sorted((GOLDEN / "manifest").glob("*.json"))
}
ARRAYS = [
    pytest.param(writer, entry, id=f"{writer}-{entry['store']}-{entry['path']}")
    for writer, manifest in MANIFESTS.items()
    for entry in manifest.get("arrays", ())
]
STORES = [
    (writer, name)
    for writer, manifest in MANIFESTS.items()
    for name, store in manifest.get("stores", {}).items()
    if store["kind"] == "folder"
]
SELECTIONS = {
    0: [(), ..., None, (..., None)],
    1: [slice(1, -1), slice(None, None, -1), slice(None, None, 3), (None, ..., slice(7, 2, -2))],
    2: [
        (slice(None), slice(None, None, -2)),
        (..., slice(1, 4)),
        (slice(-3, None), None, slice(5)),
        (slice(4, 4),),
        (slice(None, None, 3), ...),
    ],
}


def to_dtype(spec):
    if isinstance(spec, list):
        fields = [tuple(field) for field in spec]
        return np.dtype([(name, to_dtype(kind), *map(tuple, rest)) for name, kind, *rest in fields])
    try:
        return np.dtype(spec)
    except TypeError:
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        return np.dtype(getattr(ml_dtypes, spec))


@pytest.fixture(scope="session")
def open_golden(tmp_path_factory):
    root, folders, expected = tmp_path_factory.mktemp("golden"), {}, {}

    def locate(writer, store):
        archive = GOLDEN / "stores" / f"{writer}-{store}.zip"
        if MANIFESTS[writer]["stores"][store]["kind"] == "zip":
            return f"zip://{archive}"
        if (writer, store) not in folders:
            folders[writer, store] = root / writer / store
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(folders[writer, store])
        return str(folders[writer, store])

    def wanted(writer, entry):
        if writer not in expected:
            expected[writer] = np.load(GOLDEN / "expected" / f"{writer}.npz")
        raw = expected[writer][entry["sha256"]].tobytes()
        return np.frombuffer(raw, to_dtype(entry["dtype"])).reshape(entry["shape"])

    locate.wanted = wanted
    return locate


def read_or_refused(entry, read):
    """What `read` gives; None when a case marked optional is refused as it may be."""
    if not entry.get("optional"):
        return read()
    try:
        return read()
    except NotImplementedError as error:
        assert str(error).strip()
        return None


@pytest.mark.parametrize(("writer", "entry"), ARRAYS)
def test_array(open_golden, writer, entry):
    where = open_golden(writer, entry["store"])
    if "raises" in entry:
        return check_refused(where, entry)
    wanted = open_golden.wanted(writer, entry)
    array = read_or_refused(entry, lambda: hr.open_array(where, path=entry["path"]))
    if array is None:
        return None
    assert array.shape == wanted.shape
    assert array.ndim == wanted.ndim
    assert array.size == wanted.size
    assert array.nbytes == wanted.nbytes
    assert np.dtype(array.dtype).newbyteorder("=") == wanted.dtype
    assert array.zarr_format == entry["zarr_format"]
    if entry["chunks"] is not None and "rectilinear" not in entry["features"]:
        assert tuple(array.chunks) == tuple(entry["chunks"])
        shards = entry.get("shards")
        assert (array.shards and tuple(array.shards)) == (shards and tuple(shards))
    whole = read_or_refused(entry, lambda: array[...])
    if whole is None:
        return None
    assert np.asarray(whole).dtype == array.dtype
    assert_same(whole, wanted)
    for selection in SELECTIONS[min(wanted.ndim, 2)]:
        assert_selected(array[selection], wanted, selection)
    if wanted.size:
        last = tuple(-1 for _ in wanted.shape)
        assert_selected(array[last], wanted, last)
        first = (0,) * (wanted.ndim - 1)
        assert_selected(array[first], wanted, first)
    check_facts(array, entry)
    return None


@pytest.mark.parametrize(("writer", "entry"), ARRAYS)
def test_array_on_a_device(open_golden, writer, entry):
    if "raises" in entry:
        return
    wanted = open_golden.wanted(writer, entry)
    where = open_golden(writer, entry["store"])
    with hr.config.set({"device_min_decode_nbytes": 0}):
        array = read_or_refused(
            entry, lambda: hr.open_array(where, path=entry["path"], device="simt")
        )
        if array is None:
            return
        whole = read_or_refused(entry, lambda: array[...])
        if whole is None:
            return
        assert_same(whole.to_numpy(), wanted)
        selection = (slice(None, None, -2),) * min(wanted.ndim, 1)
        assert_same(array[selection].to_numpy(), wanted[selection])


def check_facts(array, entry):
    if "attributes" in entry:
        # NaN is not equal to itself: compare the text.
        texts = [json.dumps(x, sort_keys=True) for x in (dict(array.attrs), entry["attributes"])]
        assert texts[0] == texts[1]
    if "dimension_names" in entry:
        assert list(array.dimension_names) == entry["dimension_names"]
    if "chunk_sizes" in entry:
        assert array.read_chunk_sizes == tuple(map(tuple, entry["chunk_sizes"]["read"]))
        assert array.write_chunk_sizes == tuple(map(tuple, entry["chunk_sizes"]["write"]))
        assert array.nchunks_initialized == entry["initialized"]
        assert array.nchunks == np.prod([len(row) for row in array.read_chunk_sizes])
    elif "initialized" in entry:
        assert array.nchunks_initialized == entry["initialized"]
        grid = [-(-s // c) for s, c in zip(entry["shape"], entry["chunks"], strict=True)]
        assert array.nchunks == np.prod(grid)


def check_refused(where, entry):
    error = {"NotImplementedError": NotImplementedError}[entry["raises"]]
    if entry["items"] is None:
        with pytest.raises(error):
            hr.open_array(where, path=entry["path"])[...]
        return
    try:
        got = hr.open_array(where, path=entry["path"])[...]
    except error as refused:
        assert str(refused).strip()
    else:
        assert list(got) == entry["items"]


@pytest.mark.parametrize(("writer", "store"), STORES)
def test_folder_store_packed_as_a_zip_reads_the_same(open_golden, writer, store):
    archive = GOLDEN / "stores" / f"{writer}-{store}.zip"
    checked = 0
    for entry in MANIFESTS[writer]["arrays"]:
        if entry["store"] == store and "raises" not in entry and not entry.get("optional"):
            try:
                wanted = open_golden.wanted(writer, entry)
            except pytest.skip.Exception:
                continue
            assert_same(hr.open_array(f"zip://{archive}", path=entry["path"])[...], wanted)
            checked += 1
    assert checked or store in ("objects", "strings", "newest", "zfp")


@pytest.mark.parametrize(
    ("writer", "store"),
    [
        ("zarr2", "groups"),
        ("zarr31", "groups-v2"),
        ("zarr31", "groups-v3"),
        ("zarr34", "groups-v3"),
    ],
)
def test_groups_and_attributes(open_golden, writer, store):
    root = hr.open_group(open_golden(writer, store))
    assert dict(root.attrs) == {"title": "root"}
    assert sorted(root) == ["a", "d", "x"]
    assert sorted(root["a"]) == ["b", "x"]
    assert dict(root["a/b/c"].attrs) == {"path": "a/b/c"}
    assert list(root["d"]) == []
    assert root["a"]["b"]["c"]["x"].shape == (5, 6)
    assert "a/b/c/x" in root
    assert "a/nothing" not in root


FRAMES = MANIFESTS["blosc"]["frames"]


@pytest.mark.parametrize("cname", sorted({frame["cname"] for frame in FRAMES}))
def test_blosc_frames(cname):
    frames = [frame for frame in FRAMES if frame["cname"] == cname]
    with zipfile.ZipFile(GOLDEN / "stores" / "blosc-frames.zip") as packed:
        encoded = [packed.read(frame["frame"]) for frame in frames]
    sizes = [frame["nbytes"] for frame in frames]
    decoded = hr.codecs.decode_batch("blosc", encoded, out_nbytes=sizes)
    assert len(decoded) == len(frames)
    bad = [
        frame
        for frame, got in zip(frames, decoded, strict=True)
        if hashlib.sha256(as_bytes(got)).hexdigest() != frame["sha256"]
    ]
    assert bad == []


def test_the_golden_data_is_whole():
    for writer, manifest in MANIFESTS.items():
        if "arrays" not in manifest:
            continue
        expected = np.load(GOLDEN / "expected" / f"{writer}.npz")
        for entry in manifest["arrays"]:
            if "sha256" in entry:
                raw = expected[entry["sha256"]].tobytes()
                assert hashlib.sha256(raw).hexdigest() == entry["sha256"]
