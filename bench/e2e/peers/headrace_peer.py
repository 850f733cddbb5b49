"""headrace on the CPU, as a user calls it: no setting is changed."""

import headrace as hr

MEMORY = True
_memory_arrays = 0


def versions() -> dict:
    return {"headrace": hr.__version__}


def open_array(path: str):
    return hr.open_array(path, mode="r", device="cpu")


def read(array, selection):
    return array[selection]


def read_out(array, selection, out) -> None:
    array.read(selection, out=out)


def _compressors(codec: str):
    return {
        "none": lambda: None,
        "zstd": lambda: hr.codecs.Zstd(level=3),
        "zstd1": lambda: hr.codecs.Zstd(level=1),
        "blosc": lambda: hr.codecs.Blosc(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
        "gzip": lambda: hr.codecs.Gzip(level=5),
    }[codec]()


def create(path: str, spec: dict, **options):
    return hr.create_array(
        path,
        shape=tuple(spec["shape"]),
        dtype="float32",
        chunks=tuple(spec["inner_chunks"] or spec["chunks"]),
        shards=tuple(spec["chunks"]) if spec["inner_chunks"] else None,
        compressors=_compressors(spec["codec"]),
        fill_value=0.0,
        **options,
    )


def create_in_bucket(url: str, spec: dict):
    options = {"anon": True, "endpoint_url": spec["endpoint"], "region": "us-east-1"}
    return create(url, spec, storage_options=options)


def write(array, selection, data) -> None:
    array[selection] = data


def create_in_memory(spec: dict):
    global _memory_arrays
    _memory_arrays += 1
    return create(f"memory://bench-{_memory_arrays}", spec)
