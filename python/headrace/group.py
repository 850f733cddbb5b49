"""Groups: mappings from names to arrays and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _check, _core, _json
from ._check import described
from ._create import check_dtype, create_array, group_handle
from ._paths import join
from ._stores import StorePlace
from ._suggest import checks_names, did_you_mean

if TYPE_CHECKING:
    from ._info import Info
    from .attributes import Attributes
    from .tree import Tree

__all__ = ["Group", "create_group"]


class Group(StorePlace):
    """A group in a Zarr store: a mapping from names to arrays and groups.

    Made by `headrace.open_group` or `headrace.open`. Nothing but metadata is read.

    Examples
    --------
    >>> group = hr.open_group("era5.zarr")
    >>> group["surface/t2m"].shape
    (240, 721, 1440)
    >>> print(group.tree())
    """

    __slots__ = ("__weakref__", "_device", "_handle", "_implementations", "_use_consolidated")

    def __init__(
        self,
        handle: _core.GroupHandle,
        device: str | None = None,
        implementations: dict[str, str] | None = None,
        use_consolidated: bool = True,
    ) -> None:
        self._handle = handle
        self._device = device
        self._implementations = implementations
        self._use_consolidated = use_consolidated

    def __getitem__(self, name: str) -> _core.Array | Group:
        if not isinstance(name, str):
            raise TypeError(f"a group's members have names, got {described(name)}")
        if not _is_name(name):
            raise KeyError(f"{name!r} names no member of /{self.path} of {self.store.url}")
        is_group = self._handle.is_group(name.strip("/"))
        if is_group is None:
            raise KeyError(
                f"no array or group {name!r} in /{self.path} of {self.store.url}"
                f"{self._what_is_there(name)}"
            )
        return self._member(name.strip("/"), is_group)

    def _what_is_there(self, name: str) -> str:
        """For a message about a name that no member has."""
        above, _, last = name.strip("/").rpartition("/")
        try:
            group = self._handle.group(above) if above else self._handle
            names = [join(above, member) for member, _ in group.members()]
        except (OSError, ValueError, NotImplementedError):
            return ""
        return _core.printable(did_you_mean(join(above, last), names, "there are"))

    def __setitem__(self, name: str, data: Any) -> None:
        """Create the array `name` of `data`, or replace the one that is there.

        It is made anew, with the chunks and codecs that `create_array` chooses. To write into the
        array that is there: ``group[name][...] = data``. A group is not replaced. The consolidated
        metadata of the groups that it is in go along with an array that is replaced.
        """
        self._check_name(name)
        if isinstance(data, Group | _core.Array):
            raise TypeError(
                f"group[{name!r}] = x: expected elements, got {described(data)}; "
                "headrace.copy copies arrays and groups"
            )
        if self._handle.is_group(name.strip("/")):
            raise ValueError(f"{name!r} is a group: remove it first, del group[{name!r}]")
        self.create_array(name, data=data, overwrite=True)

    def __delitem__(self, name: str) -> None:
        """Remove an array, or a group and everything below it, from the store.

        The consolidated metadata of the groups that it is in go on without it.
        """
        self._check_name(name)
        self._refuse_read_only("del")
        path = name.strip("/")
        if self._handle.is_group(path) is None:
            raise KeyError(
                f"no array or group {name!r} in /{self.path} of {self.store.url}"
                f"{self._what_is_there(name)}"
            )
        self._handle.remove(path)
        self._look_again()

    def _look_again(self) -> None:
        """At consolidated metadata, which go along with what is replaced or removed."""
        if self.consolidated:
            self._handle = _core.open_group(self.store, self.path, self.zarr_format, self.read_only)

    @staticmethod
    def _check_name(name: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a group's members have names, got {described(name)}")
        if not _is_name(name):
            raise KeyError(f"{name!r} names no member")

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()

    @property
    def info(self) -> Info:
        """What is known of it, as text and for notebooks: its members with shapes and types."""
        from ._info import of_group

        return of_group(self)

    def _repr_html_(self) -> str:
        from ._html import group_card

        return group_card(self)

    def _member(self, name: str, is_group: bool) -> _core.Array | Group:
        if is_group:
            return Group(
                self._handle.group(name),
                self._device,
                self._implementations,
                self._use_consolidated,
            )
        return self._handle.array(name, self._device, self.read_only, self._implementations)

    def get(self, name: str, default: Any = None) -> Any:
        """The member of that name, or `default`."""
        if not isinstance(name, str):
            return self[name]  # TypeError
        # Not by a KeyError, for whose message all members are looked at.
        is_group = self._handle.is_group(name.strip("/")) if _is_name(name) else None
        return default if is_group is None else self._member(name.strip("/"), is_group)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not _is_name(name):
            return False
        return self._handle.is_group(name.strip("/")) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._handle.members())

    def __bool__(self) -> bool:
        return True  # an empty group is a group

    def keys(self) -> list[str]:
        """Names of the members, sorted."""
        return [name for name, _ in self._handle.members()]

    def values(self) -> list[_core.Array | Group]:
        """The members, sorted by name."""
        return [member for _, member in self.items()]

    def items(self) -> list[tuple[str, _core.Array | Group]]:
        """(name, member) pairs, sorted by name."""
        return [(name, self._member(name, is_group)) for name, is_group in self._handle.members()]

    def arrays(self) -> list[tuple[str, _core.Array]]:
        """(name, array) pairs, sorted by name."""
        nodes = [(name, self._member(name, False)) for name in self.array_keys()]
        return [(name, node) for name, node in nodes if isinstance(node, _core.Array)]

    def groups(self) -> list[tuple[str, Group]]:
        """(name, group) pairs, sorted by name. Arrays are not looked at."""
        nodes = [(name, self._member(name, True)) for name in self.group_keys()]
        return [(name, node) for name, node in nodes if isinstance(node, Group)]

    def array_keys(self) -> list[str]:
        """Names of the arrays, sorted."""
        return [name for name, is_group in self._handle.members() if not is_group]

    def group_keys(self) -> list[str]:
        """Names of the groups, sorted."""
        return [name for name, is_group in self._handle.members() if is_group]

    def links_back(self) -> list[str]:
        """Names of links that lead back to this group or one it is in.

        `keys`, `items` and all that walks through groups leave them out: it would never end.
        """
        return self._handle.links_back()

    def tree(self, level: int | None = None) -> Tree:
        """Everything below, as text; `level` limits the depth.

        What cannot be opened is named with the reason, and so are links that lead back to a group
        they are in. Control characters in names are escaped.
        """
        from .tree import Tree

        return Tree.of(self, level)

    def create_array(self, name: str, **kwargs: Any) -> _core.Array:
        """Create an array below this group; see `headrace.create_array`."""
        self._refuse_read_only("create_array")
        kwargs.setdefault("zarr_format", self.zarr_format)
        array = create_array(self, name, device=kwargs.pop("device", self._device), **kwargs)
        if kwargs.get("overwrite"):
            self._look_again()
        return array

    def create_group(self, name: str, **kwargs: Any) -> Group:
        """Create a group below this one; see `headrace.create_group`."""
        self._refuse_read_only("create_group")
        kwargs.setdefault("zarr_format", self.zarr_format)
        group = create_group(self, name, **kwargs)
        if kwargs.get("overwrite"):
            self._look_again()
        return Group(group._handle, self._device, self._implementations)

    def require_group(self, name: str) -> Group:
        """The group of that name, created when missing."""
        node = self.get(name)
        if node is None:
            return self.create_group(name)
        if not isinstance(node, Group):
            raise ValueError(f"{name!r} is an array, expected a group")
        return node

    def require_array(
        self, name: str, *, shape: Any, dtype: Any = None, exact: bool = False, **kwargs: Any
    ) -> Any:
        """The array of that name, created when missing; another shape or dtype is an error.

        A dtype to which that of the array is cast safely will do, unless `exact` is set. The order
        of bytes makes no other dtype.
        """
        wanted = _check.shape(shape)
        _check.flag("exact", exact)
        if dtype is not None:
            check_dtype(dtype)
        node = self.get(name)
        if node is None:
            return self.create_array(name, shape=shape, dtype=dtype, **kwargs)
        if not isinstance(node, _core.Array):
            raise ValueError(f"{name!r} is a group, expected an array")
        if node.shape != wanted:
            raise ValueError(f"{name!r}: expected shape {wanted}, got {node.shape}")
        if dtype is not None and not _is_of_type(node, dtype, exact):
            raise TypeError(f"{name!r}: expected dtype {dtype}, got {node.dtype}")
        return node

    def _refuse_read_only(self, what: str) -> None:
        if self.read_only:
            where = _core.printable(f"/{self.path} in {self.store.url}")
            raise PermissionError(f"[{what}] {where} was opened read-only, use mode='r+'")

    @property
    def attrs(self) -> Attributes:
        """The user attributes: a mutable mapping that writes through."""
        from .attributes import Attributes

        return Attributes(self)

    def _attributes_json(self) -> str:
        return self._handle._attributes_json()

    def _set_attributes_json(self, json: str) -> None:
        self._handle._set_attributes_json(json)

    def _update_attributes(self, set: str, remove: list[str], keep_present: bool) -> str:
        return self._handle._update_attributes(set, remove, keep_present)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata document as stored."""
        result: dict[str, Any] = _json.loads(self._handle.metadata_json)
        return result

    @property
    def store(self) -> _core.Store:
        """The store that keeps it."""
        return self._handle.store

    def close(self) -> None:
        """Close the store: a zip archive that is written appears only then, whole.

        Usable in a ``with`` statement, which closes it, and discards the archive when the block
        raises.

        Examples
        --------
        >>> with hr.open("new.zip", mode="w") as group:
        ...     group.create_array("x", shape=(3,), dtype="int32")[:] = [1, 2, 3]
        """
        self.store.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *raised: object) -> None:
        self.store.__exit__(*raised)

    @property
    def path(self) -> str:
        """Path within the store; empty for the root."""
        return self._handle.path

    @property
    def name(self) -> str:
        """The path with a leading slash."""
        return "/" + self.path

    @property
    def zarr_format(self) -> int:
        """2 or 3."""
        return self._handle.zarr_format

    @property
    def read_only(self) -> bool:
        """Whether writes raise `PermissionError`."""
        return self._handle.read_only

    @property
    def consolidated(self) -> bool:
        """Whether members come from consolidated metadata."""
        return self._handle.consolidated

    def __repr__(self) -> str:
        return f"<headrace.Group {_core.printable(f'{self.name} in {self.store.url}')}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, self._arguments()

    def __copy__(self) -> Group:
        return _reopen(*self._arguments())

    def __deepcopy__(self, memo: object) -> Group:
        return self.__copy__()  # a handle on the same store, which may be in memory

    def _arguments(self) -> tuple[Any, ...]:
        return (
            self.store,
            self.path,
            self.zarr_format,
            self.read_only,
            self._device,
            self._implementations,
            self._use_consolidated,
        )


@checks_names
def create_group(
    store: Any,
    path: str | None = None,
    *,
    attributes: Mapping[str, Any] | None = None,
    zarr_format: int = 3,
    overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> Group:
    """Create a group.

    Parameters
    ----------
    store
        A path or URL (created when missing), a `Store`, or a `Group`.
    path
        Path within the store; the root when left away.
    attributes
        User attributes, JSON values.
    zarr_format
        2 or 3.
    overwrite
        Remove what is there.
    storage_options
        Options of the store, see `open_store`.

    Raises
    ------
    ValueError
        Something is there already.

    Examples
    --------
    >>> group = hr.create_group("new.zarr", attributes={"title": "test"})
    >>> group.create_array("x", shape=(10,), dtype="int32")
    """
    handle = group_handle(store, path, attributes, zarr_format, overwrite, storage_options)
    return Group(handle)


def _is_of_type(array: _core.Array, dtype: Any, exact: bool) -> bool:
    import numpy as np

    try:
        wanted = np.dtype(dtype)
    except TypeError:  # a name that Zarr alone has
        wanted = None
    if wanted is not None and wanted.kind == "O":  # what kind of objects is not said
        return bool(array.dtype == object)
    if _core.describe_dtype(dtype)[0] == _core.describe_dtype(array)[0]:
        return True
    # str and bytes are no types of NumPy to cast to.
    return (
        not exact
        and wanted is not None
        and wanted.itemsize > 0
        and np.can_cast(array.dtype, wanted)
    )


def _is_name(name: str) -> bool:
    """Whether some member may have it. Bytes that are no UTF-8 are as in `os.listdir`."""
    try:
        name.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return bool(name.strip("/"))


def _reopen(
    store: _core.Store,
    path: str,
    zarr_format: int,
    read_only: bool,
    device: str | None,
    implementations: dict[str, str] | None,
    use_consolidated: bool,
) -> Group:
    handle = _core.open_group(store, path, zarr_format, read_only, use_consolidated)
    return Group(handle, device, implementations, use_consolidated)


def __dir__() -> list[str]:
    return __all__
