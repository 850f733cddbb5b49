"""User attributes of arrays and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Protocol

from . import _json


class _Node(Protocol):
    def _attributes_json(self) -> str: ...
    def _set_attributes_json(self, json: str) -> None: ...


class Attributes(MutableMapping[str, Any]):
    """A mapping that writes each change through to the store.

    Values are plain JSON values, copies of what is stored: changing a nested list changes nothing
    in the store.

    Examples
    --------
    >>> a.attrs["units"] = "K"
    >>> a.attrs.update(long_name="2 metre temperature", valid_range=[180, 340])
    """

    __slots__ = ("_node",)

    def __init__(self, node: _Node) -> None:
        self._node = node

    def asdict(self) -> dict[str, Any]:
        """All attributes as a new dict."""
        result: dict[str, Any] = _json.loads(self._node._attributes_json())
        return result

    def put(self, attributes: Mapping[str, Any]) -> None:
        """Replace all attributes in one write."""
        self._node._set_attributes_json(_json.dumps(dict(attributes)))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """As `dict.update`, in one write."""
        attributes = self.asdict()
        attributes.update(*args, **kwargs)
        self.put(attributes)

    def clear(self) -> None:
        self.put({})

    def __getitem__(self, name: str) -> Any:
        return self.asdict()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        attributes = self.asdict()
        attributes[name] = value
        self.put(attributes)

    def __delitem__(self, name: str) -> None:
        attributes = self.asdict()
        del attributes[name]
        self.put(attributes)

    def __contains__(self, name: object) -> bool:
        return name in self.asdict()

    def __iter__(self) -> Iterator[str]:
        return iter(self.asdict())

    def __len__(self) -> int:
        return len(self.asdict())

    def __repr__(self) -> str:
        return f"<headrace.Attributes {self.asdict()!r}>"
