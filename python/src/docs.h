#pragma once

// The longer docstrings, numpydoc style.

namespace headrace::python::docs {

inline constexpr const char* kArray = R"(An array in a Zarr store.

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
)";

inline constexpr const char* kRead = R"(Read a selection.

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
)";

inline constexpr const char* kToArrow = R"(Read a selection to an array of Arrow.

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
)";

inline constexpr const char* kReadRagged =
    R"(Read elements of variable length as one array of values and one of offsets.

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
)";

inline constexpr const char* kReadAsync = R"(As `read`, in the background.

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
)";

inline constexpr const char* kReadMany = R"(Read selections of several arrays in one plan.

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
)";

inline constexpr const char* kWrite = R"(Write ``value`` to a selection.

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
)";

inline constexpr const char* kResize =
    R"(Change the extents; what lies outside the new shape is removed.

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
)";

inline constexpr const char* kAppend = R"(Grow the array along a dimension and write there.

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
)";

inline constexpr const char* kSetAllocator = R"(Take a device's memory from a pool of the caller's.

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
)";

inline constexpr const char* kDeviceArray =
    R"(An array in the memory of a device: what reads to one return.

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
)";

inline constexpr const char* kDlpack = R"(Read the whole array and export it as a DLPack capsule.

Versioned when ``max_version`` is at least (1, 0). The capsule owns the memory.

Raises
------
BufferError
    DLPack has no such type (dates, strings, structures), or ``copy=False``.

Examples
--------
>>> torch.from_dlpack(a)
)";

}  // namespace headrace::python::docs
