"""Stores in AnnData's format, written by zarr-python; and what a batch of them must hold."""

import numpy as np
import scipy.sparse as sp
import zarr

ENCODING = {"csr_matrix": "0.1.0", "array": "0.2.0", "categorical": "0.2.0", "dataframe": "0.2.0"}


def encode(node, kind, **attributes):
    node.attrs.update(
        {"encoding-type": kind, "encoding-version": ENCODING.get(kind, "0.1.0"), **attributes}
    )


def put(group, name, values, chunks=None, shards=None, kind="array"):
    values = np.asarray(values)
    chunks = chunks or tuple(max(1, -(-extent // 3)) for extent in values.shape)
    array = group.create_array(
        name, shape=values.shape, dtype=values.dtype, chunks=chunks, shards=shards
    )
    if values.size:
        array[...] = values
    encode(array, kind)
    return array


def put_strings(group, name, values):
    array = group.create_array(name, shape=(len(values),), dtype="str", chunks=(7,))
    if len(values):
        array[...] = np.array(values, np.dtypes.StringDType())
    encode(array, "string-array")


def put_matrix(parent, name, matrix, *, sharded=False, index_dtype=None):
    if not sp.issparse(matrix):
        rows = max(1, matrix.shape[0] // 4)
        chunks = (rows, max(1, matrix.shape[1]))
        put(parent, name, matrix, chunks, (rows * 2, chunks[1]) if sharded else None)
        return
    group = parent.create_group(name)
    encode(group, f"{matrix.format}_matrix", shape=list(matrix.shape))
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    for part, values in parts.items():
        if index_dtype and part == "indices":
            values = values.astype(index_dtype)
        put(group, part, values, (16,), (64,) if sharded else None)


def put_column(frame, name, values):
    """A list of str or None is categorical, a pair (values, missing) a nullable column."""
    if isinstance(values, tuple):
        group = frame.create_group(name)
        kind = "boolean" if values[0].dtype == bool else "integer"
        encode(group, f"nullable-{kind}")
        put(group, "values", values[0])
        put(group, "mask", values[1])
    elif isinstance(values, np.ndarray):
        put(frame, name, values)
    else:
        categories = sorted({value for value in values if value is not None})
        codes = [-1 if value is None else categories.index(value) for value in values]
        group = frame.create_group(name)
        encode(group, "categorical", ordered=False)
        put(group, "codes", np.array(codes, "i1"))
        put_strings(group, "categories", categories)


def put_frame(root, name, index, columns=None):
    columns = columns or {}
    frame = root.create_group(name)
    encode(frame, "dataframe", _index="_index", **{"column-order": list(columns)})
    put_strings(frame, "_index", index)
    for column, values in columns.items():
        put_column(frame, column, values)


def write(
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
    """An AnnData store; layers and obsm are dicts of matrices."""
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    encode(root, "anndata")
    options = {"sharded": sharded, "index_dtype": index_dtype}
    put_matrix(root, "X", x, **options)
    put_frame(root, "obs", [f"cell{i}" for i in range(x.shape[0])], obs)
    names = [f"gene{i}" for i in range(x.shape[1])] if genes is None else genes
    put_frame(root, "var", names)
    for folder, matrices in (("layers", layers), ("obsm", obsm)):
        group = root.create_group(folder)
        encode(group, "dict")
        for name, matrix in (matrices or {}).items():
            put_matrix(group, name, matrix, **options)
    return str(path)


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
