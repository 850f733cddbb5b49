"""References: where in files of other formats the chunks of arrays are.

1. Each file becomes a `GroupReferences`: HDF5 by `_hdf5`, NetCDF 3 by `_netcdf3`, all else by
   kerchunk, tifffile and VirtualiZarr.
2. Those of several files become one: arrays along `concat_dim` one behind another.
3. What comes out is the JSON of kerchunk's version 1, which the store "reference" reads.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _check, _core, _secrets, _virtualizarr
from ._netcdf3 import read_netcdf3
from ._paths import SCHEME, expanded
from ._reference_model import ArrayReferences, GroupReferences, dtype_json
from ._stores import open_store

# Attributes by which elements are understood.
_MEANING = (
    "units", "calendar", "scale_factor", "add_offset", "missing_value", "_FillValue", "_Unsigned",
    "flag_values", "flag_masks", "flag_meanings", "valid_min", "valid_max", "valid_range",
)  # fmt: skip
# What a file of unknown length, as /dev/zero, never ends before.
_MAX_OFFSET = 1 << 48
_HDF5 = b"\x89HDF\r\n\x1a\n"
# Elements that are kept inline where a file's chunks do not fit those of the others.
_MAX_INLINE_NBYTES = 16 << 20


def references(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str] | None = None,
    concat_dim: str | None = None,
    allow: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    left_out: str = "raise",
    maker: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> _core.Store:
    """Find the chunks in files of other formats, and open the files as one Zarr store.

    NetCDF 3, and with h5py HDF5 and NetCDF 4, are read by headrace itself; GRIB 2 by
    kerchunk, TIFF by tifffile, FITS and DMR++ by VirtualiZarr.
    Nothing but the metadata of the files is read, and no chunk is decoded.

    Parameters
    ----------
    files
        A path or URL, or several. URLs are read through fsspec.
    out
        Where the references are written: ``.json``, or ``.parquet`` with kerchunk and fastparquet.
        Files below its folder are named relative to it.
    concat_dim
        The dimension along which arrays of several files stand one behind another. What does not
        have it must be the same in all of them.
    allow
        What the references may lead to besides `files`; see `open_store`.
    left_out
        What becomes of arrays that Zarr cannot have: ``"raise"``, or ``"skip"``, a warning.
    maker
        ``"virtualizarr"``: all files are read by its parsers, of each the root group; None: as
        above.
    storage_options
        Options of the store that URLs lead to, by fsspec's names; with ``maker``, by obstore's,
        which FITS and DMR++ across a network want, too.

    Returns
    -------
    Store
        A store that reads only, for `open`, `open_array` and xarray's engine.

    Raises
    ------
    NotImplementedError
        A format whose library is not installed, or something in a file that Zarr cannot have.
    ValueError
        Files that do not fit together.

    Examples
    --------
    >>> store = hr.references(["2020.nc", "2021.nc"], concat_dim="time", out="era5.json")
    >>> hr.open(store)["t2m"][0]
    >>> xr.open_dataset(store, engine="headrace")
    """
    urls = [_url_of(place) for place in _places("files", files)]
    allowed = [os.fsdecode(place) for place in _places("allow", allow)]
    if not urls:
        raise ValueError("files: there are none")
    if out is not None and not isinstance(out, str | os.PathLike):
        raise _check.wrong_type("out", "a path", out)
    _check.text("left_out", left_out, '"raise" or "skip"')
    if left_out not in ("raise", "skip"):
        raise ValueError(f'left_out: expected "raise" or "skip", got {left_out!r}')
    if maker is not None and (not isinstance(maker, str) or maker != "virtualizarr"):
        wanted = f'"virtualizarr" or None, got {_check.described(maker)}'
        raise ValueError(f"maker: expected {wanted}")
    _check.mapping("storage_options", storage_options)
    if concat_dim is not None:
        _check.text("concat_dim", concat_dim)
    for url in urls:
        _check_url(url, out)
    parts = []
    for url in urls:
        part, reasons = _read(url, storage_options, maker)
        if reasons:
            _say_left_out(url, reasons, left_out)
        parts.append(part)
    options: dict[str, Any] = {"allow": [*urls, *allowed]}
    if storage_options:
        of_obstore = maker == "virtualizarr"
        options["remote_options"] = (
            _virtualizarr.own_options(urls, storage_options) if of_obstore else storage_options
        )
    found = _combined(parts, urls, concat_dim, options).to_kerchunk()
    if out is None:
        return open_store("reference://", storage_options={"fo": json.dumps(found), **options})
    target = os.path.abspath(expanded(os.fspath(out)))
    _write(found, target)
    return open_store(f"reference://{target}", storage_options=options)


def _places(name: str, value: Any) -> list[str | os.PathLike[str]]:
    places = [value] if isinstance(value, str | os.PathLike) else value
    if isinstance(places, bytes | Mapping | np.ndarray) or not isinstance(places, Iterable):
        raise _check.wrong_type(name, "a path or URL, or several", value)
    places = list(places)
    for place in places:
        if not isinstance(place, str | os.PathLike):
            raise _check.wrong_type(name, "a path or URL, or several", value)
        _check.text(name, os.fsdecode(place))
    return places


def _url_of(place: str | os.PathLike[str]) -> str:
    text = os.fsdecode(place)
    return text if SCHEME.match(text) else os.path.abspath(expanded(text))


def _check_url(url: str, out: Any) -> None:
    """Refuses what no reference can lead to, or what would lie in a file with its password."""
    if not SCHEME.match(url) or not _secrets.hides(url):
        return
    shown = _secrets.shown(url)
    if "?" in url:
        raise NotImplementedError(f"{shown}: references lead to no URL with a query")
    if out is not None:
        raise ValueError(
            f"{shown}: the user in this URL would be written to the file: leave it out, and give "
            "headers or the like as storage_options; who opens the references gives remote_options"
        )


def _say_left_out(url: str, reasons: dict[str, str], left_out: str) -> None:
    shown = _secrets.shown(url)
    said = "; ".join(f"/{path}: {why}" for path, why in sorted(reasons.items()))
    if left_out == "raise":
        raise NotImplementedError(
            f'{shown}: Zarr cannot have {said} (left_out="skip" leaves such arrays out)'
        )
    import warnings

    warnings.warn(f"{shown}: left out {said}", UserWarning, stacklevel=3)


def _read(
    url: str, options: dict[str, Any] | None, maker: str | None
) -> tuple[GroupReferences, dict[str, str]]:
    if SCHEME.match(url) and maker == "virtualizarr":
        return _read_open(_virtualizarr.open_remote(_library, url, options), url, options, maker)
    if SCHEME.match(url):
        fsspec = _library("fsspec", f"{_secrets.shown(url)}: files across a network")
        with fsspec.open(url, "rb", **(options or {})) as file:
            return _read_open(file, url, options, maker)
    with open(url, "rb") as file:
        return _read_open(file, url, options, maker)


def _read_open(
    file: Any, url: str, options: dict[str, Any] | None, maker: str | None
) -> tuple[GroupReferences, dict[str, str]]:
    start = bytes(file.read(512))
    shown = _secrets.shown(url)  # for messages
    kind = _kind(file, start)
    if maker == "virtualizarr" or kind in ("FITS", "DMR++"):
        found = _virtualizarr.read_virtual(_library, url, kind, options)
        return _from_kerchunk(found), {}
    if kind == "HDF5 and NetCDF 4":
        file.seek(0)
        _library("h5py", f"{shown}: HDF5 and NetCDF 4")
        from ._hdf5 import read_hdf5

        return read_hdf5(file, url)
    if kind == "NetCDF 3":
        return read_netcdf3(file, url)
    if kind == "GRIB 2":
        module = _library("kerchunk.grib2", f"{shown}: GRIB 2", "kerchunk cfgrib")
        messages = module.scan_grib(url, storage_options=options)
        if len(messages) != 1:
            raise NotImplementedError(
                f"{shown}: it has {len(messages)} messages; how they become one data set "
                "kerchunk.combine.MultiZarrToZarr has to be told"
            )
        return _from_kerchunk(messages[0]), {}
    if kind == "TIFF":
        file.seek(0)
        return _read_tiff(file, url), {}
    raise ValueError(f"{shown}: this is neither HDF5 nor NetCDF, GRIB, TIFF, FITS or DMR++")


def _kind(file: Any, start: bytes) -> str:
    if _is_hdf5(file, start):
        return "HDF5 and NetCDF 4"
    if start[:3] == b"CDF":
        return "NetCDF 3"
    if start[:4] == b"GRIB":
        return "GRIB 2"
    if start[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "TIFF"
    if start[:9] == b"SIMPLE  =":
        return "FITS"
    if start.lstrip()[:1] == b"<" and b"dmrpp" in start:
        return "DMR++"
    return "a file of an unknown format"


def _read_tiff(file: Any, url: str) -> GroupReferences:
    module = _library("tifffile", f"{_secrets.shown(url)}: TIFF", "tifffile zarr")
    text = io.StringIO()
    with module.TiffFile(file, name="") as opened:
        try:
            with opened.series[0].aszarr() as store:
                store.write_fsspec(text, url="")
        except ValueError as why:  # compressions without a codec, strips of another length
            raise NotImplementedError(f"{_secrets.shown(url)}: {why}") from why
    found = _from_kerchunk(json.loads(text.getvalue()))
    for array in found.arrays.values():
        for index, reference in array.references.items():
            array.references[index] = [url, *reference[1:]]
    return found


def _is_hdf5(file: Any, start: bytes) -> bool:
    """The signature stands in front, or behind a user block of 512 bytes, 1024 and so on."""
    if start[:8] == _HDF5:
        return True
    offset = 512
    while offset < _MAX_OFFSET:
        file.seek(offset)
        found = bytes(file.read(8))
        if len(found) < 8:
            return False
        if found == _HDF5:
            return True
        offset *= 2
    return False


def _library(name: str, what: str, packages: str | None = None) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        packages = packages or name
        raise NotImplementedError(f"{what}: needs pip install {packages} ({error})") from error


def _from_kerchunk(found: dict[str, Any]) -> GroupReferences:
    refs = found.get("refs", found)
    templates = {"{{" + name + "}}": url for name, url in found.get("templates", {}).items()}
    group = GroupReferences()

    def document(key: str) -> dict[str, Any]:
        value = refs.get(key, "{}")
        if isinstance(value, bytes):
            value = value.decode()
        return dict(json.loads(value)) if isinstance(value, str) else dict(value)

    for key in refs:
        path, _, name = key.rpartition("/")
        if name == ".zgroup":
            group.groups[path] = document(f"{path}/.zattrs".lstrip("/"))
        elif name == ".zarray":
            stored = document(key)
            group.arrays[path] = ArrayReferences(
                shape=tuple(stored["shape"]),
                chunks=tuple(stored["chunks"]),
                dtype=np.dtype("V1"),
                attributes=document(f"{path}/.zattrs".lstrip("/")),
                document=stored,
            )
    for key, reference in refs.items():
        path, _, name = key.rpartition("/")
        array = group.arrays.get(path)
        if array is None or name.startswith("."):
            continue
        if isinstance(reference, bytes):
            reference = "base64:" + base64.b64encode(reference).decode()
        if isinstance(reference, list | tuple):
            url = str(reference[0])
            reference = [templates.get(url, url), *reference[1:]]
            if not SCHEME.match(reference[0]):
                reference[0] = os.path.abspath(reference[0])
        index = tuple(map(int, name.split("."))) if array.shape else ()  # kerchunk's "" or "0"
        array.references[index] = reference
    return group


# ---- several files


def _combined(
    parts: list[GroupReferences],
    urls: list[str],
    concat_dim: str | None,
    options: dict[str, Any],
) -> GroupReferences:
    """All files as one; `options` are those to read through their references."""
    whole = parts[0]
    if concat_dim is not None:
        for url, part in zip(urls, parts, strict=True):
            if not any(concat_dim in a.dimensions for a in part.arrays.values()):
                raise ValueError(f"concat_dim: nothing in {url} has the dimension {concat_dim!r}")
    if len(parts) == 1:
        return whole
    if concat_dim is not None:
        for url, part in zip(urls, parts, strict=True):
            _check_one_extent(url, part, concat_dim)
    joined = {
        path: [array]
        for path, array in whole.arrays.items()
        if concat_dim is not None and concat_dim in array.dimensions
    }
    for url, part in zip(urls[1:], parts[1:], strict=True):
        for path, attributes in part.groups.items():
            whole.groups.setdefault(path, attributes)
        for path, array in part.arrays.items():
            if path in joined and concat_dim in array.dimensions:
                joined[path].append(array)
            elif concat_dim is not None and concat_dim in array.dimensions:
                raise ValueError(f"{url}: /{path} is not in {urls[0]}")
            elif path not in whole.arrays:
                whole.arrays[path] = array
            elif (name := _other_attribute(whole.arrays[path], array)) is not None:
                raise ValueError(f"{url}: /{path} has another {name!r} than in a file before")
            elif not _same_elements(whole.arrays[path], array, options):
                hint = "" if concat_dim else " (concat_dim= puts them one behind another)"
                raise ValueError(f"{url}: /{path} is not the same as in a file before{hint}")
    for path, arrays in joined.items():
        if len(arrays) != len(parts):
            raise ValueError(f"/{path} is not in all files, and has the dimension {concat_dim!r}")
        whole.arrays[path] = _concatenated(path, arrays, str(concat_dim), urls, options)
    return whole


def _check_one_extent(url: str, part: GroupReferences, dimension: str) -> None:
    """Elements of different arrays would not stay at one place of the dimension."""
    extents = {
        path: array.shape[array.dimensions.index(dimension)]
        for path, array in part.arrays.items()
        if dimension in array.dimensions
    }
    if len(set(extents.values())) > 1:
        said = ", ".join(f"/{path} {extent}" for path, extent in sorted(extents.items()))
        raise ValueError(f"{url}: {dimension!r} has several extents: {said}")


def _other_attribute(a: ArrayReferences, b: ArrayReferences) -> str | None:
    """One that says what elements mean, and that two arrays which become one do not share."""
    for name in _MEANING:
        if json.dumps(a.attributes.get(name)) != json.dumps(b.attributes.get(name)):
            return name
    return None


def _elements(array: ArrayReferences, options: dict[str, Any]) -> np.ndarray[Any, Any]:
    """All of them, read through their references."""
    alone = GroupReferences(arrays={"a": array}).to_kerchunk()
    store = open_store("reference://", storage_options={**options, "fo": json.dumps(alone)})
    return np.asarray(_core.open_array(store, "a")[...])


def _is_small(array: ArrayReferences) -> bool:
    itemsize = 16 if array.document is not None else max(array.dtype.itemsize, 1)
    return math.prod(array.shape) * itemsize <= _MAX_INLINE_NBYTES


def _same_elements(a: ArrayReferences, b: ArrayReferences, options: dict[str, Any]) -> bool:
    if a.shape != b.shape or a.dimensions != b.dimensions:
        return False
    if not (_is_small(a) and _is_small(b)):
        return False
    x, y = _elements(a, options), _elements(b, options)
    if x.dtype != y.dtype:
        return False
    return x.tolist() == y.tolist() if x.dtype.kind in "TO" else x.tobytes() == y.tobytes()


def _concatenated(
    path: str,
    arrays: list[ArrayReferences],
    dimension: str,
    urls: list[str],
    options: dict[str, Any],
) -> ArrayReferences:
    first = arrays[0]
    if first.dimensions.count(dimension) > 1:
        raise ValueError(f"{urls[0]}: /{path} has the dimension {dimension!r} more than once")
    axis = first.dimensions.index(dimension)
    for array, url in zip(arrays[1:], urls[1:], strict=True):
        if array.dimensions != first.dimensions or any(
            a != b
            for i, (a, b) in enumerate(zip(array.shape, first.shape, strict=True))
            if i != axis
        ):
            raise ValueError(f"{url}: /{path} has another shape than in {urls[0]}")
        if (name := _other_attribute(first, array)) is not None:
            raise ValueError(f"{url}: /{path} has another {name!r} than in {urls[0]}")
    fits = all(a.same_kind() == first.same_kind() for a in arrays) and all(
        a.shape[axis] % a.chunks[axis] == 0 for a in arrays[:-1]
    )
    fills = {json.dumps(a.metadata()["fill_value"]) for a in arrays}
    extent = sum(a.shape[axis] for a in arrays)
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    if fits and len(fills) == 1:
        whole = ArrayReferences(**{**first.__dict__, "shape": shape, "references": {}})
        before = 0
        for array in arrays:
            for index, reference in array.references.items():
                moved = (*index[:axis], index[axis] + before, *index[axis + 1 :])
                whole.references[moved] = reference
            before += array.shape[axis] // array.chunks[axis]
        return whole
    whole = ArrayReferences(**{**first.__dict__, "shape": shape, "references": {}})
    if len(fills) != 1 or not all(map(_is_small, arrays)) or not _is_small(whole):
        raise ValueError(
            f"/{path} cannot be put one behind another along {dimension!r}: chunks, types, filters "
            "and fill values must be the same, and whole chunks in all files but the last"
        )
    elements = [_elements(a, options) for a in arrays]
    if any(e.dtype != elements[0].dtype for e in elements) or elements[0].dtype.kind in "TO":
        raise ValueError(f"/{path} has other types in some of the files")
    # Chunks of this array do not meet the borders of the files: its elements come along.
    joined = np.concatenate(elements, axis)
    document = {**first.metadata(), "dtype": dtype_json(joined.dtype), "chunks": list(shape)}
    unset = {"order": "C", "filters": None, "compressor": None}
    whole.chunks, whole.document = shape, {**document, **unset}
    whole.put_inline((0,) * len(shape), joined.tobytes())
    return whole


# ---- files of references


def _write(found: dict[str, Any], target: str) -> None:
    folder = os.path.realpath(os.path.dirname(target)) + os.sep
    if target.endswith((".parquet", ".parq")):
        module = _library("kerchunk.df", f"{target}: Parquet", "kerchunk fastparquet")
        module.refs_to_dataframe(found, target)
        return
    refs = {}
    for key, reference in found["refs"].items():
        if isinstance(reference, list):
            url = reference[0]
            real = url if SCHEME.match(url) else os.path.realpath(url)
            if real.startswith(folder):
                real = real.removeprefix(folder)
            reference = [real, *reference[1:]]
        refs[key] = reference
    aside = f"{target}.{os.getpid()}.part"
    try:
        with open(aside, "w", encoding="utf-8") as file:
            json.dump({**found, "refs": refs}, file)
        os.replace(aside, target)
    except BaseException:
        if os.path.exists(aside):
            os.remove(aside)
        raise
