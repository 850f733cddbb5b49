"""The data that headrace_device_bench decodes: device.field --out FIELD.f32 --mib 128.

Two-metre temperature as GRIB packing leaves it: a smooth random field (power spectrum k^-4 at large
scales, k^-8/3 at small ones, damped near the grid scale), rounded to 16 bits with a step of 2^-9 K
and decoded to float32. zstd level 3 makes it about 1.9 times smaller, LZ4 1.15 times.
"""

import harness
import numpy as np
from e2e.data import NLAT, NLON, amplitude

STEP_KELVIN = 2.0**-9
REFERENCE_KELVIN = 200.0


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


def main() -> None:
    args = harness.parser(__doc__, mib=128).parse_args()
    nbytes = args.mib << 20
    with args.out.open("wb") as file:
        for field in fields(-(-nbytes // (NLAT * NLON * 4))):
            file.write(field.tobytes()[: nbytes - file.tell()])


if __name__ == "__main__":
    main()
