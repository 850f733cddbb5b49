"""The filters of HDF5: the codecs that they are to Zarr, and those that some chunks lack."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from ._reference_model import NotRepresentable

DEFLATE, SHUFFLE, FLETCHER32, SZIP, NBIT, SCALEOFFSET = range(1, 7)
LZF, BLOSC, ZSTD, BZIP2 = 32000, 32001, 32015, 307
_BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")


def codecs_of(
    entry: tuple[int, int, tuple[int, ...], bytes], dtype: np.dtype[Any]
) -> list[dict[str, Any]]:
    """The codec of a filter, by the names of numcodecs where it has one."""
    code, _, values, name = entry
    values = tuple(int(v) & 0xFFFFFFFF for v in values)
    if code == DEFLATE:
        return [{"id": "zlib", "level": values[0] if values else 1}]
    if code == SHUFFLE:
        return [{"id": "shuffle", "elementsize": values[0] if values else dtype.itemsize}]
    if code == FLETCHER32:
        return [{"id": "fletcher32"}]
    if code == SZIP:
        return [{"id": "hdf5_szip", "cd_values": list(values[:4])}]
    if code == SCALEOFFSET:
        if len(values) > 4 and values[3] == 0 and values[1] == 8 * values[4]:
            return []  # the integers have all their bits
        return [{"id": "hdf5_scaleoffset", "cd_values": list(values)}]
    if code == NBIT:
        if len(values) < 2 or values[1]:
            return []  # the elements have all their bits
        return [{"id": "hdf5_nbit", "cd_values": list(values), "dtype": dtype.str}]
    if code == LZF:
        return [{"id": "imagecodecs_lzf"}]
    if code == BLOSC and len(values) >= 7 and values[6] < len(_BLOSC_NAMES):
        return [
            {
                "id": "blosc",
                "cname": _BLOSC_NAMES[values[6]],
                "clevel": values[4],
                "shuffle": values[5],
                "blocksize": 0,
            }
        ]
    if code == ZSTD:
        return [{"id": "zstd", "level": values[0] if values else 3}]
    if code == BZIP2:
        return [{"id": "bz2", "level": values[0] if values else 9}]
    text = name.decode(errors="replace").strip()
    raise NotRepresentable(f"filter {code} ({text or 'without a name'}) is none that can be read")


def refiltered(data: bytes, filters: list[tuple[Any, ...]], mask: int) -> bytes:
    """A chunk with all filters of one that was stored without those of `mask`."""
    first = next(i for i in range(len(filters)) if mask >> i & 1)
    for i in reversed(range(first + 1, len(filters))):
        if mask >> i & 1:
            continue
        code, _, values, _ = filters[i]
        if code == DEFLATE:
            data = zlib.decompress(data)
        elif code == FLETCHER32:
            data = data[:-4]
        elif code == SHUFFLE:
            data = _shuffled(data, values[0], back=True)
        else:
            raise NotRepresentable(f"some chunks were stored without filter {filters[first][0]}")
    for i, (code, _, values, _) in enumerate(filters[first:], first):
        if code == SZIP and mask >> i & 1:
            check_without_szip(data)
        elif code == DEFLATE:
            data = zlib.compress(data, values[0])
        elif code == SHUFFLE:
            data = _shuffled(data, values[0])
        elif code == FLETCHER32:
            data += _fletcher32(data).to_bytes(4, "little")
        elif code == LZF:  # runs of bytes as they are
            runs = (data[i : i + 32] for i in range(0, len(data), 32))
            data = b"".join(bytes([len(run) - 1]) + run for run in runs)
        else:
            raise NotRepresentable(f"some chunks were stored without filter {code}")
    return data


def check_without_szip(data: bytes) -> None:
    """Whether the codec sees that a chunk is without szip: it does not begin with its size."""
    if int.from_bytes(data[:4], "little") == len(data):
        raise NotRepresentable("a chunk without szip that begins like one with it")


def _shuffled(data: bytes, size: int, back: bool = False) -> bytes:
    whole = len(data) // size * size
    elements = np.frombuffer(data[:whole], "u1").reshape((size, -1) if back else (-1, size))
    return elements.T.tobytes() + data[whole:]


def _fletcher32(data: bytes) -> int:
    """The checksum that HDF5's filter puts behind a chunk."""
    words = np.frombuffer(data[: len(data) // 2 * 2], ">u2").astype("u8")
    if len(data) % 2:
        words = np.append(words, np.uint64(data[-1] << 8))
    n, first, second = len(words), int(words.sum()), 0
    for i in range(0, n, 4096):  # sums that 64 bits hold
        part = words[i : i + 4096]
        weights = np.arange(n - i, n - i - len(part), -1).astype("u8")
        second += int((part * weights).sum())

    def folded(v: int) -> int:
        return (v - 1) % 65535 + 1 if v else 0

    return folded(second) << 16 | folded(first)
