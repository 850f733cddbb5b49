"""Which library's arrays stand for memory on a device."""

from __future__ import annotations

import importlib
from types import ModuleType


def library_for(device: str, library: str | ModuleType | None) -> str:
    """The name of the module that holds arrays on `device`: CuPy on GPUs when none is named.

    Raises
    ------
    ImportError
        It cannot be imported.
    NotImplementedError
        PyTorch: its tensors do not follow the array API standard.
    """
    if isinstance(library, ModuleType):
        return library.__name__
    if library == "torch":
        raise NotImplementedError(
            "array_library='torch': torch.Tensor does not follow the Python array API standard, "
            "which xarray and Dask build on; use 'cupy', and torch.from_dlpack on the result, "
            "which copies nothing"
        )
    name = library or ("numpy" if device == "simt" else "cupy")
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"device={device!r}: results there are arrays of {name}, which cannot be imported "
            f"({error}); install cupy-cuda12x or cupy-cuda13x, or name another array_library"
        ) from error
    return name
