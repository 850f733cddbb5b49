"""Stores of cells that lie: errors with the store and the row, and nothing read out of bounds."""

import headrace as hr
import numpy as np
import pytest
from headrace import _core
from headrace.loader import CellLoader, Transform
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy")
pytest.importorskip("zarr")

import zarr
from cells_store import counts, dense, encode, put, write
from helpers import DEVICES

ROWS, COLUMNS = 40, 9


def changed(path, name, change):
    """Replaces an array of the matrix by what `change` makes of it."""
    group = zarr.open_group(path)["X"]
    values = change(group[name][:])
    del group[name]
    put(group, name, values, (16,))
    return hr.cells(path)


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "a.zarr", counts(np.random.default_rng(1), ROWS, COLUMNS, 0.5))


def at(place, value):
    def change(values):
        values = values.astype("i8")
        values[place] = value
        return values

    return change


LARGEST, SMALLEST = np.iinfo("i8").max, np.iinfo("i8").min


ON_ALL = pytest.mark.parametrize("device", ["cpu", *DEVICES])


@ON_ALL
@pytest.mark.parametrize("output", ["csr", "dense"])
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("indptr", at(5, 0), r"a\.zarr/X row 4: indptr falls"),
        ("indptr", at(5, LARGEST), r"X row 5: indptr falls"),
        ("indptr", at(5, SMALLEST), r"X row 4: indptr falls"),
        ("indptr", at(-1, LARGEST), r"X: expected an indptr .* got 0 to 9223372036854775807"),
        ("indptr", at(0, SMALLEST), r"X: expected an indptr .* got -9223372036854775808 to"),
        ("indptr", at(0, 1), r"X: expected an indptr from 0 to \d+, .* got 1 to \d+"),
        ("indices", at(7, COLUMNS), r"X row \d+: a column outside of the 9"),
        ("indices", at(7, -1), r"X row \d+: a column outside of the 9"),
        ("indices", at(7, LARGEST), r"X row \d+: a column outside of the 9"),
        ("indices", at(7, 1 << 32), r"X row \d+: a column outside of the 9"),
    ],
)
def test_matrices_that_lie(path, name, change, message, output, device):
    loader = CellLoader(
        changed(path, name, change), ROWS, window=(8, 8), output=output, device=device
    )
    for _ in range(2):  # the next call tries the same batch again
        with pytest.raises(hr.CorruptError, match=message):
            next(loader)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("more", [-3, 3])
def test_elements_that_are_of_no_row(path, tmp_path, monkeypatch, in_memory, more):
    """Both arrays are shorter or longer than the positions say."""
    if not in_memory:
        monkeypatch.setattr("headrace.loader._cell_windows._INDPTR_IN_MEMORY", 0)
    group = zarr.open_group(path)["X"]
    count = group["data"].shape[0]
    for name in ("data", "indices"):
        group[name].resize((count + more,))
    message = rf"X: expected an indptr from 0 to {count + more}, .* got 0 to {count}"
    loader = CellLoader(hr.cells(path), 8, window=(4, 2))
    for _ in range(2):
        with pytest.raises(hr.CorruptError, match=message):
            next(loader)
    with pytest.raises(hr.CorruptError, match=message):
        hr.cells.convert(path, tmp_path / "out.zarr")


@ON_ALL
@pytest.mark.parametrize("value", [COLUMNS, -1])
@pytest.mark.parametrize("genes", [[0], [3, 0], []])
def test_columns_are_checked_before_genes_are_selected(path, value, genes, device):
    data = changed(path, "indices", at(7, value))
    loader = CellLoader(data, ROWS, transforms=Transform(genes=genes), device=device)
    with pytest.raises(hr.CorruptError, match="a column outside"):
        next(loader)


@pytest.mark.parametrize("part", ["indices", "data"])
def test_errors_that_are_kept_take_no_room(tmp_path, part):
    """An interactive session keeps them, with the frames that they came through."""
    path = write(tmp_path / "a.zarr", counts(np.random.default_rng(1), 400, 50, 0.5))
    if part == "indices":
        zarr.open_group(path)["X/indices"][325] = 99
    else:
        (tmp_path / "a.zarr/X/data/c/20").write_bytes(b"no chunk")
    loader = CellLoader(hr.cells(path), 400, window=(100, 4), memory_budget=120_000)
    kept = []
    for _ in range(3):
        with pytest.raises(hr.CorruptError) as caught:
            next(loader)
        kept.append(caught.value)


@ON_ALL
@pytest.mark.parametrize(("dtype", "columns"), [("i1", 300), ("i2", 70000)])
def test_a_negative_column_is_none_of_many(tmp_path, dtype, columns, device):
    """The bits of an int8 of -1 are those of a column below 300."""
    path = write(tmp_path / "a.zarr", counts(np.random.default_rng(1), 4, columns, 0.02))
    group = zarr.open_group(path)["X"]
    indices = np.zeros(group["indices"].shape, dtype)
    indices[1] = -1
    del group["indices"]
    put(group, "indices", indices, (16,))
    for output in ("csr", "dense"):
        loader = CellLoader(hr.cells(path), 4, output=output, device=device)
        with pytest.raises(hr.CorruptError, match=f"a column outside of the {columns}"):
            next(loader)


@ON_ALL
def test_a_chunk_that_no_device_decodes(path, tmp_path, device):
    (tmp_path / "a.zarr/X/indices/c/1").write_bytes(b"no chunk")
    with pytest.raises(hr.CorruptError, match="X/indices"):
        next(CellLoader(hr.cells(path), ROWS, device=device))


def test_batches_before_a_corrupt_window_are_delivered(path):
    data = changed(path, "indptr", at(38, 0))
    loader = CellLoader(data, 8, window=(8, 1), shuffle=False)
    assert [next(loader)["index"][0] for _ in range(4)] == [0, 8, 16, 24]
    with pytest.raises(hr.CorruptError, match="row 37"):
        next(loader)


def test_a_chunk_that_cannot_be_decoded(path, tmp_path):
    chunk = tmp_path / "a.zarr/X/data/c/0"
    chunk.write_bytes(b"no chunk")
    loader = CellLoader(hr.cells(path), ROWS)
    with pytest.raises(hr.CorruptError):
        next(loader)


def test_data_larger_than_memory_is_within_the_budget(path):
    """The array says that it has a petabyte, most of it missing chunks."""
    group = zarr.open_group(path)["X"]
    for name in ("data", "indices"):
        group[name].resize((1 << 48,))
    data = changed(path, "indptr", at(-1, 1 << 48))
    with pytest.raises(MemoryError, match="memory_budget"):
        next(CellLoader(data, 8))


def test_more_cells_than_can_be_numbered(tmp_path):
    path = write(tmp_path / "a.zarr", np.zeros((0, 4), "f4"))
    root = zarr.open_group(path)
    for group, name, shape in ((root, "X", (1 << 61, 4)), (root["obs"], "_index", (1 << 61,))):
        del group[name]
        array = group.create_array(name, shape=shape, chunks=(9,) * len(shape), dtype="f4")
        encode(array, "array")
    assert len(next(CellLoader(hr.cells(path), 8, window=(4, 2), output="dense"))["X"]) == 8
    with pytest.raises(hr.CorruptError, match="6917529027641081856 cells"):
        hr.cells([path] * 3)


@given(
    st.lists(st.integers(-5, 60), min_size=ROWS + 1, max_size=ROWS + 1),
    st.lists(st.integers(-3, COLUMNS + 3), min_size=50, max_size=50),
    st.sampled_from(["csr", "dense"]),
    st.booleans(),
)
@ON_ALL
def test_any_positions_and_columns(device, tmp_path_factory, indptr, indices, output, selects):
    """An error, or what SciPy makes of them."""
    folder = tmp_path_factory.mktemp("cells")
    path = write(folder / "a.zarr", counts(np.random.default_rng(1), ROWS, COLUMNS))
    group = zarr.open_group(path)["X"]
    if sorted(indices) == indices:  # now and then what is good
        indptr = [0, *sorted(np.clip(indptr[1:-1], 0, 50).tolist()), 50]
    for name, values in (
        ("data", np.arange(50, dtype="f4")),
        ("indices", np.array(indices)),
        ("indptr", np.array(indptr)),
    ):
        del group[name]
        put(group, name, values)
    genes = [4, 1] if selects else None
    loader = CellLoader(
        hr.cells(path),
        ROWS,
        shuffle=False,
        output=output,
        transforms=Transform(genes=genes),
        device=device,
    )
    good = sorted(indptr) == indptr and (indptr[0], indptr[-1]) == (0, 50)
    good = good and all(0 <= column < COLUMNS for column in indices)
    if not good:
        with pytest.raises(hr.CorruptError):
            next(loader)
        return
    wanted = np.zeros((ROWS, COLUMNS), "f4")
    for row in range(ROWS):
        for element in range(indptr[row], indptr[row + 1]):
            wanted[row, indices[element]] += element
    wanted = wanted[:, genes] if selects else wanted
    found = next(loader)["X"]
    found = found.to_numpy() if isinstance(found, hr.DeviceArray) else found
    assert (dense(found.get() if hasattr(found, "get") else found) == wanted).all()


def window(indptr, indices=(0, 1, 2), columns=3, **options):
    """A window of what Python may hand over, past the checks of the loader."""
    indices = np.array(indices, "i4")
    data = np.arange(len(indices), dtype="f4")
    described = [("store", columns, np.dtype("f4"), np.dtype("i4"), options.get("map"))]
    run = (0, 100, len(indptr) - 1, data.view("u1"), indices.view("u1"), np.array(indptr, "i8"))
    return _core.CellWindow(described, [run], options.get("wanted", columns))


@pytest.mark.parametrize(
    "indptr", [[0, 4], [0, -1], [5, 4], [5, 9], [0, 2, 1], [LARGEST, SMALLEST], [SMALLEST, LARGEST]]
)
def test_windows_check_positions_themselves(indptr):
    rows = np.arange(len(indptr) - 1)
    with pytest.raises(hr.CorruptError, match=r"store row 10[01]: indptr from"):
        window(indptr).count(rows, np.zeros(len(rows) + 1, "i8"))


def test_windows_check_what_they_are_told_to_write():
    good = window([5, 6, 8])
    rows, offsets = np.array([1, 0]), np.zeros(3, "i8")
    good.count(rows, offsets)
    assert offsets.tolist() == [0, 2, 3]
    how = (None, False, None)
    data, indices = np.zeros(3, "f4"), np.zeros(3, "i4")

    def gather(rows=rows, offsets=offsets, data=data, indices=indices, itemsize=4):
        good.gather_csr(rows, offsets, how, data.view("u1"), indices.view("u1"), itemsize)

    gather()
    assert data.tolist() == [1, 2, 0] and indices.tolist() == [1, 2, 0]
    for wrong, message in [
        ({"offsets": np.array([0, 1, 3])}, "count"),
        ({"offsets": np.array([0, 3, 2])}, "fall"),
        ({"offsets": np.array([-1, 1, 2])}, "from 0 on"),
        ({"offsets": np.array([0, 2])}, "one offset more"),
        ({"data": data[:2]}, "data: expected 3 elements"),
        ({"indices": indices[:2]}, "indices: expected 3 elements"),
        ({"itemsize": 2}, "itemsize: elements of 4 bytes, not 2"),
        ({"rows": np.array([1, 2])}, "row 2 of 2"),
        ({"rows": np.array([1, -1])}, "row -1 of 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            gather(**wrong)
    with pytest.raises(ValueError, match="data: expected 6 elements"):
        good.gather_dense(rows, how, np.zeros(20, "u1"), 4)
    with pytest.raises(ValueError, match="a transform without a type"):
        good.gather_dense(rows, (1.0, True, None), np.zeros(24, "u1"), 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": np.array([0, 1], "i4")}, "a map of 2"),
        ({"map": np.array([0, 1, 3], "i4")}, "a column to 3"),
        ({"map": np.array([0, 1, -2], "i4")}, "a column to -2"),
        ({"wanted": 2}, "3 columns"),
        ({"wanted": -1}, "-1 columns"),
        ({"wanted": 1 << 31}, "2147483648 columns"),
    ],
)
def test_windows_check_their_columns(options, message):
    with pytest.raises(ValueError, match=message):
        window([0, 1, 3], **options)


def test_windows_check_the_memory_of_runs():
    described = [("store", 3, np.dtype("f4"), np.dtype("i4"), None)]
    data, indices, indptr = np.zeros(12, "u1"), np.zeros(12, "u1"), np.zeros(3, "i8")
    for run, message in [
        ((1, 0, 2, data, indices, indptr), "no matrix"),
        ((0, 0, 3, data, indices, indptr), "indptr: expected 4 elements"),
        ((0, 0, -2, data, indices, indptr), "a number of rows"),
        ((0, 0, 2, data[:8], indices, indptr), "data: expected 3 elements"),
        ((0, 0, 2, np.zeros(13, "u1")[1:], indices, indptr), "not aligned"),
    ]:
        with pytest.raises(ValueError, match=message):
            _core.CellWindow(described, [run], 3)
    with pytest.raises(ValueError, match="data: expected 6 elements"):
        _core.CellWindow([("d", 3, np.dtype("f4"), None, None)], [(0, 0, 2, data, None, None)], 3)
    with pytest.raises(ValueError, match="indices are no integers"):
        _core.CellWindow([("d", 3, np.dtype("f4"), np.dtype("f4"), None)], [], 3)
    with pytest.raises(ValueError, match="elements are no numbers"):
        _core.CellWindow([("d", 3, np.dtype("S4"), None, None)], [], 3)
