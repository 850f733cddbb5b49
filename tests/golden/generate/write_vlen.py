"""Arrays of variable-length elements as zarr-python stores them: write_vlen.py WRITER.

../vlen/WRITER.json has a case an array: its files (base64), its elements flat in C order as JSON
(bytes as base64, 1-D arrays as lists), and the kind of the elements.
"""

import base64
import json
import sys
from pathlib import Path

import numcodecs
import numpy as np
import zarr

OUT = Path(__file__).resolve().parent.parent / "vlen"
TEXTS = ["", "a", "\u4e2d\u6587", "x" * 300, "\u00fc", "tail\n", "nul\0within", "\U0001f600"]


def objects(values, shape):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def as_json(element):
    if isinstance(element, bytes):
        return base64.b64encode(element).decode()
    return element.tolist() if isinstance(element, np.ndarray) else element


def case(name, kind, files, wanted):
    files = {
        key: base64.b64encode(bytes(value)).decode()
        for key, value in sorted(files.items())
        if key.rpartition("/")[2] not in (".zgroup", ".zattrs")
    }
    elements = [as_json(element) for element in wanted.ravel().tolist()]
    return {"name": name, "kind": kind, "files": files, "elements": elements}


def zarr2():
    raw = [text.encode() for text in TEXTS]
    arrays = [np.arange(n, dtype="<i4") - 3 for n in (0, 1, 5, 2, 0, 3, 4, 9)]
    values = ["a", 1, -2.5, None, True, 1 << 62, {"k": [1, "\u00fc", None]}, [1, [2, "b"]]]
    labels = ["a", "\u4e2d\u6587", "x" * 300]
    categorized = [text if text in labels else "" for text in TEXTS]
    kinds = {
        "vlen-utf8": ("string", TEXTS, numcodecs.VLenUTF8()),
        "vlen-bytes": ("bytes", raw, numcodecs.VLenBytes()),
        "vlen-array": ("array", arrays, numcodecs.VLenArray("<i4")),
        "vlen-array-big-endian": ("array", arrays, numcodecs.VLenArray(">i4")),
        "json2": ("object", values, numcodecs.JSON()),
        "json2-indented": ("object", values, numcodecs.JSON(indent=2, ensure_ascii=False)),
        "msgpack2": ("object", values, numcodecs.MsgPack()),
        "categorize": ("string", categorized, numcodecs.Categorize(labels, dtype=object)),
        "categorize-i2": ("string", categorized, numcodecs.Categorize(labels, object, ">i2")),
    }
    for name, (kind, elements, codec) in kinds.items():
        for layout, shape, chunks, order, compressor in (
            ("plain", (8,), (8,), "C", None),
            ("edge", (8,), (3,), "C", numcodecs.Zstd(1)),
            ("2d", (2, 4), (2, 3), "C", numcodecs.Blosc()),
            ("column-order", (4, 2), (2, 2), "F", numcodecs.GZip(1)),
        ):
            # zarr-python 2 nests these in one order and reads them in the other.
            if order == "F" and kind == "object":
                continue
            data = objects(elements, shape)
            store = {}
            array = zarr.create(
                shape,
                dtype=object,
                object_codec=codec,
                chunks=chunks,
                order=order,
                compressor=compressor,
                store=store,
                fill_value=None,
            )
            array[...] = data
            yield case(f"{name} {layout}", kind, store, data)
    store = {}
    array = zarr.create(4, chunks=2, dtype="<U3", store=store, compressor=None, fill_value="",
                        filters=[numcodecs.Categorize(["ab", "c"], dtype="<U3")])  # fmt: skip
    array[...] = np.array(["ab", "", "c", "ab"])
    yield case("categorize of fixed strings", "fixed", store, array[...])


# No transposes: zarr-python 3.1.6 does not read what it writes with them.
def zarr31():
    raw = [text.encode() for text in TEXTS]
    blosc = zarr.codecs.BloscCodec(typesize=1)
    for kind, dtype, elements in (
        ("string", "string", TEXTS),
        ("bytes", "variable_length_bytes", raw),
    ):
        for layout, shape, options in (
            ("plain", (8,), {"chunks": (8,), "compressors": None}),
            ("edge", (8,), {"chunks": (3,)}),
            ("2d", (2, 4), {"chunks": (2, 3), "compressors": [zarr.codecs.GzipCodec(), blosc]}),
            ("sharded", (2, 4), {"chunks": (1, 2), "shards": (2, 4)}),
            ("filled", (8,), {"chunks": (2,), "fill_value": elements[2]}),
        ):
            data = objects(elements, shape)
            store = {}
            array = zarr.create_array(store, shape=shape, dtype=dtype, **options)
            array[:4] = data[:4]
            if layout == "filled":
                data[4:] = elements[2]
            else:
                array[...] = data
            yield case(f"{kind} {layout}", kind, {k: v.to_bytes() for k, v in store.items()}, data)
    store = {}
    array = zarr.create_array(store, shape=(8,), chunks=(3,), dtype=str, zarr_format=2)
    array[...] = TEXTS
    files = {k: v.to_bytes() for k, v in store.items()}
    yield case("v2 string", "string", files, objects(TEXTS, (8,)))


if __name__ == "__main__":
    writer = sys.argv[1]
    cases = list({"zarr2": zarr2, "zarr31": zarr31}[writer]())
    lines = ",\n".join(json.dumps(entry) for entry in cases)
    OUT.mkdir(exist_ok=True)
    (OUT / f"{writer}.json").write_text(f"[\n{lines}\n]\n")
    print(f"{writer}: {len(cases)} cases")
