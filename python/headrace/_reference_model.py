"""What references are made of: arrays and groups of Zarr v2 whose chunks lie elsewhere."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Reference = str | list[Any]
Index = tuple[int, ...]

# Elements that lie in one piece are cut into rows of about so many bytes.
_CONTIGUOUS_NBYTES = 64 << 20


class NotRepresentable(NotImplementedError):
    """Why something of a file is not among its references."""


@dataclass
class ArrayReferences:
    """An array of Zarr v2 whose chunks lie elsewhere."""

    shape: Index
    chunks: Index
    dtype: np.dtype[Any]
    codecs: list[dict[str, Any]] = field(default_factory=list)
    fill_value: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    references: dict[Index, Reference] = field(default_factory=dict)
    document: dict[str, Any] | None = None  # as another library wrote it

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def nchunks(self) -> int:
        grid = zip(self.shape, self.chunks, strict=True)
        return math.prod(-(-n // max(c, 1)) for n, c in grid)

    @property
    def dimensions(self) -> list[str]:
        return list(self.attributes.get("_ARRAY_DIMENSIONS", []))

    def put(self, index: Index, url: str, offset: int, nbytes: int) -> None:
        self.references[index] = [url, offset, nbytes]

    def put_inline(self, index: Index, data: bytes) -> None:
        self.references[index] = "base64:" + base64.b64encode(data).decode()

    def put_contiguous(self, url: str, offset: int) -> None:
        """All elements, which lie in one piece: chunks of some rows each."""
        self._put_pieces(url, self.shape, (), [((), offset)])

    def put_records(self, url: str, offsets: Iterable[int]) -> None:
        """The elements at each index of the first dimension, which lie in one piece."""
        self._put_pieces(url, self.shape[1:], (1,), (((i,), at) for i, at in enumerate(offsets)))

    def _put_pieces(
        self, url: str, shape: Index, chunks_before: Index, pieces: Iterable[tuple[Index, int]]
    ) -> None:
        rows = shape[0] if shape else 1
        nbytes = math.prod(shape) * self.dtype.itemsize
        self.chunks = (*chunks_before, *shape)
        if math.prod(self.shape) == 0 or nbytes == 0:
            return
        parts = _parts(rows, nbytes)
        each = nbytes // parts
        if shape:
            self.chunks = (*chunks_before, rows // parts, *shape[1:])
        inner = [((i, *(0,) * (len(shape) - 1)) if shape else (), i * each) for i in range(parts)]
        for before, begin in pieces:
            for index, offset in inner:
                self.references[before + index] = [url, begin + offset, each]

    def metadata(self) -> dict[str, Any]:
        if self.document is not None:
            return {**self.document, "shape": list(self.shape)}
        return {
            "zarr_format": 2,
            "shape": list(self.shape),
            "chunks": [max(n, 1) for n in self.chunks],
            "dtype": dtype_json(self.dtype),
            "order": "C",
            "fill_value": _fill_json(self.fill_value, self.dtype),
            "filters": self.codecs or None,
            "compressor": None,
        }

    def same_kind(self) -> dict[str, Any]:
        """What must be equal of arrays that become one."""
        return {k: v for k, v in self.metadata().items() if k not in ("shape", "fill_value")}


@dataclass
class GroupReferences:
    """Groups and arrays by their paths; the root is the group ""."""

    arrays: dict[str, ArrayReferences] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_kerchunk(self) -> dict[str, Any]:
        refs: dict[str, Any] = {}
        groups = self.groups if "" in self.arrays else {"": {}, **self.groups}
        for path, attributes in groups.items():
            prefix = f"{path}/" if path else ""
            refs[prefix + ".zgroup"] = '{"zarr_format":2}'
            if attributes:
                refs[prefix + ".zattrs"] = json.dumps(attributes)
        for path, array in self.arrays.items():
            prefix = f"{path}/" if path else ""
            refs[prefix + ".zarray"] = json.dumps(array.metadata())
            refs[prefix + ".zattrs"] = json.dumps(array.attributes)
            for index, reference in array.references.items():
                refs[prefix + (".".join(map(str, index)) or "0")] = reference
        return {"version": 1, "refs": refs}


def _parts(rows: int, nbytes: int) -> int:
    """Into how many chunks of as many rows each an array is cut."""
    fewest = -(-nbytes // _CONTIGUOUS_NBYTES)
    for n in range(fewest, min(64 * fewest, rows) + 1):
        if rows % n == 0:
            return n
    # By no number of parts of a useful size. Rows that are large alone are parts.
    return rows if nbytes // rows > _CONTIGUOUS_NBYTES else 1


def mark_of_missing(marked: Any, dtype: np.dtype[Any]) -> Any:
    """The attribute _FillValue as an element; None where it is none of this type."""
    if marked is None:
        return None
    values = np.asarray(marked)
    if values.size != 1:
        return None
    value = values.reshape(())[()]
    if dtype.kind == "S":
        text = value.encode() if isinstance(value, str) else value
        fits = isinstance(text, bytes) and len(text) <= dtype.itemsize
        return np.asarray(text, dtype)[()] if fits else None
    if dtype.kind not in "biuf" or values.dtype.kind not in "biuf":
        return None
    with np.errstate(all="ignore"):
        mark = value.astype(dtype)
    unchanged = mark == value or (mark != mark and value != value)
    return mark if unchanged else None


def json_value(value: Any) -> Any:
    """An attribute as JSON; None for what JSON has no word for."""
    if isinstance(value, bytes):
        return value.decode(errors="replace").rstrip("\0")
    if isinstance(value, str | bool | int | float):
        return value
    if not isinstance(value, np.ndarray | np.generic):
        return None
    if value.dtype.kind in "SU":
        value = np.asarray(value).astype(object)
    if value.dtype.kind not in "biufO":
        return None
    if value.dtype.char == "g":  # a long double: item() of it is no number of Python
        with np.errstate(over="ignore"):
            value = value.astype("f8")
    # NetCDF's attributes are lists, of one element mostly.
    plain = value.item() if value.size == 1 else value.tolist()
    if value.dtype.kind != "O":
        return plain
    texts = [plain] if value.size == 1 else plain
    if not all(isinstance(v, bytes | str) for v in texts):
        return None
    texts = [json_value(v) for v in texts]
    return texts[0] if value.size == 1 else texts


def dtype_json(dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None:
        return [[name, dtype[name].str] for name in dtype.names]
    return dtype.str


def _fill_json(value: Any, dtype: np.dtype[Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return value
    if dtype.kind in "SV":
        raw = np.asarray(value, dtype).tobytes()
        return base64.b64encode(raw).decode() if raw.strip(b"\0") else None
    if dtype.kind == "c":
        return [_fill_json(v, np.dtype("f8")) for v in (value.real, value.imag)]
    if dtype.kind == "f":
        number = float(value)
        if math.isnan(number):
            return "NaN"
        if math.isinf(number):
            return "Infinity" if number > 0 else "-Infinity"
        return number
    if dtype.kind == "b":
        return bool(value)
    return int(np.asarray(value).view("i8") if dtype.kind in "mM" else value)
