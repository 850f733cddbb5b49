"""Where in a NetCDF 3 file the elements are: classic, with offsets of 64 bits, and CDF-5.

1. The header lists dimensions, attributes and variables; counts are of 4 bytes, in CDF-5 of 8.
2. A variable of fixed extents lies in one piece. Those along the record dimension lie in turns: one
   record of each, then the next of each.

The format: https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from . import _secrets
from ._reference_model import (
    ArrayReferences,
    GroupReferences,
    NotRepresentable,
    json_value,
    mark_of_missing,
)

_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
_CHARACTERS = 2
_TYPES = {
    1: "i1", _CHARACTERS: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8",
    7: "u1", 8: ">u2", 9: ">u4", 10: ">i8", 11: ">u8",
}  # fmt: skip
_LAST_TYPE = {1: 6, 2: 6, 5: 11}  # by the version
_ALIGNMENT = 4
_MAX_RANK = 1024  # of the netCDF library


def read_netcdf3(file: BinaryIO, url: str) -> tuple[GroupReferences, dict[str, str]]:
    """What the file holds, and why what is left out is."""
    try:
        header = _Header(file)
    except _Damaged as why:
        raise ValueError(f"{_secrets.shown(url)}: damaged as NetCDF 3: {why}") from None
    root = GroupReferences(groups={"": _attributes_json(header.attributes)})
    left_out = {}
    for variable in header.variables:
        try:
            root.arrays[variable.name] = _array(variable, header, url)
        except NotRepresentable as why:
            left_out[variable.name] = str(why)
    return root, left_out


class _Damaged(ValueError):
    """What no NetCDF 3 file says."""


@dataclass
class _Variable:
    name: str
    dimensions: list[int]
    attributes: dict[str, Any]
    dtype: np.dtype[Any]
    begin: int


class _Header:
    """The header, read from the beginning of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file_nbytes = file.seek(0, 2)
        self._file = file
        file.seek(0)
        self._version = self._take(4)[3]
        if self._version not in _LAST_TYPE:
            raise _Damaged(f"version {self._version}; known are 1, 2 and 5")
        self._count_nbytes = 8 if self._version == 5 else 4
        number = self._count()
        self.dimensions = self._list(_DIMENSIONS, self._dimension)
        self.attributes = self._read_attributes()
        self.variables = self._list(_VARIABLES, self._variable)
        names = [variable.name for variable in self.variables]
        if len(set(names)) != len(names):
            raise _Damaged("two variables have one name")
        self.record_dimension = self._find_record_dimension()
        along = [v for v in self.variables if self.is_along_records(v)]
        sizes = [self.record_nbytes(v) for v in along]
        # Each record is aligned, but those of a variable that is alone with its records.
        self.stride = sizes[0] if len(sizes) == 1 else sum(map(_aligned, sizes))
        self.record_count = number
        if number == (1 << 8 * self._count_nbytes) - 1:  # who wrote it did not know
            begin = min((v.begin for v in along), default=0)
            nbytes = max(self.file_nbytes - begin, 0)
            self.record_count = nbytes // self.stride if self.stride else 0

    def is_along_records(self, variable: _Variable) -> bool:
        return variable.dimensions[:1] == [self.record_dimension]

    def shape_of(self, variable: _Variable) -> tuple[int, ...]:
        extents = [self.dimensions[i][1] for i in variable.dimensions]
        if self.is_along_records(variable):
            extents[0] = self.record_count
        return tuple(extents)

    def record_nbytes(self, variable: _Variable) -> int:
        extents = [self.dimensions[i][1] for i in variable.dimensions[1:]]
        return math.prod(extents) * variable.dtype.itemsize

    def _find_record_dimension(self) -> int | None:
        found = [i for i, (_, extent) in enumerate(self.dimensions) if extent == 0]
        if len(found) > 1:
            raise _Damaged("two dimensions grow")
        for variable in self.variables:
            if any(i >= len(self.dimensions) for i in variable.dimensions):
                raise _Damaged(f"{variable.name} has a dimension that is none")
            if found and found[0] in variable.dimensions[1:]:
                raise _Damaged(f"{variable.name} grows along another dimension than its first")
        return found[0] if found else None

    # ---- fields

    def _take(self, nbytes: int) -> bytes:
        if nbytes > self.file_nbytes - self._file.tell():
            raise _Damaged("it ends within its header")
        data = bytes(self._file.read(nbytes))
        if len(data) != nbytes:
            raise _Damaged("it ends within its header")
        return data

    def _take_aligned(self, nbytes: int) -> bytes:
        return self._take(_aligned(nbytes))[:nbytes]

    def _integer(self, nbytes: int = 4) -> int:
        return int.from_bytes(self._take(nbytes), "big")

    def _count(self) -> int:
        return self._integer(self._count_nbytes)

    def _name(self) -> str:
        return self._take_aligned(self._count()).decode(errors="replace")

    def _list(self, wanted: int, read: Callable[[], Any]) -> list[Any]:
        tag, count = self._integer(), self._count()
        if tag == 0 and count == 0:
            return []
        if tag != wanted:
            raise _Damaged(f"a list of kind {tag} where one of kind {wanted} has to be")
        return [read() for _ in range(count)]  # each takes bytes of the file

    def _dimension(self) -> tuple[str, int]:
        return self._name(), self._count()

    def _type(self) -> int:
        kind = self._integer()
        if not 1 <= kind <= _LAST_TYPE[self._version]:
            raise _Damaged(f"type {kind}")
        return kind

    def _read_attributes(self) -> dict[str, Any]:
        return dict(self._list(_ATTRIBUTES, self._attribute))

    def _attribute(self) -> tuple[str, Any]:
        name, kind = self._name(), self._type()
        dtype = np.dtype(_TYPES[kind])
        raw = self._take_aligned(self._count() * dtype.itemsize)
        return name, raw if kind == _CHARACTERS else np.frombuffer(raw, dtype)

    def _variable(self) -> _Variable:
        name, rank = self._name(), self._count()
        if rank > _MAX_RANK:
            raise _Damaged(f"{name} has {rank} dimensions")
        dimensions = [self._count() for _ in range(rank)]
        attributes = self._read_attributes()
        dtype = np.dtype(_TYPES[self._type()])
        self._count()  # its bytes, which do not fit there where they are many
        begin = self._integer(4 if self._version == 1 else 8)
        return _Variable(name, dimensions, attributes, dtype, begin)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _array(variable: _Variable, header: _Header, url: str) -> ArrayReferences:
    if not variable.name or variable.name.startswith(".") or "/" in variable.name:
        raise NotRepresentable("its name")
    shape = header.shape_of(variable)
    array = ArrayReferences(shape=shape, chunks=shape, dtype=variable.dtype)
    end = variable.begin + array.nbytes
    along_records = header.is_along_records(variable)
    if along_records and array.nbytes:
        record = header.record_nbytes(variable)
        end = variable.begin + (header.record_count - 1) * header.stride + record
    if array.nbytes and end > header.file_nbytes:
        raise NotRepresentable(
            f"its elements reach to byte {end}, and the file ends at {header.file_nbytes}"
        )
    if along_records:
        begin, stride, count = variable.begin, header.stride, header.record_count
        array.put_records(url, range(begin, begin + count * stride, stride) if array.nbytes else ())
    else:
        array.put_contiguous(url, variable.begin)
    array.attributes = _attributes_json(variable.attributes)
    array.attributes["_ARRAY_DIMENSIONS"] = [header.dimensions[i][0] for i in variable.dimensions]
    mark = mark_of_missing(variable.attributes.get("_FillValue"), variable.dtype)
    if mark is not None:
        array.fill_value = mark  # no chunk is missing
        array.attributes.pop("_FillValue", None)
    return array


def _attributes_json(attributes: dict[str, Any]) -> dict[str, Any]:
    plain = {name: json_value(value) for name, value in attributes.items()}
    return {name: value for name, value in plain.items() if value is not None}
