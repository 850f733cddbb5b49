"""How each library writes and reads an array of the matrix. Libraries are imported where used.

A library refuses what it lacks by an exception of its own, which the matrix reports. None of them
is helped: what a caller would have to convert or patch counts as refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from cases import ML_TYPES, VARIABLE_TYPES, Case

V3_NAMES = {
    "datetime64": {"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}},
    "timedelta64": {
        "name": "numpy.timedelta64",
        "configuration": {"unit": "us", "scale_factor": 1},
    },
    "fixed_bytes": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 7}},
    "fixed_text": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 16}},
    "raw": "r48",
}


def native(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("=")


class Library:
    formats = (2, 3)

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {name: version(name) for name in self.packages}

    def write(self, where: Path, case: Case) -> None:
        """Creates the array in the folder `where` and fills it."""
        raise NotImplementedError

    def read(self, where: Path) -> np.ndarray:
        raise NotImplementedError


class Zarr2(Library):
    formats = (2,)
    packages = ("zarr", "numcodecs", "numpy")

    def write(self, where, case):
        import numcodecs
        import zarr

        layout = case.layout
        if case.type == "bytes" and layout.written:
            raise NotImplementedError("JSON has no bytes: there is no such fill value")
        compressor = case.compressor_v2
        array = zarr.create(
            store=zarr.DirectoryStore(str(where)),
            shape=layout.shape,
            chunks=layout.chunks,
            dtype=case.numpy_type,
            compressor=compressor and numcodecs.get_codec(dict(compressor)),
            filters=[numcodecs.get_codec(dict(codec)) for codec in case.filters_v2] or None,
            order="F" if layout.column_order else "C",
            fill_value=None if case.type == "bytes" else case.fill,
            dimension_separator=layout.keys[1] if layout.keys else None,
        )
        for region in case.regions:
            array[region] = case.data[region]

    def read(self, where):
        import zarr

        return np.asarray(zarr.open_array(str(where), mode="r")[...])


class Zarr3(Library):
    packages = ("zarr", "numcodecs", "numpy")

    def write(self, where, case):
        import zarr

        layout = case.layout
        if case.type in VARIABLE_TYPES:
            import zarr.dtype as types

            dtype = (
                types.VariableLengthUTF8() if case.type == "string" else types.VariableLengthBytes()
            )
        elif case.type in ML_TYPES:
            dtype = case.type
        else:
            dtype = case.numpy_type
        options = {}
        if case.zarr_format == 2:
            options["order"] = "F" if layout.column_order else "C"
            compressor = case.compressor_v2
            options["compressors"] = compressor and self._numcodec(compressor)
            # zarr-python adds the filter of variable lengths itself.
            filters = [codec for codec in case.filters_v2 if not codec["id"].startswith("vlen")]
            options["filters"] = [self._numcodec(codec) for codec in filters] or "auto"
        else:
            options["filters"] = case.filters_v3
            options["compressors"] = case.compressors_v3
            if case.type not in (*VARIABLE_TYPES, *ML_TYPES):
                dtype = native(dtype)
                options["serializer"] = case.serializer_v3
        if layout.keys:
            options["chunk_key_encoding"] = {"name": layout.keys[0], "separator": layout.keys[1]}
        if layout.shards:
            location = "start" if layout.index_at_start else "end"
            options["shards"] = {"shape": layout.shards, "index_location": location}
        with zarr.config.set({"array.rectilinear_chunks": layout.rectilinear}):
            array = zarr.create_array(
                str(where),
                shape=layout.shape,
                dtype=dtype,
                chunks=layout.chunks,
                fill_value=case.fill,
                zarr_format=case.zarr_format,
                **options,
            )
            for region in case.regions:
                array[region] = case.data[region]

    @staticmethod
    def _numcodec(codec):
        import numcodecs

        return numcodecs.get_codec(dict(codec))

    def read(self, where):
        import zarr

        with zarr.config.set({"array.rectilinear_chunks": True}):
            array = zarr.open_array(str(where), mode="r")
            return np.asarray(array[...], array.dtype)  # of a scalar, zarr-python gives text


class Zarrs(Zarr3):
    """zarr-python's metadata and indexing, zarrs' codecs: what these lack is refused."""

    packages = ("zarrs", "zarr", "numcodecs", "numpy")

    def __init__(self):
        import zarr

        zarr.config.set(
            {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
        )


class TensorStore(Library):
    packages = ("tensorstore", "ml_dtypes", "numpy")

    @staticmethod
    def _spec(where, zarr_format):
        driver = "zarr" if zarr_format == 2 else "zarr3"
        return {"driver": driver, "kvstore": {"driver": "file", "path": f"{where}/"}}

    def write(self, where, case):
        import tensorstore

        if case.type in ("raw", "fixed_bytes"):
            # It ends the process when it is told a fill value of these.
            raise NotImplementedError("fixed bytes are one more dimension of single bytes")
        metadata = self._metadata_v2(case) if case.zarr_format == 2 else self._metadata_v3(case)
        spec = {**self._spec(where, case.zarr_format), "metadata": metadata, "create": True}
        fill = np.asarray(case.fill, native(case.numpy_type))
        array = tensorstore.open(spec, fill_value=fill).result()
        for region in case.regions:
            array[region].write(case.data[region]).result()

    @staticmethod
    def _metadata_v2(case):
        layout = case.layout
        dtype = {"string": "|O", "bytes": "|O"}.get(case.type, case.numpy_type.str)
        compressor = case.compressor_v2
        return {
            "shape": layout.shape,
            "chunks": layout.chunks,
            "dtype": dtype,
            "order": "F" if layout.column_order else "C",
            "filters": case.filters_v2 or None,
            "compressor": compressor,
            **({"dimension_separator": layout.keys[1]} if layout.keys else {}),
        }

    @staticmethod
    def _metadata_v3(case):
        layout = case.layout
        codecs = [*case.filters_v3, case.serializer_v3, *case.compressors_v3]
        extents = layout.chunks
        if layout.shards:
            sharding = {
                "chunk_shape": layout.chunks,
                "codecs": codecs,
                "index_codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "crc32c"},
                ],
                "index_location": "start" if layout.index_at_start else "end",
            }
            codecs = [{"name": "sharding_indexed", "configuration": sharding}]
            extents = layout.shards
        grid = {"name": "regular", "configuration": {"chunk_shape": extents}}
        if layout.rectilinear:
            configuration = {"kind": "inline", "chunk_shapes": layout.chunks}
            grid = {"name": "rectilinear", "configuration": configuration}
        metadata = {
            "shape": layout.shape,
            "data_type": V3_NAMES.get(case.type, case.type),
            "chunk_grid": grid,
            "codecs": codecs,
        }
        if layout.keys:
            name, separator = layout.keys
            metadata["chunk_key_encoding"] = {
                "name": name,
                "configuration": {"separator": separator},
            }
        return metadata

    def read(self, where):
        import tensorstore

        zarr_format = 3 if (where / "zarr.json").exists() else 2
        return tensorstore.open(self._spec(where, zarr_format), open=True).result().read().result()


# Creation options of GDAL for each codec of the cases that it can write.
GDAL_CODECS = {
    "none": {"COMPRESS": "NONE"},
    "zlib": {"COMPRESS": "ZLIB", "ZLIB_LEVEL": "1"},
    "gzip": {"COMPRESS": "GZIP", "GZIP_LEVEL": "1"},
    "zstd": {"COMPRESS": "ZSTD", "ZSTD_LEVEL": "3"},
    "lz4": {"COMPRESS": "LZ4", "LZ4_ACCELERATION": "1"},
    "lzma": {"COMPRESS": "LZMA"},
    "blosc-lz4": {"COMPRESS": "BLOSC", "BLOSC_CNAME": "lz4", "BLOSC_SHUFFLE": "BYTE"},
    "blosc-zstd": {"COMPRESS": "BLOSC", "BLOSC_CNAME": "zstd", "BLOSC_SHUFFLE": "BIT"},
    "delta": {"COMPRESS": "ZLIB", "FILTER": "DELTA", "ZLIB_LEVEL": "1"},
}


class Gdal(Library):
    """Through rasterio, whose wheel bundles GDAL: its raster interface, so arrays of two
    dimensions."""

    packages = ("rasterio", "numpy")

    def versions(self):
        import rasterio

        return {**super().versions(), "gdal": rasterio.__gdal_version__}

    def write(self, where, case):
        import rasterio
        from rasterio.windows import Window

        layout = case.layout
        if len(layout.shape) != 2:
            raise NotImplementedError("rasterio: a raster has two dimensions")
        if layout.shards or layout.rectilinear or layout.keys == ("v2", "."):
            raise NotImplementedError("GDAL: no creation option for this layout")
        if case.codec not in GDAL_CODECS:
            raise NotImplementedError(f"GDAL: no creation option for codec {case.codec}")
        options = dict(GDAL_CODECS[case.codec])
        if layout.keys:
            options["DIM_SEPARATOR"] = layout.keys[1]
        if layout.column_order:
            options["CHUNK_MEMORY_LAYOUT"] = "F"
        if layout.big_endian:
            options["ENDIAN"] = "BIG"
        height, width = layout.shape
        with rasterio.open(
            where,
            "w",
            driver="Zarr",
            height=height,
            width=width,
            count=1,
            dtype=native(case.numpy_type).name,
            nodata=case.fill if layout.written else None,
            FORMAT=f"ZARR_V{case.zarr_format}",
            ARRAY_NAME="array",
            BLOCKSIZE="{},{}".format(*layout.chunks),
            **options,
        ) as raster:
            for region in case.regions:
                if region is ...:
                    raster.write(np.ascontiguousarray(case.data).astype(raster.dtypes[0]), 1)
                    continue
                part = case.data[region].astype(raster.dtypes[0])
                rows, columns = region
                window = Window(columns.start, rows.start, part.shape[1], part.shape[0])
                raster.write(part, 1, window=window)

    def read(self, where):
        import rasterio

        document = where / "zarr.json" if (where / "zarr.json").exists() else where / ".zarray"
        if len(json.loads(document.read_text())["shape"]) != 2:
            raise NotImplementedError("rasterio: a raster has two dimensions")
        with rasterio.open(f'ZARR:"{where}"') as raster:
            return raster.read(1)


class Headrace(Library):
    packages = ("numpy", "ml_dtypes")

    def versions(self):
        import headrace

        return {"headrace": headrace.__version__, **super().versions()}

    def write(self, where, case):
        import headrace

        layout = case.layout
        options = {}
        if case.zarr_format == 2:
            options = {
                "filters": case.filters_v2 or None,
                "compressors": case.compressor_v2,
                "order": "F" if layout.column_order else "C",
                "dtype": case.type if case.type in VARIABLE_TYPES else case.numpy_type,
            }
        else:
            serializer, compressors = case.serializer_v3, case.compressors_v3
            if layout.index_at_start:
                codecs = [*case.filters_v3, serializer, *compressors]
                sharding = headrace.codecs.Sharding(
                    layout.chunks, codecs=codecs, index_location="start"
                )
                options = {"chunks": layout.shards, "serializer": sharding, "compressors": None}
            else:
                options = {
                    "filters": case.filters_v3 or None,
                    "serializer": serializer,
                    "compressors": compressors or None,
                    "shards": layout.shards,
                }
            variable = case.type in VARIABLE_TYPES
            options["dtype"] = case.type if variable else native(case.numpy_type)
        if layout.keys:
            options["chunk_key_encoding"] = {"name": layout.keys[0], "separator": layout.keys[1]}
        array = headrace.create_array(
            str(where),
            shape=layout.shape,
            fill_value=case.fill,
            zarr_format=case.zarr_format,
            **{"chunks": layout.chunks, **options},
        )
        for region in case.regions:
            array[region] = case.data[region]

    def read(self, where):
        import headrace

        return headrace.open_array(str(where))[...]


LIBRARIES = {
    "zarr2": Zarr2,
    "zarr3": Zarr3,
    "zarr3.4": Zarr3,
    "zarrs": Zarrs,
    "tensorstore": TensorStore,
    "gdal": Gdal,
    "headrace": Headrace,
}


def array_folder(where: Path) -> Path:
    """Where the array is below its case's folder: GDAL makes a group with the array in it."""
    inner = where / "array"
    return inner if inner.is_dir() else where
