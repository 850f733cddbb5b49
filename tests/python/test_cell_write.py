"""`hr.cells.write`: AnnData objects as one store; and `headrace cells convert`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import headrace as hr
import numpy as np
import pytest

sp = pytest.importorskip("scipy.sparse")
zarr = pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings(
    "ignore:indices array has non-integer dtype",  # of SciPy, of what anndata reads
    "ignore:The '.*' option is deprecated",  # of pandas 3, which anndata sets
    "ignore:Writing zarr v2 data",
    "ignore::FutureWarning",
)

from cells_store import counts, write  # noqa: E402
from headrace._cell_stores import _convert  # noqa: E402

COMMAND = Path(sys.executable).parent / "headrace"
SMALL = {"max_memory": 20000, "shard_size": 4000, "chunk_rows": 4}


@pytest.fixture
def adata():
    """Makes AnnData with all kinds of columns and matrices."""
    anndata = pytest.importorskip("anndata")
    pandas = pytest.importorskip("pandas")

    def make(seed, rows, genes=30):
        rng = np.random.default_rng(seed)
        made = anndata.AnnData(counts(rng, rows, genes))
        made.obs_names = [f"{seed}-{i}" for i in range(rows)]
        made.var_names = [f"gene{i}" for i in range(genes)]
        types = pandas.Categorical(rng.choice(["a", "b"], rows), ["b", "a"], ordered=True)
        types[0] = None
        missing = [i % 3 == 1 for i in range(rows)]
        for dtype, values in (("Int64", range(rows)), ("boolean", [True] * rows)):
            masked = [None if gone else v for v, gone in zip(values, missing, strict=True)]
            made.obs[dtype] = pandas.array(masked, dtype=dtype)
        made.obs["type"] = types
        made.obs["age"] = rng.random(rows)
        made.obs["text"] = [f"text{i % 5}" for i in range(rows)]
        made.var["length"] = np.arange(genes)
        made.layers["csc"] = sp.csc_matrix(counts(rng, rows, genes, dtype="i4"))
        made.layers["fortran"] = np.asfortranarray(rng.random((rows, genes)))
        made.obsm["pca"] = rng.random((rows, 4)).astype(">f4")
        return made

    return make


def compare(path, wanted):
    anndata = pytest.importorskip("anndata")
    pandas = pytest.importorskip("pandas")
    found = anndata.read_zarr(path)
    for x, y in ((found.X, wanted.X), (found.layers["csc"], wanted.layers["csc"])):
        assert x.dtype == y.dtype and (sp.csr_matrix(x) != sp.csr_matrix(y)).nnz == 0
    np.testing.assert_array_equal(found.layers["fortran"], wanted.layers["fortran"])
    np.testing.assert_array_equal(found.obsm["pca"], wanted.obsm["pca"])
    assert list(found.obs.columns) == list(wanted.obs.columns)
    pandas.testing.assert_frame_equal(
        found.obs, wanted.obs, check_index_type=False, check_dtype=False
    )
    pandas.testing.assert_frame_equal(found.var, wanted.var, check_index_type=False)


@pytest.mark.parametrize("options", [SMALL, {}])
def test_anndata_reads_what_was_written(adata, tmp_path, options):
    source = adata(1, 210)
    seen = []
    group = hr.cells.write(
        source, tmp_path / "out.zarr", seed=3, progress=lambda *at: seen.append(at), **options
    )
    assert group.attrs["encoding-type"] == "anndata"
    compare(tmp_path / "out.zarr", source[np.random.default_rng(3).permutation(210)].copy())
    assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]
    done, totals = zip(*seen, strict=True)
    assert len(set(totals)) == 1 and done[0] == 0 and done[-1] == totals[0]
    assert list(done) == sorted(done)


def test_room_behind_the_last_element_is_not_written(adata, tmp_path):
    source = adata(1, 50)
    whole = source.X.copy()
    source.X.data, source.X.indices = (
        np.append(part, part[:2]) for part in (whole.data, whole.indices)
    )
    out = tmp_path / "out.zarr"
    hr.cells.write(source, out, matrices=["X"], shuffle=False)
    stored = zarr.open_group(out, mode="r")["X/data"]
    np.testing.assert_array_equal(stored[...], whole.data)


@pytest.mark.filterwarnings("ignore:cells. left out of var")
def test_several_and_a_view_are_as_convert_has_their_files(adata, tmp_path):
    whole = [adata(seed, rows, genes) for seed, rows, genes in ((1, 90, 30), (2, 70, 25))]
    parts = [whole[0][10:60], whole[1]]
    paths = []
    for number, part in enumerate(parts):
        paths.append(str(tmp_path / f"{number}.zarr"))
        part.copy().write_zarr(paths[-1])
    options = {"matrices": ["X", "layers/fortran"], "obs": ["type", "Int64"], **SMALL}
    hr.cells.convert(paths, tmp_path / "converted.zarr", **options)
    options["obs"] = iter(options["obs"])
    hr.cells.write(parts, tmp_path / "written.zarr", **options)
    names = [
        "X/data", "X/indices", "X/indptr", "layers/fortran", "obs/type/codes",
        "obs/type/categories", "obs/_index", "obs/Int64/values", "var/_index",
    ]  # fmt: skip
    for name in names:
        one, other = (hr.open(tmp_path / f"{made}.zarr")[name] for made in ("converted", "written"))
        assert one.dtype == other.dtype and one.chunks == other.chunks, name
        np.testing.assert_array_equal(one[...], other[...])


def test_matrices_are_not_copied(adata):
    from headrace._cell_stores._memory import InMemory

    source = adata(1, 5000, 300)
    held = InMemory(source, [])
    (arrays,) = held._arrays
    assert np.shares_memory(arrays["X"][0], source.X.data)
    assert np.shares_memory(arrays["X"][1], source.X.indices)
    assert not np.shares_memory(arrays["layers/fortran"][0], source.layers["fortran"])


def test_it_goes_on_with_the_same_values_only(adata, tmp_path, monkeypatch):
    source = adata(1, 210)
    real = _convert.write_frames

    def stopped(*_):
        raise OSError("stopped")

    monkeypatch.setattr(_convert, "write_frames", stopped)
    with pytest.raises(OSError, match="stopped"):
        hr.cells.write(source, tmp_path / "out.zarr", **SMALL)
    assert not (tmp_path / "out.zarr").exists()
    monkeypatch.setattr(_convert, "write_frames", real)
    before = source.X.data[7]
    source.X.data[7] += 1
    with pytest.raises(ValueError, match="begun with other cells"):
        hr.cells.write(source, tmp_path / "out.zarr", **SMALL)
    source.X.data[7] = before
    monkeypatch.setattr(_convert.Conversion, "block", stopped)  # all of them are there
    hr.cells.write(source, tmp_path / "out.zarr", **SMALL)
    compare(tmp_path / "out.zarr", source[np.random.default_rng(0).permutation(210)].copy())
    with pytest.raises(ValueError, match="there is something"):
        hr.cells.write(source, tmp_path / "out.zarr", **SMALL)


def test_what_cannot_be_written(adata, tmp_path):
    pandas = pytest.importorskip("pandas")
    out = tmp_path / "out.zarr"
    source = adata(1, 40)
    for wrong in (np.zeros((3, 3)), [source, 1], "a.h5ad"):
        with pytest.raises(TypeError, match="adata: expected an AnnData"):
            hr.cells.write(wrong, out)
    with pytest.raises(ValueError, match="empty list"):
        hr.cells.write([], out)
    with pytest.raises(NotImplementedError, match="no folder"):
        hr.cells.write(source, "s3://bucket/out.zarr")
    with pytest.raises(NotImplementedError, match="no folder"):
        hr.cells.write(source, tmp_path / "out.zip")
    with pytest.raises(KeyError, match="nothing"):
        hr.cells.write(source, out, obs=["nothing"])
    source.obs["day"] = pandas.Timestamp("2020-01-01")
    with pytest.raises(ValueError, match=r"obs: 'day' has values of Timestamp"):
        hr.cells.write(source, out)
    source.obs["a/b"] = 1
    with pytest.raises(ValueError, match="'a/b' is no name"):
        hr.cells.write(source, out, obs=["a/b"])
    del source.obs["a/b"]
    source.X.indices[3] = 4000
    with pytest.raises(hr.CorruptError, match="row 0: a column outside of the 30"):
        hr.cells.write(source, out, obs=["age"], matrices=["X"])
    assert not out.exists()


class Held:
    """What is asked of an AnnData."""

    X = layers = obsm = obs = var = n_obs = n_vars = None

    def __init__(self, X, obs, var, **layers):
        self.X, self.obs, self.var, self.layers, self.obsm = X, obs, var, layers, {}
        self.n_obs, self.n_vars = len(obs), len(var)


@pytest.fixture
def frames():
    pandas = pytest.importorskip("pandas")
    obs = pandas.DataFrame({"a": range(4), "b": range(4)}, index=list("wxyz"))
    return obs, pandas.DataFrame({"c": range(3), "d": range(3)}, index=list("efg"))


def test_no_matrix_that_is_read(frames, tmp_path):
    out, matrix = tmp_path / "out.zarr", counts(np.random.default_rng(1), 4, 3)
    for source, there in (
        (Held(matrix.tocoo(), *frames), r"X \(coo_matrix\)"),
        (Held(matrix.toarray().astype(object), *frames), r"X \(ndarray of object\)"),
        (Held(None, *frames, q=matrix.tocoo()), r"layers/q \(coo_matrix\)"),
        (Held(None, *frames), "none"),
        ([Held(matrix, *frames), Held(None, *frames)], r"X \(csr_matrix\)"),
    ):
        with pytest.raises(ValueError, match=f"matrices: expected X, .* found {there}"):
            hr.cells.write(source, out)
    with pytest.raises(ValueError, match="matrices: expected one or more, got none"):
        hr.cells.write(Held(matrix, *frames), out, matrices=[])
    assert list(tmp_path.iterdir()) == []


def test_columns_of_one_name(frames, tmp_path):
    matrix = counts(np.random.default_rng(1), 4, 3)
    obs, var = frames
    obs.columns = ["a", "a"]
    with pytest.raises(ValueError, match="obs: 'a' is the name of 2 columns"):
        hr.cells.write(Held(matrix, obs, var), tmp_path / "out.zarr")
    var.columns = ["c", "c"]
    with pytest.warns(UserWarning, match="left out of var: 'c' is the name of 2 columns"):
        hr.cells.write(Held(matrix, obs, var), tmp_path / "out.zarr", obs=[])


def test_what_is_left_out_is_said(adata, tmp_path):
    pandas = pytest.importorskip("pandas")
    source = adata(1, 40)
    source.uns["colors"] = ["red"]
    source.obsm["frame"] = pandas.DataFrame({"a": range(40)}, index=source.obs_names)
    with pytest.warns(UserWarning, match="left out: obsm/frame, uns") as told:
        hr.cells.write(source, tmp_path / "out.zarr")
    assert [warning.filename for warning in told] == [__file__]


def named(adata, seed, obs, var, rows=40):
    made = adata(seed, rows)
    made.obs.index.name, made.var.index.name = obs, var
    return made


@pytest.mark.parametrize("how", ["write", "convert"])
def test_names_of_indices_are_kept(adata, tmp_path, how):
    anndata = pytest.importorskip("anndata")
    sources = [named(adata, 1, "barcode", "symbol"), named(adata, 2, "barcode", "symbol", 30)]
    sources[0].obs["barcode"] = sources[0].obs_names  # as anndata allows it: one array is both
    sources[1].obs["barcode"] = sources[1].obs_names
    given = sources
    if how == "convert":
        given = [str(tmp_path / f"{number}.zarr") for number in range(2)]
        for path, source in zip(given, sources, strict=True):
            source.write_zarr(path)
    put = getattr(hr.cells, how)
    put(given, tmp_path / "out.zarr", matrices=["X"], shuffle=False)
    found = anndata.read_zarr(tmp_path / "out.zarr")
    assert (found.obs.index.name, found.var.index.name) == ("barcode", "symbol")
    names = [name for source in sources for name in source.obs_names]
    assert list(found.obs_names) == list(found.obs["barcode"]) == names
    put(given, tmp_path / "without.zarr", matrices=["X"], shuffle=False, obs=["age"])
    found = anndata.read_zarr(tmp_path / "without.zarr")
    assert found.obs.index.name == "barcode" and list(found.obs.columns) == ["age"]
    assert list(found.obs_names) == names


def test_names_of_indices_that_differ_or_cannot_be(adata, tmp_path):
    anndata = pytest.importorskip("anndata")
    sources = [named(adata, 1, "barcode", "symbol"), named(adata, 2, None, "symbol")]
    hr.cells.write(sources, tmp_path / "out.zarr")
    found = anndata.read_zarr(tmp_path / "out.zarr")
    assert (found.obs.index.name, found.var.index.name) == (None, "symbol")
    other = named(adata, 1, "text", None)  # the name of a column of other values
    hr.cells.write(other, tmp_path / "column.zarr", shuffle=False)
    found = anndata.read_zarr(tmp_path / "column.zarr")
    assert found.obs.index.name is None and list(found.obs_names) == list(other.obs_names)
    assert list(found.obs["text"]) == list(other.obs["text"])
    with pytest.warns(UserWarning, match="left out: the name of an index: obs: 'a/b'") as told:
        hr.cells.write(named(adata, 1, "a/b", None), tmp_path / "path.zarr")
    assert [warning.filename for warning in told] == [__file__]
    assert anndata.read_zarr(tmp_path / "path.zarr").obs.index.name is None


# The command.


def run(*words, env=None, command=COMMAND, **options):
    return subprocess.run(
        [command, "cells", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **(env or {})},
        **options,
    )


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(1)
    x = counts(rng, 100, 20)
    obs = {"type": ["a", "b"] * 50, "age": rng.random(100)}
    return write(tmp_path / "in.zarr", x, obs=obs, layers={"twice": x * 2}), x.toarray()


def test_the_command_does_what_the_function_does(store, tmp_path):
    path, _ = store
    told = run("convert", path, tmp_path / "a.zarr", "--seed", 4, "--chunk-rows=8", "--obs", "age",
               "--matrix", "X", "--processes", 2, "--max-memory=20kB", "--json")  # fmt: skip
    assert (told.returncode, told.stderr) == (0, "")
    assert json.loads(told.stdout) == {
        "destination": str(tmp_path / "a.zarr"), "cells": 100, "variables": 20
    }  # fmt: skip
    hr.cells.convert(path, tmp_path / "b.zarr", seed=4, chunk_rows=8, obs=["age"], matrices=["X"])
    one, other = (hr.open(tmp_path / f"{name}.zarr") for name in "ab")
    assert sorted(one["obs"]) == sorted(other["obs"]) == ["_index", "age"]
    assert sorted(one["layers"]) == []
    for name in ("X/data", "X/indices", "X/indptr", "obs/age", "obs/_index"):
        np.testing.assert_array_equal(one[name][...], other[name][...])
    again = run("convert", path, tmp_path / "a.zarr")
    assert again.returncode == 1 and "headrace: cells: there is something at" in again.stderr
    kept = run("convert", "--no-shuffle", "--overwrite", path, tmp_path / "a.zarr")
    assert kept.stdout == f"{tmp_path / 'a.zarr'}: 100 cells, 20 variables\n"


def test_the_command_fails_as_others(store, tmp_path):
    path, _ = store
    for words, status, said in (
        (["convert", path], 2, "expected stores, and the result"),
        (["shuffle", path, "out"], 2, "convert"),
        (["convert", path, "out", "--chunk-rows", "0"], 2, "expected a number, 1 or more"),
        (["convert", path, "out", "--joins", "inner"], 2, "did you mean --join?"),
        (["convert", tmp_path / "none.zarr", tmp_path / "out"], 1, "headrace: "),
        (["convert", path, "s3://bucket/out.zarr"], 1, "is no folder"),
        (["convert", path, tmp_path / "out.zip"], 1, "is no folder"),
        (["convert", path, tmp_path / "out", "--obs", "nothing"], 1, "no column 'nothing'"),
        (["convert", path, tmp_path / "out", "--max-memory", "much"], 1, "max_memory"),
        (["convert", "--", "--x.zarr", tmp_path / "out"], 1, "--x.zarr"),
    ):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == status and said in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr


def test_without_a_python_that_has_the_package(store, tmp_path):
    path, _ = store
    command = tmp_path / "bin" / "headrace"
    command.parent.mkdir()
    shutil.copy(os.path.realpath(COMMAND), command)
    lacks = tmp_path / "lacks"
    lacks.write_text("#!/bin/sh\nexit 1\n")
    lacks.chmod(0o755)
    for env in ({"PATH": ""}, {"HEADRACE_PYTHON": str(lacks)}, {"HEADRACE_PYTHON": "/none"}):
        done = run("convert", path, tmp_path / "out.zarr", env=env, command=command)
        assert done.returncode == 1 and "pip install headrace" in done.stderr, done.stderr
    named = {"PATH": "", "HEADRACE_PYTHON": sys.executable}
    assert run("convert", path, tmp_path / "out.zarr", env=named, command=command).returncode == 0
    (tmp_path / "here" / "headrace").mkdir(parents=True)  # is not what is imported
    (tmp_path / "here" / "headrace" / "__init__.py").write_text("raise SystemExit(3)")
    done = run("convert", path, tmp_path / "two.zarr", cwd=tmp_path / "here")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("processes", [1, 2])
def test_interrupted_it_goes_on(tmp_path, processes):
    # Enough of it that it is not done before it is interrupted, on a busy machine too.
    matrix = counts(np.random.default_rng(1), 900, 20)
    path, x = write(tmp_path / "in.zarr", matrix), matrix.toarray()
    out, work = tmp_path / "out.zarr", tmp_path / "out.zarr.converting"
    words = ["convert", path, out, "--max-memory=8kB", "--shard-size=40", "--matrix=X",
             f"--processes={processes}"]  # fmt: skip
    heeding = (  # a shell may ignore it
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-c", heeding, COMMAND, "cells", *map(str, words)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not (work / "rows" / "1").exists() and running.poll() is None:
        time.sleep(0.001)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does it
    _, said = running.communicate(timeout=60)
    assert running.returncode == -signal.SIGINT
    assert said == "headrace: cells: stopped; the same command goes on\n"
    assert (work / "rows" / "0").exists() and not out.exists()
    shown = run(*words)
    assert shown.returncode == 0, shown.stderr
    order = np.random.default_rng(0).permutation(900)
    group = zarr.open_group(out, mode="r")["X"]
    parts = (group["data"][...], group["indices"][...].astype("i4"), group["indptr"][...])
    np.testing.assert_array_equal(sp.csr_matrix(parts, shape=x.shape).toarray(), x[order])
    assert not work.exists()
