"""References that VirtualiZarr makes, by its parsers and its writer of kerchunk's."""

from __future__ import annotations

import urllib.parse
import warnings
from collections.abc import Callable, Sequence
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

PACKAGES = "virtualizarr obstore xarray"


def _store_of(
    library: Callable[..., Any], url: str, options: dict[str, Any] | None
) -> tuple[Any, str]:
    """obstore's store of the bucket or host, and its URL."""
    what = f"{_secrets.shown(url)}: files across a network by VirtualiZarr"
    stores = library("obstore.store", what, PACKAGES)
    parts = urllib.parse.urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    return stores.from_url(root, **(options or {})), root


def open_remote(library: Callable[..., Any], url: str, options: dict[str, Any] | None) -> Any:
    """The file by obstore, whose names the options have."""
    _check_name(url, _secrets.shown(url))
    obstore = library("obstore", _secrets.shown(url), PACKAGES)
    store, _ = _store_of(library, url, options)
    return obstore.open_reader(store, urllib.parse.urlsplit(url).path.lstrip("/"))


def own_options(urls: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """obstore's options for headrace's stores, of which that of web servers has no nested ones."""
    if not all(url.lower().startswith(("http://", "https://")) for url in urls):
        return options
    client = {"allow_http": True, **options.get("client_options", {})}
    del client["allow_http"]
    return {
        **{name: value for name, value in options.items() if name != "client_options"},
        **client,
    }


def _check_name(place: str, what: str) -> None:
    """VirtualiZarr takes the path of a URL alone, and would read another file than this."""
    parsed = urllib.parse.urlparse(place)
    if parsed.netloc + parsed.path != place.partition("://")[2]:
        raise NotImplementedError(
            f"{what}: VirtualiZarr reads no name with '#' or '?', and no URL with a query"
        )


def read_virtual(
    library: Callable[..., Any], url: str, kind: str, options: dict[str, Any] | None
) -> dict[str, Any]:
    """Kerchunk's references of the root group; `library` imports, or says what is not installed."""
    shown = _secrets.shown(url)
    what = f"{shown}: {kind} by VirtualiZarr"
    virtualizarr = library("virtualizarr", what, PACKAGES)
    parsers = library("virtualizarr.parsers", what, PACKAGES)
    registry = library("obspec_utils.registry", what, PACKAGES)
    stores = library("obstore.store", what, PACKAGES)
    name = PARSERS.get(kind)
    if name is None:
        raise NotImplementedError(f"{shown}: {kind} is nothing that VirtualiZarr parses")
    place = url if SCHEME.match(url) else f"file://{url}"
    _check_name(place, shown)
    if SCHEME.match(url):
        store, root = _store_of(library, url, options)
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
