"""`hr.cells`: the format of AnnData, joined over stores."""

import pickle

import headrace as hr
import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("zarr")

import scipy.sparse as sp
import zarr
from cells_store import counts, encode, put, put_frame, put_strings, write

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_columns_are_codes_numbers_and_strings(tmp_path, zarr_format):
    missing = np.array([False, True, False, False])
    obs = {
        "type": ["b", None, "a", "b"],
        "depth": np.array([1.5, 2, 3, 4]),
        "donor": (np.arange(4), missing),
        "is_cancer": (np.array([True, False, True, False]), missing),
        "whole": (np.arange(4), np.zeros(4, bool)),
    }
    path = write(tmp_path / "a.zarr", counts(RNG, 4, 5), obs=obs, zarr_format=zarr_format)
    cells = hr.cells(path, obs=[*obs, "_index"])
    assert cells.n_obs == len(cells) == 4 and cells.n_vars() == 5
    assert cells.obs["type"].values.tolist() == [1, -1, 0, 1]
    assert cells.obs["type"].categories.tolist() == ["a", "b"]
    assert cells.obs["depth"].take(np.array([3, 0])).tolist() == [4, 1.5]
    taken = cells.obs["donor"].take(np.array([1, 2]))
    assert taken.mask.tolist() == [True, False] and taken[1] == 2
    assert cells.obs["is_cancer"].take(np.array([1, 2])).tolist() == [None, True]
    assert cells.obs["whole"].missing is None
    assert cells.obs["_index"].values.tolist() == ["cell0", "cell1", "cell2", "cell3"]


def test_categories_of_all_stores_are_joined(tmp_path):
    for name, column in (("a", ["T", "B", None]), ("b", ["NK", "T"])):
        write(tmp_path / f"{name}.zarr", counts(RNG, len(column), 3), obs={"type": column})
    column = hr.cells(f"{tmp_path}/*.zarr", obs=["type"]).obs["type"]
    assert column.categories.tolist() == ["B", "T", "NK"]
    assert column.values.tolist() == [1, 0, -1, 2, 1]
    assert column.values.dtype == np.int8


def test_strings_of_which_some_are_missing_join_a_categorical_column(tmp_path):
    paths = [write(tmp_path / f"{name}.zarr", counts(RNG, 3, 3)) for name in "ab"]
    put_categories(paths[0], "type", ["T", "B"], [1, 0, -1])
    group = zarr.open_group(paths[1])["obs"].create_group("type")
    encode(group, "nullable-string-array")
    put_strings(group, "values", ["T", "", "NK"])
    put(group, "mask", np.array([False, True, False]))
    for order in (paths, paths[::-1]):
        column = hr.cells(order, obs=["type"]).obs["type"]
        names = [None if code < 0 else column.categories[code] for code in column.values]
        own = {paths[0]: ["B", "T", None], paths[1]: ["T", None, "NK"]}
        assert names == own[order[0]] + own[order[1]]


def put_categories(path, column, categories, codes):
    """A categorical column of categories as they are given."""
    group = zarr.open_group(path)["obs"].create_group(column)
    encode(group, "categorical", ordered=False)
    put(group, "codes", np.array(codes, "i1"))
    strings = all(isinstance(category, str) for category in categories)
    (put_strings if strings else put)(group, "categories", categories)


def joined_categories(tmp_path, *stores):
    """What is joined of (categories, codes) of each store."""
    paths = []
    for number, (categories, codes) in enumerate(stores):
        paths.append(write(tmp_path / f"{number}.zarr", counts(RNG, len(codes), 3)))
        put_categories(paths[-1], "type", categories, codes)
    return hr.cells(paths, obs=["type"]).obs["type"]


def test_nan_is_one_category_of_all_stores(tmp_path):
    nan = float("nan")
    column = joined_categories(
        tmp_path, (np.array([nan, 1.0]), [0, 1]), (np.array([2.0, nan]), [1, 0])
    )
    np.testing.assert_array_equal(column.categories, [nan, 1.0, 2.0])
    assert column.values.tolist() == [0, 1, 0, 2]


def test_categories_that_a_store_has_twice(tmp_path):
    column = joined_categories(tmp_path, (["a", "a", "b"], [0, 1, 2]), (["c"], [0]))
    assert [column.categories[code] for code in column.values] == ["a", "a", "b", "c"]


def test_categories_after_a_store_without_any(tmp_path):
    column = joined_categories(tmp_path, ([], [-1]), ([7, 5], [1]))
    assert column.categories.tolist() == [7, 5] and column.values.tolist() == [-1, 1]


def test_categories_of_numbers_that_no_type_has(tmp_path):
    with pytest.raises(ValueError, match=r"'type' has categories .* that float64 lacks"):
        joined_categories(tmp_path, ([(1 << 60) + 1], [0]), ([2.5], [0]))


def test_more_categories_than_a_byte_counts(tmp_path):
    for store in range(2):
        names = [f"{store}-{i}" for i in range(100)]
        write(tmp_path / f"{store}.zarr", counts(RNG, 100, 3), obs={"type": names})
    column = hr.cells(f"{tmp_path}/*.zarr", obs=["type"]).obs["type"]
    assert len(column.categories) == 200 and column.values.max() == 199


def test_strings_join_a_categorical_column(tmp_path):
    write(tmp_path / "a.zarr", counts(RNG, 2, 3), obs={"type": ["T", "B"]})
    path = write(tmp_path / "b.zarr", counts(RNG, 2, 3))
    put_strings(zarr.open_group(path)["obs"], "type", ["T", "NK"])
    column = hr.cells(f"{tmp_path}/*.zarr", obs=["type"]).obs["type"]
    assert [column.categories[code] for code in column.values] == ["T", "B", "T", "NK"]


def test_variables_are_joined_by_name(tmp_path):
    write(tmp_path / "a.zarr", counts(RNG, 2, 3), genes=["x", "y", "z"])
    write(tmp_path / "b.zarr", counts(RNG, 2, 3), genes=["z", "w", "x"])
    inner = hr.cells(f"{tmp_path}/*.zarr")
    assert inner.var_names().tolist() == ["x", "z"]
    assert [own.tolist() for own in inner.column_maps("X")[1]] == [[0, -1, 1], [1, -1, 0]]
    outer = hr.cells(f"{tmp_path}/*.zarr", join="outer")
    assert outer.var_names().tolist() == ["x", "y", "z", "w"]
    count, maps = outer.column_maps("X", ["w", "x"])
    assert count == 2 and [own.tolist() for own in maps] == [[1, -1, -1], [-1, 0, 1]]


def test_names_of_variables_of_fixed_lengths(tmp_path):
    for name, genes in (("a", ["x", "y"]), ("b", ["x", "longer"])):
        path = write(tmp_path / f"{name}.zarr", counts(RNG, 2, 2))
        change(path, "var/_index", np.array(genes))
    cells = hr.cells(f"{tmp_path}/*.zarr", join="outer")
    assert cells.var_names().tolist() == ["x", "y", "longer"]


def test_genes_by_name_number_and_mask(tmp_path):
    cells = hr.cells(write(tmp_path / "a.zarr", counts(RNG, 2, 4)))
    for genes in (["gene2", "gene0"], [2, 0], np.array([2, 0])):
        assert cells.column_maps("X", genes)[1][0].tolist() == [1, -1, 0, -1]
    mask = np.array([True, False, True, False])
    assert cells.column_maps("X", mask)[1][0].tolist() == [0, -1, 1, -1]
    for genes, error, message in [
        (["nix"], ValueError, "no column is named 'nix'"),
        ([4], ValueError, "0 to 3"),
        ([1, 1], ValueError, "twice"),
        ("gene1", TypeError, "genes"),
        ([1.5], TypeError, "genes"),
        (np.array([True]), ValueError, "mask"),
    ]:
        with pytest.raises(error, match=message):
            cells.column_maps("X", genes)


def test_several_matrices_of_the_same_cells(tmp_path):
    x = counts(RNG, 4, 5)
    path = write(
        tmp_path / "a.zarr", x, layers={"counts": x * 2}, obsm={"X_pca": RNG.random((4, 2))}
    )
    cells = hr.cells(path, {"rna": "X", "counts": "layers/counts", "pca": "obsm/X_pca"})
    assert cells.names == ("rna", "counts", "pca")
    assert cells.n_vars("pca") == 2 and cells.var_names("pca") is None
    assert "rna: 4 x 5" in repr(cells)


def test_stores_by_path_group_and_collection(tmp_path):
    for name in ("dataset_10", "dataset_9"):
        write(tmp_path / "all.zarr" / name, counts(RNG, 1 if name == "dataset_9" else 2, 3))
    zarr.open_group(tmp_path / "all.zarr", mode="a", zarr_format=3)
    collection = hr.cells(tmp_path / "all.zarr")
    assert collection.offsets.tolist() == [0, 1, 3]  # 9 comes before 10
    group = hr.open(str(tmp_path / "all.zarr"))["dataset_10"]
    assert hr.cells([group, str(tmp_path / "all.zarr/dataset_9")]).offsets.tolist() == [0, 2, 3]
    assert pickle.loads(pickle.dumps(collection)).offsets.tolist() == [0, 1, 3]


def test_a_path_that_looks_like_a_pattern(tmp_path):
    for rows, name in ((1, "run1.zarr"), (2, "run[1].zarr")):
        write(tmp_path / name, counts(RNG, rows, 3))
    assert len(hr.cells(tmp_path / "run[1].zarr")) == 2
    assert len(hr.cells(tmp_path / "run[1-9].zarr")) == 1


def test_a_csc_matrix_is_refused_in_plain_words(tmp_path):
    path = write(tmp_path / "a.zarr", counts(RNG, 4, 5).tocsc())
    with pytest.raises(ValueError, match=r"csc_matrix.*write it as a csr_matrix"):
        hr.cells(path)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": "layers/nix"}, KeyError, "has no 'layers/nix'"),
        ({"x": "obs"}, ValueError, "expected a csr_matrix or an array, got dataframe"),
        ({"x": {"obs": "X"}}, ValueError, "a batch has 'obs' already"),
        ({"x": 3}, TypeError, "x: expected"),
        ({"x": {}}, TypeError, "x: expected"),
        ({"obs": "type"}, TypeError, "obs: expected names"),
        ({"obs": ["nix"]}, KeyError, "no column 'nix', only type"),
        ({"join": "left"}, ValueError, "inner"),
    ],
)
def test_arguments_are_checked(tmp_path, arguments, error, message):
    path = write(tmp_path / "a.zarr", counts(RNG, 2, 3), obs={"type": ["T", "B"]})
    with pytest.raises(error, match=message):
        hr.cells(path, **arguments)


def test_what_is_no_store_of_cells_is_refused(tmp_path):
    zarr.create_group(tmp_path / "empty.zarr")
    zarr.create_array(tmp_path / "array.zarr", shape=(3,), dtype="i4")
    with pytest.raises(ValueError, match="has no obs"):
        hr.cells(tmp_path / "empty.zarr")
    with pytest.raises(ValueError, match="got an array"):
        hr.cells(tmp_path / "array.zarr")
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        hr.cells(f"{tmp_path}/nix*.zarr")
    with pytest.raises(FileNotFoundError):
        hr.cells(tmp_path / "nix.zarr")
    with pytest.raises(ValueError, match="empty list"):
        hr.cells([])


def test_stores_that_do_not_fit_together_are_refused(tmp_path):
    write(tmp_path / "a.zarr", counts(RNG, 2, 3), obsm={"p": np.eye(2)})
    write(tmp_path / "b.zarr", counts(RNG, 2, 2), genes=["g", "g"], obsm={"p": np.ones((2, 3))})
    stores = f"{tmp_path}/*.zarr"
    with pytest.raises(ValueError, match="two columns are named 'g'"):
        hr.cells(stores)
    with pytest.raises(ValueError, match="3 columns, 2 in another store"):
        hr.cells(stores, "obsm/p")


def test_a_column_of_numbers_and_of_strings_is_refused(tmp_path):
    write(tmp_path / "a.zarr", counts(RNG, 2, 3), obs={"n": np.arange(2)})
    path = write(tmp_path / "b.zarr", counts(RNG, 2, 3))
    put_strings(zarr.open_group(path)["obs"], "n", ["1", "2"])
    with pytest.raises(ValueError, match="'n' has numbers in one store and strings in another"):
        hr.cells(f"{tmp_path}/*.zarr", obs=["n"])


def test_numbers_of_all_stores_stay_what_they_are(tmp_path):
    """NumPy's common type of these is float64, which has not all of their numbers."""

    def joined(*columns):
        paths = []
        for number, column in enumerate(columns):
            obs = {"n": column}
            paths.append(write(tmp_path / f"{number}.zarr", counts(RNG, 1, 3), obs=obs))
        return hr.cells(paths, obs=["n"]).obs["n"]

    large = (1 << 62) + 1
    column = joined(np.array([-large]), np.array([large], "u8"))
    assert column.values.tolist() == [-large, large] and column.values.dtype == np.int64
    column = joined(np.array([large]), np.array([4 * large - 8], "u8"))
    assert column.values.tolist() == [large, 4 * large - 8]
    assert joined(np.array([7]), np.array([0.5])).values.tolist() == [7, 0.5]
    missing = (np.array([large]), np.array([True]))
    assert joined(missing, np.array([0.5])).take(np.arange(2)).tolist() == [None, 0.5]
    for other in (np.array([0.5]), np.array([4 * large - 8], "u8")):
        with pytest.raises(ValueError, match=r"'n' has .* in different stores"):
            joined(np.array([-large]), other)


def change(path, name, values):
    """Replaces an array of a store."""
    parent, _, last = name.rpartition("/")
    group = zarr.open_group(path)[parent]
    del group[last]
    put(group, last, values)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("X/indptr", np.zeros(4, "i4"), "4 positions.*5 rows.*have 6"),
        ("X/indices", np.zeros(3, "i4"), "elements of data, 3 of indices"),
        ("X/indices", np.zeros(7, "f4"), "expected integers"),
        ("X/data", np.zeros((2, 2), "f4"), "one dimension"),
        ("obs/type/codes", np.array([0, 1, 2, 0, 0], "i1"), "obs/type row 2: code 2 of 2"),
        ("obs/type/codes", np.array([0, -2, 1, 0, 0], "i1"), "obs/type row 1: code -2"),
        ("obs/type/codes", np.zeros(3, "i1"), "3 rows, the index has 5"),
        ("obs/donor/mask", np.zeros(3, bool), "mask"),
    ],
)
def test_parts_that_contradict_each_other(tmp_path, name, values, message):
    obs = {"type": ["a", "b", "a", "b", "a"], "donor": (np.arange(5), np.ones(5, bool))}
    path = write(tmp_path / "a.zarr", counts(RNG, 5, 4), obs=obs)
    change(path, name, values)
    with pytest.raises(hr.CorruptError, match=message):
        hr.cells(path, obs=["type", "donor"])


@pytest.mark.parametrize(
    "shape", [[5], [5, -1], "ab", None, [6, 4], [5, 3], [5.0, 4], [1 << 70, 4]]
)
def test_a_shape_that_lies(tmp_path, shape):
    path = write(tmp_path / "a.zarr", counts(RNG, 5, 4))
    zarr.open_group(path)["X"].attrs["shape"] = shape
    with pytest.raises(hr.CorruptError):
        hr.cells(path)


@pytest.mark.parametrize("order", [5, None, {"a": 1}])
def test_an_order_of_columns_that_is_none(tmp_path, order):
    path = write(tmp_path / "a.zarr", counts(RNG, 2, 3))
    zarr.open_group(path)["obs"].attrs["column-order"] = order
    with pytest.raises(KeyError, match="obs has no column 'nix'"):
        hr.cells(path, obs=["nix"])


def test_columns_of_old_stores_without_an_encoding(tmp_path):
    path = write(tmp_path / "a.zarr", counts(RNG, 3, 4), obs={"n": np.arange(3)})
    array = zarr.open_group(path)["obs/n"]
    array.attrs.put({})
    assert hr.cells(path, obs=["n"]).obs["n"].values.tolist() == [0, 1, 2]


def test_categorical_columns_of_old_stores(tmp_path):
    path = write(tmp_path / "a.zarr", counts(RNG, 3, 4), obs={"type": np.array([1, -1, 0])})
    obs = zarr.open_group(path)["obs"]
    put_strings(obs.create_group("__categories"), "type", ["T", "B"])
    column = hr.cells(path, obs=["type"]).obs["type"]
    assert column.categories.tolist() == ["T", "B"]
    assert column.values.tolist() == [1, -1, 0]


def test_raw_has_variables_of_its_own(tmp_path):
    x = counts(RNG, 3, 4)
    path = write(tmp_path / "a.zarr", x[:, :2])
    raw = zarr.open_group(path).create_group("raw")
    group = raw.create_group("X")
    encode(group, "csr_matrix", shape=list(x.shape))
    for part in ("data", "indices", "indptr"):
        put(group, part, getattr(x, part))
    put_frame(raw, "var", ["r0", "r1", "r2", "r3"])
    assert hr.cells(path, "raw/X").var_names().tolist() == ["r0", "r1", "r2", "r3"]
    assert sp.issparse(x)
