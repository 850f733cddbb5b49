"""Rectilinear chunk grids, by the zarr-python that has them: stores of several chunk shapes."""

import numcodecs
import numpy as np
import zarr
from formula import smooth, values
from golden import Golden
from zarr.codecs import BloscCodec, BytesCodec, TransposeCodec

MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


class Grids:
    def __init__(self, golden):
        self.golden = golden
        self.root = zarr.create_group(golden.folder("grids"))

    def create(self, path, data, chunks, **options):
        array = self.root.create_array(
            path, shape=data.shape, dtype=data.dtype, chunks=chunks, **options
        )
        array[...] = data
        return array

    def expect(self, path, array, expected):
        """`chunk_sizes` and `initialized` are what zarr-python tells of the array."""
        self.golden.add(
            "grids",
            path,
            expected,
            zarr_format=3,
            chunks=None,
            features=["rectilinear"],
            chunk_sizes={"read": array.read_chunk_sizes, "write": array.write_chunk_sizes},
            initialized=array.nchunks_initialized,
        )

    def add(self, path, data, chunks, **options):
        self.expect(path, self.create(path, data, chunks, **options), data)


def layouts(grids):
    f8 = smooth("f8", (33, 21))
    grids.add("lists", f8, [[10, 10, 13], [1, 20]])
    grids.add("months", values("i4", (365,)), [MONTHS])
    grids.add("runs", values("u2", (4001,)), [[1000] * 4 + [1]], compressors=None)
    grids.add("mixed", values("f4", (7, 33, 9)), [3, [5, 5, 20, 3], [9]])
    grids.add("uniform", values("i2", (30,)), [[10, 10, 10]])
    grids.add("blosc", f8, [[32, 1], [20, 1]], compressors=BloscCodec(typesize=8))
    grids.add("keys", f8, [[30, 3], 8], chunk_key_encoding={"name": "v2", "separator": "."})
    grids.add(
        "transposed",
        values("i2", (12, 11)),
        [[4, 8], [5, 5, 1]],
        filters=TransposeCodec(order=(1, 0)),
        serializer=BytesCodec(endian="big"),
    )
    grids.add("shards", smooth("f8", (35, 21)), (5, 3), shards=[[10, 20, 5], [6, 15]])
    grids.add("shard-runs", values("i8", (100, 4)), (10, 2), shards=[[20, 20, 40, 20], 4])


def edges_beyond(grids):
    f8 = smooth("f8", (33, 21))
    edges = [[10, 10, 13], [1, 20]]
    shrunk = grids.create("shrunk", f8, edges)
    shrunk.resize((15, 9))
    grids.expect("shrunk", shrunk, f8[:15, :9])

    grown = grids.create("grown", f8, edges)
    grown.resize((50, 21))
    grown[33:] = f8[:17]
    grids.expect("grown", grown, np.concatenate([f8, f8[:17]]))


def missing(grids):
    f8 = smooth("f8", (33, 21))
    array = grids.root.create_array(
        "missing", shape=f8.shape, dtype="f8", chunks=[[10, 10, 13], [1, 20]], fill_value=-1.5
    )
    array[10:20] = f8[10:20]
    rows = np.arange(33)
    grids.expect("missing", array, np.where(((rows >= 10) & (rows < 20))[:, None], f8, -1.5))


if __name__ == "__main__":
    versions = {
        "zarr": zarr.__version__,
        "numcodecs": numcodecs.__version__,
        "numpy": np.__version__,
    }
    golden = Golden("rectilinear", versions)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        grids = Grids(golden)
        layouts(grids)
        edges_beyond(grids)
        missing(grids)
    golden.close()
