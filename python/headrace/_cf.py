"""Decoding of numbers by the CF conventions, with any array library."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

# Types whose elements arrays on a device have; dates and strings stay on the host.
DEVICE_KINDS = "biufc"


@dataclass(frozen=True)
class Decoding:
    """What the CF conventions do to the elements of a numeric variable.

    Source: https://cfconventions.org/cf-conventions/cf-conventions.html#packed-data; which type the
    result has is xarray's choice.
    """

    dtype: np.dtype[Any]
    signedness: np.dtype[Any] | None = None
    missing: tuple[Any, ...] = ()
    scale_factor: float | None = None
    add_offset: float | None = None

    @classmethod
    def of(cls, decoded: xr.Variable, stored: np.dtype[Any]) -> Decoding:
        """What made `decoded`, a variable of xarray, from elements of the type `stored`."""
        encoding = decoded.encoding
        signedness = _signedness(stored, encoding.get("_Unsigned"))
        missing = [m for m in np.ravel(encoding.get("missing_value", [])) if m == m]
        for fill in np.ravel(encoding.get("_FillValue", [])):
            if fill == fill:
                same_bits = np.asarray(fill, stored) if signedness else fill
                missing.append(same_bits.view(signedness)[()] if signedness else fill)
        return cls(
            decoded.dtype,
            signedness,
            tuple(missing),
            _number(encoding.get("scale_factor")),
            _number(encoding.get("add_offset")),
        )

    @property
    def on_devices(self) -> bool:
        """Whether arrays on devices have the type of the result."""
        return self.dtype.kind in ("fc" if self.missing else DEVICE_KINDS)

    def apply(self, x: Any, library: ModuleType) -> Any:
        """The decoded elements of `x`, an array of `library` that nobody else holds."""
        if self.signedness is not None:
            x = x.astype(self.signedness, copy=False)
        x = x.astype(self.dtype, copy=False)
        for value in self.missing:
            # Equal as numbers: what the type cannot hold, no element is.
            with np.errstate(over="ignore"):
                held = self.dtype.type(value)
            if held == value:
                nan = library.asarray(np.nan, dtype=self.dtype)
                x = library.where(x == held.item(), nan, x)
        if self.scale_factor is not None:
            x *= self.scale_factor
        if self.add_offset is not None:
            x += self.add_offset
        return x


def _signedness(stored: np.dtype[Any], unsigned: str | None) -> np.dtype[Any] | None:
    wanted = {("i", "true"): "u", ("u", "false"): "i"}.get((stored.kind, unsigned or ""))
    return np.dtype(f"{wanted}{stored.itemsize}") if wanted else None


def _number(value: Any) -> float | None:
    number: float | None = None if value is None else np.asarray(value).item()
    return number
