"""References that VirtualiZarr makes, by its parsers and its writer of kerchunk's."""

from __future__ import annotations

import urllib.parse
import warnings
from collections.abc import Callable
from typing import Any

from . import _secrets
from ._paths import SCHEME

# Format, and the name of its parser in `virtualizarr.parsers`.
PARSERS = {
    "HDF5 and NetCDF 4": "HDFParser",
    "NetCDF 3": "NetCDF3Parser",
    "FITS": "FITSParser",
    "DMR++": "DMRPPParser",
}


def read_virtual(
    library: Callable[..., Any], url: str, kind: str, options: dict[str, Any] | None
) -> dict[str, Any]:
    """Kerchunk's references of the root group; `library` imports, or says what is not installed."""
    shown = _secrets.shown(url)
    what = f"{shown}: {kind} by VirtualiZarr"
    packages = "virtualizarr obstore xarray"
    virtualizarr = library("virtualizarr", what, packages)
    parsers = library("virtualizarr.parsers", what, packages)
    registry = library("obspec_utils.registry", what, packages)
    stores = library("obstore.store", what, packages)
    name = PARSERS.get(kind)
    if name is None:
        raise NotImplementedError(f"{shown}: {kind} is nothing that VirtualiZarr parses")
    place = url if SCHEME.match(url) else f"file://{url}"
    # It takes the path of the URL alone, and would read another file than this.
    parsed = urllib.parse.urlparse(place)
    if parsed.netloc + parsed.path != place.partition("://")[2]:
        raise NotImplementedError(
            f"{what}, which reads no file with '#' or '?' in its name, and no URL with a query"
        )
    if SCHEME.match(url):
        parts = urllib.parse.urlsplit(url)
        root = f"{parts.scheme}://{parts.netloc}"
        store: Any = stores.from_url(root, **(options or {}))
    else:
        root, store = "file://", stores.LocalStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with virtualizarr.open_virtual_dataset(
                place,
                registry=registry.ObjectStoreRegistry({root: store}),
                parser=getattr(parsers, name)(),
                loadable_variables=[],
            ) as virtual:
                found: dict[str, Any] = virtual.vz.to_kerchunk(format="dict")
        except ImportError as error:
            raise NotImplementedError(f"{what}: {error}") from error
    for reference in found["refs"].values():
        if isinstance(reference, list) and str(reference[0]).startswith("file://"):
            reference[0] = urllib.parse.unquote(reference[0].removeprefix("file://"))
    return found
