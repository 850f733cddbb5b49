"""Batches of cells against SciPy and NumPy, for every kind of store, output and transform."""

import json
import pickle
import urllib.parse

import cloud_servers
import headrace as hr
import numpy as np
import pytest
from headrace.loader import CellLoader, Transform, _cell_windows
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy")
pytest.importorskip("zarr")

import scipy.sparse as sp
import zarr
from cells_store import counts, dense, normalized, write

ROWS, COLUMNS = 43, 11


@pytest.fixture(scope="module")
def matrix():
    return counts(np.random.default_rng(1), ROWS, COLUMNS)


@pytest.fixture(scope="module")
def cells(tmp_path_factory, matrix):
    """One data set in two stores, of Zarr 2 and 3."""
    folder = tmp_path_factory.mktemp("cells")
    rng = np.random.default_rng(2)
    types = [None if i % 7 == 0 else "abc"[i % 3] for i in range(ROWS)]
    donors = (np.arange(ROWS), np.arange(ROWS) % 5 == 0)
    paths = []
    for name, part, options in [
        ("a", slice(0, 20), {"zarr_format": 2}),
        ("b", slice(20, ROWS), {"sharded": True, "index_dtype": "u1"}),
    ]:
        own = matrix[part]
        paths.append(
            write(
                folder / f"{name}.zarr",
                own,
                obs={"type": types[part], "donor": (donors[0][part], donors[1][part])},
                layers={"double": own.astype("f8"), "dense": own.toarray()},
                obsm={"pca": rng.random((own.shape[0], 3))},
                **options,
            )
        )
    return hr.cells(paths, obs=["type", "donor"])


def same(found, wanted):
    found = found.toarray() if sp.issparse(found) else found
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("output", ["csr", "dense"])
@pytest.mark.parametrize("x", ["X", "layers/dense", "layers/double"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_hold_the_rows_that_index_names(cells, matrix, x, output, shuffle):
    stores = [matrix.where.rpartition("/X")[0] for matrix in cells.matrices("X")]
    data = hr.cells(stores, x, obs=["type", "donor"])
    loader = CellLoader(
        data, 8, window=(3, 4), output=output, shuffle=shuffle, drop_last=False, seed=3
    )
    assert len(loader) == 6
    seen = []
    for batch in loader:
        rows = batch["index"]
        same(batch["X"], dense(matrix)[rows])
        assert batch["X"].dtype == (np.float64 if x == "layers/double" else np.float32)
        assert batch["obs"]["type"].tolist() == cells.obs["type"].values[rows].tolist()
        assert batch["obs"]["donor"].mask.tolist() == (rows % 5 == 0).tolist()
        seen += rows.tolist()
    assert sorted(seen) == list(range(ROWS))
    assert (seen == sorted(seen)) != shuffle
    assert loader.epoch == 1 and loader.stats()["cells"] == ROWS


def test_a_csr_batch_is_whole(cells):
    batch = next(CellLoader(cells, 40, window=(4, 2)))["X"]  # of several windows
    batch.check_format(full_check=True)
    assert batch.indices.dtype == batch.indptr.dtype == np.int32
    assert batch.shape == (40, COLUMNS)


@given(
    total=st.sampled_from([None, 1, 1e4]),
    log1p=st.booleans(),
    genes=st.one_of(st.none(), st.permutations(range(COLUMNS)).map(lambda order: order[:4])),
    dtype=st.sampled_from([None, "float16", "float32", "float64"]),
    x=st.sampled_from(["X", "layers/dense"]),
    output=st.sampled_from(["csr", "dense"]),
)
def test_transforms(cells, matrix, total, log1p, genes, dtype, x, output):
    if output == "csr" and dtype == "float16":
        output = "dense"  # SciPy has no float16
    stores = [matrix.where.rpartition("/X")[0] for matrix in cells.matrices("X")]
    loader = CellLoader(
        hr.cells(stores, x),
        16,
        window=(4, 4),
        transforms=Transform(total, log1p, genes),
        dtype=dtype,
        output=output,
    )
    batch = next(loader)
    compute = np.float64 if dtype == "float64" else np.float32
    wanted = normalized(dense(matrix)[batch["index"]], total, log1p, compute)
    wanted = wanted[:, genes] if genes is not None else wanted
    found = batch["X"].toarray() if output == "csr" else batch["X"]
    assert found.dtype == np.dtype(dtype or "f4")
    rtol = 1e-3 if dtype == "float16" else 3e-7 if log1p else 0
    np.testing.assert_allclose(found, wanted.astype(found.dtype), rtol=rtol)


@pytest.mark.parametrize("join", ["inner", "outer"])
@pytest.mark.parametrize("output", ["csr", "dense"])
def test_joined_variables(tmp_path, join, output):
    rng = np.random.default_rng(0)
    genes = {"a": ["x", "y", "z"], "b": ["w", "z", "x", "v"]}
    parts = {name: counts(rng, 6, len(own), 0.7) for name, own in genes.items()}
    for name, part in parts.items():
        write(tmp_path / f"{name}.zarr", part, genes=genes[name])
    data = hr.cells(f"{tmp_path}/*.zarr", join=join)
    names = data.var_names().tolist()
    wanted = np.zeros((12, len(names)), "f4")
    for place, (name, part) in enumerate(parts.items()):
        for column, gene in enumerate(genes[name]):
            if gene in names:
                wanted[place * 6 : place * 6 + 6, names.index(gene)] = dense(part)[:, column]
    batch = next(CellLoader(data, 12, window=(2, 4), output=output))
    same(batch["X"], wanted[batch["index"]])
    if output == "csr":
        batch["X"].check_format(full_check=True)
        assert all(
            (np.diff(batch["X"][i].indices) > 0).all() for i in range(12)
        )  # sorted, though the columns of b change places


def test_several_matrices_and_outputs(cells, matrix):
    stores = [matrix.where.rpartition("/X")[0] for matrix in cells.matrices("X")]
    data = hr.cells(stores, {"rna": "X", "wide": "layers/double", "pca": "obsm/pca"})
    loader = CellLoader(
        data,
        8,
        window=(4, 4),
        output={"pca": "dense"},
        transforms={"rna": Transform(log1p=True)},
        dtype={"wide": "float32"},
    )
    batch = next(loader)
    rows = dense(matrix)[batch["index"]]
    np.testing.assert_allclose(batch["rna"].toarray(), np.log1p(rows), rtol=3e-7)
    same(batch["wide"], rows)
    assert batch["wide"].dtype == np.float32
    assert isinstance(batch["pca"], np.ndarray) and batch["pca"].shape == (8, 3)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "?"])
def test_types_of_elements(tmp_path, dtype):
    matrix = counts(np.random.default_rng(1), 9, 5)
    values = (matrix.toarray() > 0) if dtype == "?" else matrix.toarray()
    path = write(tmp_path / "a.zarr", values.astype(dtype))
    batch = next(CellLoader(hr.cells(path), 9, window=(2, 2), output="dense"))
    same(batch["X"], values[batch["index"]].astype(dtype))
    assert batch["X"].dtype == dtype
    loader = CellLoader(hr.cells(path), 9, window=(2, 2), output="dense", dtype="float64")
    batch = next(loader)
    same(batch["X"], values[batch["index"]].astype("f8"))


@pytest.mark.parametrize("index_dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("dtype", ["f4", "i4", "u1"])
def test_types_of_indices(tmp_path, index_dtype, dtype):
    matrix = counts(np.random.default_rng(1), 30, 40, dtype=dtype)
    data = hr.cells(write(tmp_path / "a.zarr", matrix, index_dtype=index_dtype))
    for output in ("csr", "dense"):
        batch = next(CellLoader(data, 30, window=(4, 2), output=output))
        same(batch["X"], dense(matrix)[batch["index"]])


def test_elements_that_a_row_has_twice_are_added(tmp_path):
    twice = sp.csr_matrix(
        (np.array([1, 2, 3], "i4"), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2)
    )
    data = hr.cells(write(tmp_path / "a.zarr", twice))
    for dtype in (None, "float16", "float64"):  # 16 bits are summed in more
        loader = CellLoader(data, 2, output="dense", shuffle=False, dtype=dtype)
        same(next(loader)["X"], twice.toarray())
    same(next(CellLoader(data, 2, shuffle=False))["X"], twice.toarray())


@pytest.mark.parametrize("genes", [None, [0, 1, 3, 4], [4, 1, 0]])
@pytest.mark.parametrize("total", [None, 10])
def test_log1p_of_what_a_row_has_twice_is_that_of_its_sum(tmp_path, total, genes):
    indices = [1, 1, 0, 4, 0, 4, 1, 4, 0, 2, 2, 3]  # side by side, apart, none twice, as sorted
    twice = sp.csr_matrix(
        (np.arange(1, 13, dtype="f4"), np.array(indices), np.array([0, 3, 8, 9, 12])), shape=(4, 5)
    )
    values = twice.toarray()
    wanted = normalized(values, total, True)[:, genes or slice(None)]
    data = hr.cells(write(tmp_path / "a.zarr", twice))
    how = Transform(total, log1p=True, genes=genes)
    for dtype, error in (("float32", 1e-6), ("float64", 1e-6), ("float16", 1e-3)):
        options = {"shuffle": False, "dtype": dtype, "transforms": how}
        for output in ("dense", "csr") if dtype != "float16" else ("dense",):
            x = next(CellLoader(data, 4, output=output, **options))["X"]
            np.testing.assert_allclose(dense(x).astype("f8"), wanted, rtol=error)
    whole = next(CellLoader(data, 4, shuffle=False, transforms=Transform(log1p=True)))["X"]
    np.testing.assert_array_equal(whole.indices, indices)  # all elements stay


def test_elements_that_are_false(tmp_path):
    """Stored all the same, and not true of a dense batch."""
    values = np.array([True, False, False, True, False])
    x = sp.csr_matrix((values, np.array([0, 1, 1, 0, 0]), np.array([0, 2, 5])), shape=(2, 2))
    data = hr.cells(write(tmp_path / "a.zarr", x))
    for genes in (None, [1, 0]):
        options = {"shuffle": False, "output": "dense", "transforms": Transform(genes=genes)}
        batch = next(CellLoader(data, 2, **options))
        wanted = np.array([[True, False], [True, False]])[:, genes or [0, 1]]
        assert batch["X"].dtype == bool and (batch["X"] == wanted).all()


def test_stores_of_two_types_need_one(tmp_path):
    matrix = counts(np.random.default_rng(1), 4, 5)
    for name, dtype in (("a", "i4"), ("b", "u1"), ("c", "f8")):
        write(tmp_path / f"{name}.zarr", matrix.astype(dtype))
    data = hr.cells([tmp_path / "a.zarr", tmp_path / "b.zarr"])
    with pytest.raises(ValueError, match="stores have int32 and uint8: which is wanted"):
        CellLoader(data, 4)
    batch = next(CellLoader(data, 8, dtype="float32", output="dense"))
    same(batch["X"], np.tile(dense(matrix), (2, 1))[batch["index"]])
    batch = next(CellLoader(hr.cells(f"{tmp_path}/*.zarr"), 4))
    assert batch["X"].dtype == np.float64


@pytest.mark.parametrize("types", [("i8", "f4"), ("i8", "u8"), ("f8", "u8")])
def test_stores_of_two_types_that_no_float_holds(tmp_path, types):
    """NumPy joins these to float64, and 2^53 + 1 would become 2^53."""
    for dtype in types:
        x = np.full((2, 3), 2**53 + 1).astype(dtype)
        write(tmp_path / f"{dtype}.zarr", x)
    data = hr.cells(f"{tmp_path}/*.zarr")
    with pytest.raises(ValueError, match=r"stores have \w+ and \w+: which is wanted"):
        CellLoader(data, 4)
    batch = next(CellLoader(data, 4, output="dense", dtype="float64"))
    assert batch["X"].dtype == np.float64
    batch = next(CellLoader(data, 4, transforms=Transform(log1p=True)))  # computes in floats
    assert batch["X"].dtype == np.float64
    one = hr.cells(tmp_path / f"{types[0]}.zarr")
    assert next(CellLoader(one, 2))["X"].dtype == types[0]


def test_stores_of_two_types_of_16_bits(tmp_path):
    """Which have no type in common."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name, dtype in (("a", np.float16), ("b", ml_dtypes.bfloat16)):
        path = write(tmp_path / f"{name}.zarr", np.ones((2, 3), "f4"))
        del zarr.open_group(path)["X"]
        attributes = {"encoding-type": "array"}
        array = hr.create_array(
            f"{path}/X", shape=(2, 3), chunks=(2, 3), dtype=dtype, attributes=attributes
        )
        array[...] = np.full((2, 3), 1.5, dtype)
    data = hr.cells(f"{tmp_path}/*.zarr")
    with pytest.raises(ValueError, match="stores have bfloat16 and float16: which is wanted"):
        CellLoader(data, 4, output="dense")
    batch = next(CellLoader(data, 4, output="dense", dtype="float32"))
    assert (batch["X"] == 1.5).all()


def test_stores_without_cells_genes_or_elements(tmp_path):
    paths = [
        write(tmp_path / "empty.zarr", sp.csr_matrix((0, 5), dtype="f4")),
        write(tmp_path / "zero.zarr", sp.csr_matrix((3, 5), dtype="f4")),
    ]
    batch = next(CellLoader(hr.cells(paths), 3))
    assert batch["X"].shape == (3, 5) and batch["X"].nnz == 0
    with pytest.warns(UserWarning, match="an epoch has no batch: 0 cells"):
        loader = CellLoader(hr.cells(paths[0]), 3, drop_last=False)
    assert list(loader) == []
    batch = next(CellLoader(hr.cells(paths[1]), 3, transforms=Transform(1e4, True, genes=[])))
    assert batch["X"].shape == (3, 0)


def test_torch_tensors(cells, matrix):
    torch = pytest.importorskip("torch")
    loader = CellLoader(cells, 8, window=(4, 4), output="torch_dense", dtype="bfloat16")
    batch = next(loader)
    assert batch["X"].dtype == torch.bfloat16
    same(batch["X"].float().numpy(), dense(matrix)[batch["index"].numpy()])
    assert batch["obs"]["type"].dtype == torch.int8
    missing = batch["index"].numpy() % 5 == 0
    assert np.isnan(batch["obs"]["donor"].numpy()).tolist() == missing.tolist()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_torch_sparse_tensors(cells, matrix):
    torch = pytest.importorskip("torch")
    batch = next(CellLoader(cells, 8, window=(4, 4), output="torch_csr"))
    assert batch["X"].layout == torch.sparse_csr and batch["X"].shape == (8, COLUMNS)
    same(batch["X"].to_dense().numpy(), dense(matrix)[batch["index"].numpy()])


def test_arrays_and_tensors_in_one_batch(cells):
    torch = pytest.importorskip("torch")
    stores = [matrix.where.rpartition("/X")[0] for matrix in cells.matrices("X")]
    data = hr.cells(stores, {"rna": "X", "pca": "obsm/pca"}, obs=["type"])
    output = {"rna": "torch_dense", "pca": "dense"}
    batch = next(CellLoader(data, 8, window=(4, 4), output=output))
    assert isinstance(batch["pca"], np.ndarray)
    for tensor in (batch["rna"], batch["index"], batch["obs"]["type"]):
        assert isinstance(tensor, torch.Tensor)


def test_batches_that_are_held_stay_as_they_are(cells, matrix):
    """Memory is used again, but not that of a batch that somebody has."""
    loader = CellLoader(cells, 4, window=(2, 4))
    batches = [batch for _ in range(20) for batch in loader]
    for batch in batches:
        same(batch["X"], dense(matrix)[batch["index"]])


def test_memory_is_used_again(cells):
    loader = CellLoader(cells, 16, window=(4, 4), output="dense")
    first = next(loader)["X"]
    address = first.__array_interface__["data"][0]
    view = first[:1]
    del first
    assert next(loader)["X"].__array_interface__["data"][0] != address  # the view has it
    del view
    loader.set_epoch(1)
    addresses = set()
    for batch in loader:
        addresses.add(batch["X"].__array_interface__["data"][0])
        del batch
    assert address in addresses


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_a_csr_batch_is_the_memory_that_was_gathered_to(cells, dtype, monkeypatch):
    """SciPy copies what it takes for a small part of its base."""
    taken = []
    take = _cell_windows.Memory.take

    def noted(self, *arguments):
        taken.append(take(self, *arguments))
        return taken[-1]

    monkeypatch.setattr(_cell_windows.Memory, "take", noted)
    batch = next(CellLoader(cells, 16, window=(4, 4), dtype=dtype))["X"]
    for part in (batch.data, batch.indices):
        assert any(np.shares_memory(part, memory) for memory in taken)


def test_windows_keep_to_the_budget(cells, matrix):
    needed = CellLoader(cells, 16, window=(4, 4))
    next(needed)
    nbytes = needed.stats()["read_bytes"] // needed.stats()["windows"]
    loader = CellLoader(cells, 16, window=(4, 4), memory_budget=nbytes * 3 // 2, drop_last=False)
    for batch in loader:  # one window at a time
        same(batch["X"], dense(matrix)[batch["index"]])
    with pytest.raises(MemoryError, match="memory_budget: 100 bytes"):
        next(CellLoader(cells, 16, window=(4, 4), memory_budget=100))


def test_positions_of_large_stores_are_read_by_windows(cells, matrix, monkeypatch):
    monkeypatch.setattr("headrace.loader._cell_windows._INDPTR_IN_MEMORY", 0)
    loader = CellLoader(cells, 16, window=(4, 4))
    for batch in loader:
        same(batch["X"], dense(matrix)[batch["index"]])
    assert set(loader._reader._indptrs.values()) == {None}


@pytest.mark.parametrize("output", ["csr", "dense"])
def test_sparse_and_dense_stores_in_one_data_set(tmp_path, matrix, output):
    write(tmp_path / "a.zarr", matrix[:20])
    write(tmp_path / "b.zarr", matrix[20:].toarray())
    loader = CellLoader(hr.cells(f"{tmp_path}/*.zarr"), 16, window=(4, 4), output=output)
    for batch in loader:
        same(batch["X"], dense(matrix)[batch["index"]])


class Objects(cloud_servers.ObjectHandler):
    def do_GET(self):
        data = self.server.objects.get(urllib.parse.unquote(self.path)[1:])
        if data is None:
            return self.fail(404, "NoSuchKey")
        self.answer_object(data, {"ETag": '"1"'}, self.headers.get("Range"), True)

    do_HEAD = do_GET


def test_stores_across_a_network(matrix):
    store = zarr.storage.MemoryStore()
    write(store, matrix, obs={"type": ["T"] * ROWS}, sharded=True)
    with cloud_servers.fake_server(Objects) as (server, url):
        server.objects = {key: value.to_bytes() for key, value in store._store_dict.items()}
        data = hr.cells(url, obs=["type"])
        for batch in CellLoader(data, 16, window=(4, 4)):
            same(batch["X"], dense(matrix)[batch["index"]])
        server.objects = {key: b"?" if "/c/" in key else v for key, v in server.objects.items()}
        with pytest.raises(hr.CorruptError):
            next(CellLoader(hr.cells(url), 16, window=(4, 4)))


def test_runs_of_a_window_are_read_once(cells):
    loader = CellLoader(cells, 1, window=(4, 4))
    list(loader)
    stored = sum(
        array.nbytes for matrix in cells.matrices("X") for array in (matrix.data, matrix.indices)
    )
    assert stored <= loader.stats()["read_bytes"] <= stored + 3 * 64 * 4 * 8  # and the padding


def test_pickled_loaders_go_on(cells):
    loader = CellLoader(cells, 8, window=(4, 4))
    next(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == json.loads(json.dumps(loader.state_dict()))
    assert next(copy)["index"].tolist() == next(loader)["index"].tolist()


def test_a_closed_loader_goes_on(cells):
    loader, other = (CellLoader(cells, 8, window=(4, 4)) for _ in range(2))
    first = next(loader)["index"].tolist()
    loader.close()
    assert [first, next(loader)["index"].tolist()] == [next(other)["index"].tolist() for _ in "ab"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_size": None}, TypeError, "batch_size"),
        ({"batch_size": 0}, ValueError, "batch_size: expected 1 or more"),
        ({"batch_size": "8"}, TypeError, "batch_size"),
        ({"window": 4}, TypeError, "window"),
        ({"window": (0, 4)}, ValueError, "window: expected 1 or more"),
        ({"window": (2**40, 2**40)}, ValueError, "window: .* cells are outside of 64 bits"),
        ({"seed": -1}, ValueError, "seed: expected 0 or more, got -1"),
        ({"window": (4, 4), "lanes": 3}, ValueError, "lanes: expected a divisor of the 4 runs"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank: expected 0 to 1"),
        ({"output": "csc"}, ValueError, "output: expected one of csr"),
        ({"output": {"nix": "csr"}}, ValueError, "output: no matrix 'nix', only X"),
        ({"device": "nix"}, ValueError, "nix"),
        ({"dtype": "int32"}, ValueError, "dtype: expected one of float16"),
        ({"dtype": "float16"}, ValueError, "does not compute with sparse matrices of float16"),
        ({"dtype": "bfloat16"}, ValueError, "does not compute with sparse matrices of bfloat16"),
        ({"dtype": object()}, TypeError, "dtype"),
        ({"transforms": 1e4}, TypeError, "transforms: expected a Transform"),
        ({"transforms": Transform(total=0)}, ValueError, "total"),
        ({"transforms": Transform(genes=["nix"])}, ValueError, "nix"),
        ({"weights": "nix"}, ValueError, "no categorical column 'nix'"),
        ({"weights": "donor"}, ValueError, "no categorical column 'donor'"),
        ({"weights": [1.0]}, ValueError, "one for each cell"),
        ({"weights": -np.ones(ROWS)}, ValueError, "0 or more"),
        ({"weights": np.zeros(ROWS)}, ValueError, "not all of them 0"),
        ({"weights": np.full(ROWS, 1e308)}, ValueError, "their sum is more than a float64"),
        ({"samples_per_epoch": 5}, ValueError, "without weights"),
        ({"seed": 1.5}, TypeError, "seed"),
        ({"epoch": -1}, ValueError, "epoch: expected 0 or more"),
        ({"drop_last": 1}, TypeError, "drop_last"),
        ({"sampler": 3, "batch_size": None}, TypeError, "sampler: expected one of annbatch's"),
        ({"sampler": 3}, ValueError, "batch_size: the sampler says it"),
        (
            {"sampler": 3, "batch_size": None, "samples_per_epoch": 5},
            ValueError,
            "samples_per_epoch: the sampler says it",
        ),
    ],
)
def test_arguments_are_checked(cells, arguments, error, message):
    with pytest.raises(error, match=message):
        CellLoader(cells, **{"batch_size": 8, **arguments})


def test_other_things_than_cells_are_refused():
    with pytest.raises(TypeError, match=r"cells: expected what headrace\.cells gave"):
        CellLoader({"x": 1}, 8)


def test_logarithms_of_all_kinds_of_numbers(tmp_path):
    values = [0, -0.0, 1e-38, 1e-8, 0.4, 1, 3, 1e4, 3e38, -1e-8, -0.5, -0.9999999]
    values += [-1, -2, -np.inf, np.inf, np.nan, -np.nan]
    matrix = np.tile(np.array(values, "f4"), (3, 1))
    data = hr.cells(write(tmp_path / "a.zarr", matrix))
    for dtype in ("float32", "float64"):
        loader = CellLoader(data, 3, output="dense", dtype=dtype, transforms=Transform(log1p=True))
        with np.errstate(all="ignore"):
            wanted = np.log1p(matrix.astype(dtype))
        np.testing.assert_array_max_ulp(next(loader)["X"], wanted, maxulp=2)


def test_a_jump_while_a_window_is_read_needs_no_more_memory(cells):
    needed = CellLoader(cells, 16, window=(4, 4))
    next(needed)
    nbytes = max(needed.stats()["read_bytes"], 1)  # of two windows
    loader = CellLoader(cells, 16, window=(4, 4), memory_budget=nbytes * 5 // 4)
    for epoch in range(30):
        loader.set_epoch(epoch)
        assert next(loader)["X"].shape == (16, COLUMNS)


def test_no_batch_by_number(cells):
    """As a DataLoader of torch asks for it."""
    loader = CellLoader(cells, 8, window=(3, 4))
    with pytest.raises(TypeError, match="iterate over it, without a DataLoader"):
        loader[0]
