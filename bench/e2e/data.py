"""The benchmark's data: a deterministic, ERA5-like time series, and the Zarr arrays made from it.

A smooth random field (power spectrum k^-4 at large scales, k^-8/3 at small ones, damped near the
grid scale) drifts in time, is rounded to 16 bit with a power-of-two step as GRIB packing does, and
is decoded to float32. zstd level 3 makes it about 1.8 times smaller. No real ERA5 bytes are used.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

NLAT, NLON = 721, 1440
STEP_KELVIN = 2.0**-10
REFERENCE_KELVIN = 234.0
SEED = 20240229
FORMAT = 2  # raise it when the bytes written below change: old data folders are then made anew

# Chunk shape, then the shape of the inner chunks where the layout is sharded. 181 x 180 float32 are
# 127 KiB; the last row of chunks reaches past the 721 latitudes, as real grids make it happen.
LAYOUTS = {
    "4MiB": ((1, 721, 1440), None),
    "128KiB": ((1, 181, 180), None),
    "shard": ((8, 724, 1440), (1, 181, 180)),
}
CODECS = ("none", "zstd", "blosc", "gzip")


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace-bench"


def amplitude(ny: int, nx: int) -> np.ndarray:
    ky = np.fft.fftfreq(ny)[:, None] * ny
    kx = np.fft.rfftfreq(nx)[None, :] * nx
    k = np.hypot(ky, kx)
    k[0, 0] = np.inf
    power = np.where(k < 80, k**-4.0, 80**-4.0 * (k / 80) ** (-8 / 3))
    return np.sqrt(power) * np.exp(-((k / 450) ** 4))


def fields(steps: int, nlat: int = NLAT, nlon: int = NLON, seed: int = SEED):
    """Yield `steps` float32 fields (nlat, nlon), each correlated with the one before."""
    rng = np.random.default_rng(seed)
    ny = nlat + nlat % 2 + 46
    amplitudes = amplitude(ny, nlon)

    def noise():
        shape = amplitudes.shape
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * amplitudes

    base = 284.0 - 36.0 * np.sin(np.deg2rad(np.linspace(90, -90, nlat)))[:, None] ** 2
    state = noise()
    sigma = np.fft.irfft2(state, s=(ny, nlon)).std()
    keep = 0.95
    for _ in range(steps):
        state = keep * state + np.sqrt(1 - keep**2) * noise()
        field = base + 6.0 * np.fft.irfft2(state, s=(ny, nlon))[:nlat] / sigma
        packed = np.clip(np.rint((field - REFERENCE_KELVIN) / STEP_KELVIN), 0, 65535)
        yield (REFERENCE_KELVIN + packed * STEP_KELVIN).astype(np.float32)


def codecs_of(codec: str) -> dict:
    """The `compressors` argument of zarr-python's create_array, and the codec's metadata."""
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    return {
        "none": None,
        "zstd": ZstdCodec(level=3),
        "zstd1": ZstdCodec(level=1),
        "blosc": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
        "gzip": GzipCodec(level=5),
    }[codec]


def array_name(layout: str, codec: str) -> str:
    return f"{layout}-{codec}.zarr"


def spec(layout: str, codec: str, steps: int) -> dict:
    """What a peer is told of an array to create."""
    outer, inner = LAYOUTS[layout]
    return {
        "shape": [steps, NLAT, NLON],
        "chunks": [min(outer[0], steps), *outer[1:]],
        "inner_chunks": list(inner) if inner else None,
        "codec": codec,
    }


def create(path, spec: dict):
    """The array of a spec, by zarr-python."""
    import zarr

    inner = spec["inner_chunks"]
    return zarr.create_array(
        store=path,
        shape=tuple(spec["shape"]),
        dtype="float32",
        chunks=tuple(inner or spec["chunks"]),
        shards=tuple(spec["chunks"]) if inner else None,
        compressors=codecs_of(spec["codec"]),
        fill_value=0.0,
    )


def _write(folder: Path, layout: str, codec: str, truth: np.ndarray) -> None:
    partial = folder / (array_name(layout, codec) + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    array = create(str(partial), spec(layout, codec, len(truth)))
    for t in range(0, truth.shape[0], 8):
        array[t : t + 8] = truth[t : t + 8]
    partial.rename(folder / array_name(layout, codec))


def prepare(folder: Path, steps: int, wanted: list[tuple[str, str]]) -> Path:
    """Make what is missing of the truth (.npy) and the wanted arrays; return their folder."""
    folder = folder / f"v{FORMAT}-{steps}x{NLAT}x{NLON}"
    folder.mkdir(parents=True, exist_ok=True)
    truth_path = folder / "truth.npy"
    if not truth_path.exists():
        truth = np.stack(list(fields(steps)))
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as f:
            np.save(f, truth)
        os.replace(f.name, truth_path)
    truth = np.load(truth_path, mmap_mode="r")
    for layout, codec in wanted:
        if not (folder / array_name(layout, codec)).exists():
            _write(folder, layout, codec, truth)
    return folder


def stored_bytes(path: Path) -> int:
    """Bytes of all chunk and shard files of an array, without its metadata."""
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file() and p.name != "zarr.json")


def describe(folder: Path, layout: str, codec: str) -> dict:
    path = folder / array_name(layout, codec)
    meta = json.loads((path / "zarr.json").read_text())
    nbytes = int(np.prod(meta["shape"])) * 4
    stored = stored_bytes(path)
    return {
        "layout": layout,
        **spec(layout, codec, meta["shape"][0]),
        "codecs": meta["codecs"],
        "nbytes": nbytes,
        "stored_nbytes": stored,
        "ratio": round(nbytes / stored, 3),
    }
