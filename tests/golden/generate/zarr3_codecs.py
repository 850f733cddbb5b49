"""The codec and sharding arrays of write_zarr3.py."""

import numpy as np
import zarr
import zarr.codecs.numcodecs as nc
from formula import masked, smooth, values
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)


def make(
    golden,
    name,
    path,
    data,
    *,
    chunks,
    shards=None,
    features=(),
    optional=False,
    more=None,
    expected=None,
    written=None,
    **options,
):
    """written: chunk index -> whether that chunk is written; the others stay absent."""
    options.setdefault("fill_value", None if data.dtype.kind in "SUVmM" else 0)
    options.setdefault("compressors", ZstdCodec(level=1))
    options.setdefault("zarr_format", 3)
    array = zarr.create_array(
        golden.folder(name),
        name=path,
        shape=data.shape,
        dtype=data.dtype,
        chunks=chunks,
        shards=shards,
        **options,
    )
    expected = data if expected is None else expected
    if written is None:
        array[...] = data
    else:
        expected = masked(expected, chunks, array.fill_value, written)
        for index in np.ndindex(*[-(-s // c) for s, c in zip(data.shape, chunks, strict=True)]):
            if written(index):
                at = tuple(slice(k * c, (k + 1) * c) for k, c in zip(index, chunks, strict=True))
                array[at] = data[at]
    facts = {"chunks": list(chunks), "shards": shards and list(shards), **(more or {})}
    golden.add(
        name,
        path,
        expected,
        zarr_format=options["zarr_format"],
        features=features,
        optional=optional,
        **facts,
    )
    return array


def codecs(golden):
    f4, chunks = values("<f4", (41, 29)), (16, 16)
    chains = {f"zstd{level}": ZstdCodec(level=level) for level in (-5, 0, 1, 19)}
    chains |= {f"gzip{level}": GzipCodec(level=level) for level in (0, 1, 9)}
    chains["zstd-checksum"] = ZstdCodec(level=3, checksum=True)
    chains["crc32c"] = Crc32cCodec()
    chains["zstd-crc32c"] = (ZstdCodec(), Crc32cCodec())
    chains["crc32c-gzip-zstd"] = (Crc32cCodec(), GzipCodec(), ZstdCodec())
    chains["none"] = None
    for name, chain in chains.items():
        make(
            golden,
            "codecs",
            name,
            f4,
            chunks=chunks,
            compressors=chain,
            features=["compressor", name],
        )
    for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in ("noshuffle", "shuffle", "bitshuffle"):
            codec = BloscCodec(cname=cname, shuffle=shuffle, clevel=5, typesize=8)
            make(
                golden,
                "codecs",
                f"blosc/{cname}-{shuffle}",
                smooth("f8", (31, 23)),
                chunks=(16, 23),
                compressors=codec,
                features=["blosc"],
            )
    cube = values("<i4", (5, 6, 7))
    for order in ((2, 1, 0), (1, 2, 0), (0, 2, 1), (0, 1, 2)):
        make(
            golden,
            "codecs",
            "transpose/" + "".join(map(str, order)),
            cube,
            chunks=(2, 3, 4),
            features=["transpose"],
            filters=TransposeCodec(order=order),
        )
    make(
        golden,
        "codecs",
        "transpose/twice",
        cube,
        chunks=(2, 3, 4),
        features=["transpose"],
        filters=(TransposeCodec(order=(1, 2, 0)), TransposeCodec(order=(0, 2, 1))),
    )
    make(
        golden,
        "codecs",
        "transpose/big",
        cube,
        chunks=(2, 3, 4),
        features=["transpose"],
        compressors=None,
        filters=TransposeCodec(order=(2, 0, 1)),
        serializer=BytesCodec(endian="big"),
    )


def extension_codecs(golden):
    """The numcodecs.* names that zarr-python registers for v3."""
    shape, chunks = (33, 21), (20, 16)
    i4, f4 = smooth("<i4", shape), smooth("<f4", shape)

    def add(path, data, optional=False, **kw):
        make(
            golden,
            "numcodecs",
            path,
            data,
            chunks=chunks,
            optional=optional,
            features=["numcodecs", path],
            **kw,
        )

    add("lz4", f4, compressors=nc.LZ4())
    add("zlib", f4, compressors=nc.Zlib(level=4))
    add("gzip", f4, compressors=nc.GZip(level=4))
    add("zstd", f4, compressors=nc.Zstd(level=4))
    add("blosc", f4, compressors=nc.Blosc(cname="lz4", clevel=5, shuffle=1))
    add("shuffle", f4, compressors=(nc.Shuffle(elementsize=4), ZstdCodec()))
    add("bz2", f4, True, compressors=nc.BZ2())
    add("lzma", f4, True, compressors=nc.LZMA())
    for name in ("CRC32", "Adler32", "Fletcher32", "JenkinsLookup3", "CRC32C"):
        codec = (
            nc.JenkinsLookup3(initval=0, prefix=None)
            if name == "JenkinsLookup3"
            else getattr(nc, name)()
        )
        add(name.lower(), f4, True, compressors=codec)
    add("delta", i4, filters=nc.Delta(dtype="<i4"))
    packed = np.round((f4.astype("f8") - 250) * 10).astype("<i2")
    add(
        "fixedscaleoffset",
        f4,
        filters=nc.FixedScaleOffset(offset=250, scale=10, dtype="<f4", astype="<i2"),
        expected=(packed / 10 + 250).astype("<f4"),
    )
    add("bitround", f4, filters=nc.BitRound(keepbits=16))
    add("quantize", f4, filters=nc.Quantize(digits=3, dtype="<f4"))
    add("packbits", values("b1", shape), True, filters=nc.PackBits())
    add("astype", i4, True, filters=nc.AsType(encode_dtype="<i2", decode_dtype="<i4"))


def sharding(golden):
    shape = (37, 29)
    f4 = values("<f4", shape)

    def add(path, data, chunks, shards, **kw):
        make(
            golden, "shards", path, data, chunks=chunks, shards=shards, features=["sharding"], **kw
        )

    def explicit(path, data, shard, codec, chunks, **kw):
        """A sharding codec given in full: the array's chunk is the shard."""
        make(
            golden,
            "shards",
            path,
            data,
            chunks=shard,
            serializer=codec,
            compressors=None,
            features=["sharding"],
            more={"chunks": chunks, "shards": chunks and shard},
            **kw,
        )

    add("default", f4, (4, 4), (16, 8))
    add("raw", f4, (4, 4), (16, 8), compressors=None)
    add("one-inner", f4, (16, 16), (16, 16))
    add(
        "blosc",
        smooth("f8", shape),
        (8, 8),
        (16, 16),
        compressors=BloscCodec(cname="lz4", shuffle="shuffle", typesize=8),
    )
    add("checked", f4, (8, 8), (16, 16), compressors=(ZstdCodec(), Crc32cCodec()))
    add("one-d", values("i8", (1000,)), (10,), (100,))
    add("four-d", values("u2", (5, 6, 7, 8)), (1, 2, 3, 4), (2, 4, 6, 8))
    add(
        "missing",
        f4,
        (4, 4),
        (16, 8),
        written=lambda at: (at[0] * 3 + at[1]) % 4 == 1,
        fill_value=-1.5,
    )
    add("missing-shards", f4, (4, 4), (16, 8), written=lambda at: at == (0, 0), fill_value=np.nan)
    for name, index in {
        "plain": [BytesCodec()],
        "crc": [BytesCodec(), Crc32cCodec()],
        "big": [BytesCodec(endian="big")],
    }.items():
        for location in ("start", "end"):
            codec = ShardingCodec(
                chunk_shape=(4, 8),
                codecs=[BytesCodec(), GzipCodec(level=1)],
                index_codecs=index,
                index_location=location,
            )
            explicit(f"index-{location}-{name}", f4, (16, 16), codec, (4, 8))
    inner = ShardingCodec(
        chunk_shape=(4, 4), codecs=[BytesCodec(), ZstdCodec()], index_location="start"
    )
    explicit("nested", f4, (32, 16), ShardingCodec(chunk_shape=(16, 8), codecs=[inner]), (16, 8))
    turned = ShardingCodec(
        chunk_shape=(4, 8), codecs=[TransposeCodec(order=(1, 0)), BytesCodec(), ZstdCodec()]
    )
    explicit("transpose-inside", f4, (16, 16), turned, (4, 8))
    plain = ShardingCodec(chunk_shape=(8, 4), codecs=[BytesCodec(endian="big"), ZstdCodec()])
    # The shard of the turned array is (16, 24), its inner chunks are (4, 8) of the array.
    # What `chunks` says of it is left open.
    explicit("transpose-outside", f4, (24, 16), plain, None, filters=TransposeCodec(order=(1, 0)))
