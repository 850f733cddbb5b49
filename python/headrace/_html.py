"""Cards for notebooks. All text is escaped; colours are those of the page, so that a dark theme
stays dark.

The picture of a chunk grid has the last two dimensions of the array; what would be thinner than a
pixel is left out, and the text beside it has the numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import _core
from ._info import (
    chunks_text,
    counted,
    extents_text,
    member_rows,
    nbytes_text,
    rows_of_array,
    rows_of_group,
)
from ._table import beside, table

_LONGEST_SIDE = 140.0
_SHORTEST_SIDE = 14.0
_MOST_LINES = 32
# Listing so many chunks of a local store takes some milliseconds.
_MOST_LISTED = 4096
_MOST_ARRAYS = 8


def array_card(array: _core.Array) -> str:
    rows = rows_of_array(array)
    stored = _stored(array)
    if stored:
        rows.append(("stored", stored))
    attributes = array.attrs.asdict()
    if attributes:
        rows.append(("attributes", ", ".join(attributes)))
    return beside(table(rows, "headrace.Array"), grid_picture(array))


def _stored(array: _core.Array, most: int = _MOST_LISTED) -> str:
    """What is stored, where it costs nothing to know: no more than `most` objects are listed."""
    local = array.store._python_store is None and array.store.url.startswith(("file:", "memory:"))
    if not local or _objects(array) > most:
        return ""
    try:
        nbytes = array.nbytes_stored()
        if array.is_sharded:
            return nbytes_text(nbytes)
        chunks = array.nchunks_initialized
    except (OSError, ValueError, NotImplementedError):
        return ""  # a card is no place to fail
    ratio = ""
    if nbytes and chunks == array.nchunks and array.dtype.kind not in "OT":
        ratio = f", ratio {array.nbytes / nbytes:.2f}"
    return f"{nbytes_text(nbytes)} in {counted(chunks, 'chunk')}{ratio}"


def _objects(array: _core.Array) -> int:
    """How many hold the array's chunks, at most."""
    if array.is_rectilinear or array.shards is None:
        return array.nchunks
    count = 1
    for extent, of_shard in zip(array.shape, array.shards, strict=True):
        count *= -(-extent // of_shard)
    return count


def grid_picture(array: _core.Array) -> str:
    """An SVG of the last two dimensions, cut as the chunks are; shards have stronger lines."""
    if array.ndim == 0 or 0 in array.shape:
        return ""
    rows, columns = [None, array.ndim - 1] if array.ndim == 1 else [array.ndim - 2, array.ndim - 1]
    height, width = (_SHORTEST_SIDE, _LONGEST_SIDE) if rows is None else _sides(array.shape[-2:])
    try:
        lines = [
            line
            for unit, opacity in (("chunks", 0.35), ("shards", 0.9))
            for axis, along, across, upright in (
                (rows, height, width, False),
                (columns, width, height, True),
            )
            if axis is not None and (unit == "chunks" or array.is_sharded)
            for line in _lines(_cuts(array, unit, axis), along, across, upright, opacity)
        ]
        label = " x ".join(f"{_count(array, axis):,}" for axis in range(array.ndim))
    except (ValueError, NotImplementedError, MemoryError):
        return ""  # a grid that only looking at its chunks would tell
    return (
        f'<svg width="{width + 2:.0f}" height="{height + 18:.0f}" role="img" '
        f'aria-label="chunk grid {label}" style="color:inherit;overflow:visible">'
        f'<g transform="translate(1,1)" stroke="currentColor" fill="none">'
        f'<rect width="{width:.1f}" height="{height:.1f}" fill="currentColor" fill-opacity=".08"/>'
        f"{''.join(lines)}</g>"
        f'<text x="1" y="{height + 14:.0f}" font-size="10" font-family="monospace" '
        f'fill="currentColor" opacity=".7">{label} chunks</text></svg>'
    )


def _extent(array: _core.Array, unit: str, axis: int) -> int | None:
    """Of a chunk or shard along a dimension; None where a rectilinear grid has several."""
    if array.is_rectilinear and unit == ("shards" if array.is_sharded else "chunks"):
        return None
    extents = array.shards if unit == "shards" else array.chunks
    return None if extents is None else extents[axis]


def _count(array: _core.Array, axis: int) -> int:
    """Chunks along a dimension, without a list of them: metadata may make that of any length."""
    extent = _extent(array, "chunks", axis)
    if extent is not None:
        return -(-array.shape[axis] // extent)
    return len(array.read_chunk_sizes[axis])


def _cuts(array: _core.Array, unit: str, axis: int) -> list[float]:
    """Where chunks end within a dimension, as shares of it; a part of them where they are many."""
    extent, whole = _extent(array, unit, axis), array.shape[axis]
    if extent is None:
        sizes = array.write_chunk_sizes if unit == "shards" else array.read_chunk_sizes
        ends = list(itertools.accumulate(sizes[axis]))[:-1]
        every = max(1, -(-len(ends) // _MOST_LINES))
        return [end / whole for end in ends[every - 1 :: every]]
    count = -(-whole // extent)
    every = max(1, -(-count // _MOST_LINES))
    return [number * extent / whole for number in range(every, count, every)]


def _sides(extents: Sequence[int]) -> tuple[float, float]:
    """Height and width in pixels: the longer side is fixed, the other one is seen in any case."""
    longest = max(extents)
    height, width = (
        max(_LONGEST_SIDE * math.sqrt(extent / longest), _SHORTEST_SIDE) for extent in extents
    )
    return height, width


def _lines(
    cuts: Iterable[float], along: float, across: float, upright: bool, opacity: float
) -> Iterator[str]:
    for cut in cuts:
        at = f"{cut * along:.1f}"
        ends = (at, "0", at, f"{across:.1f}") if upright else ("0", at, f"{across:.1f}", at)
        places = " ".join(f'{name}="{value}"' for name, value in zip(_ENDS, ends, strict=True))
        yield f'<line {places} stroke-opacity="{opacity}"/>'


_ENDS = ("x1", "y1", "x2", "y2")


def group_card(group: Any) -> str:
    rows = rows_of_group(group)
    attributes = group.attrs.asdict()
    if attributes:
        rows.append(("attributes", ", ".join(attributes)))
    left = _MOST_LISTED  # of the chunks of all members

    def chunks_and_size(array: _core.Array) -> str:
        nonlocal left
        stored = _stored(array, left)
        left -= _objects(array) if stored else 0
        return f", {chunks_text(array)}{f', stored: {stored}' if stored else ''}"

    members = member_rows(group, chunks_and_size)
    below = table(members) if members else "<div>empty</div>"
    return f"{table(rows, 'headrace.Group')}<div style='height:6px'></div>{below}"


def store_card(store: _core.Store) -> str:
    access = "read-only" if store.read_only else "read and write"
    return table([("url", store.url), ("access", access)], "headrace.Store")


def attributes_card(attributes: dict[str, Any]) -> str:
    rows = [(name, repr(value)) for name, value in attributes.items()]
    return table(rows or [("", "none")], "headrace.Attributes")


def loader_card(
    rows: Iterable[tuple[str, str]], title: str, arrays: Sequence[tuple[str, _core.Array]] = ()
) -> str:
    """What is made, and of which arrays: the first ones, of which each has its chunk grid."""
    cards = [table(rows, title)]
    for name, array in arrays[:_MOST_ARRAYS]:
        facts = [(name, f"{array.shape} {array.dtype}"), ("chunks", chunks_text(array))]
        if array.is_sharded:
            facts.append(("shards", extents_text(array, "shards")))
        facts.append(("codecs", ", ".join(repr(codec) for codec in array.codecs)))
        stored = _stored(array, _MOST_LISTED // _MOST_ARRAYS)
        if stored:
            facts.append(("stored", stored))
        cards.append(beside(table(facts), grid_picture(array)))
    if len(arrays) > _MOST_ARRAYS:
        cards.append(f"<div>and {counted(len(arrays) - _MOST_ARRAYS, 'array')} more</div>")
    return "".join(cards)
