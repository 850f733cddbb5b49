"""The text that `Group.tree` shows."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from . import _check
from ._core import printable

__all__ = ["Tree"]

_MAX_LINES = 1 << 20
_TEE = "\u251c\u2500\u2500 "
_LAST = "\u2514\u2500\u2500 "
_BAR = "\u2502   "


class _Group(Protocol):
    """What a tree asks of a `headrace.Group`."""

    _handle: Any

    @property
    def name(self) -> str: ...
    def links_back(self) -> list[str]: ...
    def _member(self, name: str, is_group: bool) -> Any: ...


@dataclass(frozen=True)
class Tree:
    """A group and what is below it, one line each.

    Examples
    --------
    >>> print(group.tree(level=1))
    """

    lines: tuple[str, ...]

    @classmethod
    def of(cls, group: _Group, level: int | None = None) -> Tree:
        if level is not None:
            _check.integer("level", level)
        return cls((printable(group.name), *_branches(group, "", level, count(1))))

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _branches(group: _Group, prefix: str, level: int | None, lines: Iterator[int]) -> Iterator[str]:
    if level is not None and level <= 0:
        return
    links = [(name, None) for name in group.links_back()]
    members = [*group._handle.members(), *links]
    for index, (name, is_group) in enumerate(members):
        # Links between groups can make more paths than memory holds, though none leads back.
        if next(lines) > _MAX_LINES:
            raise ValueError(f"tree: more than {_MAX_LINES} groups and arrays: pass level=")
        last = index == len(members) - 1
        label, node = _look(group, name, is_group)
        yield f"{prefix}{_LAST if last else _TEE}{label}"
        if node is not None:
            below = None if level is None else level - 1
            yield from _branches(node, prefix + ("    " if last else _BAR), below, lines)


def _look(group: _Group, name: str, is_group: bool | None) -> tuple[str, _Group | None]:
    """The label of a member, and the group to go on with. What is broken hides no neighbour."""
    shown = printable(name)
    if is_group is None:
        return f"{shown}: left out, a link that leads back to a group it is in", None
    try:
        node = group._member(name, is_group)
        if not is_group:
            return f"{shown} {node.shape} {node.dtype}", None
        node._handle.members()
    except (OSError, ValueError, NotImplementedError) as error:
        return f"{shown}: {printable(str(error))}", None
    return shown, node


def __dir__() -> list[str]:
    return __all__
