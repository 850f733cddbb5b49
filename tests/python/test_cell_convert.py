"""`hr.cells.convert`: stores and files of cells as one, by value; killed, resumed, refused."""

import errno
import fcntl
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import headrace as hr
import numpy as np
import pytest

sp = pytest.importorskip("scipy.sparse")
zarr = pytest.importorskip("zarr")

from cells_store import counts, dense, write  # noqa: E402
from headrace._cell_stores import _convert, _rows  # noqa: E402
from headrace.loader import CellLoader  # noqa: E402

PATHS = ["X", "layers/counts", "layers/dense", "obsm/pca"]
SMALL = {"max_memory": 6000, "shard_size": 900, "chunk_rows": 4}


def obs_of(rng, rows):
    types = [None if i % 7 == 0 else f"type{i % 3}" for i in range(rows)]
    numbers = (rng.integers(0, 9, rows), rng.random(rows) < 0.3)
    return {"type": types, "age": rng.random(rows), "donor": numbers}


def made(path, rng, rows, columns=11, genes=None):
    x = counts(rng, rows, columns)
    layers = {"counts": counts(rng, rows, columns, dtype="i4"), "dense": x.toarray() * 2}
    obsm = {"pca": rng.random((rows, 3))}
    write(path, x, obs=obs_of(rng, rows), genes=genes, layers=layers, obsm=obsm)
    return {"X": x, **{f"layers/{name}": m for name, m in layers.items()}, "obsm/pca": obsm["pca"]}


def stores_in(folder):
    rng = np.random.default_rng(1)
    parts = [made(folder / f"{i}.zarr", rng, rows) for i, rows in enumerate((37, 1, 60))]
    wanted = {path: np.concatenate([dense(part[path]) for part in parts]) for path in PATHS}
    return [str(folder / f"{i}.zarr") for i in range(3)], wanted


@pytest.fixture
def stores(tmp_path):
    return stores_in(tmp_path)


def as_h5ad(path, target):
    """The same as a file of HDF5, as anndata writes one: strings of variable length."""
    h5py = pytest.importorskip("h5py")

    def put(source, into):
        into.attrs.update(source.attrs.asdict())
        for name, node in source.members():
            if isinstance(node, zarr.Group):
                put(node, into.create_group(name))
                continue
            values = node[...]
            if values.dtype.kind in "TO":
                made = into.create_dataset(name, values.shape, h5py.string_dtype())
                made[...] = np.array(values.tolist(), object)
            else:
                chunks = tuple(max(1, extent // 2) for extent in values.shape)
                packed = {"chunks": chunks, "compression": "gzip"} if values.size > 20 else {}
                made = into.create_dataset(name, data=values, **packed)
            made.attrs.update(node.attrs.asdict())

    with h5py.File(target, "w") as file:
        put(zarr.open_group(path, mode="r"), file)
    return str(target)


def matrix_of(store, path):
    node = zarr.open_group(store, mode="r")[path]
    if isinstance(node, zarr.Array):
        return node[...]
    parts = [node[name][...] for name in ("data", "indices", "indptr")]
    parts[1] = parts[1].astype("i4")
    return sp.csr_matrix(tuple(parts), shape=node.attrs["shape"]).toarray()


def check(store, wanted, order, sources):
    for path, values in wanted.items():
        np.testing.assert_array_equal(matrix_of(store, path), values[order])
    old, new = (hr.cells(each, obs=["type", "age", "donor"]) for each in (sources, store))
    np.testing.assert_array_equal(new.obs["type"].values, old.obs["type"].values[order])
    np.testing.assert_array_equal(new.obs["type"].categories, old.obs["type"].categories)
    np.testing.assert_array_equal(new.obs["age"].values, old.obs["age"].values[order])
    np.testing.assert_array_equal(new.obs["donor"].missing, old.obs["donor"].missing[order])
    np.testing.assert_array_equal(new.obs["donor"].values, old.obs["donor"].values[order])
    np.testing.assert_array_equal(new.var_names(), old.var_names())
    names = np.concatenate(
        [zarr.open_group(source, mode="r")["obs/_index"][...] for source in sources]
    )
    found = zarr.open_group(store, mode="r")["obs/_index"][...]
    assert found.tolist() == names[order].tolist()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("options", [SMALL, {}])
def test_a_permutation_of_all_cells(stores, tmp_path, options, processes):
    paths, wanted = stores
    group = hr.cells.convert(paths, tmp_path / "out.zarr", seed=5, processes=processes, **options)
    order = np.random.default_rng(5).permutation(98)
    assert not (order == np.arange(98)).all()
    check(tmp_path / "out.zarr", wanted, order, paths)
    assert group.attrs["encoding-type"] == "anndata"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0.zarr", "1.zarr", "2.zarr", "out.zarr"
    ]  # fmt: skip
    x = zarr.open_group(tmp_path / "out.zarr", mode="r")["X"]
    (codec,) = x["data"].metadata.codecs
    compressor = codec.codecs[-1].to_dict()["configuration"]
    assert (compressor["cname"], compressor["clevel"]) == ("lz4", 3)
    assert compressor["shuffle"] == "shuffle" and x["indices"].dtype == np.uint8
    if options:
        assert -(-x["data"].shape[0] // x["data"].shards[0]) > 2


def test_the_order_stays_where_it_is_to(stores, tmp_path):
    paths, wanted = stores
    hr.cells.convert(paths, tmp_path / "out.zarr", shuffle=False, **SMALL)
    check(tmp_path / "out.zarr", wanted, np.arange(98), paths)


def test_files_of_hdf5(stores, tmp_path):
    paths, wanted = stores
    files = [as_h5ad(path, tmp_path / f"{i}.h5ad") for i, path in enumerate(paths)]
    hr.cells.convert(files, tmp_path / "out.zarr", **SMALL)
    check(tmp_path / "out.zarr", wanted, np.random.default_rng(0).permutation(98), paths)
    assert hr.cells(files[0]).n_obs == 37


@pytest.mark.parametrize("join", ["inner", "outer"])
def test_variables_are_joined(tmp_path, join):
    rng = np.random.default_rng(2)
    a = made(tmp_path / "a.zarr", rng, 20, 3, ["x", "y", "z"])
    b = made(tmp_path / "b.zarr", rng, 30, 3, ["z", "q", "x"])
    paths = [str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")]
    hr.cells.convert(paths, tmp_path / "out.zarr", matrices=["X"], join=join, shuffle=False)
    names = ["x", "z"] if join == "inner" else ["x", "y", "z", "q"]
    assert hr.cells(tmp_path / "out.zarr").var_names().tolist() == names
    wanted = np.zeros((50, len(names)), "f4")
    for rows, part, own in ((slice(0, 20), a, "xyz"), (slice(20, 50), b, "zqx")):
        for at, name in enumerate(own):
            if name in names:
                wanted[rows, names.index(name)] = part["X"].toarray()[:, at]
    np.testing.assert_array_equal(matrix_of(tmp_path / "out.zarr", "X"), wanted)


def with_var_column(path, values):
    frame = zarr.open_group(path, mode="r+")["var"]
    made = frame.create_array("length", data=np.array(values))
    made.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    frame.attrs["column-order"] = ["length"]


def test_columns_of_variables(tmp_path):
    """Are those of the first store where all have its variables, in whatever order."""
    rng = np.random.default_rng(3)
    for name, genes in (("a", "xyz"), ("b", "zxy"), ("c", "xyq")):
        made(tmp_path / f"{name}.zarr", rng, 20, 3, list(genes))
        with_var_column(tmp_path / f"{name}.zarr", [ord(gene) for gene in genes])
    paths = [str(tmp_path / f"{name}.zarr") for name in "abc"]
    out = hr.cells.convert(paths[:2], tmp_path / "out.zarr", matrices=["X"])
    assert out["var/length"][...].tolist() == [ord(gene) for gene in "xyz"]
    with pytest.warns(UserWarning, match="left out of var: columns"):
        out = hr.cells.convert(paths, tmp_path / "other.zarr", matrices=["X"])
    assert "length" not in out["var"]


@pytest.mark.parametrize("make", [dense, sp.csr_matrix])
def test_integers_of_64_bits_with_floats_stay_what_they_are(tmp_path, make):
    values = np.arange(12).reshape(4, 3)
    paths = [write(tmp_path / "floats.zarr", make(values.astype("f4")))]
    for name, largest in (("small", 2**53 - 1), ("large", -(2**53) - 1)):
        own = values.astype("i8")
        own[1, 2] = largest
        paths.append(write(tmp_path / f"{name}.zarr", make(own)))
    out = tmp_path / "out.zarr"
    group = hr.cells.convert(paths[:2], out, shuffle=False)
    data = hr.cells(group)
    batch = next(CellLoader(data, 8, shuffle=False, output="dense"))
    assert batch["X"].dtype == np.float64 and int(batch["X"][5, 2]) == 2**53 - 1
    with pytest.raises(ValueError, match=r"large.zarr/X: int64 of 2\^53 and more"):
        hr.cells.convert(paths, out, overwrite=True)
    kept = hr.cells.convert(paths[2], tmp_path / "alone.zarr", shuffle=False)
    batch = next(CellLoader(hr.cells(kept), 4, shuffle=False, output="dense"))
    assert batch["X"].dtype == np.int64 and batch["X"][1, 2] == -(2**53) - 1


@pytest.mark.parametrize(
    ("types", "common"),
    [
        (("i4", "u1"), "i4"),
        (("i4", "i8"), "i8"),
        (("u1", "u2"), "u2"),
        (("?", "i2"), "i2"),
        (("u4", "i1", "u1"), "i8"),
        (("u8", "i8"), "f8"),
    ],
)
@pytest.mark.parametrize("make", [dense, sp.csr_matrix])
def test_integers_of_several_types_become_the_one_that_holds_all(tmp_path, types, common, make):
    values = np.arange(12).reshape(4, 3)
    stored = [values.astype(dtype) for dtype in types]
    paths = [write(tmp_path / f"{n}.zarr", make(x)) for n, x in enumerate(stored)]
    group = hr.cells.convert(paths, tmp_path / "out.zarr", shuffle=False)
    batch = next(CellLoader(hr.cells(group), 4 * len(types), shuffle=False, output="dense"))
    assert batch["X"].dtype == np.dtype(common)
    np.testing.assert_array_equal(batch["X"], np.concatenate(stored))


def test_what_is_left_out_is_said(stores, tmp_path):
    paths, _ = stores
    root = zarr.open_group(paths[0], mode="r+")
    root["layers"].create_array("extra", shape=(37, 2), dtype="f4", chunks=(37, 2))
    root.create_group("uns").create_array("x", shape=(1,), dtype="f4")
    with pytest.warns(UserWarning, match=r"left out: layers/extra, uns"):
        hr.cells.convert(paths, tmp_path / "out.zarr")


def test_a_csc_matrix_is_left_out_only_when_asked_for(stores, tmp_path):
    paths, _ = stores
    root = zarr.open_group(paths[0], mode="r+")
    root["X"].attrs["encoding-type"] = "csc_matrix"
    with pytest.raises(ValueError, match=r"X of .* is a csc_matrix.*\(matrices=\['layers/"):
        hr.cells.convert(paths, tmp_path / "out.zarr")
    hr.cells.convert(paths, tmp_path / "out.zarr", matrices=["layers/counts"])
    assert "X" not in hr.open_group(tmp_path / "out.zarr")
    root["X"].attrs["encoding-type"] = "csr_matrix"
    root["layers/counts"].attrs["encoding-type"] = "csc_matrix"
    with pytest.warns(UserWarning, match="left out: layers/counts"):
        hr.cells.convert(paths, tmp_path / "other.zarr")


def test_no_elements_and_no_cells(tmp_path):
    empty = sp.csr_matrix((5, 4), dtype="f4")
    write(tmp_path / "a.zarr", empty)
    hr.cells.convert(str(tmp_path / "a.zarr"), tmp_path / "out.zarr")
    assert not matrix_of(tmp_path / "out.zarr", "X").any()
    write(tmp_path / "b.zarr", empty[:0])
    hr.cells.convert(str(tmp_path / "b.zarr"), tmp_path / "none.zarr")
    assert hr.cells(tmp_path / "none.zarr").n_obs == 0


# Ends at the Nth call of what writes or names something.
KILLED = """
import os, sys, json
import headrace as hr
from headrace._cell_stores import _convert, _frames, _rows
left = int(sys.argv[1])
def counted(module, name):
    real = getattr(module, name)
    def wrapped(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return real(*args, **kwargs)
    setattr(module, name, wrapped)
for module, name in (
    (_rows, "_save"), (_rows, "_sync_folder"), (_rows, "_opened"), (_rows, "encoded"),
    (_frames, "_put"), (_frames, "encoded"), (_convert, "_sync"), (os, "rename"), (os, "rmdir"),
    (os, "unlink"), (_rows.Path, "touch"), (_rows.Path, "mkdir"),
):
    counted(module, name)
hr.cells.convert(json.loads(sys.argv[2]), sys.argv[3], **json.loads(sys.argv[4]))
print("done", left)
"""


def killed_at(step, paths, out, options):
    arguments = [str(step), json.dumps(paths), str(out), json.dumps(options)]
    return subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True
    )


KILLED_OPTIONS = {**SMALL, "max_memory": 20000, "shard_size": 6000}
PARTS = 7


@pytest.fixture(scope="module")
def killed_steps(tmp_path_factory):
    """The first and last calls at which to end, and some between."""
    folder = tmp_path_factory.mktemp("whole")
    paths, _ = stores_in(folder)
    whole = killed_at(-1, paths, folder / "all.zarr", KILLED_OPTIONS)
    assert whole.stdout.startswith("done"), whole.stderr
    steps = -1 - int(whole.stdout.split()[1])
    assert steps > 100
    between = np.random.default_rng(7).integers(4, steps, 14).tolist()
    return sorted({1, 2, 3, *range(steps - 12, steps + 1), *between})


# In parts: all of them take longer on a busy machine than one test may.
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_anywhere_it_goes_on_or_is_refused(stores, tmp_path, killed_steps, part):
    paths, wanted = stores
    options = KILLED_OPTIONS
    order = np.random.default_rng(0).permutation(98)
    for step in killed_steps[part::PARTS]:
        out = tmp_path / f"out{step}.zarr"
        ended = killed_at(step, paths, out, options)
        assert ended.returncode == 9, (step, ended.stderr)
        if out.exists():  # then it is whole
            check(out, wanted, order, paths)
        work = tmp_path / f"out{step}.zarr.converting"
        if (work / "store" / "zarr.json").exists() and not (work / "finished").exists():
            attributes = json.loads((work / "store" / "zarr.json").read_text()).get("attributes")
            frames = [(work / "store" / name).exists() for name in ("obs", "var")]
            assert "encoding-type" not in (attributes or {}) or all(frames)
        over = tmp_path / f"out{step}.zarr.converting.over"
        if out.exists() and not work.exists() and not (over / "finished").exists():
            with pytest.raises(ValueError, match="there is something"):
                hr.cells.convert(paths, out, **options)
            assert not over.exists()
            continue
        hr.cells.convert(paths, out, **options)
        check(out, wanted, order, paths)
        assert not work.exists() and not over.exists()


class Killed(BaseException):
    pass


def killed_while_it_removes_its_work(paths, out, monkeypatch, **options):
    def kill(path, *arguments, **others):
        if ".over" in str(path):
            raise Killed
        return rmtree(path, *arguments, **others)

    rmtree = shutil.rmtree
    monkeypatch.setattr(_convert.shutil, "rmtree", kill)
    with pytest.raises(Killed):
        hr.cells.convert(paths, out, **SMALL, **options)
    monkeypatch.undo()


def test_killed_while_it_removes_its_work_it_goes_on(stores, tmp_path, monkeypatch):
    paths, wanted = stores
    out, over = tmp_path / "out.zarr", tmp_path / "out.zarr.converting.over"
    order = np.random.default_rng(0).permutation(98)
    killed_while_it_removes_its_work(paths, out, monkeypatch)
    assert (over / "rows").exists() and out.exists()
    monkeypatch.setattr(_convert, "_move", None)  # nothing is converted again
    assert hr.cells.convert(paths, out, **SMALL).attrs["encoding-type"] == "anndata"
    monkeypatch.undo()
    check(out, wanted, order, paths)
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.zarr"]
    with pytest.raises(ValueError, match="there is something"):  # that call is over
        hr.cells.convert(paths, out, **SMALL)


def test_what_was_being_removed_is_of_its_own_call_only(stores, tmp_path, monkeypatch):
    paths, wanted = stores
    out, over = tmp_path / "out.zarr", tmp_path / "out.zarr.converting.over"
    killed_while_it_removes_its_work(paths, out, monkeypatch)
    with pytest.raises(ValueError, match="there is something"):
        hr.cells.convert(paths, out, seed=1, **SMALL)
    assert not over.exists()
    shutil.rmtree(out)
    killed_while_it_removes_its_work(paths, out, monkeypatch)
    out.rename(tmp_path / "moved.zarr")
    hr.save(str(out), np.arange(3))  # another one
    with pytest.raises(ValueError, match="there is something"):
        hr.cells.convert(paths, out, **SMALL)
    assert hr.load(str(out)).tolist() == [0, 1, 2] and not over.exists()
    shutil.rmtree(out)
    killed_while_it_removes_its_work(paths, out, monkeypatch)
    shutil.rmtree(out)
    hr.cells.convert(paths, out, **SMALL)
    check(out, wanted, np.random.default_rng(0).permutation(98), paths)
    killed_while_it_removes_its_work(paths, out, monkeypatch, seed=1, overwrite=True)
    hr.cells.convert(paths, out, **SMALL, seed=2, overwrite=True)
    check(out, wanted, np.random.default_rng(2).permutation(98), paths)
    assert not over.exists()


def test_the_lock_of_a_folder_that_is_gone_is_none(stores, tmp_path, monkeypatch):
    """Another call ends between its opening and its locking here."""
    paths, wanted = stores
    out, work = tmp_path / "out.zarr", tmp_path / "out.zarr.converting"

    def late(file, how):
        monkeypatch.undo()
        hr.cells.convert(paths, out, **SMALL)
        assert not work.exists()
        return fcntl.flock(file, how)

    work.mkdir()
    monkeypatch.setattr(_convert.fcntl, "flock", late)
    with pytest.raises(ValueError, match="there is something"):
        hr.cells.convert(paths, out, **SMALL)
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.zarr"]
    check(out, wanted, np.random.default_rng(0).permutation(98), paths)


def test_what_another_call_left_is_refused(stores, tmp_path):
    paths, wanted = stores
    out = tmp_path / "out.zarr"
    assert killed_at(60, paths, out, SMALL).returncode == 9
    with pytest.raises(ValueError, match="begun with other cells or arguments"):
        hr.cells.convert(paths, out, seed=1, **SMALL)
    x = zarr.open_group(paths[0], mode="r+")["X/indptr"]
    before = x[...]
    x[1] = 0 if before[1] else before[2]
    with pytest.raises(ValueError, match="begun with other cells or arguments"):
        hr.cells.convert(paths, out, **SMALL)
    x[...] = before
    hr.cells.convert(paths, out, seed=1, overwrite=True, **SMALL)
    check(out, wanted, np.random.default_rng(1).permutation(98), paths)
    with pytest.raises(ValueError, match="there is something"):
        hr.cells.convert(paths, out, **SMALL)
    hr.cells.convert(paths, out, shuffle=False, overwrite=True, **SMALL)
    check(out, wanted, np.arange(98), paths)


def test_what_others_put_there_meanwhile_stays(stores, tmp_path, monkeypatch):
    paths, wanted = stores
    out = tmp_path / "out.zarr"

    def others_are_faster(*arguments):
        write_frames(*arguments)
        hr.save(str(out), np.arange(3))

    write_frames = _convert.write_frames
    monkeypatch.setattr(_convert, "write_frames", others_are_faster)
    for _ in range(2):  # the second call finds all done but its place taken
        with pytest.raises(ValueError, match="there is something at"):
            hr.cells.convert(paths, out, **SMALL)
        assert hr.load(str(out)).tolist() == [0, 1, 2]
    hr.cells.convert(paths, out, overwrite=True, **SMALL)
    check(out, wanted, np.random.default_rng(0).permutation(98), paths)


def test_files_that_others_put_there_meanwhile_are_not_replaced(stores, tmp_path, monkeypatch):
    paths, _ = stores
    out = tmp_path / "out.zarr"
    hr.save(str(out), np.arange(3))

    def others_are_faster(*arguments):
        write_frames(*arguments)
        out.rename(tmp_path / "moved.zarr")
        out.mkdir()
        (out / "p.jpg").write_text("p")

    write_frames = _convert.write_frames
    monkeypatch.setattr(_convert, "write_frames", others_are_faster)
    with pytest.raises(ValueError, match="no Zarr store"):
        hr.cells.convert(paths, out, overwrite=True, **SMALL)
    assert (out / "p.jpg").read_text() == "p"


def categorical(store, name, categories, ordered=True):
    """A column of the store's cells: its categories in turn."""
    import zarr

    root = zarr.open_group(store, mode="r+")
    rows = root["obs/_index"].shape[0]
    column = root["obs"].create_group(name)
    column.attrs.update(
        {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": ordered}
    )
    codes = (np.arange(rows) % len(categories)).astype("i1")
    column.create_array("codes", data=codes).attrs.update(
        {"encoding-type": "array", "encoding-version": "0.2.0"}
    )
    kind = "string-array" if isinstance(categories[0], str) else "array"
    values = np.array(categories, dtype="T" if kind == "string-array" else None)
    made = column.create_array(
        "categories", shape=len(values), dtype=str if kind != "array" else values.dtype
    )
    made[:] = values
    made.attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})
    root["obs"].attrs["column-order"] = [*root["obs"].attrs["column-order"], name]


def test_an_order_of_categories_is_kept_where_it_is_one(stores, tmp_path):
    paths, _ = stores
    for at, store in enumerate(paths):
        categorical(store, "same", ["low", "high"])
        categorical(store, "turned", ["a", "b"] if at == 0 else ["b", "a"])
        categorical(store, "mixed", [True, False] if at == 0 else [0, 1, 2])
    with pytest.raises(ValueError, match="truth values and of others"):
        hr.cells.convert(paths, tmp_path / "out", obs=["mixed"])
    made = hr.cells.convert(paths, tmp_path / "out", obs=["same", "turned"])
    assert made["obs/same"].attrs["ordered"] is True
    assert made["obs/turned"].attrs["ordered"] is False


@pytest.mark.parametrize("ordered", [True, False, None])
@pytest.mark.parametrize("frame", ["obs", "var"])
def test_an_order_of_old_categories_is_kept(stores, tmp_path, frame, ordered):
    """Before anndata 0.8 it was on the categories, which lay apart."""
    import zarr

    paths, _ = stores
    for store in paths:
        group = zarr.open_group(store, mode="r+")[frame]
        rows = group["_index"].shape[0]
        group.create_array("old", data=(np.arange(rows) % 2).astype("i1"))
        made = group.create_group("__categories").create_array("old", shape=2, dtype=str)
        made[:] = np.array(["low", "high"], "T")
        made.attrs.update({} if ordered is None else {"ordered": ordered})
        group.attrs["column-order"] = [*group.attrs["column-order"], "old"]
    made = hr.cells.convert(paths, tmp_path / "out")
    assert made[f"{frame}/old"].attrs["ordered"] is bool(ordered)
    assert made[f"{frame}/old/categories"][:].tolist() == ["low", "high"]


def test_only_stores_and_own_work_are_replaced(stores, tmp_path):
    """Files of somebody's, sources among them, stay where they are."""
    paths, _ = stores
    h5ad = tmp_path / "folder" / "a.h5ad"
    h5ad.parent.mkdir()
    as_h5ad(paths[0], h5ad)
    before = h5ad.read_bytes()
    for target in (h5ad, h5ad.parent):
        with pytest.raises(ValueError, match=r"overlap|no Zarr store"):
            hr.cells.convert(h5ad, target, overwrite=True)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "p.jpg").write_text("p")
    with pytest.raises(ValueError, match="no Zarr store"):
        hr.cells.convert(paths, tmp_path / "photos", overwrite=True)
    for end in (".converting", ".converting.over"):
        (tmp_path / f"out{end}").mkdir()
        (tmp_path / f"out{end}" / "p.jpg").write_text("p")
        for overwrite in (False, True):
            with pytest.raises(ValueError, match="in the way"):
                hr.cells.convert(paths, tmp_path / "out", overwrite=overwrite)
        assert (tmp_path / f"out{end}" / "p.jpg").read_text() == "p"
        (tmp_path / f"out{end}" / "p.jpg").unlink()
    assert h5ad.read_bytes() == before


def test_what_is_replaced_goes_whole(stores, tmp_path, monkeypatch):
    paths, wanted = stores
    out = tmp_path / "out.zarr"
    hr.save(str(out), np.arange(3))

    def killed(made, target):
        if str(target) == str(out):
            raise KeyboardInterrupt
        rename(made, target)

    rename = _convert.os.rename
    monkeypatch.setattr(_convert.os, "rename", killed)
    for _ in range(2):  # what was there has gone, and its place is not taken
        with pytest.raises(KeyboardInterrupt):
            hr.cells.convert(paths, out, overwrite=True, **SMALL)
        assert not out.exists()
    monkeypatch.undo()
    hr.cells.convert(paths, out, **SMALL)
    check(out, wanted, np.random.default_rng(0).permutation(98), paths)
    assert not (tmp_path / "out.zarr.converting").exists()


def test_no_raw_matrix_is_nothing_to_tell_of(stores, tmp_path):
    paths, _ = stores
    raw = zarr.open_group(paths[0], mode="r+").create_array("raw", shape=(), dtype="?")
    raw.attrs["encoding-type"] = "null"  # as anndata writes None
    hr.cells.convert(paths, tmp_path / "out.zarr", **SMALL)
    raw.attrs["encoding-type"] = "array"
    with pytest.warns(UserWarning, match="left out: raw"):
        hr.cells.convert(paths, tmp_path / "b.zarr", **SMALL)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full")
@pytest.mark.parametrize("count", [0, 1, 1 << 20])
def test_a_full_disk_of_the_first_pass_is_called_so(count):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'") as caught:
        _rows._save(Path("/dev/full"), np.zeros(count))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")


FULL = """
import resource, sys
import headrace as hr
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
try:
    hr.cells.convert(sys.argv[2:], sys.argv[1], max_memory=6000)
except OSError as error:
    print(error.errno, error.filename)
"""


def test_no_room_for_the_first_pass(stores, tmp_path):
    paths, wanted = stores
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", FULL, out, *paths], capture_output=True, text=True)
    number, file = done.stdout.split()
    assert int(number) == errno.EFBIG and file.startswith(f"{out}.converting/rows/0.")
    hr.cells.convert(paths, out, max_memory=6000)
    check(out, wanted, np.random.default_rng(0).permutation(98), paths)


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3), np.zeros((0, 4), "u2"), np.ones(3)])
def test_what_the_first_pass_writes_is_numpys(tmp_path, array):
    _rows._save(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", array)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_corrupt_rows_are_told_and_nothing_is_made(stores, tmp_path):
    paths, _ = stores
    zarr.open_group(paths[2], mode="r+")["X/indices"][3] = 4000
    with pytest.raises(hr.CorruptError):
        hr.cells.convert(paths, tmp_path / "out.zarr", **SMALL)
    assert not (tmp_path / "out.zarr").exists()


def test_arguments_that_cannot_be(stores, tmp_path):
    paths, _ = stores
    with pytest.raises(NotImplementedError, match="no folder"):
        hr.cells.convert(paths, "s3://bucket/out.zarr")
    with pytest.raises(ValueError, match="overlap"):
        hr.cells.convert(paths, paths[1], overwrite=True)
    with pytest.raises(ValueError, match="chunk_rows"):
        hr.cells.convert(paths, tmp_path / "out.zarr", chunk_rows=0)
    with pytest.raises(ValueError, match="matrices"):
        hr.cells.convert(paths, tmp_path / "out.zarr", matrices=["X", "obsp/distances"])
    with pytest.raises(TypeError, match="matrices"):
        hr.cells.convert(paths, tmp_path / "out.zarr", matrices="X")
    with pytest.raises(ValueError, match="matrices: expected one or more, got none"):
        hr.cells.convert(paths, tmp_path / "out.zarr", matrices=[])


@pytest.mark.parametrize("processes", [1, 2])
def test_kill_9_and_all_its_processes_end(stores, tmp_path, processes):
    paths, wanted = stores
    out, options = tmp_path / "out.zarr", {**SMALL, "processes": processes}
    code = (
        "import headrace as hr, json, sys\n"
        "if __name__ == '__main__':\n"
        "    hr.cells.convert(json.loads(sys.argv[1]), sys.argv[2], **json.loads(sys.argv[3]))\n"
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    command = [sys.executable, str(script), json.dumps(paths), str(out), json.dumps(options)]
    order = np.random.default_rng(0).permutation(98)
    for seen in ("rows/1", "rows/6", "done"):
        running = subprocess.Popen(command)
        while not (tmp_path / "out.zarr.converting" / seen).exists() and running.poll() is None:
            time.sleep(0.002)
        running.kill()
        running.wait()
    hr.cells.convert(paths, out, **SMALL, processes=processes, overwrite=out.exists())
    check(out, wanted, order, paths)


def hold(path, ready, end):
    path.mkdir()
    with open(path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready.set()
        end.wait(60)


def test_one_at_a_time(stores, tmp_path):
    paths, _ = stores
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path / "out.zarr.converting", ready, end))
    holder.start()
    assert ready.wait(60)
    with pytest.raises(ValueError, match="another process"):
        hr.cells.convert(paths, tmp_path / "out.zarr")
    end.set()
    holder.join()
    hr.cells.convert(paths, tmp_path / "out.zarr")


def test_anndata_and_annbatch_read_it(tmp_path):
    anndata = pytest.importorskip("anndata")
    annbatch = pytest.importorskip("annbatch")
    pandas = pytest.importorskip("pandas")
    from annbatch.samplers import RandomSampler

    rng = np.random.default_rng(3)
    source = anndata.AnnData(counts(rng, 300, 40))
    source.obs["type"] = pandas.Categorical(rng.choice(["a", "b"], 300))
    source.obs["text"] = pandas.array(["x", None, "z"] * 100, dtype="string")
    source.obs["age"] = rng.random(300)
    source.obs["donor"] = pandas.array([1, None, 3] * 100, dtype="Int64")
    source.var["length"] = rng.integers(0, 9, 40)
    source.layers["double"] = source.X * 2
    source.obsm["pca"] = rng.random((300, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source.write_h5ad(tmp_path / "a.h5ad")
        source = anndata.read_h5ad(tmp_path / "a.h5ad")
        hr.cells.convert(tmp_path / "a.h5ad", tmp_path / "out.zarr", seed=2, chunk_rows=16)
        found = anndata.read_zarr(tmp_path / "out.zarr")
        wanted = source[np.random.default_rng(2).permutation(300)].copy()
        assert (found.X != wanted.X).nnz == 0
        assert (found.layers["double"] != wanted.layers["double"]).nnz == 0
        np.testing.assert_array_equal(found.obsm["pca"], wanted.obsm["pca"])
        pandas.testing.assert_frame_equal(
            found.obs, wanted.obs, check_index_type=False, check_dtype=False
        )
        pandas.testing.assert_frame_equal(found.var, wanted.var, check_index_type=False)
        sampler = RandomSampler(
            chunk_size=8, preload_nchunks=4, batch_size=16, rng=np.random.default_rng(1)
        )
        loader = annbatch.Loader(
            batch_sampler=sampler, preload_to_gpu=False, to=None, return_index=True
        )
        group = zarr.open_group(tmp_path / "out.zarr", mode="r")
        loader.add_dataset(anndata.io.sparse_dataset(group["X"]))
        seen = 0
        for batch in loader:
            rows = np.asarray(batch["index"])
            np.testing.assert_array_equal(batch["X"].toarray(), wanted.X[rows].toarray())
            seen += len(rows)
        assert seen == 300
