"""The text that `Group.tree` shows."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .group import Group


_TEE = "\u251c\u2500\u2500 "
_LAST = "\u2514\u2500\u2500 "
_BAR = "\u2502   "


@dataclass(frozen=True)
class Tree:
    """A group and what is below it, one line each.

    Examples
    --------
    >>> print(group.tree(level=1))
    """

    lines: tuple[str, ...]

    @classmethod
    def of(cls, group: Group, level: int | None = None) -> Tree:
        return cls((group.name, *_branches(group, "", level)))

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _branches(group: Group, prefix: str, level: int | None) -> Iterator[str]:
    from .group import Group

    if level is not None and level <= 0:
        return
    members = group.items()
    for index, (name, node) in enumerate(members):
        last = index == len(members) - 1
        label = name if isinstance(node, Group) else f"{name} {node.shape} {node.dtype}"
        yield f"{prefix}{_LAST if last else _TEE}{label}"
        if isinstance(node, Group):
            below = None if level is None else level - 1
            yield from _branches(node, prefix + ("    " if last else _BAR), below)
