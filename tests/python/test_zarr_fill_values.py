"""zarr-python's pipeline: fill values, the bits of a NaN and none at all."""

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same

zarr = pytest.importorskip("zarr", minversion="3.1.6")

OURS = "headrace.zarr.CodecPipeline"
DEFAULT = "zarr.core.codec_pipeline.BatchedCodecPipeline"


def pipeline(path):
    return zarr.config.set({"codec_pipeline.path": path})


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("f2", [0x7E01]), ("f4", [0x7FC00001]), ("f4", [0xFFC00000]), ("f8", [0x7FF8 << 48 | 5]),
     ("c8", [0x7FC00001, 0x3F800000]), ("c8", [0x3F800000, 0x7FC00002])],
    ids=str,
)  # fmt: skip
def test_the_bits_of_a_nan_as_fill_value(tmp_path, dtype, bits, zarr_format):
    fill = np.array(bits, f"u{np.dtype(dtype).itemsize // len(bits)}").view(dtype)[0]
    with pipeline(OURS), hr.config.set(fallback="raise"):
        array = zarr.create_array(
            tmp_path / "x",
            shape=2,
            chunks=2,
            dtype=dtype,
            fill_value=fill,
            zarr_format=zarr_format,
        )
        assert array[:].tobytes() == fill.tobytes() * 2


@pytest.mark.parametrize("dtype", ["M8[s]", ">M8[ns]", "m8[ms]", "f8", "i2", "S3", "U2", "?", "c8"])
def test_chunks_without_a_fill_value(tmp_path, dtype):
    """Zarr 2 with `null`: what is missing reads, and is stored, as zarr-python has it."""
    value = np.array([1], "i8").astype(dtype)
    stored = {}
    for name in (OURS, DEFAULT):
        path = tmp_path / name
        with pipeline(name):
            array = zarr.create_array(
                path,
                shape=(6,),
                chunks=(2,),
                dtype=dtype,
                zarr_format=2,
                fill_value=None,
                compressors=None,
            )
            array[1:2] = value
            stored[name] = array[:], (path / "0").read_bytes()
    assert_same(stored[OURS][0], stored[DEFAULT][0])
    assert stored[OURS][1] == stored[DEFAULT][1]
    assert_same(hr.open_array(tmp_path / OURS)[:], stored[DEFAULT][0])
    copy = hr.rechunk(str(tmp_path / OURS), str(tmp_path / "copy"), chunks=6)
    assert_same(copy[:], stored[DEFAULT][0])
