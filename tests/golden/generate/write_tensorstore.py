"""Zarr v2 and v3 stores by tensorstore: the drivers zarr and zarr3."""

import ml_dtypes
import numpy as np
import tensorstore as ts
from formula import masked, smooth, values
from golden import Golden

V3_DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
ML_DTYPES = [
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "int4",
    "uint4",
    "int2",
    "uint2",
]
V2_DTYPES = ["|b1", "|i1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16"]


def ml_values(name, shape):
    dtype = np.dtype(getattr(ml_dtypes, name))
    if "int" in name:
        info = ml_dtypes.iinfo(dtype)
        return (
            (np.arange(np.prod(shape)) % (int(info.max) - int(info.min) + 1) + int(info.min))
            .reshape(shape)
            .astype(dtype)
        )
    # Every byte that is a number; NaN bits are left out, since writers may make them canonical.
    bits = np.arange(np.prod(shape), dtype=f"u{dtype.itemsize}") * (
        257 if dtype.itemsize == 2 else 1
    )
    out = bits.view(dtype).reshape(shape)
    return np.where(np.isnan(out.astype("f4")), np.ones((), dtype), out)


def write(
    golden,
    name,
    path,
    data,
    metadata,
    *,
    driver="zarr3",
    features=(),
    optional=False,
    written=None,
    fill=0,
    **facts,
):
    spec = {
        "driver": driver,
        "kvstore": {"driver": "file", "path": f"{golden.folder(name)}/{path}/"},
        "metadata": {"shape": list(data.shape), **metadata},
        "create": True,
        "delete_existing": True,
    }
    store = ts.open(spec).result()
    chunks = facts["chunks"]
    if written is None:
        store[...].write(data).result()
        expected = data
    else:
        expected = masked(data, chunks, fill, written)
        for index in np.ndindex(*[-(-s // c) for s, c in zip(data.shape, chunks, strict=True)]):
            if written(index):
                at = tuple(
                    slice(k * c, min((k + 1) * c, s))
                    for k, c, s in zip(index, chunks, data.shape, strict=True)
                )
                store[at].write(data[at]).result()
    golden.add(
        name,
        path,
        expected,
        zarr_format=3 if driver == "zarr3" else 2,
        features=features,
        optional=optional,
        **facts,
    )


def regular(chunks):
    return {"name": "regular", "configuration": {"chunk_shape": list(chunks)}}


def little(endian="little"):
    return {"name": "bytes", "configuration": {"endian": endian}}


def sharded(chunks, codecs, **more):
    return [
        {
            "name": "sharding_indexed",
            "configuration": {"chunk_shape": list(chunks), "codecs": codecs, **more},
        }
    ]


def zarr3(golden):
    for at, dtype in enumerate(V3_DTYPES):
        data = values(dtype, (13, 7), at)
        for endian in ("little", "big"):
            codecs = [
                little(endian) if data.itemsize > 1 else {"name": "bytes"},
                {"name": "gzip", "configuration": {"level": 5}},
            ]
            metadata = {"data_type": dtype, "chunk_grid": regular((5, 4)), "codecs": codecs}
            write(
                golden,
                "zarr3",
                f"{endian}/{dtype}",
                data,
                metadata,
                features=["dtype"],
                chunks=(5, 4),
            )
    for name in ML_DTYPES:
        metadata = {"data_type": name, "chunk_grid": regular((8, 9))}
        metadata["codecs"] = [little() if name == "bfloat16" else {"name": "bytes"}]
        # The 4 and 2 bit types are one element a byte in the bytes codec.
        try:
            write(
                golden,
                "zarr3",
                f"ml/{name}",
                ml_values(name, (16, 17)),
                metadata,
                features=["ml_dtypes", name],
                chunks=(8, 9),
                optional="int" in name,
            )
        except ValueError as error:
            print("tensorstore does not write", name, str(error)[:80])

    f4 = values("f4", (37, 29))
    zstd, crc = {"name": "zstd", "configuration": {"level": 3}}, {"name": "crc32c"}
    blosc = {
        "name": "blosc",
        "configuration": {"cname": "zstd", "clevel": 5, "shuffle": "bitshuffle", "typesize": 4},
    }
    turn = {"name": "transpose", "configuration": {"order": [1, 0]}}
    chains = {
        "zstd": [little(), zstd],
        "blosc": [little(), blosc],
        "crc32c": [little(), crc],
        "transpose": [turn, little("big"), zstd],
        "three": [little(), crc, zstd, crc],
    }
    for name, codecs in chains.items():
        metadata = {"data_type": "float32", "chunk_grid": regular((16, 16)), "codecs": codecs}
        write(golden, "zarr3", f"codecs/{name}", f4, metadata, features=["codec"], chunks=(16, 16))
    index = {"index_codecs": [little(), crc]}
    inner = [little(), zstd]
    shards = {
        "end": sharded((4, 8), inner, index_location="end", **index),
        "start": sharded((4, 8), inner, index_location="start", **index),
        "no-crc": sharded((4, 8), inner, index_codecs=[little()]),
        "big-index": sharded((4, 8), inner, index_codecs=[little("big"), crc]),
        "transposed-index": sharded(
            (4, 8),
            inner,
            index_codecs=[
                {"name": "transpose", "configuration": {"order": [2, 1, 0]}},
                little(),
                crc,
            ],
        ),
        "blosc": sharded((4, 8), [little(), blosc], **index),
        "transpose-inside": sharded((4, 8), [turn, little(), zstd], **index),
        "raw": sharded((4, 8), [little()], **index),
    }
    for name, codecs in shards.items():
        metadata = {
            "data_type": "float32",
            "chunk_grid": regular((16, 16)),
            "codecs": codecs,
            "fill_value": "-Infinity",
        }
        facts = {"features": ["sharding"], "chunks": (4, 8), "shards": [16, 16]}
        write(golden, "shards", name, f4, metadata, **facts)
        write(
            golden,
            "shards",
            f"{name}-missing",
            f4,
            metadata,
            written=lambda at: sum(at) % 3 == 0,
            fill=-np.inf,
            **facts,
        )
    outside = {
        "data_type": "float32",
        "chunk_grid": regular((24, 16)),
        "codecs": [turn, *sharded((8, 4), inner, **index)],
    }
    write(golden, "shards", "transpose-outside", f4, outside, features=["sharding"], chunks=None)

    for name, separator in (("default", "/"), ("default", "."), ("v2", "/"), ("v2", ".")):
        metadata = {
            "data_type": "int16",
            "chunk_grid": regular((4, 4)),
            "codecs": [little()],
            "dimension_names": ["y", None],
            "chunk_key_encoding": {"name": name, "configuration": {"separator": separator}},
            "attributes": {"units": "m"},
        }
        label = "dot" if separator == "." else "slash"
        write(
            golden,
            "zarr3",
            f"keys/{name}-{label}",
            values("i2", (9, 6)),
            metadata,
            features=["layout"],
            chunks=(4, 4),
            dimension_names=["y", None],
            attributes={"units": "m"},
        )
    scalar = {"data_type": "float64", "chunk_grid": regular(()), "codecs": [little()]}
    write(golden, "zarr3", "zero-d", values("f8", ()), scalar, features=["layout"], chunks=())
    special = {
        "nan": ("float64", "NaN", np.nan),
        "payload": ("float32", "0x7fc12345", np.uint32(0x7FC12345).view("f4")),
        "half": ("float16", "0x7e01", np.uint16(0x7E01).view("f2")),
        "complex": ("complex64", [1.5, "-Infinity"], complex(1.5, -np.inf)),
    }
    for name, (dtype, text, fill) in special.items():
        metadata = {
            "data_type": dtype,
            "chunk_grid": regular((4, 4)),
            "codecs": [little()],
            "fill_value": text,
        }
        write(
            golden,
            "zarr3",
            f"fills/{name}",
            values(dtype, (10, 9)),
            metadata,
            features=["fill"],
            chunks=(4, 4),
            fill=fill,
            written=lambda at: at[0] == at[1],
            initialized=3,
        )


def zarr2(golden):
    for at, dtype in enumerate(V2_DTYPES):
        metadata = {
            "dtype": dtype,
            "chunks": [5, 4],
            "compressor": {"id": "zlib", "level": 3},
            "order": "CF"[at % 2],
        }
        write(
            golden,
            "zarr2",
            "dtypes/" + dtype.strip("<>|"),
            values(dtype, (13, 7), at),
            metadata,
            driver="zarr",
            features=["dtype"],
            chunks=(5, 4),
        )
    blosc = {"id": "blosc", "clevel": 5, "blocksize": 0}
    compressors = {
        "none": None,
        "zstd": {"id": "zstd", "level": 3},
        "bz2": {"id": "bz2", "level": 1},
        "lz4-shuffle": {**blosc, "cname": "lz4", "shuffle": 1},
        "zstd-bit": {**blosc, "cname": "zstd", "shuffle": 2},
        "auto": {**blosc, "cname": "blosclz", "shuffle": -1},
        "lz4hc": {**blosc, "cname": "lz4hc", "shuffle": 1},
        "snappy": {**blosc, "cname": "snappy", "shuffle": 1},
        "zlib": {**blosc, "cname": "zlib", "shuffle": 0},
    }
    for name, compressor in compressors.items():
        for separator in "./":
            metadata = {
                "dtype": "<f4",
                "chunks": [16, 16],
                "compressor": compressor,
                "dimension_separator": separator,
                "fill_value": "NaN",
            }
            if compressor is None:
                metadata["fill_value"] = None
            label = "dot" if separator == "." else "slash"
            write(
                golden,
                "zarr2",
                f"codecs/{name}-{label}",
                smooth("f4", (37, 29)),
                metadata,
                driver="zarr",
                features=["compressor"],
                chunks=(16, 16),
                optional=name == "bz2",
            )


if __name__ == "__main__":
    import importlib.metadata

    golden = Golden(
        "tensorstore",
        {p: importlib.metadata.version(p) for p in ("tensorstore", "numpy", "ml_dtypes")},
    )
    zarr3(golden)
    zarr2(golden)
    golden.close()
