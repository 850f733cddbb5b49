"""headrace inside zarr-python. Needs zarr 3.1.6 or newer: ``pip install 'headrace[zarr]'``.

Examples
--------
>>> import zarr
>>> zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"})
>>> zarr.open_array("era5.zarr/t2m")[0:10]
"""

from zarr.registry import register_ndbuffer, register_pipeline

from ._buffer import NDBuffer, buffer_prototype
from ._fallbacks import FallbackWarning, fallbacks
from ._pipeline import CodecPipeline
from ._store import Store

__all__ = [
    "CodecPipeline",
    "FallbackWarning",
    "NDBuffer",
    "Store",
    "buffer_prototype",
    "fallbacks",
]

# zarr's configuration names classes by their module.
for _public in (CodecPipeline, FallbackWarning, NDBuffer, Store):
    _public.__module__ = __name__

register_pipeline(CodecPipeline)
register_ndbuffer(NDBuffer)
