"""Where in an HDF5 file the chunks of a data set lie: what HDF5 says of it, checked where it may be
wrong."""

from __future__ import annotations

from typing import Any, BinaryIO

from ._reference_model import Index, NotRepresentable


def stored_chunks(node: Any, file: BinaryIO, user_block: int) -> list[Any]:
    """The chunks of a data set, with their offsets in `file`.

    Libraries differ in whether they count the user block. Where one dimension grows that is not the
    first, HDF5 2.0 and others tell the coordinates as the file's index has them, that dimension
    first. Of these readings those are left under which chunks lie where they are told to be; all
    that are left at the end lead to the same bytes.
    """
    found: list[Any] = []
    try:
        node.id.chunk_iter(found.append)
    except AttributeError:  # an HDF5 library before 1.12.3
        for i in range(node.id.get_num_chunks()):
            found.append(node.id.get_chunk_info(i))
    growing = [i for i, limit in enumerate(node.maxshape) if limit is None]
    orders = [found]
    if len(growing) == 1 and growing[0] > 0:
        orders.append([c._replace(chunk_offset=_coordinates(node, growing[0], c)) for c in found])
    readings = list(orders)
    if user_block:
        readings += [
            [c._replace(byte_offset=c.byte_offset + user_block) for c in order] for order in orders
        ]
    for i in range(len(found)):
        first = readings[0][i]
        if all(reading[i] == first for reading in readings):
            continue
        readings = [reading for reading in readings if _is_there(node, reading[i], file)]
        if not readings:
            raise NotRepresentable(f"chunk {found[i].chunk_offset} is not where HDF5 says it is")
        if len(readings) == 1:
            break
    # Chunks that a data set had before it was made smaller are not its own.
    return [info for info in readings[0] if _is_within(node, info)]


def _coordinates(node: Any, growing: int, info: Any) -> Index:
    """Those of a chunk whose place in the index was told: there the dimension that grows comes
    first, and chunks are counted as far as the others may reach."""
    pairs = zip(node.maxshape, node.chunks, strict=True)
    limits = [-(-(limit or 1) // chunk) for limit, chunk in pairs]
    told = [offset // chunk for offset, chunk in zip(info.chunk_offset, node.chunks, strict=True)]
    number = told[growing]
    for i in range(growing + 1, len(told)):
        number = number * limits[i] + told[i]
    found = [0] * len(told)
    for i in reversed(range(len(told))):
        if i != growing:
            number, found[i] = divmod(number, limits[i])
    found[growing] = number
    return tuple(n * chunk for n, chunk in zip(found, node.chunks, strict=True))


def _is_within(node: Any, info: Any) -> bool:
    return all(o < n for o, n in zip(info.chunk_offset, node.shape, strict=True))


def _is_there(node: Any, info: Any, file: BinaryIO) -> bool:
    """Whether HDF5 reads, at the coordinates, what the file has at the offset."""
    if not _is_within(node, info):
        return False
    try:
        mask, data = node.id.read_direct_chunk(info.chunk_offset)
    except (OSError, RuntimeError):
        return False  # none is stored there
    if mask != info.filter_mask or len(data) != info.size:
        return False
    file.seek(info.byte_offset)
    return bytes(file.read(info.size)) == bytes(data)
