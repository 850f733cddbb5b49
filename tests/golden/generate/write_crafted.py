"""Legal stores that no writer at hand makes: metadata and chunks put together by hand."""

import base64
import json
import struct
import zlib
from pathlib import Path

import google_crc32c
import numpy as np
import zstandard
from formula import masked, smooth, values
from golden import Golden
from numcodecs import blosc

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
MISSING = 2**64 - 1


def put(golden, store, path, files):
    root = Path(golden.folder(store)) / path
    for key, content in files.items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(
            content if isinstance(content, bytes) else json.dumps(content).encode()
        )


def v3(shape, chunks, data_type, codecs, fill_value=0, **more):
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": codecs,
        **more,
    }


def v2(shape, chunks, dtype, **more):
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunks),
        "dtype": dtype,
        "compressor": None,
        "filters": None,
        "fill_value": 0,
        "order": "C",
        **more,
    }


def blocks(data, chunks, fill=0):
    """(index, whole chunk as stored) of each chunk: edge chunks are padded with the fill value."""
    for index in np.ndindex(*[-(-s // c) for s, c in zip(data.shape, chunks, strict=True)]):
        part = data[tuple(slice(k * c, (k + 1) * c) for k, c in zip(index, chunks, strict=True))]
        whole = np.full(chunks, fill, data.dtype)
        whole[tuple(slice(0, n) for n in part.shape)] = part
        yield index, whole


def frame(content, size=True, checksum=False, level=3):
    return zstandard.ZstdCompressor(
        level=level, write_content_size=size, write_checksum=checksum
    ).compress(content)


def streamed(content, checksum=False):
    """As a streaming writer leaves it: no content size, several blocks."""
    writer = zstandard.ZstdCompressor(level=3, write_checksum=checksum).compressobj()
    parts = [
        writer.compress(content[i : i + 100]) + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for i in range(0, len(content), 100)
    ]
    return b"".join(parts) + writer.flush()


def skippable(content, nibble=0):
    return struct.pack("<II", 0x184D2A50 + nibble, len(content)) + content


def raw_block_frame(content):
    """A frame of one raw block, header byte 0 and window 1 KiB (RFC 8878, 3.1.1)."""
    return (
        struct.pack("<IBB", 0xFD2FB528, 0, 0)
        + (1 | len(content) << 3).to_bytes(3, "little")
        + content
    )


def zstd_frames(golden):
    shape, chunks = (30, 25), (16, 16)
    data = smooth("f4", shape)
    makers = {
        "no-size": lambda b: frame(b, size=False),
        "no-size-checksum": lambda b: frame(b, size=False, checksum=True),
        "streamed": streamed,
        "streamed-checksum": lambda b: streamed(b, checksum=True),
        "two": lambda b: frame(b[:500]) + frame(b[500:], size=False, checksum=True),
        "many": lambda b: b"".join(
            frame(b[i : i + 96], size=i % 192 == 0) for i in range(0, len(b), 96)
        ),
        "empty-frame": lambda b: frame(b"") + frame(b) + frame(b"", size=False),
        "skippable-first": lambda b: skippable(b"x" * 19, 3) + frame(b, size=False),
        "skippable-last": lambda b: frame(b) + skippable(b"", 15),
        "skippable-between": lambda b: (
            frame(b[:100]) + skippable(b"\x28\xb5\x2f\xfd", 7) + frame(b[100:])
        ),
        "raw-block": raw_block_frame,
        "level22": lambda b: frame(b, level=22),
    }
    for name, maker in makers.items():
        chunk = {f"c/{y}/{x}": maker(block.tobytes()) for (y, x), block in blocks(data, chunks)}
        put(
            golden,
            "zstd",
            f"v3/{name}",
            {"zarr.json": v3(shape, chunks, "float32", [BYTES, ZSTD]), **chunk},
        )
        golden.add(
            "zstd", f"v3/{name}", data, zarr_format=3, chunks=chunks, features=["zstd-frames", name]
        )
        chunk = {f"{y}.{x}": maker(block.tobytes()) for (y, x), block in blocks(data, chunks)}
        put(
            golden,
            "zstd",
            f"v2/{name}",
            {".zarray": v2(shape, chunks, "<f4", compressor={"id": "zstd", "level": 3}), **chunk},
        )
        golden.add(
            "zstd", f"v2/{name}", data, zarr_format=2, chunks=chunks, features=["zstd-frames", name]
        )


def gzip_streams(golden):
    shape, chunks = (30, 25), (16, 16)
    data = smooth("<i4", shape)

    def member(content, **header):
        import gzip
        import io

        out = io.BytesIO()
        with gzip.GzipFile(fileobj=out, mode="wb", mtime=0, **header) as f:
            f.write(content)
        return out.getvalue()

    def optional_fields(content):
        """FEXTRA, FNAME, FCOMMENT and FHCRC all present (RFC 1952, 2.3)."""
        head = (
            b"\x1f\x8b\x08\x1e"
            + bytes(6)
            + struct.pack("<H", 3)
            + b"abc"
            + b"name\0"
            + b"comment\0"
        )
        body = zlib.compressobj(6, zlib.DEFLATED, -15)
        tail = struct.pack("<II", zlib.crc32(content), len(content))
        return (
            head
            + struct.pack("<H", zlib.crc32(head) & 0xFFFF)
            + body.compress(content)
            + body.flush()
            + tail
        )

    makers = {
        "two-members": lambda b: member(b[:300]) + member(b[300:]),
        "name": lambda b: member(b, filename="chunk"),
        "fields": optional_fields,
        "stored": lambda b: member(b, compresslevel=0),
    }
    for name, maker in makers.items():
        chunk = {f"{y}.{x}": maker(block.tobytes()) for (y, x), block in blocks(data, chunks)}
        put(
            golden,
            "gzip",
            name,
            {".zarray": v2(shape, chunks, "<i4", compressor={"id": "gzip", "level": 5}), **chunk},
        )
        golden.add("gzip", name, data, zarr_format=2, chunks=chunks, features=["gzip", name])


def shard_bytes(parts, order, gap=b"", start=False, missing=()):
    """Encoded inner chunks laid down in `order`, `gap` before each, and an index with crc32c."""
    index = np.full((len(parts), 2), MISSING, "<u8")
    body, base = b"", (16 * len(parts) + 4 if start else 0)
    for k in order:
        if k not in missing:
            body += gap
            index[k] = base + len(body), len(parts[k])
            body += parts[k]
    table = index.tobytes()
    table += struct.pack("<I", google_crc32c.value(table))
    return table + body if start else body + table


def shards(golden):
    shape, shard, inner, fill = (20, 18), (8, 8), (4, 4), -7
    data = values("<i4", shape)
    variants = {
        "reversed": {"order": [3, 2, 1, 0]},
        "gaps": {"order": [0, 1, 2, 3], "gap": b"gap!!"},
        "start-gaps-shuffled": {"order": [2, 0, 3, 1], "gap": b"?", "start": True},
        "missing": {"order": [1, 3, 0, 2], "missing": (0, 3)},
    }
    for name, variant in variants.items():
        location = "start" if variant.get("start") else "end"
        codec = {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": list(inner),
                "codecs": [BYTES, ZSTD],
                "index_codecs": [BYTES, {"name": "crc32c"}],
                "index_location": location,
            },
        }
        files = {"zarr.json": v3(shape, shard, "int32", [codec], fill_value=fill)}
        for (y, x), block in blocks(data, shard, fill):
            parts = [
                frame(np.ascontiguousarray(block[r : r + 4, c : c + 4]).tobytes())
                for r in (0, 4)
                for c in (0, 4)
            ]
            files[f"c/{y}/{x}"] = shard_bytes(parts, **variant)
        gone = variant.get("missing", ())
        expected = masked(
            data, inner, fill, lambda at, gone=gone: at[0] % 2 * 2 + at[1] % 2 not in gone
        )
        put(golden, "shards", name, files)
        golden.add(
            "shards",
            name,
            expected,
            zarr_format=3,
            chunks=inner,
            shards=list(shard),
            features=["sharding", name],
        )


def metadata(golden):
    data = values("<f4", (6, 5))
    whole = {"c/0/0": data.tobytes()}

    def add3(path, meta, files=None, expected=data, **facts):
        put(golden, "metadata", path, {"zarr.json": meta, **(whole if files is None else files)})
        facts.setdefault("chunks", meta["chunk_grid"]["configuration"]["chunk_shape"])
        golden.add("metadata", path, expected, zarr_format=3, features=["metadata", path], **facts)

    add3(
        "optional-field",
        v3((6, 5), (6, 5), "float32", [BYTES], extra={"must_understand": False, "a": 1}),
    )
    add3("storage-transformers", v3((6, 5), (6, 5), "float32", [BYTES], storage_transformers=[]))
    crc = data.tobytes() + struct.pack("<I", google_crc32c.value(data.tobytes()))
    add3("bare-codec-name", v3((6, 5), (6, 5), "float32", [BYTES, "crc32c"]), {"c/0/0": crc})
    add3(
        "no-key-configuration",
        v3((6, 5), (6, 5), "float32", [BYTES]) | {"chunk_key_encoding": {"name": "default"}},
    )
    add3(
        "no-v2-key-configuration",
        v3((6, 5), (6, 5), "float32", [BYTES]) | {"chunk_key_encoding": {"name": "v2"}},
        {"0.0": data.tobytes()},
    )
    fills = {
        "float32": (
            "<f4",
            {
                "payload": ("0x7fc12345", 0x7FC12345),
                "hex": ("0x40490fdb", 0x40490FDB),
                "int": (3, 0x40400000),
                "negative-nan": ("0xffc00001", 0xFFC00001),
            },
        ),
        "float64": (
            "<f8",
            {
                "payload": ("0xfff8000000000123", 0xFFF8000000000123),
                "ninf": ("-Infinity", 0xFFF0000000000000),
            },
        ),
        "float16": ("<f2", {"payload": ("0x7e01", 0x7E01), "inf": ("Infinity", 0x7C00)}),
        "uint64": ("<u8", {"max": (2**64 - 1, 2**64 - 1)}),
        "int64": ("<i8", {"min": (-(2**63), 2**63)}),
    }
    for data_type, (dtype, cases) in fills.items():
        for name, (text, bits) in cases.items():
            fill = np.array([bits], f"<u{dtype[2]}").view(dtype)
            add3(
                f"fill-{data_type}-{name}",
                v3((3, 2), (2, 2), data_type, [BYTES], fill_value=text),
                {},
                np.broadcast_to(fill, (3, 2)),
                initialized=0,
            )
    hexes = ["0x7fc00001", "-Infinity"]
    parts = np.array([0x7FC00001, 0xFF800000], "<u4").view("<c8")
    add3(
        "fill-complex64-hex",
        v3((3,), (2,), "complex64", [BYTES], fill_value=hexes),
        {},
        np.broadcast_to(parts, (3,)),
    )
    add3(
        "fill-r24",
        v3((3,), (2,), "r24", ["bytes"], fill_value=[1, 2, 255]),
        {},
        np.frombuffer(b"\x01\x02\xff" * 3, "V3"),
    )

    def add2(path, meta, files, expected, **facts):
        put(golden, "metadata", path, {".zarray": meta, **files})
        golden.add(
            "metadata",
            path,
            expected,
            zarr_format=2,
            chunks=meta["chunks"],
            features=["metadata", path],
            **facts,
        )

    add2(
        "v2-no-filters-key",
        {k: v for k, v in v2((6, 5), (6, 5), "<f4").items() if k != "filters"},
        {"0.0": data.tobytes()},
        data,
    )
    add2("v2-scientific-fill", v2((3,), (2,), "<i8", fill_value=1e3), {}, np.full(3, 1000, "<i8"))
    add2("v2-float-fill-int", v2((3,), (2,), "<f8", fill_value=-5), {}, np.full(3, -5.0))
    add2(
        "v2-base64",
        v2((3,), (2,), "|S4", fill_value=base64.b64encode(b"ab\x00\x01").decode()),
        {},
        np.frombuffer(b"ab\x00\x01" * 3, "S4"),
    )
    add2(
        "v2-fill-infinity",
        v2((3,), (2,), ">f4", fill_value="-Infinity"),
        {},
        np.full(3, -np.inf, "f4"),
    )
    add2("v2-bool-fill", v2((3,), (2,), "|b1", fill_value=True), {}, np.ones(3, bool))
    add2("v2-empty-filters", v2((6, 5), (6, 5), "<f4", filters=[]), {"0.0": data.tobytes()}, data)
    field = [["a", "<i4"], ["b", "<f8"]]
    one = np.array([(5, 2.5)], [tuple(f) for f in field])
    add2(
        "v2-struct-fill",
        v2((3,), (2,), field, fill_value=base64.b64encode(one.tobytes()).decode()),
        {},
        np.repeat(one, 3),
    )
    blosc_frame = blosc.compress(data.tobytes(), b"lz4", 5, blosc.SHUFFLE)
    # Other typesize in the frame than in the array: a decoder must take the frame's.
    add2(
        "v2-blosc-typesize",
        v2(
            (6, 5),
            (6, 5),
            "<f4",
            compressor={"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
        ),
        {"0.0": blosc_frame},
        data,
    )


def hierarchy(golden):
    """NCZarr's extra keys, an implicit group, names that need care."""
    data = values("<i2", (4, 3))
    meta = v2((4, 3), (4, 3), "<i2")
    put(
        golden,
        "nczarr",
        "",
        {
            ".zgroup": {"zarr_format": 2},
            ".nczgroup": {"dims": {}},
            ".zattrs": {"_nczarr_group": {}},
        },
    )
    put(
        golden,
        "nczarr",
        "t",
        {
            ".zarray": meta,
            ".nczarray": {"dimrefs": ["/y", "/x"]},
            "0.0": data.tobytes(),
            ".zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"], "_nczarr_array": {"storage": "chunked"}},
        },
    )
    golden.add(
        "nczarr",
        "t",
        data,
        zarr_format=2,
        chunks=(4, 3),
        features=["nczarr"],
        dimension_names=["y", "x"],
    )
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    for path in ("", "with space", "\u00e9t\u00e9"):
        put(golden, "names", path, {"zarr.json": group})
    for path in ("with space/a+b%20c", "\u00e9t\u00e9/\u4e2d", "UPPER", "upper"):
        put(
            golden,
            "names",
            path,
            {"zarr.json": v3((4, 3), (4, 3), "int16", [BYTES]), "c/0/0": data.tobytes()},
        )
        golden.add("names", path, data, zarr_format=3, chunks=(4, 3), features=["names"])


if __name__ == "__main__":
    golden = Golden("crafted", {"numpy": np.__version__, "zstandard": zstandard.__version__})
    for part in (zstd_frames, gzip_streams, shards, metadata, hierarchy):
        part(golden)
    golden.close()
