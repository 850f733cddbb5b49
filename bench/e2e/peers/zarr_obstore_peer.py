"""zarr-python over obstore, with default settings; arrays at a URL."""

import importlib.metadata

import zarr
from e2e.data import create
from e2e.peers.zarr_peer import read, write  # noqa: F401
from e2e.peers.zarr_peer import versions as zarr_versions
from obstore.store import S3Store, from_url
from zarr.storage import ObjectStore

MEMORY = False


def versions() -> dict:
    return {**zarr_versions(), "obstore": importlib.metadata.version("obstore")}


def store_at(url: str) -> ObjectStore:
    return ObjectStore(from_url(url, client_options={"allow_http": True}), read_only=True)


def open_array(url: str):
    return zarr.open_array(store_at(url), mode="r")


def create_in_bucket(url: str, spec: dict):
    bucket, _, path = url.removeprefix("s3://").partition("/")
    store = S3Store(
        bucket,
        prefix=path,
        endpoint=spec["endpoint"],
        region="us-east-1",
        skip_signature=True,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    return create(ObjectStore(store), spec)
