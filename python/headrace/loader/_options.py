"""What the arguments of a `Loader` mean to the C++ part."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from .. import _check, _core


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Those of torchrun's environment where they are not given."""
    if world_size is None:
        world_size = int(os.environ.get("WORLD_SIZE", 1))
    if rank is None:
        rank = int(os.environ.get("RANK", 0))
    check_numbers(rank=rank, world_size=world_size)
    return rank, world_size


def check_numbers(**numbers: Any) -> None:
    for name, value in numbers.items():
        _check.integer(name, value)


def weights(given: Sequence[float] | None) -> list[float]:
    """One for each store; empty for none."""
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _check.wrong_type("weights", "a number for each store", given)
    try:
        return [float(weight) for weight in given]
    except (TypeError, ValueError):
        raise _check.wrong_type("weights", "a number for each store", given) from None


def position(state: Any, order: str) -> tuple[int, int]:
    """Epoch and samples of what `Loader.state_dict` gave, of a loader of that order."""
    if not isinstance(state, Mapping):
        raise _check.wrong_type("load_state_dict", "what state_dict gave", state)
    if lacking := [key for key in ("version", "epoch", "samples", "order") if key not in state]:
        raise ValueError(f"load_state_dict: expected what state_dict gave, without {lacking[0]!r}")
    if state["version"] != 1 or state["order"] != order:
        raise ValueError(
            f"load_state_dict: expected the order {order}, got {state['order']}: arrays, samples, "
            "weights, seed, shuffle, block_chunks and lanes must be the same"
        )
    for key in ("epoch", "samples"):
        _check.integer(f"load_state_dict: {key}", state[key])
        if state[key] < 0:
            raise ValueError(f"load_state_dict: {key}: expected 0 or more, got {state[key]}")
    return index(state["epoch"]), index(state["samples"])


def _excluded_ranges(exclude: Any, steps: int) -> list[tuple[int, int]]:
    """Half-open ranges of a mask, or of indices, slices, ranges and pairs (start, stop)."""
    if exclude is None:
        return []
    if isinstance(exclude, list) and exclude and all(isinstance(item, bool) for item in exclude):
        exclude = np.array(exclude)
    if isinstance(exclude, np.ndarray) and exclude.dtype == bool:
        if exclude.shape != (steps,):
            raise ValueError(f"exclude: expected a mask of {steps} steps, got {exclude.shape}")
        edges = np.flatnonzero(np.diff(np.concatenate(([0], exclude.view("i1"), [0]))))
        return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
    single = isinstance(exclude, slice | range | tuple) or hasattr(exclude, "__index__")
    if single and not isinstance(exclude, np.ndarray):
        exclude = [exclude]
    if isinstance(exclude, str) or not isinstance(exclude, Iterable):
        raise _check.wrong_type("exclude", _EXCLUDED, exclude)
    return [_range(item, steps) for item in exclude]


_EXCLUDED = "a boolean mask, or indices, slices and pairs (start, stop)"


def _range(item: Any, steps: int) -> tuple[int, int]:
    if isinstance(item, slice):
        if item.step not in (None, 1):
            raise ValueError(f"exclude: expected steps of 1, got {item!r}")
        with _check.argument("exclude"):
            taken = range(steps)[item]
        return taken.start, max(taken.start, taken.stop)
    if isinstance(item, range):
        if item.step != 1:
            raise ValueError(f"exclude: expected steps of 1, got {item!r}")
        begin, end = item.start, max(item.start, item.stop)
    elif isinstance(item, tuple):
        if len(item) != 2:
            raise ValueError(f"exclude: expected a pair (start, stop), got {item!r}")
        begin, end = (_step(part) for part in item)
    else:
        begin = _step(item)
        end = begin + 1
    if not 0 <= begin <= end <= steps:
        raise ValueError(f"exclude: {item!r} is not within the {steps} steps of the arrays")
    return begin, end


def _step(value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise _check.wrong_type("exclude", _EXCLUDED, value)


def sources(
    stores: Sequence[Mapping[str, _core.Array]],
    several: bool,
    sample_dim: str | int,
    dtype: Any,
    normalize: Any,
    fill_nan: Any,
    exclude: Any,
) -> list[dict[str, Any]]:
    """The variables of each store, in the order of the first one's, and what is left out of it."""
    if not several:
        normalize, exclude = [normalize], [exclude]
    names = list(stores[0])
    result = []
    for number, (own, statistics, excluded) in enumerate(
        zip(
            stores,
            _by_source(normalize, len(stores), "normalize"),
            _by_source(exclude, len(stores), "exclude"),
            strict=True,
        )
    ):
        if set(own) != set(names):
            raise ValueError(f"arrays: {sorted(own)} in store {number}, {sorted(names)} in store 0")
        ordered = {name: own[name] for name in names}
        variables = _variables(ordered, dtype, statistics, fill_nan)
        steps = 0 if excluded is None else _extent(variables, sample_dim, "sample_dim")
        result.append({"variables": variables, "exclude": _excluded_ranges(excluded, steps)})
    return result


def _by_source(value: Any, count: int, option: str) -> Sequence[Any]:
    """One for each store; a dict is for all of them."""
    if value is None or isinstance(value, Mapping):
        return [value] * count
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ValueError(f"{option}: expected a list with one for each of the {count} stores")
    return value


def _variables(
    arrays: Mapping[str, _core.Array],
    dtype: Any,
    normalize: Mapping[str, Any] | None,
    fill_nan: Any,
) -> list[dict[str, Any]]:
    """Each array with what is done to its elements."""
    dtypes = _by_name(arrays, dtype, "dtype")
    for wanted in dtypes.values():
        with _check.argument("dtype"):
            if wanted is not None:
                _core.describe_dtype(wanted)
    fills = _by_name(arrays, fill_nan, "fill_nan")
    statistics = _by_name(arrays, normalize, "normalize")
    result = []
    for name, array in arrays.items():
        mean, std = _statistics(name, statistics.get(name))
        result.append(
            {
                "name": name,
                "array": array,
                "dtype": dtypes.get(name),
                "mean": mean,
                "std": std,
                "fill_nan": _number("fill_nan", fills.get(name)),
            }
        )
    return result


def _number(option: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise _check.wrong_type(option, "a number", value)


def _statistics(name: str, given: Any) -> tuple[list[float], list[float]]:
    """Mean and standard deviation, one or one an index."""
    if given is None:
        return [], []
    wanted = f"(mean, std) of {name!r}, as numbers"
    try:
        mean, std = given
        means, stds = (np.ravel(part).astype(float, casting="same_kind") for part in (mean, std))
    except (TypeError, ValueError):
        raise _check.wrong_type("normalize", wanted, given) from None
    if not (np.isfinite(means).all() and np.isfinite(stds).all() and (stds > 0).all()):
        raise ValueError(
            f"normalize: expected finite means and standard deviations above 0 for {name!r}, got "
            f"{given!r}"
        )
    return means.tolist(), stds.tolist()


def _by_name(arrays: Mapping[str, Any], value: Any, option: str) -> Mapping[str, Any]:
    """A value for all arrays, or those of some by name."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(arrays, value)
    if unknown := sorted(set(value) - set(arrays)):
        raise ValueError(f"{option}: no array {unknown[0]!r}, only {', '.join(arrays)}")
    return value


def patches(patch: Mapping[Any, int] | None, halo: Any, padding: Any) -> list[dict[str, Any]]:
    """Size, halo and padding of each patched dimension."""
    _check.mapping("patch", patch, "sizes by dimension")
    sizes = dict(patch or {})
    for option, given, default in (("halo", halo, 0), ("padding", padding, "zero")):
        is_default = isinstance(given, int | str | np.integer) and given == default
        if not sizes and not isinstance(given, Mapping) and not is_default:
            raise ValueError(f"{option}: got {given!r}, and there is no patch")
    for size in sizes.values():
        _check.integer("patch", size, "sizes by dimension")
    halos = halo if isinstance(halo, Mapping) else dict.fromkeys(sizes, halo)
    paddings = padding if isinstance(padding, Mapping) else dict.fromkeys(sizes, padding)
    for option, given in (("halo", halos), ("padding", paddings)):
        if unknown := [dim for dim in given if dim not in sizes]:
            raise ValueError(f"{option}: {unknown[0]!r} has no patches")
    for width in halos.values():
        _check.integer("halo", width, "a number of indices, or such by dimension")
    for how in paddings.values():
        _check.text("padding", how, '"zero" or "wrap"')
    return [
        {
            "dimension": dim,
            "size": size,
            "halo": halos.get(dim, 0),
            "padding": paddings.get(dim, "zero"),
        }
        for dim, size in sizes.items()
    ]


def selections(
    select: Mapping[Any, Any] | None, variables: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Indices of each selected dimension."""
    _check.mapping("select", select, "indices by dimension")
    result = []
    for dim, wanted in (select or {}).items():
        if not isinstance(wanted, slice):
            wanted = np.asarray(wanted)
            if wanted.size == 0:
                raise ValueError(f"select: no indices of {dim!r}")
            if wanted.dtype.kind not in "biu":
                raise _check.wrong_type("select", f"indices of {dim!r}", select)
        chosen = np.arange(_extent(variables, dim, "select"))[wanted]
        result.append({"dimension": dim, "indices": np.ravel(chosen).tolist()})
    return result


def _extent(variables: Sequence[Mapping[str, Any]], dim: str | int, option: str) -> int:
    for array in (variable["array"] for variable in variables):
        if isinstance(dim, int) and -array.ndim <= dim < array.ndim:
            return int(array.shape[dim])
        if dim in (array.dimension_names or ()):
            return int(array.shape[array.dimension_names.index(dim)])
    raise ValueError(f"{option}: no array has a dimension {dim!r}")


def stacks(stack: Mapping[str, Iterable[str]] | None) -> list[dict[str, Any]]:
    """Names of the variables of each tensor."""
    wanted = "names of arrays by the name of the tensor that holds them"
    _check.mapping("stack", stack, wanted)
    for name, members in (stack or {}).items():
        listed = isinstance(members, Iterable) and not isinstance(members, str)
        if not (isinstance(name, str) and listed):
            raise _check.wrong_type("stack", wanted, stack)
    return [{"name": name, "variables": list(members)} for name, members in (stack or {}).items()]


def lead_times(lead_time: int | Sequence[int]) -> list[int]:
    """One or several."""
    wanted = "a number of steps, or several"
    if isinstance(lead_time, str) or lead_time is None:
        raise _check.wrong_type("lead_time", wanted, lead_time)
    leads = list(lead_time) if isinstance(lead_time, Iterable) else [lead_time]
    for lead in leads:
        _check.integer("lead_time", lead, wanted)
    return [index(lead) for lead in leads]
