"""Views of an array that compose selections and read nothing until asked."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._dimensions import selection

if TYPE_CHECKING:
    import numpy as np

    from ._core import Array, Future

__all__ = ["LazyArray"]

# What is taken along one dimension of the array: one index, or a range of them.
_Dim = int | range


def _slice(taken: range) -> slice:
    if len(taken) == 0:
        return slice(0, 0)
    stop = taken[-1] + (1 if taken.step > 0 else -1)
    return slice(taken.start, None if stop < 0 else stop, taken.step)


class LazyArray:
    """A view of an array: basic selections compose, `read` reads.

    A selection may be a dict by the names of dimensions: ``a.lazy[{"time": 0}]``.

    Examples
    --------
    >>> view = a.lazy[10:, ::2][5]
    >>> view.shape
    (361, 1440)
    >>> view.read()
    """

    __slots__ = ("__weakref__", "_array", "_axes", "_dims")

    def __init__(
        self,
        array: Array,
        dims: tuple[_Dim, ...] | None = None,
        axes: tuple[int | None, ...] | None = None,
    ) -> None:
        self._array = array
        self._dims = dims if dims is not None else tuple(range(n) for n in array.shape)
        # The dimension of the array that each axis of the view runs along; None for a new axis.
        self._axes = axes if axes is not None else tuple(range(len(self._dims)))

    def _taken(self, axis: int | None) -> range:
        """What an axis of the view runs along: of an array that was made smaller, what is left."""
        if axis is None:
            return range(1)
        dim = self._dims[axis]
        assert isinstance(dim, range)
        return range(self._array.shape[axis])[_slice(dim)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what `read` returns."""
        return tuple(len(self._taken(axis)) for axis in self._axes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the array."""
        return self._array.dtype

    @property
    def ndim(self) -> int:
        """Number of axes of the view."""
        return len(self._axes)

    @property
    def size(self) -> int:
        """Number of elements of the view."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of what `read` returns."""
        return self.size * self._array.itemsize

    @property
    def array(self) -> Array:
        """The array behind the view."""
        return self._array

    @property
    def selection(self) -> tuple[Any, ...]:
        """The key that gives the same elements of the array."""
        key: list[Any] = []
        axes = list(self._axes)
        for dim in self._dims:
            if isinstance(dim, int):
                key.append(dim)
                continue
            while axes and axes[0] is None:
                axes.pop(0)
                key.append(None)
            axes.pop(0)
            key.append(_slice(dim))
        key += [None] * len(axes)
        return tuple(key)

    def _names(self) -> list[str | None]:
        """Of its axes; new ones have none."""
        names = self._array.dimension_names
        return [None if axis is None or names is None else names[axis] for axis in self._axes]

    def __getitem__(self, key: Any) -> LazyArray:
        if isinstance(key, Mapping):
            key = selection(key, self._names(), self.ndim)
        items = key if isinstance(key, tuple) else (key,)
        dims = list(self._dims)
        axes: list[int | None] = []
        left = list(self._axes)
        for item in self._expand(items):
            if item is None:
                axes.append(None)
                continue
            axis = left.pop(0)
            taken = self._taken(axis)
            if isinstance(item, slice):
                if axis is None and len(taken[item]) != 1:
                    raise IndexError("a new axis of a lazy view cannot be made empty")
                axes.append(axis)
                if axis is not None:
                    dims[axis] = taken[item]
            else:
                index = self._index(item, taken)
                if axis is not None:
                    dims[axis] = index
        return LazyArray(self._array, tuple(dims), tuple(axes))

    def _expand(self, items: tuple[Any, ...]) -> list[Any]:
        """The items with an ellipsis written out: one for each axis, and None for new ones."""
        given = sum(item is not None and item is not Ellipsis for item in items)
        if given > self.ndim:
            raise IndexError(f"too many indices: the view has {self.ndim} axes, got {given}")
        if sum(item is Ellipsis for item in items) > 1:
            raise IndexError("a key takes one ellipsis (...)")
        rest = [slice(None)] * (self.ndim - given)
        expanded: list[Any] = []
        for item in items:
            expanded += rest if item is Ellipsis else [item]
        return expanded if any(item is Ellipsis for item in items) else expanded + rest

    @staticmethod
    def _index(item: Any, taken: range) -> int:
        if isinstance(item, bool):
            raise IndexError("a lazy view takes integers, slices, ellipsis and None, got a boolean")
        try:
            index = operator.index(item)
        except TypeError:
            raise IndexError(
                f"a lazy view takes integers, slices, ellipsis and None, got {item!r}"
            ) from None
        try:
            return taken[index]
        except IndexError:
            raise IndexError(
                f"index {index} is outside the view's axis of length {len(taken)}"
            ) from None

    def read(self, *, out: Any = None, **kwargs: Any) -> Any:
        """Read the view; parameters as of `headrace.Array.read`."""
        return self._array.read(self.selection, out=out, **kwargs)

    def read_async(self, *, out: Any = None, **kwargs: Any) -> Future[Any]:
        """Read the view in the background; parameters as of `headrace.Array.read_async`."""
        return self._array.read_async(self.selection, out=out, **kwargs)

    def to_arrow(self, **kwargs: Any) -> Any:
        """Read the view to an array of Arrow; parameters as of `headrace.Array.to_arrow`."""
        return self._array.to_arrow(self.selection, **kwargs)

    def read_ragged(self, **kwargs: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Read the view to values and offsets; parameters as of `headrace.Array.read_ragged`."""
        return self._array.read_ragged(self.selection, **kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("__array__: a view of a store cannot be read without a copy")
        result: np.ndarray[Any, Any] = self.read(device="cpu")
        return result if dtype is None else result.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self._axes:
            raise TypeError("len() of a view without axes")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<headrace.LazyArray shape={self.shape} {self.dtype} of {self._array!r}>"


def view_of(array: Array | LazyArray, selection: Any = None) -> LazyArray:
    """An array, or a view of one, as a view; of the selection when there is one."""
    view = array if isinstance(array, LazyArray) else array.lazy
    return view if selection is None else view[selection]


def __dir__() -> list[str]:
    return __all__
