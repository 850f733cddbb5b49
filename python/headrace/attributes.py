"""User attributes of arrays and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Protocol

from . import _check, _json
from ._suggest import did_you_mean

__all__ = ["Attributes"]


class _Node(Protocol):
    def _attributes_json(self) -> str: ...
    def _set_attributes_json(self, json: str) -> None: ...
    def _update_attributes(self, set: str, remove: list[str], keep_present: bool) -> str: ...


_MISSING: Any = object()


def _missing(name: Any, values: Mapping[str, Any]) -> str:
    """What is said of an attribute that there is not; its name, where there is nothing to say."""
    hint = did_you_mean(name, values, "there are") if isinstance(name, str) else ""
    return f"no attribute {name!r}{hint}" if hint else str(name)


class Attributes(MutableMapping[str, Any]):
    """A mapping that writes each change through to the store.

    A change is made to the attributes as the store has them, one after the other among the threads
    and processes of a machine: what others set stays, and is seen after a change.

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
        _check.attributes(attributes)
        if attributes is None:
            raise _check.wrong_type("attributes", "values of JSON by name", attributes)
        self._node._set_attributes_json(_json.dumps(dict(attributes)))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """As `dict.update`, in one write."""
        try:
            changes = dict(*args, **kwargs)
        except (TypeError, ValueError):
            raise _check.wrong_type(
                "attributes", "values of JSON by name", args[0] if args else None
            ) from None
        _check.attributes(changes)
        self._change(changes)

    def _change(
        self,
        set: Mapping[str, Any] | None = None,
        remove: tuple[str, ...] = (),
        keep_present: bool = False,
    ) -> str:
        """The JSON of the attributes as they were before."""
        return self._node._update_attributes(_json.dumps(set or {}), list(remove), keep_present)

    def _changed(self, **change: Any) -> dict[str, Any]:
        """The attributes as they were before a change."""
        self.asdict()  # raises before it, where Python reads no such JSON
        before: dict[str, Any] = _json.loads(self._change(**change))
        return before

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        """Remove an attribute and return its value."""
        _check.text("name", name, "the name of an attribute")
        value = self._changed(remove=(name,)).get(name, default)
        if value is _MISSING:
            raise KeyError(_missing(name, self.asdict()))
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove some attribute and return its name and value."""
        for name in self:
            before = self._changed(remove=(name,))
            if name in before:
                return name, before[name]
        raise KeyError("popitem(): there are no attributes")

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, set to `default` when there is none."""
        _check.text("name", name, "the name of an attribute")
        before = self._changed(set={name: default}, keep_present=True)
        return before[name] if name in before else self[name]

    def clear(self) -> None:
        """Remove all attributes, in one write."""
        self.put({})

    def __getitem__(self, name: str) -> Any:
        _check.text("name", name, "the name of an attribute")
        values = self.asdict()
        try:
            return values[name]
        except KeyError:
            raise KeyError(_missing(name, values)) from None

    def __setitem__(self, name: str, value: Any) -> None:
        _check.text("name", name, "the name of an attribute")
        self._change({name: value})

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.asdict()

    def __iter__(self) -> Iterator[str]:
        return iter(self.asdict())

    def __len__(self) -> int:
        return len(self.asdict())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.asdict())

    def _repr_html_(self) -> str:
        from ._html import attributes_card

        return attributes_card(self.asdict())

    def __repr__(self) -> str:
        return f"<headrace.Attributes {self.asdict()!r}>"


def __dir__() -> list[str]:
    return __all__
