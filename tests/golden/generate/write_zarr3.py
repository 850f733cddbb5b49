"""Zarr v3 and v2 stores by zarr-python 3: `zarr3.py zarr31`, `zarr3.py zarr34`, `zarr3.py zarrs`.

`zarrs` writes through the zarrs codec pipeline, and only what that pipeline itself encodes.
"""

import sys
import warnings
import zipfile

import numcodecs
import numpy as np
import zarr
from formula import smooth, values
from golden import Golden
from zarr.codecs import BytesCodec
from zarr3_codecs import codecs, extension_codecs, make, sharding

warnings.filterwarnings("ignore", message="(?s).*does not have a Zarr V3 specification")
warnings.filterwarnings("ignore", message="(?s).*not in the Zarr version 3 specification")
NUMERIC = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
OTHER = ["M8[ns]", "M8[s]", "M8[10D]", "m8[us]", "S7", "U4", "V6"]


def dtypes(golden):
    for at, dtype in enumerate(NUMERIC):
        data = values(dtype, (23, 7), at)
        for endian in ("little", "big"):
            make(
                golden,
                "dtypes",
                f"{endian}/{dtype}",
                data,
                chunks=(10, 4),
                features=["dtype", endian],
                serializer=BytesCodec(endian=endian),
            )
        make(
            golden,
            "dtypes",
            f"v2/{dtype}",
            data.astype(data.dtype.newbyteorder(">")),
            chunks=(10, 4),
            zarr_format=2,
            compressors=numcodecs.Zlib(1),
            features=["dtype", "v2"],
            order="F",
        )
    for at, dtype in enumerate(OTHER):
        path = dtype.translate(str.maketrans("[]", "__"))
        make(
            golden,
            "dtypes",
            f"other/{path}",
            values(dtype, (23, 7), at),
            chunks=(10, 4),
            features=["dtype-extension"],
        )


def structs(golden):
    fields = [("a", "<i4"), ("b", "<f8"), ("c", "S3")]
    make(
        golden,
        "structs",
        "flat",
        values(fields, (9, 5)),
        chunks=(4, 4),
        features=["struct"],
        optional=True,
    )
    make(
        golden,
        "structs",
        "v2",
        values(fields, (9, 5)),
        chunks=(4, 4),
        features=["struct"],
        zarr_format=2,
        compressors=numcodecs.Zstd(1),
    )


def strings(golden):
    words = np.array(["", "a", "\u4e2d\u6587", "x" * 300], dtype=object)
    array = zarr.create_array(
        golden.folder("strings"), name="string", shape=(4,), chunks=(3,), dtype="str"
    )
    array[...] = words
    golden.refuse(
        "strings",
        "string",
        zarr_format=3,
        raises="NotImplementedError",
        items=list(words),
        features=["object"],
    )


def layout(golden):
    def add(path, shape, chunks, dtype="i4", **kw):
        return make(
            golden, "layout", path, values(dtype, shape), chunks=chunks, features=["layout"], **kw
        )

    add("zero-d", (), ())
    add("zero-d-v2-keys", (), (), chunk_key_encoding={"name": "v2", "separator": "."})
    add("zero-d-v2", (), (), zarr_format=2, compressors=None)
    add("empty", (0,), (4,))
    add("empty-2d", (5, 0), (2, 3))
    add("larger-chunk", (7, 3), (100, 50))
    add("five-d", (2, 3, 2, 3, 2), (1, 2, 2, 2, 1))
    for name in ("default", "v2"):
        for label, separator in (("dot", "."), ("slash", "/")):
            add(
                f"keys/{name}-{label}",
                (13, 9),
                (4, 4),
                chunk_key_encoding={"name": name, "separator": separator},
            )
    add(
        "v2-slash",
        (13, 9),
        (4, 4),
        zarr_format=2,
        compressors=numcodecs.GZip(1),
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    attributes = {
        "units": "K",
        "\u03bb": [1, 2.5, None, True, "\u4e2d"],
        "deep": {"a": {"b": []}},
        "_FillValue": float("nan"),
    }
    add("attributes", (4,), (4,), attributes=attributes, more={"attributes": attributes})
    add(
        "names",
        (4, 5, 2),
        (2, 5, 1),
        dimension_names=["y", None, "x"],
        more={"dimension_names": ["y", None, "x"]},
    )


def fills(golden):
    half = lambda at: at[0] == at[1]  # noqa: E731

    def add(path, dtype, fill, **kw):
        make(
            golden,
            "fills",
            path,
            values(dtype, (10, 9), 7),
            chunks=(4, 4),
            fill_value=fill,
            features=["fill"],
            written=half,
            more={"initialized": 3},
            **kw,
        )

    for dtype in ("f2", "f4", "f8"):
        add(f"nan-{dtype}", dtype, np.nan)
        add(f"inf-{dtype}", dtype, np.inf)
        add(f"ninf-{dtype}", dtype, -np.inf)
        add(f"half-{dtype}", dtype, 0.5)
    add("f4-tenth", "f4", np.float32(0.1))
    add("f8-tiny", "f8", 5e-324)
    add("i8-min", "i8", -(2**63))
    add("u8-max", "u8", 2**64 - 1)
    add("i1", "i1", -128)
    add("bool", "b1", True)
    add("c8", "c8", 1.5 - 2j)
    add("c16-special", "c16", complex(np.inf, np.nan))
    add("S", "S4", b"ab\xff")
    add("U", "U3", "\u00e9\U0001f600")
    add("V", "V3", np.void(b"\x01\x00\xff"))
    add("M8-nat", "M8[ns]", np.datetime64("NaT", "ns"))
    add("M8", "M8[s]", np.datetime64("2001-02-03T04:05:06", "s"))
    add("m8", "m8[D]", np.timedelta64(-7, "D"))
    for dtype, fill in {
        "<f4": np.nan,
        "<i2": -3,
        ">c8": 1 - 1j,
        "<M8[s]": np.datetime64("NaT", "s"),
        "|S3": b"x",
    }.items():
        add(
            "v2-" + dtype.strip("<>|").replace("[", "").replace("]", ""),
            dtype,
            fill,
            zarr_format=2,
            compressors=numcodecs.Zlib(1),
        )


def groups(golden):
    for zarr_format in (2, 3):
        name = f"groups-v{zarr_format}"
        root = zarr.open_group(golden.folder(name), mode="w", zarr_format=zarr_format)
        root.attrs["title"] = "root"
        for path in ("a", "a/b", "a/b/c", "d"):
            root.create_group(path).attrs["path"] = path
        for path in ("x", "a/x", "a/b/c/x"):
            data = values("i2", (5, 6), len(path))
            options = {} if zarr_format == 3 else {"compressors": numcodecs.Zstd(1)}
            make(
                golden,
                name,
                path,
                data,
                chunks=(3, 3),
                zarr_format=zarr_format,
                attributes={"at": path},
                features=["group"],
                more={"attributes": {"at": path}},
                **options,
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(golden.folder(name))


def zips(golden):
    for name, compression in {
        "stored": zipfile.ZIP_STORED,
        "deflated": zipfile.ZIP_DEFLATED,
    }.items():
        with zarr.storage.ZipStore(golden.zip(name), compression=compression, mode="w") as store:
            zarr.create_group(store)
            for path, shards in {"x": None, "g/shards": (16, 16)}.items():
                data = values("f8", (20, 11), len(path))
                zarr.create_array(store, name=path, data=data, chunks=(8, 8), shards=shards)
                golden.add(
                    name, path, data, zarr_format=3, chunks=(8, 8), features=["zip"], shards=shards
                )


def newest(golden):
    """What only the newest zarr-python writes."""
    from zarr.codecs import CastValue, ScaleOffset

    f8 = smooth("f8", (33, 21))
    make(
        golden,
        "newest",
        "scale_offset",
        f8,
        chunks=(20, 16),
        filters=ScaleOffset(offset=250.0, scale=4.0),
        optional=True,
        features=["scale_offset"],
    )
    make(
        golden,
        "newest",
        "cast_value",
        np.round(f8),
        chunks=(20, 16),
        filters=CastValue(data_type="int32"),
        optional=True,
        features=["cast_value"],
    )
    edges = [[10, 10, 13], [1, 20]]
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array(
            golden.folder("newest"), name="rectilinear", shape=f8.shape, dtype="f8", chunks=edges
        )
    array[...] = f8
    golden.add(
        "newest",
        "rectilinear",
        f8,
        zarr_format=3,
        chunks=edges,
        optional=True,
        features=["rectilinear"],
    )


if __name__ == "__main__":
    writer = sys.argv[1]
    versions = {
        "zarr": zarr.__version__,
        "numcodecs": numcodecs.__version__,
        "numpy": np.__version__,
    }
    parts = [
        dtypes,
        structs,
        strings,
        codecs,
        extension_codecs,
        sharding,
        layout,
        fills,
        groups,
        zips,
    ]
    if writer == "zarr34":
        parts = [dtypes, sharding, structs, groups, newest]
    if writer == "zarrs":
        import importlib.metadata

        versions["zarrs"] = importlib.metadata.version("zarrs")
        zarr.config.set(
            {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
        )
        parts = [codecs, sharding]
    golden = Golden(writer, versions)
    for part in parts:
        part(golden)
    golden.close()
