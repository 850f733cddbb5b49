"""Stores in AnnData's format, written by zarr-python; and what a batch of them must hold."""

import atexit
import functools
import hashlib
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import zarr

ENCODING = {"csr_matrix": "0.1.0", "array": "0.2.0", "categorical": "0.2.0", "dataframe": "0.2.0"}


def encoding(kind, **attributes):
    """Attributes, which are given when a node is made: each that is set later is a file written."""
    return {"encoding-type": kind, "encoding-version": ENCODING.get(kind, "0.1.0"), **attributes}


def encode(node, kind, **attributes):
    node.update_attributes(encoding(kind, **attributes))


def put(group, name, values, chunks=None, shards=None, kind="array"):
    values = np.asarray(values)
    chunks = chunks or tuple(max(1, -(-extent // 3)) for extent in values.shape)
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=chunks,
        shards=shards,
        attributes=encoding(kind),
    )
    if values.size:
        array[...] = values
    return array


def put_strings(group, name, values):
    array = group.create_array(
        name,
        shape=(len(values),),
        dtype="str",
        chunks=(7,),
        attributes=encoding("string-array"),
    )
    if len(values):
        array[...] = np.array(values, np.dtypes.StringDType())


def put_matrix(parent, name, matrix, *, sharded=False, index_dtype=None):
    if not sp.issparse(matrix):
        rows = max(1, matrix.shape[0] // 4)
        chunks = (rows, max(1, matrix.shape[1]))
        put(parent, name, matrix, chunks, (rows * 2, chunks[1]) if sharded else None)
        return
    kind = f"{matrix.format}_matrix"
    group = parent.create_group(name, attributes=encoding(kind, shape=list(matrix.shape)))
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    for part, values in parts.items():
        if index_dtype and part == "indices":
            values = values.astype(index_dtype)
        put(group, part, values, (16,), (64,) if sharded else None)


def put_column(frame, name, values):
    """A list of str or None is categorical, a pair (values, missing) a nullable column."""
    if isinstance(values, tuple):
        kind = "boolean" if values[0].dtype == bool else "integer"
        group = frame.create_group(name, attributes=encoding(f"nullable-{kind}"))
        put(group, "values", values[0])
        put(group, "mask", values[1])
    elif isinstance(values, np.ndarray):
        put(frame, name, values)
    else:
        categories = sorted({value for value in values if value is not None})
        codes = [-1 if value is None else categories.index(value) for value in values]
        group = frame.create_group(name, attributes=encoding("categorical", ordered=False))
        put(group, "codes", np.array(codes, "i1"))
        put_strings(group, "categories", categories)


def put_frame(root, name, index, columns=None):
    columns = columns or {}
    attributes = encoding("dataframe", _index="_index", **{"column-order": list(columns)})
    frame = root.create_group(name, attributes=attributes)
    put_strings(frame, "_index", index)
    for column, values in columns.items():
        put_column(frame, column, values)


@functools.cache
def written():
    folder = tempfile.mkdtemp(prefix="headrace-cells-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def write(path, x, **options):
    """An AnnData store, as `write_anew` makes it. The same is written once and copied: hundreds of
    tests want one, which takes zarr-python 65 ms of a processor, and a copy 15."""
    if not isinstance(path, str | os.PathLike):  # a store of zarr-python
        write_anew(path, x, **options)
        return str(path)
    what = pickle.dumps((x, sorted(options.items())))
    kept = written() / hashlib.sha256(what).hexdigest()
    if not kept.exists():
        write_anew(kept, x, **options)
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(kept, path)
    return str(path)


def write_anew(
    path,
    x,
    *,
    obs=None,
    genes=None,
    layers=None,
    obsm=None,
    zarr_format=3,
    sharded=False,
    index_dtype=None,
):
    """Layers and obsm are dicts of matrices."""
    attributes = encoding("anndata")
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format, attributes=attributes)
    options = {"sharded": sharded, "index_dtype": index_dtype}
    put_matrix(root, "X", x, **options)
    put_frame(root, "obs", [f"cell{i}" for i in range(x.shape[0])], obs)
    names = [f"gene{i}" for i in range(x.shape[1])] if genes is None else genes
    put_frame(root, "var", names)
    for folder, matrices in (("layers", layers), ("obsm", obsm)):
        group = root.create_group(folder, attributes=encoding("dict"))
        for name, matrix in (matrices or {}).items():
            put_matrix(group, name, matrix, **options)


def counts(rng, rows, columns, density=0.3, dtype="f4"):
    matrix = sp.random(rows, columns, density, format="csr", rng=rng)
    matrix.data = rng.integers(1, 100, matrix.nnz).astype(dtype)
    return matrix


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def normalized(values, total, log1p, dtype=np.float32):
    """As scanpy's normalize_total and log1p do it."""
    values = np.asarray(values, dtype)
    if total is not None:
        sums = values.sum(axis=1, dtype=np.float64)
        divisors = np.where(sums == 0, 1, sums / total).astype(dtype)
        values = values / divisors[:, None]
    return np.log1p(values) if log1p else values
