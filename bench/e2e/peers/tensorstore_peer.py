"""tensorstore: as many threads as cores, no chunk cache, no fsync (no other peer syncs either)."""

import importlib.metadata
import os

import numpy as np
import tensorstore as ts

MEMORY = True
_CORES = len(os.sched_getaffinity(0))
_CONTEXT = ts.Context(
    {
        "data_copy_concurrency": {"limit": _CORES},
        "file_io_concurrency": {"limit": _CORES},
        "cache_pool": {"total_bytes_limit": 0},
        "file_io_sync": False,
    }
)


def versions() -> dict:
    return {"tensorstore": importlib.metadata.version("tensorstore")}


def open_array(path: str):
    at_url = path.startswith("http://")
    kvstore = f"{path}/" if at_url else {"driver": "file", "path": path + "/"}
    spec = {"driver": "zarr3", "kvstore": kvstore}
    return ts.open(spec, open=True, read=True, context=_CONTEXT).result()


def read(array, selection):
    return array[selection].read().result()


def read_out(array, selection, out) -> None:
    ts.array(out, copy=False, write=True, context=_CONTEXT).write(array[selection]).result()


def _bytes_codecs(codec: str) -> list:
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    compressor = {
        "none": [],
        "zstd": [{"name": "zstd", "configuration": {"level": 3}}],
        "zstd1": [{"name": "zstd", "configuration": {"level": 1}}],
        "blosc": [
            {
                "name": "blosc",
                "configuration": {
                    "cname": "lz4",
                    "clevel": 5,
                    "shuffle": "shuffle",
                    "typesize": 4,
                    "blocksize": 0,
                },
            }
        ],
        "gzip": [{"name": "gzip", "configuration": {"level": 5}}],
    }[codec]
    return [little, *compressor]


def _create(kvstore: dict, spec: dict):
    codecs = _bytes_codecs(spec["codec"])
    if spec["inner_chunks"]:
        codecs = [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": spec["inner_chunks"],
                    "codecs": codecs,
                    "index_codecs": [*_bytes_codecs("none"), {"name": "crc32c"}],
                },
            }
        ]
    return ts.open(
        {
            "driver": "zarr3",
            "kvstore": kvstore,
            "metadata": {
                "shape": spec["shape"],
                "data_type": "float32",
                "fill_value": 0.0,
                "chunk_grid": {
                    "name": "regular",
                    "configuration": {"chunk_shape": spec["chunks"]},
                },
                "codecs": codecs,
            },
        },
        create=True,
        delete_existing=True,
        context=_CONTEXT,
    ).result()


def create(path: str, spec: dict):
    return _create({"driver": "file", "path": path + "/"}, spec)


def create_in_bucket(url: str, spec: dict):
    bucket, _, path = url.removeprefix("s3://").partition("/")
    kvstore = {
        "driver": "s3",
        "bucket": bucket,
        "path": path + "/",
        "endpoint": spec["endpoint"],
        "aws_region": "us-east-1",
        "aws_credentials": {"type": "anonymous"},
    }
    return _create(kvstore, spec)


def write(array, selection, data) -> None:
    array[selection].write(np.asarray(data)).result()


def create_in_memory(spec: dict):
    return _create({"driver": "memory"}, spec)
