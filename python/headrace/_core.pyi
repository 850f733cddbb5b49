"""The C++ part of headrace. Import headrace instead."""

from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence
)
from typing import Any, Generic, NoReturn, TypeVar

import numpy
import numpy.typing
from typing_extensions import Buffer

from headrace._array import (
    _copied_array as __copy__,
    _copied_array as __deepcopy__
)
import headrace._info
import headrace.attributes
import headrace.codecs
import headrace.lazy


class _OwnedMemory:
    pass

def _holds_arrays(arg: object, /) -> bool: ...

class DeviceArray:
    """
    An array in the memory of a device: what reads to one return.

    A view when it comes from indexing with integers, slices, ``...`` and None. PyTorch, CuPy and JAX take
    it without a copy. The memory is kept until the last view and the last consumer let go of it.

    Arrays of `codecs.decode_batch` with a stream may come before their elements: they carry the event
    behind which these are there. ``__dlpack__`` has the consumer's stream wait for it, and
    ``__cuda_array_interface__`` names the stream that does; `to_numpy`, other calls of headrace and
    `result` wait and raise what the decode found wrong.

    Examples
    --------
    >>> x = hr.open_array("era5.zarr", path="t2m", device="cuda:0")[0:10]
    >>> torch.from_dlpack(x)
    >>> x[0, ::2].to_numpy()
    """

    def __getitem__(self, key: Any) -> DeviceArray: ...

    def __len__(self) -> int: ...

    def __repr__(self) -> str: ...

    def to_numpy(self, *, stream: Any = None) -> numpy.typing.NDArray[Any]:
        """
        A copy in host memory, in C order. What ``stream`` (None: the default stream) was given before is waited for.
        """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn: ...

    def result(self, timeout: float | None = None) -> DeviceArray:
        """
        Wait until the elements are there and return the array itself; `TimeoutError` after ``timeout`` seconds. Raises what the decode found wrong.
        """

    def done(self) -> bool:
        """
        Whether the elements are there, or never will be. Only `codecs.decode_batch` with a stream gives arrays that are not done.
        """

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """
        Export as a DLPack capsule, without a copy unless one is asked for. ``stream`` (None: the default stream; -1: none) waits for the elements, the host does not.
        """

    def __dlpack_device__(self) -> tuple[int, int]: ...

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; there is none for arrays that are not on a CUDA device."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each dimension."""

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """Type of an element, in native byte order."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""

    @property
    def device(self) -> str:
        """``"cuda:0"``."""

def to_device(array: Any, device: str) -> DeviceArray: ...

def view_on_device(memory: DeviceArray, offset_bytes: int, shape: tuple[int, ...], dtype: Any) -> DeviceArray: ...

def empty_on_device(shape: tuple[int, ...], dtype: Any, device: str) -> DeviceArray: ...

_T = TypeVar("_T")

class Future(Generic[_T]):
    """
    The result of an asynchronous read or write.

    Dropping it does not cancel the request. A future made before ``os.fork()`` is not valid in the
    child: waiting there raises `CancelledError`. It can be awaited from any asyncio loop.

    Examples
    --------
    >>> future = array.read_async(np.s_[0:10])
    >>> future.result(timeout=5)
    """

    def result(self, timeout: float | None = None) -> _T:
        """
        Wait and return the result; `TimeoutError` after ``timeout`` seconds. The first error of the request is raised.
        """

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait and return what `result` would raise, or None."""

    def __repr__(self) -> str: ...

    def done(self) -> bool:
        """Whether the request has ended, well or not."""

    def cancel(self) -> bool:
        """
        Ask the request to stop at the next chunk. False when it was done already.
        """

    def add_done_callback(self, fn: Callable[[Future[_T]], object]) -> None:
        """
        Call ``fn(future)`` once, from the thread that finishes the request, or at once. It may wait for other requests.
        """

    def __await__(self) -> Generator[Any, None, _T]: ...

def _warn_of_open_archives() -> None: ...

class Store:
    """
    A place that keeps bytes by key: a folder, a zip file, memory.

    Made by `headrace.open_store`; copies of a handle share one store. Usable in a ``with`` statement,
    which closes it. A zip archive that is written appears only then, whole; when the block raises, and
    when the archive is dropped without `close`, it is discarded, and what was there stays.

    Examples
    --------
    >>> with headrace.open_store("out.zip", mode="w") as store:
    ...     headrace.create_array(store, "t", shape=(3,), dtype="int32")[:] = [1, 2, 3]
    """

    @property
    def url(self) -> str:
        """``file:///data/era5.zarr``, ``zip:///data/a.zip``, ``memory://name``."""

    @property
    def read_only(self) -> bool:
        """Whether writes raise `PermissionError`."""

    @property
    def storage_options(self) -> dict[str, str]: ...

    def close(self) -> None:
        """
        Publish a zip archive that is written: it appears, whole, in place of what was there. Writes after it fail. May be called again; of other stores it does nothing.
        """

    def discard(self) -> None:
        """
        Drop the zip archive that `close` would publish; what was there stays. Of a folder that opening has made, with those above it, remove what is empty.
        """

    def sync(self) -> None:
        """
        Return when what this process wrote to a folder is on its disk, whatever `fsync` says.
        """

    def __enter__(self) -> Store: ...

    def __exit__(self, *args: object) -> None: ...

    def __repr__(self) -> str: ...

    def _repr_html_(self) -> str: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    @property
    def _cache_arguments(self) -> tuple[Any, ...] | None: ...

    @property
    def _can_reopen(self) -> bool: ...

    @property
    def _python_store(self) -> Any: ...

    @property
    def _opened_read_only(self) -> bool: ...

    def _get(self, key: str, offset: int = 0, nbytes: int | None = None) -> bytes | None: ...

    def _nbytes(self, key: str) -> int | None: ...

    def _exists(self, key: str) -> bool: ...

    def _set(self, key: str, value: Buffer) -> None: ...

    def _set_new(self, key: str, value: Buffer) -> None: ...

    def _erase(self, key: str) -> None: ...

    def _erase_prefix(self, prefix: str) -> None: ...

    def _remove_nodes(self, path: str = '') -> None: ...

    def _identity(self, path: str = '') -> str: ...

    def _list(self, prefix: str = '') -> list[str]: ...

    def _list_dir(self, prefix: str = '') -> list[str]: ...

def open_store(url: str, mode: str, storage_options: dict[str, Any] | None = None) -> Store: ...

def names_archive(url: str) -> bool: ...

def doctor_of_place(url: str, storage_options: dict[str, Any] | None = None) -> str: ...

def cached_store(store: Store, memory_nbytes: int, directory: str, disk_nbytes: int, block_nbytes: int, name: str) -> Store: ...

def cache_stats(store: Store) -> dict[str, Any]: ...

def memory_store() -> Store:
    """A new, empty store in memory that nobody else sees."""

def python_store(object: Any) -> Store: ...

class _Indexer:
    def __getitem__(self, key: Any) -> Any: ...

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __repr__(self) -> str: ...

    def read(self, selection: Any, *, out: Any = None, device: str | None = None, stream: Any = None, implementations: dict[str, str] | None = None) -> Any:
        """As `Array.read`, with this kind of selection."""

    def to_arrow(self, selection: Any, *, device: str | None = None, implementations: dict[str, str] | None = None) -> Any:
        """As `Array.to_arrow`, with this kind of selection."""

    def read_ragged(self, selection: Any, *, device: str | None = None, implementations: dict[str, str] | None = None) -> tuple[Any, Any]:
        """As `Array.read_ragged`, with this kind of selection."""

class Array:
    """
    An array in a Zarr store.

    A cheap handle: metadata is read when it is opened, data when it is asked for. Any thread may use
    it. Indexing follows zarr-python 3, and NumPy where zarr-python refuses (negative steps, new axes).
    Results are `numpy.ndarray` in C order with native byte order, or a NumPy scalar where NumPy gives
    one. Missing chunks read as `fill_value`.

    Raises
    ------
    IndexError
        A selection outside the array.
    headrace.CorruptError
        A chunk that breaks its format or checksum; the message names array, chunk and codec.
    NotImplementedError
        A codec or data type that this build does not have.

    Examples
    --------
    >>> a = headrace.open_array("era5.zarr", path="t2m")
    >>> a.shape, a.dtype
    ((240, 721, 1440), dtype('float32'))
    >>> a[0:10, :, ::2].shape
    (10, 721, 720)
    """

    def __getitem__(self, key: Any) -> Any: ...

    def read(self, selection: Any = None, *, out: Any = None, device: str | None = None, stream: Any = None, implementations: dict[str, str] | None = None) -> Any:
        """
        Read a selection.

        Parameters
        ----------
        selection
            What ``array[selection]`` takes; None is the whole array.
        out
            Filled in place and returned: an `numpy.ndarray` (strided and negative strides allowed), a
            DLPack object, an object with ``__cuda_array_interface__`` or a writable buffer, of the shape and
            dtype of the result and on its device. No copy of the decoded data is made in between.
        device
            Read to this device instead of the handle's.
        stream
            A raw handle or a stream of PyTorch or CuPy: what it was given before the call may still use
            ``out``. None: the device's default stream, or the host. The result can be used on any stream.
            A stream that is being captured into a CUDA graph is refused with `NotImplementedError`.
        implementations
            ``{"zstd": "libzstd"}``: which implementation decodes a codec, for this call.

        Returns
        -------
        numpy.ndarray or DeviceArray
            ``out``, or a new array in C order on the device; never a scalar.

        Raises
        ------
        ValueError
            ``out`` has another shape or dtype, or is read-only.

        Examples
        --------
        >>> buffer = np.empty((10, 721, 1440), "float32")
        >>> a.read(np.s_[0:10], out=buffer) is buffer
        True
        """

    def read_async(self, selection: Any = None, *, out: Any = None, device: str | None = None, stream: Any = None, implementations: dict[str, str] | None = None) -> Future[Any]:
        """
        As `read`, in the background.

        ``out`` is kept alive until the request is done, and is unspecified until then. Fetching, headers
        and codecs of the host take time, which the library's threads do: when ``result()`` returns, and
        when callbacks are called, all is done and found good, on the device too, and no stream has to wait.
        The device's work waits for what ``stream`` had when `read_async` was called, and for nothing later.

        Returns
        -------
        Future
            Its ``result()`` is what `read` would return.

        Examples
        --------
        >>> futures = [a.read_async(i) for i in range(4)]
        >>> steps = [future.result() for future in futures]
        """

    def to(self, device: str) -> Array:
        """The same array read to another device; metadata and caches are shared."""

    def with_implementations(self, implementations: dict[str, str]) -> Array:
        """
        A handle that decodes with these implementations: ``{"zstd": "libzstd"}``.
        """

    def verify(self, *, progress: Callable[[int, int], object] | bool | None = None) -> list[tuple[str, str]]:
        """
        Decode every stored chunk and check every checksum; (chunk key, what is wrong) of each bad one.

        ``progress`` is called with the stored bytes done and in all; True shows a bar.
        """

    @property
    def oindex(self) -> _Indexer:
        """Orthogonal indexing: one index set a dimension, their outer product."""

    @property
    def vindex(self) -> _Indexer:
        """
        Coordinate indexing: index arrays broadcast against each other, or one mask.
        """

    @property
    def blocks(self) -> _Indexer:
        """Block indexing: integers and slices count chunks."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension."""

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """Type of an element in memory: native byte order, whatever is stored."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array in memory."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the dtype."""

    @property
    def chunks(self) -> tuple[int, ...]:
        """
        Shape of the unit that is read: the inner chunk when sharded.

        Raises NotImplementedError where a rectilinear grid gives it no one shape: see
        `read_chunk_sizes`.
        """

    @property
    def shards(self) -> tuple[int, ...] | None:
        """
        Shape of the unit that is stored when sharded, else None.

        Raises NotImplementedError for shards of a rectilinear grid: see `write_chunk_sizes`.
        """

    @property
    def is_rectilinear(self) -> bool:
        """Whether chunks, or shards, have more than one shape."""

    @property
    def is_sharded(self) -> bool:
        """Whether stored units hold many chunks."""

    @property
    def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """
        Extents of the chunks along each dimension, as Dask has them: of the inner chunks when
        sharded, the last one cut off at the end of the array.
        """

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """
        As `read_chunk_sizes`, of the units that are stored: the shards when sharded.
        """

    @property
    def fill_value(self) -> Any:
        """What missing chunks read as; None when v2 metadata says null."""

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Name of each dimension, or None."""

    @property
    def zarr_format(self) -> int:
        """2 or 3."""

    @property
    def device(self) -> str:
        """Where results are: ``"cpu"``, ``"cuda:0"``."""

    @property
    def read_only(self) -> bool:
        """Whether writes raise `PermissionError`."""

    @property
    def path(self) -> str:
        """Path within the store; empty for the root."""

    @property
    def store(self) -> Store:
        """The store that keeps it."""

    def close(self) -> None:
        """
        Close the store: a zip archive that is written appears only then, whole. Usable in a ``with`` statement, which discards the archive when the block raises.
        """

    def __enter__(self) -> Array: ...

    def __exit__(self, *args: object) -> None: ...

    @property
    def nchunks(self) -> int:
        """Number of chunks in the grid."""

    @property
    def nchunks_initialized(self) -> int:
        """Number of chunks that are stored; lists the store."""

    def nbytes_stored(self) -> int:
        """Bytes of the chunks as they are stored; lists the store."""

    def _check_codecs(self) -> None: ...

    @property
    def _metadata_json(self) -> str: ...

    @property
    def _open_options(self) -> dict[str, Any]: ...

    @property
    def _codec_specs(self) -> list[tuple[str, str]]: ...

    @property
    def _implementations(self) -> dict[str, str]: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __repr__(self) -> str: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.typing.NDArray[Any]: ...

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """
        Read the whole array and export it as a DLPack capsule.

        Versioned when ``max_version`` is at least (1, 0). The capsule owns the memory.

        Raises
        ------
        BufferError
            DLPack has no such type (dates, strings, structures), or ``copy=False``.

        Examples
        --------
        >>> torch.from_dlpack(a)
        """

    def __dlpack_device__(self) -> tuple[int, int]: ...

    @property
    def attrs(self) -> headrace.attributes.Attributes:
        """The user attributes: a mutable mapping that writes through."""

    @property
    def lazy(self) -> headrace.lazy.LazyArray:
        """A view that composes selections and reads when asked."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata document as stored."""

    @property
    def info(self) -> headrace._info.Info:
        """What metadata say of it, as text and for notebooks."""

    def _repr_html_(self) -> str: ...

    @property
    def codecs(self) -> list[headrace.codecs.Codec]:
        """The chain of codecs; v2 filters and compressors by their v3 meaning."""

    def to_arrow(self, selection: Any = None, *, device: str | None = None, implementations: dict[str, str] | None = None) -> Any:
        """
        Read a selection to an array of Arrow.

        Elements of variable length come from the decoder as Arrow lays them out, offsets and values, with
        no Python object an element, and numbers as they lie in memory: Arrow takes over the memory that was
        read into, without a copy. There are no nulls: Zarr has none, and missing chunks are the fill value;
        NaT alone is null, as pyarrow has it.

        =====================================  ========================================
        elements                               Arrow's type
        =====================================  ========================================
        strings of variable length, "U"        large_string ("U" is converted)
        bytes of variable length, "S"          large_binary ("S" is converted)
        arrays (vlen-array)                    large_list of their items
        JSON values (json2, msgpack2)          arrow.json over large_string, their text
        bool                                   bool, packed to bits
        integers, float16, float32, float64    the same
        datetime64, timedelta64                timestamp, duration, date32 (of days)
        raw bytes (r8, r16, ...)               fixed_size_binary
        structures                             struct, a copy a field
        =====================================  ========================================

        Parameters
        ----------
        selection
            What ``array[selection]`` takes; None is the whole array.
        device
            Where the result lies; None is where the handle reads to. What a device has no kernel for is
            decoded by the host and copied.
        implementations
            ``{"zstd": "libzstd"}``: which implementation decodes a codec, for this call.

        Returns
        -------
        pyarrow.Array
            On a device a `DeviceArrowArray`, for who takes it there without a copy. As long as the first
            dimension of the result. Further dimensions are fixed_size_list within each other: ``flatten()``
            takes one off. Of a result without dimensions, one element.

        Raises
        ------
        ImportError
            pyarrow cannot be imported (``pip install 'headrace[arrow]'``).
        NotImplementedError
            Arrow has no such type: complex numbers, bfloat16 and other types of ml_dtypes, times in other
            units than s, ms, us and ns; a dimension behind the first is longer than 2**31 - 1; or for a
            device, what is converted or looked at: bool, "S", "U", times, raw bytes, structures.
        headrace.CorruptError
            A chunk whose sizes lie, or strings that are no Unicode.
        ValueError
            Days that date32 does not hold.

        Examples
        --------
        >>> names = headrace.create_array("stations.zarr", "name", shape=3, dtype=str, fill_value="-")
        >>> names[:2] = ["Bergen", "Oslo"]
        >>> names.to_arrow(np.s_[1:]).to_pylist()
        ['Oslo', '-']
        """

    def read_ragged(self, selection: Any = None, *, device: str | None = None, implementations: dict[str, str] | None = None) -> tuple[Any, Any]:
        """
        Read elements of variable length as one array of values and one of offsets.

        Element ``i`` is ``values[offsets[i]:offsets[i + 1]]``, in C order of the selection. What
        ``torch.nested.nested_tensor_from_jagged`` takes, and DLPack of either.

        Parameters
        ----------
        selection
            What ``array[selection]`` takes; None is the whole array.
        device
            Where the result lies; None is where the handle reads to. What a device has no kernel for is
            decoded by the host, and both arrays are copied.
        implementations
            ``{"zstd": "libzstd"}``: which implementation decodes a codec, for this call.

        Returns
        -------
        values : numpy.ndarray or DeviceArray
            One dimension: the bytes as uint8, of strings UTF-8, of JSON values their text; of arrays
            (vlen-array) their items.
        offsets : numpy.ndarray or DeviceArray
            int64, one more than there are elements, in units of ``values``.

        Raises
        ------
        ValueError
            The elements have one length.
        headrace.DeviceError
            There is no such device.
        headrace.CorruptError
            A chunk whose sizes lie, or strings that are no UTF-8.

        Examples
        --------
        >>> names = headrace.create_array("stations.zarr", "name", shape=3, dtype=str, fill_value="-")
        >>> names[:2] = ["Bergen", "Oslo"]
        >>> values, offsets = names.read_ragged()
        >>> offsets
        array([ 0,  6, 10, 11])
        """

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def write(self, selection: Any, value: Any, *, implementations: dict[str, str] | None = None) -> None:
        """
        Write ``value`` to a selection.

        Chunks that are covered in part are read and merged; a chunk is replaced whole or not at all.

        Parameters
        ----------
        selection
            What ``array[selection]`` takes; None is the whole array.
        value
            Anything NumPy makes an array of, or a DLPack object in host or device memory; it is broadcast
            to the shape of the selection. Host memory is converted to the dtype of the array. Device memory
            is encoded there to zstd up to level 3, lz4, and blosc with these inside (zstd up to clevel 2),
            about as small as zstd's level 1 and LZ4's default make it; other codecs and levels, and chunks
            that are covered in part, are encoded on the host.
        implementations
            Which implementation encodes a codec, for this call; "headrace-cuda" or "libzstd" decides where
            device memory is encoded.

        Raises
        ------
        PermissionError
            The handle or the store is read-only.
        ValueError
            ``value`` does not broadcast to the selection.

        Examples
        --------
        >>> a.write(np.s_[0:10], np.zeros((10, 721, 1440)))
        """

    def write_async(self, selection: Any, value: Any, *, implementations: dict[str, str] | None = None) -> Future[None]:
        """
        As `write`, but returns a `Future`; ``value`` must not change until it is done. An exception that ends a wait for it, Ctrl-C's too, leaves the write under way: `Future.cancel` ends it.
        """

    def resize(self, shape: int | Sequence[int] | Mapping[str | int, int]) -> None:
        """
        Change the extents; what lies outside the new shape is removed.

        Parameters
        ----------
        shape
            An extent for each dimension, or a dict of some by the names or numbers of their dimensions:
            the others stay as the store has them, whoever has grown them meanwhile.

        Raises
        ------
        PermissionError
            The handle or the store is read-only.
        ValueError
            An extent is negative, or there is no such dimension.

        Examples
        --------
        >>> a.resize({"time": 48})
        """

    def append(self, data: Any, axis: int | str = 0) -> tuple[int, ...]:
        """
        Grow the array along a dimension and write there.

        Threads and processes of one machine append one after the other, whichever handles they use.

        Parameters
        ----------
        data
            What is written: of the array's shape but for ``axis``.
        axis
            The name or number of the dimension.

        Returns
        -------
        tuple of int
            The new shape.

        Raises
        ------
        PermissionError
            The handle or the store is read-only.
        ValueError
            ``data`` has another shape, or there is no such dimension.

        Examples
        --------
        >>> a.append(np.zeros((6, *a.shape[1:]), "float32"), axis="time")
        """

    def _set_attributes_json(self, arg: str, /) -> None: ...

    def _update_attributes(self, set: str, remove: list[str], keep_present: bool) -> str: ...

    def _attributes_json(self) -> str: ...

def read_many(requests: Iterable[tuple[Any, ...]], *, implementations: dict[str, str] | None = None) -> list[Any]:
    """
    Read selections of several arrays in one plan.

    The chunks of all requests share the threads and the memory budget.

    Parameters
    ----------
    requests
        Tuples ``(array, selection, out)``; a selection of None is the whole array, ``out`` may be None
        or left away.

    Returns
    -------
    list
        The result of each request, ``out`` where it was given.

    Examples
    --------
    >>> u, v = headrace.read_many([(group["u"], np.s_[0]), (group["v"], np.s_[0])])
    """

def arrow_device_array(parts: tuple[int, Any, Any], device: str) -> object: ...

class GroupHandle:
    def members(self) -> list[tuple[str, bool]]: ...

    def members_and_left_out(self) -> tuple[list[tuple[str, bool]], list[tuple[str, str]]]: ...

    def as_stored(self) -> GroupHandle: ...

    def links_back(self) -> list[str]: ...

    def is_group(self, name: str) -> bool | None: ...

    def remove(self, name: str) -> None: ...

    def array(self, name: str, device: str | None = None, read_only: bool = False, implementations: dict[str, str] | None = None) -> Array: ...

    def group(self, name: str) -> GroupHandle: ...

    def _attributes_json(self) -> str: ...

    def _set_attributes_json(self, json: str) -> None: ...

    def _update_attributes(self, set: str, remove: list[str], keep_present: bool) -> str: ...

    @property
    def metadata_json(self) -> str: ...

    @property
    def consolidated(self) -> bool: ...

    @property
    def zarr_format(self) -> int: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def path(self) -> str: ...

    @property
    def store(self) -> Store: ...

def printable(text: str) -> str:
    """
    Text from a store as a terminal may show it: control characters, marks of direction and bytes that are no UTF-8 are escaped.
    """

def open_array(store: Store, path: str, device: str | None = None, zarr_format: int | None = None, read_only: bool = False, implementations: dict[str, str] | None = None, metadata_json: str = '', write_empty_chunks: bool = False, shard_order: str = 'lexicographic', attributes_json: str = '', as_opened: bool = False) -> Array: ...

def open_group(store: Store, path: str, zarr_format: int | None = None, read_only: bool = False, use_consolidated: bool = True) -> GroupHandle: ...

def node_is_group(store: Store, path: str, zarr_format: int | None = None) -> bool | None: ...

def what_is_there(store: Store, path: str) -> str: ...

def consolidated_names_beside(store: Store, path: str) -> list[str]: ...

def create_array(store: Store, path: str, *, shape: int | Sequence[int], dtype: Any, chunks: int | Sequence[int] | None = None, shards: int | Sequence[int] | None = None, edges: Sequence[int | Sequence[int]] = [], codecs: list[tuple[str, str]] | None = None, fill_value: Any = None, zarr_format: int = 3, order: str = 'C', dimension_separator: str = '', v2_chunk_keys: bool = False, null_fill_value: bool = False, attributes: str = '', dimension_names: Sequence[str | None] = [], overwrite: bool = False, write_empty_chunks: bool = False, device: str | None = None) -> Array: ...

def create_group(store: Store, path: str = '', attributes: str = '', zarr_format: int = 3, overwrite: bool = False) -> GroupHandle: ...

def consolidate_metadata(store: Store, path: str = '') -> None: ...

def describe_dtype(dtype: Any) -> tuple[str, int, bool]:
    """(name, itemsize, stored big-endian) of what `dtype` means."""

def codec_table() -> list[dict[str, Any]]: ...

def decode_batch(codec: str, configuration: str, inputs: Iterable[Any], *, offsets: Any = None, out: Iterable[Any] | None = None, out_nbytes: Iterable[int] | None = None, device: str | None = None, stream: Any = None, implementation: str = '') -> Any: ...

def encode_batch(codec: str, configuration: str, inputs: Iterable[Any], *, offsets: Any = None, device: str | None = None, stream: Any = None, implementation: str = '') -> list[Any]: ...

def get_config() -> dict[str, Any]: ...

def set_config(values: dict[str, Any]) -> None: ...

def set_allocator(device: str, allocate: Callable[[int, int], int] | None, free: Callable[[int, int, int], object] | None) -> None:
    """
    Take a device's memory from a pool of the caller's.

    ``allocate(nbytes, stream)`` returns the address of memory for work on that stream, aligned to 256;
    ``free(address, nbytes, stream)`` takes it back, while work on that stream may still use it. None for
    both: headrace's own pool. For results and scratch from now on.

    Examples
    --------
    >>> hr.set_allocator(
    ...     "cuda:0",
    ...     lambda nbytes, stream: torch.cuda.caching_allocator_alloc(nbytes, stream=stream),
    ...     lambda address, nbytes, stream: torch.cuda.caching_allocator_delete(address),
    ... )
    """

def check_device(device: str | None) -> None:
    """DeviceError when it is certain that there is no such device."""

def version() -> str: ...

def doctor_json() -> str: ...

def rechunk(source: Array | GroupHandle, store: Store, path: str, *, chunks: Sequence[int] | None, shards: Sequence[int] | None, codecs: list[tuple[str, str]] | None, max_memory: int, overwrite: bool, verify: bool, verifier: Any, progress: Any, executor: Any, source_name: str, left_out: Any) -> None: ...

def plan_rechunk(source: Array | GroupHandle, *, chunks: Sequence[int] | None, shards: Sequence[int] | None, max_memory: int) -> list[dict[str, Any]]: ...

def nodes_overlap(store: Store, path: str, other_store: Store, other_path: str) -> bool: ...

def attributes_in_v3(array: Array) -> str: ...

def advise(array: Array, sample: Sequence[int], batch: int) -> dict[str, Any]: ...

class Trace:
    def __init__(self, path: str) -> None: ...

    def finish(self) -> None: ...

def calls_are_refused() -> bool: ...

def _add_signatures(of_functions: property, of_bound: property) -> None: ...

class ShmBlock:
    @property
    def address(self) -> int: ...

def shm_writable(buffer: object) -> ShmBlock: ...

class ShmArena:
    @staticmethod
    def create(nbytes: int, *, huge_pages: str = 'auto', backing: str = 'auto', interleave: bool = False, max_blocks: int = 0) -> ShmArena: ...

    @staticmethod
    def attach(fd: int) -> ShmArena: ...

    @property
    def fd(self) -> int: ...

    @property
    def id(self) -> str: ...

    @property
    def address(self) -> int: ...

    def memory(self) -> ShmBlock:
        """All of the arena, whoever has what of it."""

    def allocate(self, nbytes: int, timeout: float | None = None) -> ShmBlock | None: ...

    def channel(self, capacity: int) -> ShmChannel: ...

    def open(self, block: int, generation: int) -> ShmChannel: ...

    def send(self, buffers: Iterable[Any], timeout: float | None = None) -> bytes | None: ...

    def receive(self, descriptor: Any) -> list[ShmBlock]: ...

    def pin(self) -> Any: ...

    def stats(self) -> dict[str, Any]: ...

    def reclaim(self, orphans: bool = False) -> int: ...

class ShmChannel:
    def put(self, buffers: Iterable[Any], timeout: float | None = None) -> bool: ...

    def get(self, timeout: float | None = None) -> list[ShmBlock] | None: ...

    @property
    def size(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    @property
    def handle(self) -> tuple[int, int]: ...

class ShmPublication:
    @property
    def name(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    def close(self) -> None: ...

def shm_publish(name: str, buffers: Iterable[Any]) -> ShmPublication: ...

def shm_attach(name: str, timeout: float | None = None) -> list[ShmBlock]: ...

class Loader:
    def __init__(self, sources: object, options: object) -> None: ...

    def next(self) -> dict[str, Any] | None: ...

    @property
    def names(self) -> list[str]: ...

    @property
    def batches(self) -> int: ...

    @property
    def samples(self) -> int: ...

    @property
    def position(self) -> tuple[int, int]: ...

    @property
    def order_id(self) -> str: ...

    def seek(self, epoch: int, samples: int) -> None: ...

    def origins(self, epoch: int, begin: int, end: int) -> list[list[int]]: ...

    def shuffle_quality(self, epoch: int) -> tuple[float, float]: ...

    def stats(self) -> dict[str, Any]: ...

    def close(self) -> None: ...

class CellWindow:
    def __init__(self, matrices: object, runs: object, columns: int, device: object = 'cpu', keep: object | None = None) -> None: ...

    @property
    def rows(self) -> int: ...

    def count(self, rows: object, offsets: object) -> None: ...

    def gather_csr(self, rows: object, offsets: object, transform: object, data: object, indices: object, itemsize: int) -> None: ...

    def gather_dense(self, rows: object, transform: object, data: object, itemsize: int) -> None: ...
