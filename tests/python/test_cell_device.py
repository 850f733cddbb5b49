"""Batches of cells made on a device against those that the host makes."""

import gc
import pickle

import headrace as hr
import numpy as np
import pytest
from headrace.loader import CellLoader, Transform, _cell_output
from helpers import DEVICES
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy")
pytest.importorskip("zarr")

import scipy.sparse as sp
from cells_store import counts, write

ROWS, COLUMNS = 47, 13

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


def on_host(value):
    """An array, or the three of a sparse matrix, of whatever library, as NumPy has it."""
    if isinstance(value, hr.DeviceArray):
        return value.to_numpy()
    if hasattr(value, "layout") and str(value.layout) == "torch.sparse_csr":
        return [
            on_host(part) for part in (value.values(), value.col_indices(), value.crow_indices())
        ]
    if type(value).__name__ == "BCOO":  # as CSR, of which it has the order, and padding behind
        rows, columns = np.asarray(value.indices).T
        nnz = int((rows < value.shape[0]).sum())
        assert (rows[nnz:] == value.shape[0]).all() and (columns[nnz:] == value.shape[1]).all()
        assert not np.asarray(value.data)[nnz:].any()
        indptr = np.searchsorted(rows[:nnz], np.arange(value.shape[0] + 1)).astype("i4")
        return [np.asarray(value.data)[:nnz], columns[:nnz], indptr]
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # which NumPy has not
            value = value.float()
        return value.numpy()
    if hasattr(value, "get"):  # CuPy's
        value = value.get()
    if sp.issparse(value):
        return [value.data, value.indices, value.indptr]
    return np.asarray(value)


def assert_same(found, wanted, ulps=0):
    """Types, values and shapes; NaNs are equal. `ulps`: by which floats may differ."""
    found, wanted = on_host(found), on_host(wanted)
    if not isinstance(wanted, list):
        found, wanted = [found], [wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        if ulps and ours.dtype.kind == "f":
            np.testing.assert_array_max_ulp(ours, theirs, ulps)
        else:
            np.testing.assert_array_equal(ours, theirs)
        if ours.dtype.kind == "f":
            signs = np.signbit(ours) == np.signbit(theirs)
            assert (signs | np.isnan(theirs)).all()  # -0.0 stays what it is


def loaders(cells, device, *arguments, **options):
    return [CellLoader(cells, *arguments, device=name, **options) for name in (device, "cpu")]


def assert_same_batches(cells, device, *arguments, **options):
    # Both are within 2 ulps of the true log1p of doubles.
    log1p = getattr(options.get("transforms"), "log1p", False)
    ulps = 4 if log1p and options.get("dtype") == "float64" and device.startswith("cuda") else 0
    ours, theirs = loaders(cells, device, *arguments, **options)
    for found, wanted in zip(ours, theirs, strict=True):
        assert found.keys() == wanted.keys()
        for name in wanted:
            if name != "obs":
                assert_same(found[name], wanted[name], ulps)
        assert on_host(found["index"]).tolist() == on_host(wanted["index"]).tolist()
    assert ours.stats()["cells"] == theirs.stats()["cells"]


@pytest.fixture(scope="module")
def matrix():
    return counts(np.random.default_rng(1), ROWS, COLUMNS)


@pytest.fixture(scope="module")
def paths(tmp_path_factory, matrix):
    """One data set in three stores: of Zarr 2, of 3, and in shards."""
    folder = tmp_path_factory.mktemp("cells")
    rng = np.random.default_rng(2)
    types = [None if i % 7 == 0 else "abc"[i % 3] for i in range(ROWS)]
    donors = (np.arange(ROWS), np.arange(ROWS) % 5 == 0)
    depths = rng.random(ROWS)
    found = []
    for name, part, options in [
        ("a", slice(0, 20), {"zarr_format": 2}),
        ("b", slice(20, 31), {"index_dtype": "i8"}),
        ("c", slice(31, ROWS), {"sharded": True, "index_dtype": "u1"}),
    ]:
        own = matrix[part]
        found.append(
            write(
                folder / f"{name}.zarr",
                own,
                obs={
                    "type": types[part],
                    "donor": (donors[0][part], donors[1][part]),
                    "depth": depths[part],
                },
                layers={
                    "double": own.astype("f8"),
                    "count": own.astype("i4"),
                    "dense": own.toarray(),
                },
                obsm={"pca": rng.random((own.shape[0], 3))},
                **options,
            )
        )
    return found


@pytest.fixture(scope="module")
def cells(paths):
    return hr.cells(paths, obs=["type", "donor", "depth"])


OUTPUTS = ["csr", "dense", "torch_csr", "torch_dense", "jax", "jax_dense"]


def needs(output, device):
    if output.startswith(("torch", "jax")):
        pytest.importorskip(output.partition("_")[0])
    elif output == "csr" and device == "cuda":
        pytest.importorskip("cupy")


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("x", ["X", "layers/dense", "layers/double", "layers/count"])
def test_batches_are_those_of_the_host(paths, x, output, device):
    needs(output, device)
    if output == "csr" and x == "layers/count" and device == "cuda":
        pytest.skip("CuPy has no sparse matrices of integers")
    data = hr.cells(paths, x)
    assert_same_batches(data, device, 8, window=(3, 4), output=output, drop_last=False, seed=3)


@pytest.mark.parametrize("where", ["cpu", *DEVICES])
def test_matrices_of_jax(cells, where, matrix):
    jax = pytest.importorskip("jax")
    shapes = set()
    for batch in CellLoader(cells, 8, window=(3, 4), output="jax", device=where):
        dense = batch["X"].todense()
        np.testing.assert_array_equal(dense, matrix.toarray()[batch["index"]])
        product = jax.jit(lambda x: x @ jax.numpy.ones((COLUMNS, 2)))(batch["X"])
        np.testing.assert_allclose(product[:, 0], dense.sum(axis=1), rtol=1e-6)
        shapes.add(batch["X"].nse)
        assert isinstance(batch["obs"]["type"], jax.Array)
        missing = batch["index"] % 5 == 0
        assert np.isnan(batch["obs"]["donor"]).tolist() == missing.tolist()
    assert len(shapes) == 1
    loader = CellLoader(cells, 8, window=(3, 4), output="jax_dense", device=where, dtype="bfloat16")
    batch = next(loader)
    assert batch["X"].dtype == jax.numpy.bfloat16
    found = np.asarray(batch["X"].astype("float32"))
    np.testing.assert_array_equal(found, matrix.toarray()[batch["index"]])


@given(
    total=st.sampled_from([None, 1, 1e4]),
    log1p=st.booleans(),
    genes=st.one_of(st.none(), st.permutations(range(COLUMNS)).map(lambda order: order[:5])),
    dtype=st.sampled_from([None, "float16", "bfloat16", "float32", "float64"]),
    x=st.sampled_from(["X", "layers/dense", "layers/count"]),
    output=st.sampled_from(["torch_csr", "torch_dense"]),
)
@pytest.mark.parametrize("device", DEVICES)
def test_transforms(device, paths, total, log1p, genes, dtype, x, output):
    pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    if log1p and dtype == "float64" and device == "cuda":
        return  # within two units, which test_logarithms_of_float64 looks at
    how = {"transforms": Transform(total, log1p, genes), "dtype": dtype}
    assert_same_batches(hr.cells(paths, x), device, 16, window=(4, 4), output=output, **how)


def test_logarithms_of_float64(paths, device):
    how = {"transforms": Transform(1e4, log1p=True), "dtype": "float64", "output": "dense"}
    ours, theirs = loaders(hr.cells(paths), device, 16, window=(4, 4), **how)
    for found, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_array_max_ulp(on_host(found["X"]), wanted["X"], maxulp=2)


@pytest.mark.parametrize("join", ["inner", "outer"])
@pytest.mark.parametrize("output", ["torch_csr", "dense"])
@pytest.mark.parametrize("stored", ["sparse", "dense"])
def test_joined_variables(tmp_path, join, output, stored, device):
    needs(output, device)
    rng = np.random.default_rng(0)
    for name, own in {"a": "xyz", "b": "wzxv", "c": "zx"}.items():
        part = counts(rng, 6, len(own), 0.7)
        write(
            tmp_path / f"{name}.zarr",
            part if stored == "sparse" else part.toarray(),
            genes=list(own),
        )
    assert_same_batches(
        hr.cells(f"{tmp_path}/*.zarr", join=join), device, 9, window=(2, 3), output=output
    )


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f8", "?"])
@pytest.mark.parametrize("result", [None, "float32", "float16"])
def test_types_of_elements(tmp_path, dtype, result, device):
    matrix = counts(np.random.default_rng(1), 9, 5)
    values = (matrix.toarray() > 0) if dtype == "?" else matrix.toarray()
    sparse = sp.csr_matrix(values) if dtype == "f2" else sp.csr_matrix(values.astype(dtype))
    if dtype == "?":
        sparse.data[::2] = False  # stored, and not true
    for name, x in (("dense", values.astype(dtype)), ("sparse", sparse)):
        data = hr.cells(write(tmp_path / f"{name}.zarr", x))
        assert_same_batches(data, device, 9, window=(2, 2), output="dense", dtype=result)


@pytest.mark.parametrize("index_dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_types_of_indices(tmp_path, index_dtype, device):
    matrix = counts(np.random.default_rng(1), 30, 40)
    data = hr.cells(write(tmp_path / "a.zarr", matrix, index_dtype=index_dtype))
    for transform in (None, Transform(genes=[30, 2, 39, 7])):
        assert_same_batches(data, device, 30, window=(4, 2), output="dense", transforms=transform)


@pytest.mark.parametrize("output", ["csr", "torch_csr", "dense"])
@pytest.mark.parametrize("dtype", [None, "float16", "float64"])
def test_elements_that_a_row_has_twice_are_added_in_their_order(tmp_path, output, dtype, device):
    needs(output, device)
    if output == "csr" and dtype == "float16":
        pytest.skip("SciPy does not compute with sparse matrices of float16")
    rng = np.random.default_rng(5)
    lengths = rng.integers(0, 200, 12)
    indptr = np.append(0, lengths.cumsum())
    indices = rng.integers(0, 9, indptr[-1])
    data = (rng.random(indptr[-1]) * 10.0 ** rng.integers(-8, 8, indptr[-1])).astype("f4")
    data[::17] = -0.0
    store = sp.csr_matrix((data, indices, indptr), shape=(12, 9))
    cells = hr.cells(write(tmp_path / "a.zarr", store))
    transforms = [None, Transform(genes=[8, 1, 3])]
    for genes in (None, [8, 1, 3], [1, 3, 8]):
        transforms += [Transform(1e4, True, genes), Transform(None, True, genes)]
    for transform in transforms:
        assert_same_batches(
            cells, device, 12, window=(3, 2), output=output, dtype=dtype, transforms=transform
        )


@pytest.mark.parametrize("output", ["torch_csr", "dense"])
def test_numbers_of_all_kinds(tmp_path, output, device):
    needs(output, device)
    values = [0, -0.0, 1e-38, 1e-8, 0.4, 1, 3, 1e4, 3e38, -1e-8, -0.5, -0.9999999]
    values += [-1, -2, -np.inf, np.inf, np.nan, -np.nan, 1e-42]
    dense = np.tile(np.array(values, "f4"), (3, 1))
    sparse = sp.csr_matrix(
        (dense.reshape(-1), np.tile(np.arange(len(values)), 3), np.arange(4) * len(values)),
        shape=dense.shape,
    )
    for name, x in (("dense", dense), ("sparse", sparse)):
        data = hr.cells(write(tmp_path / f"{name}.zarr", x))
        for how in (
            None,
            Transform(log1p=True),
            Transform(total=1),
            Transform(genes=[3, 1, 16, 0]),
        ):
            assert_same_batches(data, device, 3, output=output, transforms=how)


def test_stores_without_cells_genes_or_elements(tmp_path, device):
    empty = [
        write(tmp_path / "empty.zarr", sp.csr_matrix((0, 5), dtype="f4")),
        write(tmp_path / "zero.zarr", sp.csr_matrix((3, 5), dtype="f4")),
    ]
    for output in ("dense", "torch_csr"):
        needs(output, device)
        assert_same_batches(hr.cells(empty), device, 3, output=output)
        nothing = Transform(1e4, log1p=True, genes=[])
        assert_same_batches(hr.cells(empty), device, 2, output=output, transforms=nothing)


def test_several_matrices_and_outputs(paths, device):
    needs("torch_csr", device)
    data = hr.cells(paths, {"rna": "X", "wide": "layers/double", "pca": "obsm/pca"})
    outputs = {"rna": "torch_csr", "wide": "torch_dense", "pca": "dense"}
    options = {"window": (4, 4), "transforms": {"rna": Transform(log1p=True)}}
    ours, theirs = loaders(data, device, 8, output=outputs, **options)
    for found, wanted in zip(ours, theirs, strict=True):
        for name in outputs:
            assert_same(found[name], wanted[name])
        assert isinstance(found["pca"], hr.DeviceArray)


def test_columns_lie_where_the_matrices_are(cells, paths, device):
    torch = pytest.importorskip("torch")
    named = hr.cells(paths, obs=["type", "donor", "depth"])
    ours, theirs = loaders(named, device, 8, window=(4, 4), output="torch_dense")
    found, wanted = next(ours), next(theirs)
    where = torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")
    assert found["X"].device == where and found["index"].device == torch.device("cpu")
    for name, column in found["obs"].items():
        assert column.device == where
        assert_same(column, wanted["obs"][name])
    missing = found["index"].numpy() % 5 == 0
    assert np.isnan(found["obs"]["donor"].cpu().numpy()).tolist() == missing.tolist()


def test_dense_batches_are_device_arrays(cells, device):
    batch = next(CellLoader(cells, 8, window=(4, 4), output="dense", device=device))
    assert isinstance(batch["X"], hr.DeviceArray) and batch["X"].device.startswith(device)
    assert isinstance(batch["obs"]["type"], hr.DeviceArray)
    assert isinstance(batch["index"], np.ndarray)


def test_strings_stay_on_the_host(tmp_path, matrix, device):
    names = np.array([f"name{i}" for i in range(ROWS)])
    path = write(tmp_path / "a.zarr", matrix, obs={"depth": np.arange(ROWS) / 7})
    import zarr
    from cells_store import put_strings

    frame = zarr.open_group(path)["obs"]
    put_strings(frame, "name", names)
    frame.attrs["column-order"] = ["depth", "name"]
    data = hr.cells(path, obs=["depth", "name"])
    batch = next(CellLoader(data, 8, window=(4, 4), output="dense", device=device))
    assert batch["obs"]["name"].tolist() == names[batch["index"]].tolist()
    assert batch["obs"]["depth"].to_numpy().tolist() == (batch["index"] / 7).tolist()


@pytest.mark.parametrize("output", ["jax", "jax_dense"])
def test_batches_of_jax_on_the_host_that_are_held(cells, matrix, output):
    """Whether it took the memory or copied it."""
    pytest.importorskip("jax")
    loader = CellLoader(cells, 4, window=(2, 4), output=output, device="cpu")
    for batch in [batch for _ in range(6) for batch in loader]:
        dense = batch["X"].todense() if output == "jax" else batch["X"]
        np.testing.assert_array_equal(dense, matrix.toarray()[batch["index"]])


@pytest.mark.parametrize("output", ["torch_dense", "torch_csr"])
def test_batches_that_are_held_stay_as_they_are(cells, output, device):
    """After the loader is gone, too."""
    needs(output, device)
    ours, theirs = loaders(cells, device, 4, window=(2, 4), output=output)
    found = [batch for _ in range(4) for batch in ours]
    wanted = [batch for _ in range(4) for batch in theirs]
    del ours
    gc.collect()
    for batch, other in zip(found, wanted, strict=True):
        assert_same(batch["X"], other["X"])


def test_windows_keep_to_the_budget(cells, device):
    needed = CellLoader(cells, 16, window=(4, 4), output="dense", device=device)
    next(needed)
    nbytes = needed.stats()["read_bytes"] // needed.stats()["windows"]
    assert_same_batches(
        cells, device, 16, window=(4, 4), output="dense", memory_budget=nbytes * 3 // 2
    )
    tight = CellLoader(cells, 16, window=(4, 4), output="dense", device=device, memory_budget=100)
    with pytest.raises(MemoryError, match="memory_budget: 100 bytes"):
        next(tight)


def test_memory_of_windows_is_used_again(cells, device, monkeypatch):
    made = []
    from headrace.loader import _cell_windows

    original = _cell_windows.Memory._made
    monkeypatch.setattr(
        _cell_windows.Memory, "_made", lambda self, n: made.append(n) or original(self, n)
    )
    loader = CellLoader(cells, 4, window=(2, 4), output="dense", device=device)
    for _ in range(3):
        for batch in loader:
            del batch
    assert loader.stats()["windows"] >= 15 and len(made) <= 4


def test_a_device_goes_on_where_the_host_stopped(cells, device):
    """With ranks, and back again."""
    options = {"window": (4, 4), "output": "dense"}
    whole = [batch["index"].tolist() for batch in CellLoader(cells, 4, device=device, **options)]
    host = CellLoader(cells, 4, **options)
    assert [next(host)["index"].tolist() for _ in range(2)] == whole[:2]
    state = host.state_dict()
    resumed = CellLoader(cells, 4, device=device, **options)
    resumed.load_state_dict(state)
    assert next(resumed)["index"].tolist() == whole[2]
    copy = pickle.loads(pickle.dumps(resumed))
    assert next(copy)["index"].tolist() == whole[3]
    ranks = [
        CellLoader(cells, 2, rank=rank, world_size=2, device=device, **options) for rank in range(2)
    ]
    for rank in ranks:
        rank.load_state_dict(state)
    parts = [next(rank)["index"].tolist() for rank in ranks]
    assert sorted(parts[0] + parts[1]) == sorted(whole[2])


def test_weights(cells, device):
    assert_same_batches(
        cells, device, 8, window=(2, 4), weights="type", samples_per_epoch=60, output="dense"
    )


def test_the_configured_device_is_the_default(cells, device):
    with hr.config.set(device=device):
        loader = CellLoader(cells, 8, window=(4, 4), output="dense")
        assert isinstance(next(loader)["X"], hr.DeviceArray)
        host = CellLoader(cells, 8, window=(4, 4), output="dense", device="cpu")
        assert isinstance(next(host)["X"], np.ndarray)


def test_sparse_types_of_cupy():
    for dtype in ("int32", "float16"):
        with pytest.raises(ValueError, match="CuPy has no sparse matrices of"):
            _cell_output.check_sparse("csr", np.dtype(dtype), "cuda:0")
    _cell_output.check_sparse("csr", np.dtype("f4"), "cuda:0")
    _cell_output.check_sparse("torch_csr", np.dtype("i4"), "cuda:0")
