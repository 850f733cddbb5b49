"""The data that headrace_device_bench decodes: field.py OUT.f32 [MIB].

Two-metre temperature as GRIB packing leaves it: a smooth random field (power spectrum k^-4 at large
scales, k^-8/3 at small ones, damped near the grid scale), rounded to 16 bits with a step of 2^-9 K
and decoded to float32. zstd level 3 makes it about 1.9 times smaller, LZ4 1.15 times.
"""

import sys

import numpy as np

NLAT, NLON = 721, 1440
STEP_KELVIN = 2.0**-9
REFERENCE_KELVIN = 200.0


def amplitude(ny: int, nx: int) -> np.ndarray:
    k = np.hypot(np.fft.fftfreq(ny)[:, None] * ny, np.fft.rfftfreq(nx)[None] * nx)
    k[0, 0] = 1e9
    power = np.where(k < 80, k**-4.0, 80**-4.0 * (k / 80) ** (-8 / 3))
    return np.sqrt(power) * np.exp(-((k / 450) ** 4))


def fields(count: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    ny = 768
    amplitudes = amplitude(ny, NLON)
    base = 284.0 - 36.0 * np.sin(np.deg2rad(np.linspace(-90, 90, NLAT)))[:, None] ** 2
    for _ in range(count):
        noise = rng.standard_normal(amplitudes.shape) + 1j * rng.standard_normal(amplitudes.shape)
        field = np.fft.irfft2(noise * amplitudes, s=(ny, NLON))[:NLAT]
        kelvin = base + 8.0 * field / field.std()
        packed = np.clip(np.rint((kelvin - REFERENCE_KELVIN) / STEP_KELVIN), 0, 65535)
        yield (REFERENCE_KELVIN + packed * STEP_KELVIN).astype(np.float32)


def main(out: str, mib: str = "128") -> None:
    nbytes = int(mib) << 20
    with open(out, "wb") as file:
        for field in fields(-(-nbytes // (NLAT * NLON * 4))):
            file.write(field.tobytes()[: nbytes - file.tell()])


if __name__ == "__main__":
    main(*sys.argv[1:])
