"""headrace's speed inside zarr-python: one line of configuration.

pip install 'headrace[zarr]'
python examples/zarr_pipeline.py [STORE]
"""

import sys
import tempfile
import time
from pathlib import Path

import headrace as hr
import numpy as np
import zarr

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "example.zarr"
field = np.sin(np.linspace(0, 300, 64 * 256 * 256)).astype("float32").reshape(64, 256, 256)
zarr.create_array(folder, data=field, chunks=(1, 256, 256), overwrite=True)


def seconds(pipeline: str) -> float:
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        array = zarr.open_array(folder, mode="r")
        started = time.perf_counter()
        assert np.array_equal(array[:], field)
        return time.perf_counter() - started


default = seconds("zarr.core.codec_pipeline.BatchedCodecPipeline")
headrace = seconds("headrace.zarr.CodecPipeline")
print(f"zarr-python alone {default * 1e3:.1f} ms, with headrace {headrace * 1e3:.1f} ms")

# For all arrays that are opened from here on:
zarr.config.set({"codec_pipeline.path": "headrace.zarr.CodecPipeline"})
array = zarr.open_array(folder, mode="r+")
array[0] = 0
print("mean without the first field:", float(array[1:].mean()))

# Results in the memory of a device, for any framework that takes DLPack. "simt" is a device for
# tests, in host memory; say "cuda:0" where there is a GPU.
zarr.config.set({"ndbuffer": "headrace.zarr.NDBuffer"})
with hr.config.set({"device": "simt"}):
    on_device = zarr.open_array(folder, mode="r")[8:16]
print(on_device)
