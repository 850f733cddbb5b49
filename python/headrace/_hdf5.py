"""Where in an HDF5 file, NetCDF 4 too, the chunks are: `read_hdf5` with h5py.

1. Groups and data sets are walked by their links; an object with two names is there twice.
2. Of each data set type, shape, filters and fill value become metadata of Zarr v2.
3. Its chunks become references; what lies in no file as Zarr would have it is kept inline.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

import h5py
import numpy as np

from . import _secrets
from ._hdf5_chunks import stored_chunks
from ._hdf5_fill import fill_value_behind, fill_value_of, filled_edge, zeros_are_filled_in
from ._hdf5_filters import NBIT, SCALEOFFSET, SZIP, check_without_szip, codecs_of, refiltered
from ._paths import SCHEME
from ._reference_model import (
    ArrayReferences,
    GroupReferences,
    NotRepresentable,
    json_value,
    mark_of_missing,
)

# Of dimension scales and of the netCDF library: what they say is in names of dimensions.
_HIDDEN = {
    "CLASS",
    "NAME",
    "REFERENCE_LIST",
    "DIMENSION_LIST",
    "DIMENSION_LABELS",
    "_NCProperties",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
    "_nc3_strict",
}
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
_NOT_A_COORDINATE = "_nc4_non_coord_"

_MAX_INLINE_NBYTES = 64 << 20
_STRINGS_AT_A_TIME = 1024  # one of the file's may be many elements
_MAX_NODES = 1_000_000  # links may make few objects many
_MAX_DEPTH = 200


def read_hdf5(file: BinaryIO, url: str) -> tuple[GroupReferences, dict[str, str]]:
    """What the file holds, and why what is left out is."""
    with h5py.File(file if SCHEME.match(url) else url, "r") as opened:
        return _Reader(opened, file, url).read()


class _Reader:
    def __init__(self, file: h5py.File, raw: BinaryIO, url: str) -> None:
        self._file = file
        self._raw = raw
        self._url = url
        self._root = GroupReferences()
        self._left_out: dict[str, str] = {}
        self._scales: dict[int, str] = {}  # by the number of the dimension
        self._extents: dict[str, int] = {}  # of scales that grow
        self._phony: dict[tuple[int, int], str] = {}

    def read(self) -> tuple[GroupReferences, dict[str, str]]:
        nodes: list[tuple[str, Any]] = []
        self._walk("", self._file["/"], (), nodes)
        self._note_dimensions([node for _, node in nodes if isinstance(node, h5py.Dataset)])
        for name, node in nodes:
            if isinstance(node, h5py.Group):
                self._root.groups[name] = _attributes(node)
                continue
            path = "/".join(filter(None, (name.rpartition("/")[0], _plain_name(name))))
            try:
                if not _is_dimension_alone(node):
                    self._root.arrays[path] = self._array(node)
            except NotRepresentable as why:
                self._left_out[path] = str(why)
            except (TypeError, RuntimeError, UnicodeError) as why:
                self._left_out[path] = f"h5py does not read it: {why}"
        return self._root, self._left_out

    def _walk(
        self, path: str, node: Any, above: tuple[Any, ...], nodes: list[tuple[str, Any]]
    ) -> None:
        if len(nodes) == _MAX_NODES:
            raise NotRepresentable(
                f"{_secrets.shown(self._url)}: more than {_MAX_NODES} groups and data sets"
            )
        nodes.append((path, node))
        if not isinstance(node, h5py.Group):
            return
        for name in node:
            inner = f"{path}/{name}" if path else name
            try:
                inner.encode()
            except UnicodeError:
                self._left_out[inner] = "its name is no UTF-8"
                continue
            link = node.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                self._left_out[inner] = "a link to another file"
                continue
            try:
                found = node[name]
            except (KeyError, OSError, RuntimeError) as why:
                if not isinstance(link, h5py.SoftLink):  # which may lead nowhere
                    self._left_out[inner] = f"h5py does not open it: {why}"
                continue
            if len(above) == _MAX_DEPTH:
                self._left_out[inner] = f"more than {_MAX_DEPTH} groups stand around it"
                continue
            if isinstance(found, h5py.Group) and any(found == group for group in (*above, node)):
                continue  # a link back to where it stands
            if isinstance(found, h5py.Group | h5py.Dataset):
                self._walk(inner, found, (*above, node), nodes)

    def _note_dimensions(self, datasets: list[h5py.Dataset]) -> None:
        """How dimensions are called, and how long those are that grow: netCDF's variables may be
        written less far than their dimension."""
        # The netCDF library gives some variables a number, too: that of their first dimension.
        scales = [n for n in datasets if "_Netcdf4Dimid" in n.attrs and h5py.h5ds.is_scale(n.id)]
        for node in scales:
            self._scales[int(node.attrs["_Netcdf4Dimid"])] = node.name
        for node in datasets if scales else ():
            # What cannot be read of a variable is said where the variable is.
            with contextlib.suppress(RuntimeError, TypeError):
                for i, name in self._growing(node):
                    self._extents[name] = max(self._extents.get(name, 0), node.shape[i])

    def _growing(self, node: h5py.Dataset) -> Iterator[tuple[int, str]]:
        """The dimensions of a variable that have no limit, by the names of their scales."""
        if node.shape is None:
            return
        for i, limit in enumerate(node.maxshape):
            scale = self._scale_of(node, i) if limit is None else None
            if scale is not None:
                yield i, scale

    def _scale_of(self, node: h5py.Dataset, i: int) -> str | None:
        coordinates = node.attrs.get("_Netcdf4Coordinates")
        if coordinates is not None and len(coordinates) == len(node.shape):
            scale = self._scales.get(int(coordinates[i]))
            if scale is not None:
                return scale
        if h5py.h5ds.is_scale(node.id):
            return str(node.name) if i == 0 else None
        return str(node.dims[i][0].name) if len(node.dims[i]) > 0 else None

    def _shape_of(self, node: h5py.Dataset) -> tuple[int, ...]:
        """That of the variable, as far as its dimensions reach."""
        shape = list(node.shape)
        for i, name in self._growing(node):
            shape[i] = max(shape[i], self._extents.get(name, 0))
        return tuple(shape)

    # ---- one data set

    def _array(self, node: h5py.Dataset) -> ArrayReferences:
        if node.shape is None:
            raise NotRepresentable("it has no elements (a null data space)")
        if node.is_virtual:
            raise NotRepresentable("a virtual data set, whose elements lie in others")
        if node.external:
            raise NotRepresentable("its elements lie in external files")
        kind = node.id.get_type()
        if isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str():
            array = self._strings(node)
        else:
            array = self._plain(node, kind)
        dimensions = self._dimensions(node)
        dimensions += [f"dim_{i}" for i in range(len(dimensions), len(array.shape))]
        array.attributes = {**_attributes(node), "_ARRAY_DIMENSIONS": dimensions}
        self._set_fill_value(node, array)
        return array

    def _plain(self, node: h5py.Dataset, kind: Any) -> ArrayReferences:
        dtype, inner = _dtype(node.dtype, kind)
        plist = node.id.get_create_plist()
        filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        _check_type(kind, [code for code, *_ in filters])
        _check_layout(node.dtype, kind)
        shape = (*self._shape_of(node), *inner)
        array = ArrayReferences(shape=shape, chunks=shape, dtype=dtype)
        layout = plist.get_layout()
        if layout == h5py.h5d.CHUNKED:
            array.chunks = (*node.chunks, *inner)
            self._chunked(node, array, filters, len(inner))
        elif layout == h5py.h5d.COMPACT:
            _check_stored(node, array.nbytes)
            elements = np.empty(node.shape, node.dtype)
            if elements.size:
                node.id.read(h5py.h5s.ALL, h5py.h5s.ALL, elements, node.id.get_type())
            array.put_inline((0,) * len(shape), elements.tobytes())
        else:
            self._contiguous(node, array)
        return array

    def _contiguous(self, node: h5py.Dataset, array: ArrayReferences) -> None:
        offset, nbytes = node.id.get_offset(), array.nbytes
        if offset is None or nbytes == 0:
            return
        _check_stored(node, nbytes)
        end = self._raw.seek(0, os.SEEK_END)
        if offset + nbytes > end:
            raise NotRepresentable(
                f"its elements reach to byte {offset + nbytes}, and the file ends at {end}"
            )
        array.put_contiguous(self._url, offset)

    def _chunked(
        self,
        node: h5py.Dataset,
        array: ArrayReferences,
        filters: list[tuple[Any, ...]],
        inner: int,
    ) -> None:
        chunks = stored_chunks(node, self._raw, self._file.userblock_size)
        # A filter that no chunk has passed need not be known.
        passed = [
            entry
            for i, entry in enumerate(filters)
            if not all(info.filter_mask >> i & 1 for info in chunks)
        ]
        changes_bytes = any(codecs_of(entry, array.dtype) for entry in passed)
        if changes_bytes and _edges_are_plain(node, chunks):
            every = (1 << len(filters)) - 1
            chunks = [c._replace(filter_mask=every) if _is_edge(node, c) else c for c in chunks]
        masks = Counter(info.filter_mask for info in chunks)
        usual = masks.most_common(1)[0][0] if masks else 0
        if len(masks) > 1:
            usual = 0  # what was left out of some chunks only is done to them here
        applied = [f for i, f in enumerate(filters) if not usual >> i & 1]
        array.codecs = [codec for entry in applied for codec in codecs_of(entry, array.dtype)]
        behind = fill_value_behind(node) if self._shape_of(node) != node.shape else None
        if behind is not None and behind.tobytes().strip(b"\0") and zeros_are_filled_in(node):
            grid = zip(node.shape, node.chunks, strict=True)
            if len(chunks) != math.prod(-(-n // c) for n, c in grid):
                raise NotRepresentable("it has two fill values: it ends before its dimension")
        inline = 0
        for info in chunks:
            index = (
                tuple(a // b for a, b in zip(info.chunk_offset, node.chunks, strict=True))
                + (0,) * inner
            )
            if behind is not None and _is_edge(node, info):
                inline += math.prod(node.chunks) * node.dtype.itemsize
                if inline > _MAX_INLINE_NBYTES:
                    raise NotRepresentable("too many chunks reach beyond its end")
                data = filled_edge(node, info, behind)
                if applied:
                    data = refiltered(data, applied, (1 << len(applied)) - 1)
                array.put_inline(index, data)
                continue
            if info.filter_mask == usual:
                array.put(index, self._url, info.byte_offset, info.size)
                continue
            _, data = node.id.read_direct_chunk(info.chunk_offset)
            if filters and filters[-1][0] == SZIP and info.filter_mask == 1 << len(filters) - 1:
                check_without_szip(data)
                array.put(index, self._url, info.byte_offset, info.size)
                continue
            data = refiltered(bytes(data), filters, info.filter_mask)
            inline += len(data)
            if inline > _MAX_INLINE_NBYTES:
                raise NotRepresentable("too many chunks are stored without some of the filters")
            array.put_inline(index, data)

    def _strings(self, node: h5py.Dataset) -> ArrayReferences:
        """Strings of variable length lie in a heap: they come with the references."""
        shape = self._shape_of(node)
        nbytes = 4 * math.prod(shape)
        _check_strings(nbytes)
        values = np.full(shape, b"", "O")
        for here in _blocks(node.shape, _STRINGS_AT_A_TIME):
            values[here] = found = node[here]
            nbytes += sum(map(len, np.asarray(found, "O").flat))
            _check_strings(nbytes)
        elements = [v if isinstance(v, bytes) else str(v).encode() for v in values.flat]
        try:
            for v in elements:
                v.decode()
        except UnicodeDecodeError:
            raise NotRepresentable("a string of variable length is no UTF-8") from None
        array = ArrayReferences(shape=shape, chunks=shape, dtype=np.dtype("O"))
        array.codecs = [{"id": "vlen-utf8"}]
        parts = [len(elements).to_bytes(4, "little")]
        for v in elements:
            parts += [len(v).to_bytes(4, "little"), v]
        if elements:
            array.put_inline((0,) * len(shape), b"".join(parts))
        return array

    def _set_fill_value(self, node: h5py.Dataset, array: ArrayReferences) -> None:
        """What missing chunks hold, and to xarray the mark of missing elements."""
        if array.dtype.kind == "O":
            return  # all are stored
        is_whole = len(array.references) == array.nchunks
        stored = None
        if not is_whole and self._shape_of(node) != node.shape:
            stored = fill_value_behind(node)
        if not is_whole and stored is None:
            stored = fill_value_of(node, array.dtype)
        mark = mark_of_missing(node.attrs.get("_FillValue"), array.dtype)
        same = mark is not None and (stored is None or _same(stored, mark))
        if mark is not None and (is_whole or same):
            array.fill_value = mark
            array.attributes.pop("_FillValue", None)
        elif not is_whole and stored is not None and any(np.asarray(stored).tobytes()):
            array.fill_value = stored
        else:
            array.fill_value = None  # zeros, which mark nothing

    # ---- names of dimensions

    def _dimensions(self, node: h5py.Dataset) -> list[str]:
        rank = len(node.shape)
        own = _plain_name(node.name)
        is_scale = h5py.h5ds.is_scale(node.id)
        coordinates = node.attrs.get("_Netcdf4Coordinates")
        if coordinates is not None and len(coordinates) == rank:
            named = [self._scales.get(int(i)) for i in coordinates]
            if all(named):
                return [_plain_name(str(name)) for name in named]
        names: list[str] = []
        seen: Counter[int] = Counter()
        for i, extent in enumerate(node.shape):
            label = "" if is_scale else node.dims[i].label
            if not is_scale and len(node.dims[i]) > 0:
                name = _plain_name(node.dims[i][0].name)
            elif is_scale and i == 0:
                name = own
            elif label:
                name = label
            else:
                # As netCDF names them: by their extents, each twice in one array only when it must.
                key = (extent, seen[extent])
                name = self._phony.setdefault(key, f"phony_dim_{len(self._phony)}")
                seen[extent] += 1
            names.append(name)
        return names


def _check_stored(node: h5py.Dataset, nbytes: int) -> None:
    if node.id.get_storage_size() != nbytes:
        raise NotRepresentable(f"{node.id.get_storage_size()} bytes are stored, not {nbytes}")


def _check_strings(nbytes: int) -> None:
    if nbytes > _MAX_INLINE_NBYTES:
        raise NotRepresentable("its strings of variable length are too many to be kept inline")


def _blocks(shape: tuple[int, ...], size: int) -> Iterator[tuple[slice, ...]]:
    """All of an array, in parts of so many elements at most."""
    steps: list[int] = []
    for extent in reversed(shape):
        steps.insert(0, max(min(extent, size), 1))
        size //= steps[0]
    begins = itertools.product(*map(range, [0] * len(shape), shape, steps))
    for begin in begins:
        yield tuple(slice(b, b + step) for b, step in zip(begin, steps, strict=True))


def _plain_name(path: str) -> str:
    return path.rpartition("/")[2].removeprefix(_NOT_A_COORDINATE)


def _is_dimension_alone(node: h5py.Dataset) -> bool:
    if not h5py.h5ds.is_scale(node.id):
        return False
    return bytes(np.bytes_(node.attrs.get("NAME", b""))).startswith(_NO_VARIABLE)


def _is_edge(node: h5py.Dataset, info: Any) -> bool:
    ends = zip(info.chunk_offset, node.chunks, node.shape, strict=True)
    return any(offset + chunk > extent for offset, chunk, extent in ends)


def _edges_are_plain(node: h5py.Dataset, chunks: list[Any]) -> bool:
    """Whether chunks that reach beyond the end are stored without filters, by an option of the file
    that h5py does not tell: they are all of the full size, and hold the elements as they are."""
    kind = node.id.get_type()
    nbytes = math.prod(node.chunks) * kind.get_size()
    edges = [info for info in chunks if _is_edge(node, info)]
    if not edges or any(info.size != nbytes or info.filter_mask for info in edges):
        return False
    for info in edges:
        extents = [
            min(chunk, extent - offset)
            for offset, chunk, extent in zip(
                info.chunk_offset, node.chunks, node.shape, strict=True
            )
        ]
        wanted = np.empty(extents, node.dtype)
        here = node.id.get_space()
        here.select_hyperslab(info.chunk_offset, tuple(extents))
        node.id.read(h5py.h5s.create_simple(tuple(extents)), here, wanted, kind)
        _, data = node.id.read_direct_chunk(info.chunk_offset)
        stored = np.frombuffer(data, f"V{kind.get_size()}").reshape(node.chunks)
        if stored[tuple(map(slice, extents))].tobytes() != wanted.tobytes():
            return False
    return True


def _same(a: Any, b: Any) -> bool:
    return bool(np.asarray(a).tobytes() == np.asarray(b).astype(np.asarray(a).dtype).tobytes())


# ---- types


def _dtype(dtype: np.dtype[Any], kind: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The type of an array's elements, and dimensions that each element has in the file."""
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        return _dtype(base, kind.get_super())[0], inner
    if dtype.names is not None:
        end = 0
        for name in dtype.names:
            field, offset = dtype.fields[name][:2]  # type: ignore[index]
            if field.kind == "O" or field.names is not None or field.subdtype is not None:
                raise NotRepresentable(f"field {name!r} is of a type that Zarr cannot have there")
            if offset != end:
                raise NotRepresentable(f"there are bytes without a meaning before field {name!r}")
            end += field.itemsize
        if end != dtype.itemsize:
            raise NotRepresentable("there are bytes without a meaning behind the last field")
        return np.dtype([(n, dtype.fields[n][0]) for n in dtype.names]), ()  # type: ignore[index]
    if dtype.kind == "O":
        raise NotRepresentable("references and elements of variable length lie in no chunk")
    return np.dtype(dtype.str), ()  # without what h5py notes on enumerations


def _check_layout(dtype: np.dtype[Any], kind: Any) -> None:
    """An element must be in the file, byte for byte, what NumPy has."""
    if dtype.itemsize != kind.get_size():
        raise NotRepresentable(
            f"elements of {kind.get_size()} bytes, {dtype.itemsize} of which have a meaning"
        )
    if dtype.subdtype is not None:
        _check_layout(dtype.subdtype[0], kind.get_super())
    elif dtype.kind == "c":
        names = [name.encode() for name in h5py.get_config().complex_names]
        members = [(kind.get_member_name(i), kind.get_member_offset(i)) for i in range(2)]
        if members != [(names[0], 0), (names[1], dtype.itemsize // 2)]:
            raise NotRepresentable("complex numbers whose imaginary part comes first")
    elif dtype.names is not None:
        for name in dtype.names:
            _check_layout(dtype[name], kind.get_member_type(kind.get_member_index(name.encode())))


def _check_type(kind: Any, codes: list[int]) -> None:
    """Elements that h5py converts on the way lie in the file in another form."""
    if isinstance(kind, h5py.h5t.TypeArrayID | h5py.h5t.TypeEnumID):
        return _check_type(kind.get_super(), codes)
    if isinstance(kind, h5py.h5t.TypeCompoundID):
        if {NBIT, SCALEOFFSET} & set(codes):
            raise NotRepresentable("n-bit or scale-offset filters of a compound type")
        for i in range(kind.get_nmembers()):
            _check_type(kind.get_member_type(i), codes)
        return
    if isinstance(kind, h5py.h5t.TypeIntegerID):
        whole = kind.get_precision() == 8 * kind.get_size() and kind.get_offset() == 0
        if not whole and NBIT not in codes:
            raise NotRepresentable(f"integers of {kind.get_precision()} bits without n-bit filter")
    if isinstance(kind, h5py.h5t.TypeFloatID):
        standard = {2: h5py.h5t.IEEE_F16LE, 4: h5py.h5t.IEEE_F32LE, 8: h5py.h5t.IEEE_F64LE}
        ieee = standard.get(kind.get_size())
        if (
            ieee is None
            or kind.get_fields() != ieee.get_fields()
            or kind.get_ebias() != ieee.get_ebias()
            or kind.get_precision() != ieee.get_precision()
            or kind.get_order() not in (h5py.h5t.ORDER_LE, h5py.h5t.ORDER_BE)
        ):
            raise NotRepresentable("floats that are none of IEEE 754")


# ---- attributes


def _attributes(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in node.attrs:
        if name in _HIDDEN:
            continue
        try:
            value = node.attrs[name]
            name.encode()
        except (OSError, TypeError, RuntimeError, UnicodeError):
            continue  # of a type that NumPy has no word for, or no text
        if isinstance(value, h5py.Empty):
            found[name] = ""
            continue
        plain = json_value(value)
        if plain is not None:
            found[name] = plain
    return found
