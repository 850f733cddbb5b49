"""The engine of xarray: ``xr.open_dataset(path, engine="headrace", device="cuda:0")``.

1. `HeadraceStore` makes a variable of each array of a group: names of dimensions, attributes and
   encoding as xarray's own engine "zarr" makes them, data that are read when they are asked for.
2. xarray decodes the variables by the CF conventions and makes the data set.
3. With a device, each data variable gets data that are read to that device and decoded there;
   coordinates stay on the host, where indexes live.

xarray finds the engine by its entry point; importing this module registers the accessor
``da.headrace`` as well.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import warnings
from collections.abc import Container, Iterable, Iterator
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import numpy as np
import xarray as xr
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.backends.common import datatree_from_dict_with_io_cleanup
from xarray.backends.store import StoreBackendEntrypoint
from xarray.backends.zarr import DIMENSION_KEY, FillValueCoder, ZarrStore
from xarray.core import indexing

from . import _core
from ._array_library import library_for
from ._cf import DEVICE_KINDS, Decoding
from ._open import open_group
from .group import Group

__all__ = ["DeviceAccessor", "HeadraceBackendEntrypoint", "HeadraceStore"]


class HeadraceArray(BackendArray):
    """An array behind xarray's lazy indexing; each index is one read."""

    __slots__ = ("_array", "dtype", "shape")

    def __init__(self, array: _core.Array) -> None:
        self._array = array
        self.dtype = array.dtype
        self.shape = array.shape

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        array: Any = self._array
        if isinstance(key, indexing.VectorizedIndexer):
            array = array.vindex
        elif isinstance(key, indexing.OuterIndexer):
            array = array.oindex
        return indexing.explicit_indexing_adapter(
            key,
            self.shape,
            indexing.IndexingSupport.VECTORIZED,
            lambda selection: self._finish(array[selection]),
        )

    def _finish(self, elements: Any) -> Any:
        # One string or object is an element like any other to xarray, and has the array's type: a
        # scalar of NumPy is as wide as what it holds.
        return np.asarray(elements, self.dtype) if self.dtype.kind in "OTSU" else elements

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        return await asyncio.to_thread(self.__getitem__, key)

    def __deepcopy__(self, memo: dict[int, Any]) -> HeadraceArray:
        return self  # a handle that nothing changes


class DeviceArray(HeadraceArray):
    """An array that is read to a device, and decoded there, as arrays of another library."""

    __slots__ = ("_decoding", "_library")

    def __init__(self, array: _core.Array, library: str, decoding: Decoding) -> None:
        super().__init__(array)
        self.dtype = decoding.dtype
        self._library = library
        self._decoding = decoding

    def _finish(self, elements: Any) -> Any:
        library = importlib.import_module(self._library)
        return self._decoding.apply(library.from_dlpack(elements), library)


class HeadraceStore(AbstractDataStore):
    """The variables and attributes of a group, for xarray.

    Parameters
    ----------
    group
        An open group, on the host.
    use_zarr_fill_value_as_mask
        Whether the fill value of an array marks missing values; None: for Zarr 2 only.
    owns_store
        Whether `close` closes the store.
    dropped
        Names of arrays that may be left out where they cannot be opened.
    """

    __slots__ = ("_dropped", "_fill_value_is_mask", "_group", "_owns_store", "_zarr_python")

    def __init__(
        self,
        group: Group,
        *,
        use_zarr_fill_value_as_mask: bool | None = None,
        owns_store: bool = False,
        dropped: str | Iterable[str] | None = None,
    ) -> None:
        self._group = group
        self._dropped = {dropped} if isinstance(dropped, str) else set(dropped or ())
        self._owns_store = owns_store
        self._zarr_python: ZarrStore | None = None
        self._fill_value_is_mask = use_zarr_fill_value_as_mask
        if use_zarr_fill_value_as_mask is None:
            self._fill_value_is_mask = group.zarr_format == 2

    def get_variables(self) -> dict[str, xr.Variable]:
        variables = {}
        members = dict(self._group._handle.members())
        self._tell_of_others(members)
        for name, is_group in members.items():
            if is_group:
                continue
            try:
                variables[name] = self._variable(name)
            except (NotImplementedError, ValueError) as error:
                if name not in self._dropped:
                    error.add_note(f"drop_variables={name!r} leaves it out")
                    raise
        return variables

    def _tell_of_others(self, members: Container[str]) -> None:
        """Of what lies in the group and is no member of it, as the engine "zarr" does."""
        if self._group.consolidated:
            return
        names = self._group.store._list_dir(self._group.path)
        others = [n for n in names if n not in members and n != "zarr.json" and n[0] != "."]
        if others:
            told = ", ".join(others[:10]) + (f" and {len(others) - 10} more" if others[10:] else "")
            warnings.warn(
                f"{self._group!r}: left out what is no array and no group of it: "
                f"{_core.printable(told)}",
                UserWarning,
                stacklevel=2,
            )

    def get_attrs(self) -> dict[str, Any]:
        return _without_nczarr(self._group.attrs.asdict())

    def close(self) -> None:
        if self._owns_store:
            self._group.store.close()

    def array(self, name: str) -> _core.Array:
        """The array of that name; `NotImplementedError` when headrace does not read its kind."""
        array = self._group[name]
        assert isinstance(array, _core.Array)
        array._check_codecs()
        return array

    def _variable(self, name: str) -> xr.Variable:
        try:
            array = self.array(name)
        except NotImplementedError as reason:
            return self._variable_of_zarr_python(name, reason)
        dimensions, attributes = _dimensions_and_attributes(array)
        encoding = _encoding(array, dimensions)
        if self._fill_value_is_mask:
            if array.fill_value is not None:
                attributes["_FillValue"] = array.fill_value
        else:
            if array.zarr_format == 3:
                encoding["fill_value"] = array.fill_value
            if "_FillValue" in attributes:
                attributes["_FillValue"] = FillValueCoder.decode(
                    attributes["_FillValue"], array.dtype
                )
        data = indexing.LazilyIndexedArray(HeadraceArray(array))
        return xr.Variable(dimensions, data, attributes, encoding)

    def _variable_of_zarr_python(self, name: str, reason: NotImplementedError) -> xr.Variable:
        """The variable of xarray's engine "zarr": for codecs that headrace lacks."""
        if self._zarr_python is None:
            try:
                store = _zarr_python_store(self._group.store)
            except ImportError:
                raise NotImplementedError(
                    f"{name}: {reason}; zarr-python, which would read it, is not installed"
                ) from None
            group = self._group
            self._zarr_python = ZarrStore.open_group(
                store, group=group.path, consolidated=False, zarr_format=group.zarr_format
            )
        variable: xr.Variable = self._zarr_python.open_store_variable(name)
        return variable


def _zarr_python_store(store: _core.Store) -> Any:
    from zarr.storage import LocalStore, ZipStore

    scheme, _, path = store.url.partition("://")
    stores = {"file": LocalStore, "zip": ZipStore}
    if scheme not in stores:
        raise NotImplementedError(f"{store.url}: zarr-python cannot open it to read")
    return stores[scheme](unquote(path), read_only=True)


def _without_nczarr(attributes: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in attributes.items() if not k.lower().startswith("_nc")}


def _dimensions_and_attributes(array: _core.Array) -> tuple[tuple[Any, ...], dict[str, Any]]:
    attributes = array.attrs.asdict()
    if array.zarr_format == 3:
        names = array.dimension_names or ()
        if len(names) != array.ndim:
            raise KeyError(
                f"{array.path}: no `dimension_names`, which xarray needs to know the dimensions"
            )
        return names, attributes
    if DIMENSION_KEY in attributes:
        return tuple(attributes.pop(DIMENSION_KEY)), _without_nczarr(attributes)
    if "_NCZARR_ARRAY" not in array.metadata:
        raise KeyError(
            f"{array.path}: neither the attribute `{DIMENSION_KEY}` nor NCZarr metadata, which "
            "xarray needs to know the dimensions"
        )
    # Qualified names: https://docs.unidata.ucar.edu/nug/current/nczarr_head.html
    references = array.metadata["_NCZARR_ARRAY"]["dimrefs"]
    return tuple(map(os.path.basename, references)), _without_nczarr(attributes)


def _encoding(array: _core.Array, dimensions: tuple[Any, ...]) -> dict[str, Any]:
    """How the array is stored, in the terms of `xarray.Dataset.to_zarr`."""
    encoding = {**_grid(array, dimensions), **_encoding_of_zarr_python(array)}
    if array.dtype.kind == "T":
        encoding["dtype"] = array.dtype  # else xarray makes objects of NumPy's strings
    return encoding


def _grid(array: _core.Array, dimensions: tuple[Any, ...]) -> dict[str, Any]:
    if array.is_rectilinear:  # as xarray has it of zarr-python
        sizes = array.read_chunk_sizes
        return {"chunks": sizes, "preferred_chunks": dict(zip(dimensions, sizes, strict=True))}
    preferred = dict(zip(dimensions, array.chunks, strict=True))
    return {"chunks": array.chunks, "preferred_chunks": preferred, "shards": array.shards}


def _encoding_of_zarr_python(array: _core.Array) -> dict[str, Any]:
    """The codecs as objects of zarr-python, which writes them; nothing where it is missing."""
    try:
        import zarr
        from zarr.storage import MemoryStore, StorePath
    except ImportError:
        return {}
    try:
        twin = zarr.Array.from_dict(StorePath(MemoryStore()), array.metadata)
    except (LookupError, TypeError, ValueError):
        return {}  # a codec that zarr-python lacks
    encoding: dict[str, Any] = {"compressors": twin.compressors, "filters": twin.filters}
    if array.zarr_format == 3:
        encoding["serializer"] = twin.serializer
    return encoding


def _put_on_device(
    ds: xr.Dataset, store: HeadraceStore, device: str, library: str | ModuleType | None
) -> None:
    """Let the numeric data variables of `ds` be read to `device`."""
    for name, data_array in ds.data_vars.items():
        variable = data_array.variable
        if variable.dtype.kind not in DEVICE_KINDS:
            continue
        try:
            array = store.array(str(name)).to(device)
        except NotImplementedError as error:
            raise NotImplementedError(
                f"{name}: {error}; device={device!r} needs that, or drop_variables={[name]!r}"
            ) from error
        if array.device == "cpu":
            return
        decoding = Decoding.of(variable, array.dtype)
        if decoding.on_devices:
            data = DeviceArray(array, library_for(array.device, library), decoding)
            variable.data = indexing.LazilyIndexedArray(data)


class HeadraceBackendEntrypoint(BackendEntrypoint):
    """The engine "headrace": Zarr 2 and 3, to the host or straight to a device.

    Examples
    --------
    >>> ds = xr.open_dataset("era5.zarr", engine="headrace", device="cuda:0")
    >>> ds.t2m.sel(time="2020-01-01").mean().item()
    """

    description = "Open Zarr stores with headrace, to the host or to a device"
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """False: xarray asks in alphabetical order, and plain ``.zarr`` is the engine "zarr"'s."""
        return False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        mode: str = "r",
        consolidated: bool | None = None,
        storage_options: dict[str, Any] | None = None,
        zarr_format: int | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        cache_members: bool = True,
        device: str = "cpu",
        array_library: str | ModuleType | None = None,
    ) -> xr.Dataset:
        """Open a group as a data set; what is not listed here is as in `xarray.open_dataset`.

        Parameters
        ----------
        filename_or_obj
            What `headrace.open_group` takes: a path, a URL, a store, a group.
        group
            Path of the group within the store; the root when None.
        mode
            ``"r"``, of the engine "zarr"; data sets are written by `xarray.Dataset.to_zarr`.
        consolidated
            True: there must be consolidated metadata; False: they are not looked at; None: they
            are used when there are any. A store that says that it never has them
            (``supports_consolidated_metadata``, as Icechunk's) is opened as by False.
        storage_options
            Options of the store, see `headrace.open_store`.
        zarr_format
            2 or 3; None detects.
        use_zarr_fill_value_as_mask
            Whether fill values mark missing values, as ``_FillValue`` does; None: for Zarr 2 only.
        cache_members
            Of the engine "zarr". Members are looked for once here, whichever it is.
        device
            Where data variables of numbers are read to, and decoded: ``"cpu"``, ``"cuda:0"``,
            ``"auto"``. Coordinates, dates and strings stay on the host.
        array_library
            The module whose ``from_dlpack`` makes the arrays on the device; CuPy when None.

        Raises
        ------
        FileNotFoundError, KeyError
            There is no such store, or no such group in it.
        ValueError
            A `mode` that would write.
        ImportError
            The library for arrays on the device is not installed.
        NotImplementedError
            A variable that headrace cannot read, and zarr-python is not installed, or a device
            was asked for.
        """
        if mode != "r":
            raise ValueError(f"mode: the engine headrace reads only, expected 'r', got {mode!r}")
        _core.check_device(device)  # before its library is asked for
        if not isinstance(drop_variables, str | None):
            drop_variables = list(drop_variables)  # an iterator, too, is asked twice
        opened, owns_store = _open(
            filename_or_obj, group, consolidated, storage_options, zarr_format
        )
        store = HeadraceStore(
            opened,
            use_zarr_fill_value_as_mask=use_zarr_fill_value_as_mask,
            owns_store=owns_store,
            dropped=drop_variables,
        )
        ds: xr.Dataset = StoreBackendEntrypoint().open_dataset(
            store,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )
        if device != "cpu":
            _put_on_device(ds, store, device, array_library)
        return ds

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        consolidated: bool | None = None,
        storage_options: dict[str, Any] | None = None,
        zarr_format: int | None = None,
        **kwargs: Any,
    ) -> dict[str, xr.Dataset]:
        """Open a group and all groups below it, by their paths relative to it."""
        root, owns_store = _open(filename_or_obj, group, consolidated, storage_options, zarr_format)
        top = "." if group else "/"  # as the engine "zarr" names it
        datasets = {path: self.open_dataset(node, **kwargs) for path, node in _groups(root, top)}
        if owns_store:
            datasets[top].set_close(root.store.close)
        return datasets

    def open_datatree(self, filename_or_obj: Any, **kwargs: Any) -> xr.DataTree:
        """Open a group and all groups below it as a tree; see `open_dataset`."""
        tree: xr.DataTree = datatree_from_dict_with_io_cleanup(
            self.open_groups_as_dict(filename_or_obj, **kwargs)
        )
        return tree


def _open(
    store: Any,
    path: str | None,
    consolidated: bool | None,
    storage_options: dict[str, Any] | None,
    zarr_format: int | None,
) -> tuple[Group, bool]:
    """The group, and whether its store was opened for it."""
    owns_store = not isinstance(store, _core.Store | Group)
    if isinstance(store, Group):
        root = store
    else:
        if not getattr(store, "supports_consolidated_metadata", True):
            consolidated = False  # as for the engine "zarr"
        root = open_group(
            store,
            zarr_format=zarr_format,
            device="cpu",
            storage_options=storage_options,
            use_consolidated=consolidated,
        )
    if not path or path == "/":
        return root, owns_store
    group = root[path]
    if not isinstance(group, Group):
        raise ValueError(f"group: {path!r} is an array, expected a group")
    return group, owns_store


def _groups(root: Group, path: str) -> Iterator[tuple[str, Group]]:
    yield path, root
    for name, group in root.groups():
        below = {"/": f"/{name}", ".": name}.get(path, f"{path}/{name}")
        yield from _groups(group, below)


@xr.register_dataarray_accessor("headrace")
class DeviceAccessor:
    """Data of a variable for other libraries, without a copy: ``da.headrace``.

    It exports DLPack: ``torch.from_dlpack(da.headrace)`` and ``jnp.from_dlpack(da.headrace)`` take
    the data where they are. Data that are not loaded yet are read first.

    Examples
    --------
    >>> ds = xr.open_dataset("era5.zarr", engine="headrace", device="cuda:0")
    >>> ds.t2m.isel(time=0).headrace.to_torch().device
    device(type='cuda', index=0)
    """

    def __init__(self, data_array: xr.DataArray) -> None:
        self._data_array = data_array

    def to_torch(self) -> Any:
        """The data as a `torch.Tensor` on the same device, sharing its memory.

        Raises
        ------
        BufferError
            The data have a type that DLPack cannot carry, or are read-only.

        Notes
        -----
        Data that run backwards, as of ``da[::-1]``, are copied: PyTorch has no such tensors.
        """
        import torch

        return torch.from_dlpack(self)

    def __dlpack__(self, **kwargs: Any) -> Any:
        data = self._data_array.data
        if min(getattr(data, "strides", ()), default=0) < 0:
            if kwargs.get("copy") is False:
                raise BufferError("data that run backwards cannot be exported without a copy")
            data = data.copy()
        return data.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._data_array.data.__dlpack_device__()
        return device


def __dir__() -> list[str]:
    return __all__
