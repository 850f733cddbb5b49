"""Objects with a name that other processes of the user attach to."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from .. import _core
from ._pickle import dumps, loads


class Publication:
    """What `publish` gives: others can attach as long as it lives and is not closed.

    Examples
    --------
    >>> with shm.publish("weights", state) as publication:
    ...     publication.nbytes
    """

    def __init__(self, core: _core.ShmPublication) -> None:
        self._core = core

    @property
    def name(self) -> str:
        """What others give to `attach`."""
        return self._core.name

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory."""
        return self._core.nbytes

    def close(self) -> None:
        """Nobody can attach any more; who has attached keeps the object."""
        self._core.close()

    def __enter__(self) -> Publication:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<headrace.shm.Publication {self.name!r}, {self.nbytes} bytes>"


def publish(name: str, obj: Any) -> Publication:
    """Give other processes of this user on this machine an object, by name.

    Its arrays are copied once, to memory that all who attach share.

    Parameters
    ----------
    name
        1 to 64 bytes.
    obj
        Anything that pickles.

    Raises
    ------
    ValueError
        The name is taken, be it by another user.

    Examples
    --------
    >>> with headrace.shm.publish("era5", dataset):
    ...     train()
    """
    return Publication(_core.shm_publish(name, dumps(obj, None)))


def attach(name: str, timeout: float | None = 0, copy: bool = False) -> Any:
    """The object that a process of this user publishes, which must be trusted as a pickle is.

    What other users serve by that name is not opened.

    Arrays of 2 KiB and more are read-only views of memory that all who attach share. Tensors of
    PyTorch cannot be read-only: writing to one ends the process.

    Parameters
    ----------
    timeout
        Seconds to wait for its publication; None: for ever.
    copy
        Arrays have memory of their own.

    Raises
    ------
    FileNotFoundError
        No process of this user has published it; the error says which user has.
    headrace.CorruptError
        What a process of this user serves by that name is no publication.

    Examples
    --------
    >>> state = shm.attach("weights", timeout=30)
    """
    return loads(_core.shm_attach(name, timeout), copy)
