"""What may be shown and written down of URLs and options with secrets in them."""

import io
import json
import pickle

import headrace as hr
import numpy as np
import pytest
from cloud_servers import file_server
from headrace import _references, _secrets

SECRET = "TOPSECRET"


def shown(call):
    with pytest.raises(Exception) as caught:
        call()
    error, texts = caught.value, []
    while error is not None:
        texts.append(f"{error!r} {error}")
        error = error.__cause__ or error.__context__
    return " ".join(texts)


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://me:{SECRET}@127.0.0.1/x",
        f"fsspec+https://me:{SECRET}@127.0.0.1:1/x?sig={SECRET}",
        f"nobody-knows://me:{SECRET}@host/x?{SECRET}",
        f"simplecache::nobody-knows://{SECRET}@host/x",
        f"s3://key:{SECRET}@bucket/x",
        f"https://me:{SECRET}@127.0.0.1:1/x?{SECRET}",
    ],
)
def test_no_message_shows_what_a_url_hides(url):
    assert SECRET not in shown(lambda: hr.open(url, mode="r+"))


def test_options_of_a_wrong_type_are_not_shown():
    assert SECRET not in shown(lambda: hr.open_store("s3://b", storage_options=f"key={SECRET}"))
    assert SECRET not in shown(lambda: hr.open_store("s3://b", storage_options=[("key", SECRET)]))


@pytest.mark.parametrize(
    "options",
    [
        {"proxy_url": f"http://me:{SECRET}@proxy:3128"},
        {"client_options": {"proxy_url": f"http://me:{SECRET}@proxy:3128"}},
        {"client_options": f'{{"proxy_url": "http://{SECRET}@proxy"}}'},
        {"allow": [f"https://me:{SECRET}@host/"]},
        {"allow": f"https://host/a,https://host/b?signature={SECRET}"},
        {"allow": f'["https://me:{SECRET}@host/"]'},
    ],
)
def test_a_user_within_a_url_of_an_option_is_a_secret(options):
    left, name = _secrets.set_aside(options)
    assert left == {}
    assert _secrets.restored(left, name) == options


def test_urls_without_secrets_stay():
    options = {"proxy_url": "http://proxy:3128", "allow": ["https://host/a@b/", "s3://b"]}
    assert _secrets.set_aside(options) == (options, "")
    for text in ("https://host/a@b", "s3://bucket/a?b is no object", "no URL? none"):
        assert _secrets.shown(text).split()[0] == text.split("?")[0].split()[0]


def test_the_query_of_a_url_outlives_a_pickle(tmp_path):
    array = hr.create_array(tmp_path / "x.zarr", shape=(4,), dtype="i4", chunks=(2,))
    array[:] = [1, 2, 3, 4]

    def refused(request):
        return not request.path.endswith(f"?sig={SECRET}") and 403

    with file_server(tmp_path, refused) as root:
        url = f"{root}/x.zarr"
        opened = hr.open(f"{url}?sig={SECRET}")
        text = pickle.dumps(opened)
        assert SECRET.encode() not in text
        assert SECRET not in repr(opened) + opened.store.url
        assert list(pickle.loads(text)[:]) == [1, 2, 3, 4]
        with pytest.raises(PermissionError):
            hr.open(url)


@pytest.mark.parametrize("start", [b"nothing", b"SIMPLE  ="])
def test_messages_of_references_show_no_secret(start):
    """What a file across a network is not, is said without its user and its query."""
    place = f"https://me:{SECRET}@host.example/a.nc?signature={SECRET}"
    told = shown(lambda: _references._read_open(io.BytesIO(start), place, None, None))
    assert "host.example/a.nc" in told and SECRET not in told


def wants_a_user(request):
    return not request.headers.get("Authorization") and 401


@pytest.fixture
def references(tmp_path):
    """The URL, with a user, of references to an array of 1, 2, 3, 4."""
    (tmp_path / "data.bin").write_bytes(np.array([1, 2, 3, 4], "<i4").tobytes())
    array = hr.create_array(
        tmp_path / "x.zarr", shape=(4,), dtype="i4", compressors=None, zarr_format=2
    )
    refs = {".zarray": json.dumps(array.metadata), "0": ["data.bin", 0, 16]}
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    with file_server(tmp_path, wants_a_user) as root:
        yield f"reference://{root.replace('://', f'://me:{SECRET}@')}/refs.json"


@pytest.mark.parametrize("allow", [None, "https://elsewhere.example/"])
def test_the_user_of_references_outlives_a_pickle(references, allow):
    zarr = pytest.importorskip("zarr")
    import headrace.zarr

    options = None if allow is None else {"allow": allow}
    store = headrace.zarr.Store(references, read_only=True, storage_options=options)
    opened = hr.open_array(references, storage_options=options)
    for text in (pickle.dumps(store), pickle.dumps(opened)):
        assert SECRET.encode() not in text
    if allow is not None:  # other hosts are not to be told who asks, so that it is no option
        return
    again = pickle.loads(pickle.dumps(store)).with_read_only(True)
    assert list(zarr.open_array(again, mode="r")[:]) == [1, 2, 3, 4]
    assert list(pickle.loads(pickle.dumps(opened))[:]) == [1, 2, 3, 4]


@pytest.mark.parametrize("scheme", ["icechunk+", "icechunk://"])
def test_the_user_of_an_icechunk_repository_is_an_option(scheme):
    url, options = _secrets.without_secrets(f"{scheme}https://me:{SECRET}@host/r?snapshot=S", {})
    assert url == f"{scheme}https://host/r?snapshot=S"
    assert options == {"user": "me", "password": SECRET}


def test_no_file_of_references_holds_a_secret(tmp_path):
    out = tmp_path / "refs.json"
    with pytest.raises(ValueError, match=r"host\.example/a\.nc: the user in this URL") as told:
        hr.references(f"https://me:{SECRET}@host.example/a.nc", out=out)
    assert SECRET not in str(told.value)
    with pytest.raises(NotImplementedError, match=r"host\.example/a\.nc: references lead") as told:
        hr.references(f"https://host.example/a.nc?signature={SECRET}")
    assert SECRET not in str(told.value)
    assert not out.exists()
