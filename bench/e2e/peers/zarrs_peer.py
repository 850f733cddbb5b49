"""zarr-python with the Rust pipeline of zarrs; strict, so it never falls back to Python unseen."""

import importlib.metadata

import zarr
import zarrs  # noqa: F401  (registers the pipeline)
from e2e.peers.zarr_peer import create, open_array, read_out, write  # noqa: F401

# The pipeline serves files and HTTP; in strict mode it refuses zarr-python's MemoryStore.
MEMORY = False

zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True})


def versions() -> dict:
    return {"zarr": zarr.__version__, "zarrs": importlib.metadata.version("zarrs")}


def read(array, selection):
    # zarrs 0.2.3 refuses an index over several chunks (UnsupportedVIndexingError) and would leave
    # it to the Python pipeline; a slice of one, whose axis is dropped after, is its fast way.
    ranges = tuple(slice(i, i + 1) if isinstance(i, int) else i for i in selection)
    drop = tuple(0 if isinstance(i, int) else slice(None) for i in selection)
    return array[ranges][drop]
