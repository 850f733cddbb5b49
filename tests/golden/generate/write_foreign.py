"""Writes tests/golden/codec_vectors/foreign.json: chunks as HDF5, TIFF and GRIB 2 files have them.

And seeds for the fuzz target of their decoders: two bytes that pick a range, then an encoded chunk.

    pip install numpy h5py imagecodecs eccodes
    python tests/golden/generate/write_foreign.py

Each case holds the codec as Zarr v2 metadata would name it, what a file has, and what the library
that wrote it reads: HDF5 the filters, imagecodecs LZW and predictors, eccodes the messages.
"""

import json
import tempfile
from pathlib import Path

import eccodes
import h5py
import imagecodecs
import numpy as np

OUT = Path(__file__).resolve().parent.parent / "codec_vectors"
FUZZ_CORPUS = OUT.parent.parent / "fuzz" / "corpus" / "codec_foreign_fuzz"
RANDOM = np.random.default_rng(11)
SHAPE = (6, 40)


def case(codec, encoded, decoded, configuration=None):
    return {
        "codec": "numcodecs." + codec,
        "configuration": json.dumps(configuration or {}),
        "encoded": bytes(encoded).hex(),
        "decoded": np.ascontiguousarray(decoded).tobytes().hex(),
    }


def walk(dtype="<i4", step=20):
    return np.cumsum(RANDOM.integers(-step, step + 1, SHAPE), 1).astype(dtype)


# ---- HDF5: the one filter of a data set of one chunk


def hdf5_case(codec, write, dtype_field=False, cd=4):
    with tempfile.NamedTemporaryFile(suffix=".h5") as file, h5py.File(file, "w") as opened:
        data = write(opened)
        opened.flush()
        plist = data.id.get_create_plist()
        assert plist.get_nfilters() == 1
        values = [int(v) & 0xFFFFFFFF for v in plist.get_filter(0)[2]]
        mask, encoded = data.id.read_direct_chunk((0,) * data.ndim)
        assert mask == 0 and data.id.get_num_chunks() == 1, codec
        configuration = {} if codec == "imagecodecs_lzf" else {"cd_values": values[:cd]}
        if dtype_field:
            configuration["dtype"] = data.dtype.str
        return case(codec, encoded, data[...], configuration)


def created(values, **filters):
    return lambda file: file.create_dataset("x", data=values, chunks=values.shape, **filters)


def with_missing(values, fill):
    values = values.copy()
    values[1::2, ::3] = fill
    return created(values, scaleoffset=0 if values.dtype.kind == "i" else 2, fillvalue=fill)


def nbit(base, precision, offset, values):
    def write(file):
        kind = base.copy()
        kind.set_precision(precision)
        kind.set_offset(offset)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(values.shape)
        plist.set_filter(5, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple(values.shape)
        data = h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, space, plist))
        data[...] = values
        return data

    return write


def hdf5_cases():
    for dtype, options in (
        ("<i4", ("nn", 8)),
        ("<i4", ("ec", 32)),
        ("<i2", ("nn", 10)),
        (">i2", ("nn", 16)),
        ("|u1", ("nn", 4)),
        ("<f8", ("nn", 32)),
        ("<f4", ("nn", 6)),
    ):
        values = np.abs(walk(step=1)).astype(dtype)
        yield hdf5_case("hdf5_szip", created(values, compression="szip", compression_opts=options))
    for dtype in ("|i1", "|u1", "<i2", ">i2", "<u4", ">i4", "<i8", "<u8"):
        values = walk(step=2).astype(dtype)
        yield hdf5_case("hdf5_scaleoffset", created(values, scaleoffset=0), cd=20)
    floats = RANDOM.normal(size=SHAPE) * 30
    for dtype in ("<f4", "<f8", ">f8"):
        for digits in (0, 2):
            write = created(floats.astype(dtype), scaleoffset=digits)
            yield hdf5_case("hdf5_scaleoffset", write, cd=20)
    yield hdf5_case("hdf5_scaleoffset", created(np.full(SHAPE, 7, "<i4"), scaleoffset=0), cd=20)
    full = RANDOM.integers(-(2**31), 2**31 - 1, SHAPE).astype("<i4")
    yield hdf5_case("hdf5_scaleoffset", created(full, scaleoffset=0), cd=20)
    yield hdf5_case("hdf5_scaleoffset", with_missing(walk(), -999), cd=20)
    yield hdf5_case("hdf5_scaleoffset", with_missing(walk(">i2"), -999), cd=20)
    yield hdf5_case("hdf5_scaleoffset", with_missing(walk("<i8"), -(10**15)), cd=20)
    yield hdf5_case("hdf5_scaleoffset", with_missing(floats.astype("<f4"), -9999.0), cd=20)
    yield hdf5_case("hdf5_scaleoffset", with_missing(floats.astype("<f8"), 1e20), cd=20)
    for base, precision, offset, values in (
        (h5py.h5t.STD_I16LE, 13, 3, walk("<i2")),
        (h5py.h5t.STD_I32BE, 17, 5, walk(">i4")),
        (h5py.h5t.STD_U8LE, 7, 1, np.abs(walk()) % 128),
        (h5py.h5t.STD_I64LE, 61, 2, walk("<i8") * 10**12),
        (h5py.h5t.STD_U16BE, 9, 0, np.abs(walk()) % 512),
    ):
        write = nbit(base, precision, offset, values)
        yield hdf5_case("hdf5_nbit", write, dtype_field=True, cd=99)
    for values in (walk(step=1), np.zeros(SHAPE, "f8"), np.tile(walk(), (3, 1))):
        yield hdf5_case("imagecodecs_lzf", created(values, compression="lzf"))


# ---- TIFF


def tiff_cases():
    texts = (
        walk(step=2).tobytes(),
        bytes(5000),
        RANDOM.bytes(6000),  # every width of a code, and a table that is full
        np.tile(walk("<i2"), (60, 1)).tobytes(),
        b"a",
        b"",
    )
    for text in texts:
        if text:
            yield case("imagecodecs_lzw", imagecodecs.lzw_encode(text), np.frombuffer(text, "u1"))
            packed = imagecodecs.packbits_encode(text)
            yield case("imagecodecs_packbits", packed, np.frombuffer(text, "u1"))
    for dtype in ("|u1", "<u2", ">u2", "<i4", "<u8", "<f4"):
        for shape, axis, dist in (((6, 40), -1, 1), ((6, 10, 4), -2, 1)):
            values = walk(dtype).reshape(shape)
            encoded = imagecodecs.delta_encode(values, axis=axis, dist=dist)
            configuration = {"shape": shape, "dtype": dtype, "axis": axis, "dist": dist}
            yield case("imagecodecs_delta", encoded.tobytes(), values, configuration)
    for dtype in ("<f2", "<f4", ">f4", "<f8", ">f8"):
        for shape, axis, dist in (((6, 40), -1, 1), ((6, 10, 4), -2, 1), ((6, 40), -1, 2)):
            values = (RANDOM.normal(size=shape) * 50).astype(dtype)
            encoded = imagecodecs.floatpred_encode(values, axis=axis, dist=dist)
            configuration = {"shape": shape, "dtype": dtype, "axis": axis, "dist": dist}
            yield case("imagecodecs_floatpred", encoded.tobytes(), values, configuration)


# ---- GRIB 2

FIELD = 250 + 30 * np.sin(np.arange(18 * 12) / 17.0) + RANDOM.normal(size=18 * 12)


def message(packing, values=FIELD, bitmap=False, **keys):
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    try:
        eccodes.codes_set(handle, "Ni", 18)
        eccodes.codes_set(handle, "Nj", 12)
        if bitmap:
            eccodes.codes_set(handle, "bitmapPresent", 1)
        eccodes.codes_set_values(handle, values)
        eccodes.codes_set(handle, "packingType", packing)
        for key, value in keys.items():
            eccodes.codes_set(handle, key, value)
        eccodes.codes_set_values(handle, values)
        assert eccodes.codes_get(handle, "packingType") == packing, packing
        return eccodes.codes_get_message(handle)
    finally:
        eccodes.codes_release(handle)


def grib_case(encoded, dtype="<f8"):
    handle = eccodes.codes_new_from_message(encoded)
    values = eccodes.codes_get_array(handle, "values")
    eccodes.codes_release(handle)
    return case("grib", encoded, values.astype(dtype), {"var": "t2m", "dtype": dtype})


def grib_cases():
    gaps = FIELD.copy()
    gaps[RANDOM.random(FIELD.size) < 0.3] = 9999
    spatial = "grid_complex_spatial_differencing"
    for packing in ("grid_simple", "grid_ccsds", "grid_complex", spatial):
        for bits in (1, 8, 12, 16, 24):
            yield grib_case(message(packing, bitsPerValue=bits))
        yield grib_case(message(packing, bitsPerValue=13), "<f4")
        yield grib_case(message(packing, gaps, bitmap=True, bitsPerValue=14))
        yield grib_case(message(packing, np.full(FIELD.size, 2.5)))
        yield grib_case(message(packing, bitsPerValue=16, decimalScaleFactor=3))
        yield grib_case(message(packing, FIELD * 1e6, bitsPerValue=16, decimalScaleFactor=-4))
    for order in (1, 2):
        yield grib_case(message(spatial, bitsPerValue=16, orderOfSpatialDifferencing=order))
    for precision in (1, 2):
        yield grib_case(message("grid_ieee", precision=precision))


def main():
    cases = [*hdf5_cases(), *tiff_cases(), *grib_cases()]
    OUT.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(c) for c in cases)
    (OUT / "foreign.json").write_text('{"cases": [\n' + lines + "\n]}\n")
    FUZZ_CORPUS.mkdir(parents=True, exist_ok=True)
    for old in FUZZ_CORPUS.iterdir():
        old.unlink()
    names = {}
    for c in cases:
        name = c["codec"].partition(".")[2]
        names[name] = names.get(name, 0) + 1
        encoded = bytes.fromhex(c["encoded"])
        if len(encoded) < 4096 and names[name] <= 24:
            (FUZZ_CORPUS / f"{name}_{names[name]}").write_bytes(b"\x80\x40" + encoded)
    print(names)


if __name__ == "__main__":
    main()
