"""What somebody may have meant who wrote a name that there is not."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LIKENESS = 0.6
_LISTED = 8
_LOOKED_AT = 10_000  # a group may have a million members
_COMPARED = 10_000_000  # pairs of letters: some tenths of a second
_SHOWN = 100  # letters of a name: whoever wrote it into a store chose its length


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The name that is most like `word`, if one is."""
    import difflib  # here: `import headrace` stays cheap

    names = [name for name, _ in zip(known, range(_LOOKED_AT), strict=False)]
    for name in names:
        if name.lower() == word.lower():
            return name
    pairs = itertools.accumulate(len(word) * len(name) for name in names)
    few = [name for name, so_far in zip(names, pairs, strict=True) if so_far <= _COMPARED]
    found = difflib.get_close_matches(word, few, n=1, cutoff=_LIKENESS)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str], kind: str = "") -> str:
    """The end of a message about a name: "; did you mean 'x'?", else "; there are y, z"."""
    names = list(known)
    name = nearest(word, names)
    if name is not None:
        return f"; did you mean {name!r}?"
    if not kind or not names:
        return ""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"; {kind} {', '.join(map(_shown, names[:_LISTED]))}{more}"


def _shown(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[: _SHOWN - 3]}..."


def unknown_argument(function: str, name: str, known: Iterable[str]) -> TypeError:
    return TypeError(f"{function}(): unknown argument {name!r}{did_you_mean(name, known)}")


def checks_names(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, which says of an argument that it does not have what was meant."""
    code = function.__code__
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    name = function.__name__ if function.__name__ != "__init__" else function.__qualname__[:-9]

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not known.issuperset(kwargs):
            given = next(keyword for keyword in kwargs if keyword not in known)
            raise unknown_argument(name, given, sorted(known - {"self"}))
        return function(*args, **kwargs)

    return call
