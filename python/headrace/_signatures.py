"""Signatures of what is written in C++, for `inspect.signature` and the tools that ask it.

nanobind keeps the text of a signature (``__nb_signature__``) and no `inspect.Signature`. One
property of its types of functions serves all of them: completion of arguments in IPython, `help`,
mkdocstrings. Nothing is parsed before it is asked for. Of a call that does not fit nanobind lists
all signatures; `misfit` says what is wrong with it.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

from . import _core
from ._suggest import unknown_argument

_KINDS = {
    "posonlyargs": inspect.Parameter.POSITIONAL_ONLY,
    "args": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "kwonlyargs": inspect.Parameter.KEYWORD_ONLY,
}


def readable_signatures() -> None:
    """Gives functions and methods of the C++ part the attribute ``__signature__``."""
    if hasattr(_core, "_add_signatures"):
        _core._add_signatures(property(_of_function), property(_of_bound))


def _of_function(function: Any) -> inspect.Signature:
    text, _, defaults = function.__nb_signature__[0]
    return parsed(text, defaults or ())


def _of_bound(method: Any) -> inspect.Signature:
    whole = _of_function(method.__func__)
    parameters = list(whole.parameters.values())
    return whole.replace(parameters=parameters[1:])


def misfit(function: Any, given: list[Any], named: dict[str, Any]) -> str:
    """What is wrong with a call of a function of the C++ part, as nanobind's error does not say.

    Parameters
    ----------
    function
        A function or method; of a method the first of `given` is its object.
    given, named
        The arguments by position, and by name.
    """
    parameters = list(_of_function(function).parameters.values())
    name = function.__name__
    owner = function.__qualname__.rpartition(".")[0]
    if type(function).__name__ == "nb_method":
        if not given:
            return f"{name}() is a method of {owner}, called without its object"
        instance, *given = given
        if owner not in [cls.__qualname__ for cls in type(instance).__mro__]:
            return f"{name}() is a method of {owner}, called with another type"
        parameters = parameters[1:]
        if name == "__init__":
            name = owner
    by_position = [item.name for item in parameters if item.kind is not item.KEYWORD_ONLY]
    names = [item.name for item in parameters]
    for keyword in named:
        if keyword not in names:
            return str(unknown_argument(name, keyword, names))
    if len(given) > len(by_position):
        takes = f" ({', '.join(by_position)})" if by_position else ""
        more = names[len(by_position) :]
        others = f"; by name: {', '.join(more)}" if more else ""
        count = f"{len(by_position) or 'no'} argument{'s' * (len(by_position) != 1)}"
        return f"{name}() takes {count} by position{takes}, got {len(given)}{others}"
    values = dict(zip(by_position, given, strict=False))
    for item in parameters:
        if item.name in values and item.name in named:
            return f"{name}(): argument {item.name!r} is given twice"
        if item.name not in values and item.name not in named and item.default is item.empty:
            return f"{name}(): argument {item.name!r} is missing"
    values |= named
    wrong = [
        f"{item.name}: expected {item.annotation}, got {type(values[item.name]).__name__}"
        for item in parameters
        if item.name in values and not _is_named(values[item.name], str(item.annotation))
    ]
    return f"{name}(): {'; '.join(wrong) or 'the value of an argument is none that it takes'}"


def _is_named(value: Any, annotation: str) -> bool:
    kinds = [kind.rpartition(".")[2] for kind in annotation.split(" | ")]
    return not {"Any", "object", type(value).__name__}.isdisjoint(kinds)


def parsed(text: str, defaults: tuple[Any, ...] = ()) -> inspect.Signature:
    """The signature that a line ``def f(a: int, *, b: str = 'x') -> None`` states.

    Parameters
    ----------
    text
        As nanobind keeps it: ``\\\\N`` stands for the N-th of `defaults`.
    """
    for number, value in reversed(list(enumerate(defaults))):
        text = text.replace(f"\\{number}", repr(value) if _is_literal(value) else "...")
    [function] = ast.parse(f"{text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    given: dict[str, Any] = {}
    positional = [*arguments.posonlyargs, *arguments.args]
    for argument, value in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        given[argument.arg] = _value(value)
    for argument, keyword in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword is not None:
            given[argument.arg] = _value(keyword)
    parameters = []
    for field, kind in _KINDS.items():
        if field == "kwonlyargs" and arguments.vararg is not None:
            parameters.append(_parameter(arguments.vararg, inspect.Parameter.VAR_POSITIONAL, {}))
        parameters += [_parameter(argument, kind, given) for argument in getattr(arguments, field)]
    if arguments.kwarg is not None:
        parameters.append(_parameter(arguments.kwarg, inspect.Parameter.VAR_KEYWORD, {}))
    returns = inspect.Signature.empty if function.returns is None else ast.unparse(function.returns)
    return inspect.Signature(parameters, return_annotation=returns)


def _parameter(argument: ast.arg, kind: Any, given: dict[str, Any]) -> inspect.Parameter:
    empty = inspect.Parameter.empty
    annotation = empty if argument.annotation is None else ast.unparse(argument.annotation)
    return inspect.Parameter(
        argument.arg, kind, default=given.get(argument.arg, empty), annotation=annotation
    )


def _is_literal(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | tuple | list | dict)


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...
