"""Stores that anndata writes, and batches as annbatch's loader makes them of the same sampler."""

import warnings

import headrace as hr
import numpy as np
import pytest
from headrace.loader import CellLoader

pytest.importorskip("annbatch")

import annbatch
import anndata
import pandas as pd
import scipy.sparse as sp
import zarr
from annbatch import samplers
from cells_store import counts

pytestmark = pytest.mark.filterwarnings("ignore")
N_OBS, N_VARS = 700, 40


def adata(seed, n_obs, dense=False):
    rng = np.random.default_rng(seed)
    x = counts(rng, n_obs, N_VARS)
    types = np.sort(rng.choice(["B", "NK", "T"], n_obs))
    obs = pd.DataFrame(
        {
            "type": pd.Categorical(types, categories=["B", "NK", "T", "none"]),
            "gap": pd.Categorical([None if i % 9 == 0 else "ab"[i % 2] for i in range(n_obs)]),
            "n": pd.array([None if i % 4 == 0 else i for i in range(n_obs)], dtype="Int64"),
            "good": pd.array([None if i % 3 == 0 else i % 2 == 0 for i in range(n_obs)], "boolean"),
            "depth": rng.random(n_obs),
            "name": [f"{seed}-{i}" for i in range(n_obs)],
        },
        index=[f"cell{i}" for i in range(n_obs)],
    )
    var = pd.DataFrame(index=[f"gene{i}" for i in range(N_VARS)])
    return anndata.AnnData(X=x.toarray() if dense else x, obs=obs, var=var)


def written(folder, form, dense=False):
    """Two stores, as anndata or annbatch writes them."""
    parts = [adata(seed, n_obs, dense) for seed, n_obs in ((0, 300), (1, N_OBS - 300))]
    for number, part in enumerate(parts):
        path = folder / f"{number}.zarr"
        if form == "sharded":
            annbatch.write_sharded(zarr.open_group(path, mode="w", zarr_format=3), part)
        else:
            with anndata.settings.override(zarr_write_format=int(form)):
                part.write_zarr(path)
    return parts, sorted(folder.glob("*.zarr"))


@pytest.fixture(scope="module", params=["2", "3", "sharded"])
def stores(request, tmp_path_factory):
    return written(tmp_path_factory.mktemp("cells"), request.param)


def test_stores_of_anndata(stores):
    parts, paths = stores
    columns = ["type", "gap", "n", "good", "depth", "name"]
    cells = hr.cells(paths, obs=columns)
    obs = pd.concat([part.obs for part in parts])
    for name in ("type", "gap"):
        column = cells.obs[name]
        found = [None if code < 0 else column.categories[code] for code in column.values]
        assert found == [None if pd.isna(value) else value for value in obs[name]]
    assert cells.obs["type"].categories.tolist() == ["B", "NK", "T", "none"]
    for name in ("n", "good"):
        taken = cells.obs[name].take(np.arange(N_OBS))
        assert taken.tolist() == [None if pd.isna(value) else value for value in obs[name]]
    assert cells.obs["depth"].values.tolist() == obs["depth"].tolist()
    assert cells.obs["name"].values.tolist() == obs["name"].tolist()
    assert cells.var_names().tolist() == parts[0].var_names.tolist()
    batch = next(CellLoader(cells, N_OBS, shuffle=False))
    wanted = sp.vstack([part.X for part in parts]).tocsr()
    assert (batch["X"] != wanted).nnz == 0


def test_joins_are_those_of_anndata(tmp_path):
    parts = [adata(seed, 20)[:, genes].copy() for seed, genes in ((0, [4, 1, 9]), (1, [9, 4, 2]))]
    for number, part in enumerate(parts):
        part.write_zarr(tmp_path / f"{number}.zarr")
    for join in ("inner", "outer"):
        cells = hr.cells(f"{tmp_path}/*.zarr", join=join)
        wanted = anndata.concat(parts, join=join, fill_value=0)[:, cells.var_names().tolist()].X
        batch = next(CellLoader(cells, 40, shuffle=False))
        assert (batch["X"].toarray() == np.asarray(wanted.todense())).all()


def all_samplers():
    window = {"chunk_size": 10, "preload_nchunks": 8, "batch_size": 16}

    def rng():
        return np.random.default_rng(7)

    classes = pd.Categorical(np.repeat(["a", "b", "c"], [200, 300, 200]))
    yield "random", lambda: samplers.RandomSampler(**window, rng=rng())
    yield "random-drop", lambda: samplers.RandomSampler(**window, rng=rng(), drop_last=True)
    yield (
        "random-replaced",
        lambda: samplers.RandomSampler(**window, rng=rng(), replacement=True, num_samples=500),
    )
    yield (
        "random-masked",
        lambda: samplers.RandomSampler(**window, rng=rng(), mask=slice(35, 612)),
    )
    yield "sequential", lambda: samplers.SequentialSampler(**window)
    yield (
        "distributed",
        lambda: samplers.DistributedSampler(
            samplers.RandomSampler(**window, rng=rng()), dist_info=lambda: (1, 3)
        ),
    )
    yield (
        "class",
        lambda: samplers.ClassSampler(**window, classes=classes, num_samples=480, rng=rng()),
    )
    yield (
        "weighted-class",
        lambda: samplers.WeightedClassSampler(
            **window, classes=classes, num_samples=480, rng=rng()
        ),
    )


SAMPLERS = dict(all_samplers())


def epochs_of_annbatch(parts, paths, sampler, epochs):
    loader = annbatch.Loader(
        batch_sampler=sampler, preload_to_gpu=False, to=None, return_index=True
    )
    for part, path in zip(parts, paths, strict=True):
        x = zarr.open_group(path, mode="r")["X"]
        is_dense = isinstance(x, zarr.Array)
        loader.add_dataset(x if is_dense else anndata.io.sparse_dataset(x), obs=part.obs)
    return [list(loader) for _ in range(epochs)]


def check_same(found, wanted):
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours["index"].tolist() == theirs["index"].tolist()
        if sp.issparse(theirs["X"]):
            for part in ("indptr", "indices", "data"):
                assert (getattr(ours["X"], part) == getattr(theirs["X"], part)).all()
            assert ours["X"].shape == theirs["X"].shape and ours["X"].dtype == theirs["X"].dtype
        else:
            assert (ours["X"] == theirs["X"]).all()
        assert ours["obs"]["type"].tolist() == theirs["obs"]["type"].cat.codes.tolist()


@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_are_those_of_annbatch(stores, name):
    parts, paths = stores
    try:
        theirs = SAMPLERS[name]()
    except TypeError as error:  # a sampler with other arguments than this test knows
        pytest.fail(f"{name}: {error}")
    wanted = epochs_of_annbatch(parts, paths, theirs, 2)
    loader = CellLoader(hr.cells(paths, obs=["type"]), sampler=SAMPLERS[name]())
    assert len(loader) == len(wanted[0])
    states, found = [], []
    for _ in wanted:
        found.append([])
        for _ in range(len(loader)):
            states.append(loader.state_dict())
            found[-1].append(next(loader))
        assert next(loader, None) is None
    for ours, epoch in zip(found, wanted, strict=True):
        check_same(ours, epoch)
    everything = [batch for epoch in found for batch in epoch]
    for at in (0, 3, len(found[0]), len(everything) - 1):
        other = CellLoader(hr.cells(paths, obs=["type"]), sampler=SAMPLERS[name]())
        other.load_state_dict(states[at])
        assert next(other)["index"].tolist() == everything[at]["index"].tolist()


def test_dense_batches_are_those_of_annbatch(tmp_path):
    parts, paths = written(tmp_path, "3", dense=True)
    wanted = epochs_of_annbatch(parts, paths, SAMPLERS["random"](), 1)
    cells = hr.cells(paths, obs=["type"])
    loader = CellLoader(cells, sampler=SAMPLERS["random"](), output="dense")
    check_same(list(loader), wanted[0])


@pytest.mark.parametrize("name", ["random", "sequential", "weighted-class"])
def test_batches_of_a_device_are_those_of_annbatch(stores, name):
    parts, paths = stores
    wanted = epochs_of_annbatch(parts, paths, SAMPLERS[name](), 1)
    cells = hr.cells(paths, obs=["type"])
    check_same(list(CellLoader(cells, sampler=SAMPLERS[name](), device="simt")), wanted[0])


def test_a_sampler_that_deals_to_ranks_itself_is_not_dealt_again(stores):
    cells = hr.cells(stores[1])
    with pytest.raises(ValueError, match="deals cells to ranks itself"):
        CellLoader(cells, sampler=SAMPLERS["distributed"](), rank=0, world_size=2)


def test_collections_of_annbatch(tmp_path, stores):
    collection = zarr.open_group(tmp_path / "all.zarr", mode="w", zarr_format=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        annbatch.DatasetCollection(collection).add_adatas(
            stores[1], load_adata=anndata.read_zarr, rng=np.random.default_rng(0)
        )
    cells = hr.cells(tmp_path / "all.zarr", obs=["type"])
    assert cells.n_obs == N_OBS
    wanted = annbatch.Loader(batch_size=64, shuffle=False, preload_to_gpu=False, to=None)
    wanted.use_collection(annbatch.DatasetCollection(collection))
    for ours, theirs in zip(CellLoader(cells, 64, shuffle=False), wanted, strict=False):
        assert (ours["X"] != theirs["X"]).nnz == 0
