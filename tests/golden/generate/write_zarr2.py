"""Zarr v2 stores by zarr-python 2.18 and numcodecs."""

import numcodecs
import numpy as np
import zarr
from formula import masked, smooth, values
from golden import Golden
from numcodecs import BZ2, LZ4, LZMA, Blosc, Delta, FixedScaleOffset, GZip, Zlib, Zstd

DTYPES = [
    "|b1",
    "|i1",
    "|u1",
    "<i2",
    ">i2",
    "<u2",
    ">u2",
    "<i4",
    ">i4",
    "<u4",
    ">u4",
    "<i8",
    ">i8",
    "<u8",
    ">u8",
    "<f2",
    ">f2",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
    "<c8",
    ">c8",
    "<c16",
    ">c16",
    "<M8[ns]",
    ">M8[s]",
    "<M8[D]",
    "<M8[25m]",
    "<m8[us]",
    ">m8[ms]",
    "|S1",
    "|S10",
    "<U4",
    ">U3",
    "|V5",
    "|V8",
]
STRUCTS = {
    "flat": [("a", "<i4"), ("b", ">f8"), ("c", "|S3"), ("d", "|b1")],
    "nested": [("p", [("x", "<f4"), ("y", ">i2")]), ("q", "<u8")],
    "subarray": [("m", "<f4", (2, 3)), ("n", "|u1")],
}
FILLS = {
    "f4-nan": ("<f4", np.nan),
    "f8-inf": ("<f8", np.inf),
    "f8-ninf": (">f8", -np.inf),
    "f2-half": ("<f2", 0.5),
    "f4-exact": ("<f4", np.float32(0.1)),
    "f8-tiny": ("<f8", 5e-324),
    "i8-min": ("<i8", -(2**63)),
    "u8-max": (">u8", 2**64 - 1),
    "i1": ("|i1", -128),
    "bool": ("|b1", True),
    "c8": ("<c8", 1.5 - 2j),
    "c16": (">c16", complex(3, 4)),
    "S": ("|S5", b"ab\xff"),
    "U": ("<U3", "\u00e9\U0001f600"),
    "V": ("|V3", b"\x01\x00\xff"),
    "M8-nat": ("<M8[ns]", np.datetime64("NaT")),
    "M8": (">M8[s]", np.datetime64("2001-02-03T04:05:06")),
    "m8-nat": ("<m8[us]", np.timedelta64("NaT")),
    "m8": ("<m8[D]", np.timedelta64(-7, "D")),
}


def make(
    golden,
    name,
    path,
    data,
    *,
    chunks,
    features=(),
    optional=False,
    more=None,
    expected=None,
    **options,
):
    options.setdefault("compressor", Zstd(1))
    options.setdefault(
        "fill_value", None if data.dtype.kind in "VO" else 0 if data.dtype.kind in "biufc" else None
    )
    array = zarr.open_group(golden.folder(name), mode="a").create_dataset(
        path, shape=data.shape, dtype=data.dtype, chunks=chunks, **options
    )
    array[...] = data
    golden.add(
        name,
        path,
        data if expected is None else expected,
        zarr_format=2,
        chunks=chunks,
        features=features,
        optional=optional,
        **(more or {}),
    )
    return array


def dtypes(golden):
    for at, dtype in enumerate(DTYPES):
        data = values(dtype, (23, 7), at)
        path = dtype.translate(str.maketrans("<>|[]", "lbn__"))
        for order in "CF":
            make(
                golden,
                "dtypes",
                f"{order}/{path}",
                data,
                chunks=(10, 4),
                order=order,
                compressor=Blosc(),
                features=["dtype", f"order-{order}"],
            )
    for name, fields in STRUCTS.items():
        make(
            golden,
            "dtypes",
            f"struct/{name}",
            values(fields, (9, 5)),
            chunks=(4, 4),
            features=["struct"],
        )


def codecs(golden):
    f4, chunks = values("<f4", (41, 29)), (16, 16)
    compressors = {
        "none": None,
        "zlib1": Zlib(1),
        "zlib9": Zlib(9),
        "gzip1": GZip(1),
        "gzip9": GZip(9),
        "lz4": LZ4(),
        "lz4-fast": LZ4(50),
        "zlib0": Zlib(0),
    }
    compressors |= {f"zstd{level}": Zstd(level) for level in (-5, 0, 1, 19)}
    compressors["zstd-checksum"] = Zstd(3, checksum=True)
    for name, codec in compressors.items():
        make(
            golden,
            "codecs",
            name,
            f4,
            chunks=chunks,
            compressor=codec,
            features=["compressor", name],
        )
    for codec in (BZ2(), LZMA()):
        make(
            golden,
            "codecs",
            codec.codec_id,
            f4,
            chunks=(40, 40),
            compressor=codec,
            optional=True,
            features=[codec.codec_id],
        )
    available = [
        name
        for name in ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
        if name in numcodecs.blosc.list_compressors()
    ]
    for cname in available:
        for shuffle in (Blosc.NOSHUFFLE, Blosc.SHUFFLE, Blosc.BITSHUFFLE, Blosc.AUTOSHUFFLE):
            for dtype in ("|u1", "<i2", "<f4", ">f8"):
                make(
                    golden,
                    "blosc",
                    f"{cname}/{shuffle % 4}/{np.dtype(dtype).itemsize}",
                    smooth(dtype, (31, 23)) if dtype != "|u1" else values(dtype, (31, 23)),
                    chunks=(16, 23),
                    compressor=Blosc(cname, clevel=5, shuffle=shuffle),
                    features=["blosc"],
                )


def filters(golden):
    shape, chunks = (33, 21), (20, 16)
    i4, f4, f8 = smooth("<i4", shape), smooth("<f4", shape), smooth("<f8", shape)

    def add(path, data, chain, **kw):
        make(
            golden,
            "filters",
            path,
            data,
            chunks=chunks,
            filters=chain,
            features=["filter", path],
            **kw,
        )

    add("delta-i4", i4, [Delta("<i4")])
    add("delta-astype", i4, [Delta("<i4", astype="<i2")])
    add("delta-f8", f8, [Delta("<f8")])
    add("delta-wrap", values("|u1", shape), [Delta("|u1")])
    add("delta-big", smooth(">i2", shape), [Delta(">i2")])
    add("shuffle", f4, [numcodecs.Shuffle(4)])
    add("shuffle-5", values("|u1", shape), [numcodecs.Shuffle(5)])
    add("shuffle-lz4", f4, [numcodecs.Shuffle(4)], compressor=LZ4())
    packed = np.round((f4.astype("f8") - 250) * 10).astype("<i2")
    add(
        "fixedscaleoffset",
        f4,
        [FixedScaleOffset(250, 10, "<f4", "<i2")],
        expected=(packed / 10 + 250).astype("<f4"),
    )
    add("fixedscaleoffset-f8", f8, [FixedScaleOffset(-3.25, 4, "<f8", "<u4")])
    add("fixedscaleoffset-big", smooth(">f4", shape), [FixedScaleOffset(0, 4, ">f4", ">i2")])
    bits = f4.view("u4")
    keep = 7
    drop = 23 - keep
    half = (bits >> drop & 1) + (1 << (drop - 1)) - 1
    add(
        "bitround-f4",
        f4,
        [numcodecs.BitRound(keep)],
        expected=((bits + half) >> drop << drop).astype("u4").view("<f4"),
    )
    add("bitround-f8-exact", f8, [numcodecs.BitRound(30)])
    scale = 2.0 ** np.ceil(np.log2(10.0**1))
    rough = f8 + 0.03125
    add(
        "quantize", rough, [numcodecs.Quantize(1, "<f8")], expected=np.around(rough * scale) / scale
    )
    add(
        "quantize-astype",
        rough,
        [numcodecs.Quantize(1, "<f8", astype="<f4")],
        expected=(np.around(rough * scale) / scale).astype("<f4").astype("<f8"),
    )
    add("packbits", values("|b1", shape), [numcodecs.PackBits()], optional=True)
    add("astype", i4, [numcodecs.AsType("<i2", "<i4")], optional=True)
    add(
        "scale-delta-shuffle",
        f4,
        [FixedScaleOffset(0, 4, "<f4", "<i4"), Delta("<i4"), numcodecs.Shuffle(4)],
    )
    for name in ("CRC32", "Adler32", "Fletcher32", "JenkinsLookup3"):
        add(name.lower(), f4, [getattr(numcodecs, name)()], optional=True)
    add("crc32-end", f4, [numcodecs.CRC32(location="end")], optional=True)
    add("order-f-delta", i4, [Delta("<i4")], order="F")


def layout(golden):
    def add(path, shape, chunks, dtype="<i4", **kw):
        return make(
            golden, "layout", path, values(dtype, shape), chunks=chunks, features=["layout"], **kw
        )

    add("zero-d", (), ())
    add("zero-d-f8-raw", (), (), "<f8", compressor=None)
    add("empty", (0,), (4,))
    add("empty-2d", (5, 0), (2, 3))
    add("one", (1,), (1,))
    add("larger-chunk", (7, 3), (100, 50))
    add("exact", (12, 8), (4, 4))
    add("edge", (13, 9), (4, 4))
    add("slash", (13, 9), (4, 4), dimension_separator="/")
    add("slash-f", (5, 6, 7), (2, 6, 3), dimension_separator="/", order="F")
    add("four-d", (3, 4, 5, 6), (2, 3, 2, 4), "<i2")
    add("five-d-f", (2, 3, 2, 3, 2), (1, 2, 2, 2, 1), order="F")
    add("many-chunks", (300,), (3,), "|u1")
    attributes = {
        "units": "K",
        "\u03bb": [1, 2.5, None, True, "\u4e2d"],
        "deep": {"a": {"b": []}},
        "_FillValue": float("nan"),
    }
    array = add("attributes", (4,), (4,), more={"attributes": attributes})
    array.attrs.update(attributes)
    array = add("xarray", (4, 5), (2, 5), more={"dimension_names": ["y", "x"]})
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]


def fills(golden):
    for name, (dtype, fill) in FILLS.items():
        data = values(dtype, (10, 9), 7)
        expected = masked(data, (4, 4), np.array(fill, dtype), lambda at: at[0] == at[1])
        array = zarr.open_group(golden.folder("fills"), mode="a").create_dataset(
            name,
            shape=data.shape,
            dtype=dtype,
            chunks=(4, 4),
            fill_value=fill,
            compressor=Zlib(),
            write_empty_chunks=False,
        )
        for k in range(0, 12, 4):
            array[k : k + 4, k : k + 4] = data[k : k + 4, k : k + 4]
        golden.add(
            "fills", name, expected, zarr_format=2, chunks=(4, 4), features=["fill"], initialized=3
        )
    for dtype in ("<f4", "|b1", "<i8", "|S3", "<U2", ">c8"):
        # null is "undefined" in v2: the zero bytes that NumPy's zeros() has.
        data = np.zeros((10,), dtype)
        data[:4] = values(dtype, (4,))
        name = "null-" + dtype.strip("<>|").replace("[", "_").replace("]", "")
        array = zarr.open_group(golden.folder("fills"), mode="a").create_dataset(
            name, shape=(10,), dtype=dtype, chunks=(4,), fill_value=None, compressor=None
        )
        array[:4] = data[:4]
        golden.add(
            "fills",
            name,
            data,
            zarr_format=2,
            chunks=(4,),
            features=["fill", "fill-null"],
            initialized=1,
        )
    fields = STRUCTS["flat"]
    fill = np.array([(7, -0.5, b"xy", True)], fields)[0]
    expected = np.full((6,), fill, dtype=fields)
    expected[:4] = values(fields, (4,))
    array = zarr.open_group(golden.folder("fills"), mode="a").create_dataset(
        "struct", shape=(6,), dtype=fields, chunks=(4,), fill_value=fill
    )
    array[:4] = expected[:4]
    golden.add(
        "fills",
        "struct",
        expected,
        zarr_format=2,
        chunks=(4,),
        features=["fill", "struct"],
        initialized=1,
    )


def groups(golden):
    root = zarr.open_group(golden.folder("groups"), mode="w")
    root.attrs["title"] = "root"
    for path in ("a", "a/b", "a/b/c", "d"):
        root.require_group(path).attrs["path"] = path
    for path in ("x", "a/x", "a/b/c/x"):
        data = values("<i2", (5, 6), len(path))
        root.create_dataset(path, data=data, chunks=(3, 3)).attrs["at"] = path
        golden.add(
            "groups",
            path,
            data,
            zarr_format=2,
            chunks=(3, 3),
            features=["group"],
            attributes={"at": path},
        )
    zarr.consolidate_metadata(golden.folder("groups"))


def objects(golden):
    words = np.array(["", "a", "\u4e2d\u6587", "x" * 300], dtype=object)
    root = zarr.open_group(golden.folder("objects"), mode="w")
    # Host-only codecs that a reader may lack; pickle runs code and is always refused.
    for name, codec in {
        "vlen-utf8": numcodecs.VLenUTF8(),
        "json2": numcodecs.JSON(),
        "pickle": numcodecs.Pickle(),
    }.items():
        root.create_dataset(name, shape=(4,), dtype=object, object_codec=codec, chunks=(4,))[
            ...
        ] = words
        golden.refuse(
            "objects",
            name,
            zarr_format=2,
            raises="NotImplementedError",
            features=["object"],
            items=None if name == "pickle" else list(words),
        )


def zips(golden):
    import zipfile

    for name, compression in {
        "stored": zipfile.ZIP_STORED,
        "deflated": zipfile.ZIP_DEFLATED,
    }.items():
        with zarr.ZipStore(golden.zip(name), compression=compression, mode="w") as store:
            root = zarr.group(store)
            for path in ("x", "g/y"):
                data = values("<f8", (20, 11), len(path))
                root.create_dataset(path, data=data, chunks=(8, 8), compressor=Blosc())
                golden.add(name, path, data, zarr_format=2, chunks=(8, 8), features=["zip"])


if __name__ == "__main__":
    golden = Golden(
        "zarr2",
        {"zarr": zarr.__version__, "numcodecs": numcodecs.__version__, "numpy": np.__version__},
    )
    for part in (dtypes, codecs, filters, layout, fills, groups, objects, zips):
        part(golden)
    golden.close()
