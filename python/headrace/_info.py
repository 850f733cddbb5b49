"""What is known of arrays and groups without reading data, as rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from . import _core
from ._table import table

_MOST_MEMBERS = 200
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class _Group(Protocol):
    """What is asked of a `headrace.Group`."""

    _handle: _core.GroupHandle

    @property
    def name(self) -> str: ...
    @property
    def store(self) -> _core.Store: ...
    @property
    def zarr_format(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def consolidated(self) -> bool: ...
    @property
    def attrs(self) -> Any: ...
    def _member(self, name: str, is_group: bool) -> Any: ...


@dataclass(frozen=True)
class Info:
    """Names and values; text by `str`, a table in notebooks.

    Examples
    --------
    >>> hr.open("era5.zarr/t2m").info
    """

    rows: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.rows), default=0)
        return "\n".join(f"{name:<{width}}  {_core.printable(value)}" for name, value in self.rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table(self.rows)


def nbytes_text(nbytes: float) -> str:
    """ "1.5 GiB", "812 B"."""
    for unit in _UNITS:
        if nbytes < 1024 or unit == _UNITS[-1]:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError


def counted(n: int, noun: str) -> str:
    """ "1 array", "2 arrays"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def extents_text(array: _core.Array, name: str) -> str:
    if array.is_rectilinear and name == ("shards" if array.is_sharded else "chunks"):
        return "of several extents"
    return str(getattr(array, name))


def chunks_text(array: _core.Array) -> str:
    """ "(10, 20): 6 chunks"."""
    return f"{extents_text(array, 'chunks')}: {counted(array.nchunks, 'chunk')}"


def rows_of_array(array: _core.Array) -> list[tuple[str, str]]:
    names = array.dimension_names
    rows = [
        ("path", "/" + array.path),
        ("store", array.store.url),
        ("type", f"array, Zarr v{array.zarr_format}{', read-only' * array.read_only}"),
        ("shape", str(array.shape)),
    ]
    if names:
        rows.append(("dimensions", ", ".join("?" if name is None else name for name in names)))
    rows += [
        ("dtype", str(array.dtype)),
        ("chunks", chunks_text(array)),
    ]
    if array.is_sharded:
        rows.append(("shards", extents_text(array, "shards")))
    rows += [
        ("codecs", ", ".join(repr(codec) for codec in array.codecs)),
        ("fill value", repr(array.fill_value)),
    ]
    if array.dtype.kind not in "OT":
        rows.append(("size", nbytes_text(array.nbytes)))
    if array.device != "cpu":
        rows.append(("device", array.device))
    return rows


def _attribute_rows(attributes: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f"@{name}", repr(value)) for name, value in attributes.items()]


def of_array(array: _core.Array) -> Info:
    """What the metadata of an array say: nothing of the data is looked at."""
    return Info((*rows_of_array(array), *_attribute_rows(array.attrs.asdict())))


def _nothing_more(array: _core.Array) -> str:
    return ""


def member_rows(
    group: _Group, more: Callable[[_core.Array], str] = _nothing_more
) -> list[tuple[str, str]]:
    """Each member with its shape and type; what cannot be opened or listed, with the reason.

    Parameters
    ----------
    more
        What else is said of an array.
    """
    try:
        members = group._handle.members()
    except Exception as error:  # of a store of others, any
        return [("members", str(error))]
    rows = []
    for name, is_group in members[:_MOST_MEMBERS]:
        try:
            node = group._member(name, is_group)
            if is_group:
                text = f"group of {counted(len(node._handle.members()), 'member')}"
            else:
                names = node.dimension_names
                dimensions = f" ({', '.join(str(n) for n in names)})" if names else ""
                text = f"{node.shape}{dimensions} {node.dtype}{more(node)}"
        except Exception as error:
            text = str(error)
        rows.append((name, text))
    if len(members) > _MOST_MEMBERS:
        rows.append(("...", f"{len(members) - _MOST_MEMBERS} more"))
    return rows


def rows_of_group(group: _Group) -> list[tuple[str, str]]:
    return [
        ("path", group.name),
        ("store", group.store.url),
        ("type", f"group, Zarr v{group.zarr_format}{', read-only' * group.read_only}"),
        ("consolidated", "yes" if group.consolidated else "no"),
    ]


def of_group(group: _Group) -> Info:
    """A group's own metadata, then its members."""
    attributes = _attribute_rows(group.attrs.asdict())
    return Info((*rows_of_group(group), *attributes, *member_rows(group)))
