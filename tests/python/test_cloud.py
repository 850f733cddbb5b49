"""S3, Google Cloud Storage and Azure, against servers on this machine."""

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys

import cloud_servers
import headrace as hr
import numpy as np
import pytest
from cloud_servers import ACCOUNT, ACCOUNT_KEY, KEY, SECRET
from headrace import _core
from helpers import assert_same

zarr = pytest.importorskip("zarr", minversion="3.1.6")
obstore = pytest.importorskip("obstore")

ODD_KEYS = [
    "a=b/c d*+~%",
    "plain",
    "plain/below",
    "x?y#z&w",
    "%41/%2F",
    "q'(!$,;:@)\"<>",
    "\xe9/\xfc/\u65e5\u672c",
    "a//b".replace("//", "/+/"),
    "-._~/[]{}|^`",
]


@pytest.fixture(scope="module", params=["rclone", "moto", "gcs", "azure"])
def cloud(request, tmp_path_factory):
    start = {
        "rclone": lambda: cloud_servers.rclone(tmp_path_factory.mktemp("rclone")),
        "moto": cloud_servers.moto,
        "gcs": cloud_servers.gcs,
        "azure": cloud_servers.azure,
    }[request.param]
    with start() as server:
        yield server


@pytest.fixture
def prefix(request):
    return "t/" + request.node.name.translate(str.maketrans("[]", "__"))


def opened(cloud, prefix, mode="a", **options):
    return _core.open_store(cloud.url(prefix), mode, {**cloud.options, **options})


def data_of(shape):
    return np.random.default_rng(1).integers(0, 1000, shape, "int32")


def zarr_store(cloud, prefix, read_only=False):
    return zarr.storage.ObjectStore(cloud.obstore(prefix), read_only=read_only)


@pytest.mark.parametrize("shards", [None, (32, 64)])
def test_others_read_what_headrace_writes(cloud, prefix, shards):
    data = data_of((50, 130))
    store = opened(cloud, prefix, "w-")
    array = hr.create_array(store, shape=data.shape, dtype="int32", chunks=(16, 32), shards=shards)
    array[:] = data
    array[3:5, 7:90] = data[3:5, 7:90] = -1
    if not (cloud.name == "rclone" and shards):  # obstore wants 206 for ranges, rclone says 200
        assert_same(zarr.open_array(zarr_store(cloud, prefix), mode="r")[:], data)
    again = hr.open(opened(cloud, prefix, "r"))
    assert_same(again[:], data)
    assert_same(again[10:40:3, [0, 100, 5]], data[10:40:3, [0, 100, 5]])
    with pytest.raises(ValueError, match="not empty"):
        opened(cloud, prefix, "w-")


@pytest.mark.parametrize("shards", [None, (32, 64)])
def test_headrace_reads_what_others_write(cloud, prefix, shards):
    data = data_of((50, 130))
    group = zarr.create_group(zarr_store(cloud, prefix))
    group.create_array("a b", shape=data.shape, dtype="int32", chunks=(16, 32), shards=shards)
    group["a b"][:] = data
    found = hr.open(opened(cloud, prefix, "r"))
    assert list(found) == ["a b"]
    assert_same(found["a b"][:], data)
    assert_same(found["a b"][:, 64], data[:, 64])


def test_keys_of_odd_names(cloud, prefix):
    # There a folder and an object can not have one name.
    keys = [k for k in ODD_KEYS if k != "plain" or cloud.name != "rclone"]
    store = opened(cloud, prefix)
    for key in keys:
        store._set(key, key.encode())
    assert store._list() == sorted(keys, key=str.encode)
    other = cloud.obstore(prefix)
    for key in keys:
        assert bytes(store._get(key)) == key.encode()
        assert store._exists(key)
        if not any(c in key for c in "%#"):  # obstore encodes these in keys
            assert bytes(obstore.get(other, key).bytes()) == key.encode()
    assert sorted(store._list_dir("\xe9/")) == ["\xfc"]
    store._erase(keys[0])
    store._erase(keys[0])
    assert store._get(keys[0]) is None
    assert not store._exists(keys[0])
    store._erase_prefix("")
    assert store._list() == []


def test_prefixes_of_odd_names(cloud, prefix):
    here = f"{prefix}/a=b/c d+%41.zarr"
    store = opened(cloud, here)
    store._set("x/y", b"1")
    assert store.url.endswith("/a=b/c d+%41.zarr")
    assert opened(cloud, prefix)._list() == ["a=b/c d+%41.zarr/x/y"]
    assert opened(cloud, here)._list_dir("") == ["x"]


def test_ranges(cloud, prefix):
    store = opened(cloud, prefix)
    data = bytes(range(256)) * 10
    store._set("k", data)
    assert bytes(store._get("k", 5, 20)) == data[5:25]
    assert bytes(store._get("k", -7)) == data[-7:]
    assert bytes(store._get("k", -7, 3)) == data[-7:-4]
    store._set("empty", b"")
    assert bytes(store._get("empty")) == b""


def test_lists_of_several_pages(cloud, prefix):
    store = opened(cloud, prefix)
    keys = [f"c/{i:04d}" for i in range(2001)] + ["d/e/f", "g"]  # pages of S3 and GCS have 1,000
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store._set(key, b"x"), keys))
    assert store._list() == keys
    assert store._list_dir("") == ["c", "d", "g"]
    assert len(store._list_dir("c/")) == 2001
    assert store._list("d/") == ["d/e/f"]
    store._erase_prefix("c")
    assert store._list() == ["d/e/f", "g"]


def test_objects_in_parts(cloud, prefix):
    store = opened(cloud, prefix)
    data = np.random.default_rng(2).bytes((70 << 20) + 3)
    store._set("large", data)
    assert bytes(store._get("large")) == data
    assert obstore.head(cloud.obstore(prefix), "large")["size"] == len(data)


def test_writes_with_a_condition(cloud, prefix):
    if cloud.name == "rclone":
        pytest.skip("rclone serve s3 knows no conditional writes")
    store = opened(cloud, prefix)
    store._set_new("k", b"first")
    with pytest.raises(hr.ConflictError) as caught:
        store._set_new("k", b"second")
    assert no_secrets(cloud, caught.value)
    assert bytes(store._get("k")) == b"first"


APPENDER = """
import json, sys
import headrace as hr
import numpy as np

url, options, me, rows = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
array = hr.open(url, mode="r+", storage_options=options)["a"]
print("ready", flush=True)
sys.stdin.readline()
for i in range(rows):
    array.append(np.full((1, 8), 1 + me * rows + i, "int32"))
    array.attrs[f"w{me}-{i}"] = i
"""


def test_two_processes_append_and_lose_nothing(cloud, prefix):
    if cloud.name == "rclone":
        pytest.skip("rclone serve s3 knows no conditional writes")
    store = opened(cloud, prefix)
    hr.create_group(store).create_array("a", shape=(0, 8), dtype="int32", chunks=(5, 8))
    rows = 8
    command = [sys.executable, "-c", APPENDER, cloud.url(prefix), json.dumps(cloud.options)]
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, str(me), str(rows)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for me in range(2)
        ]
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        assert [writer.wait(120) for writer in writers] == [0, 0]
    array = hr.open(store)["a"]
    assert array.shape == (2 * rows, 8)
    assert sorted(array[:, 7].tolist()) == list(range(1, 2 * rows + 1))
    assert len(array.attrs) == 2 * rows


def test_parts_of_one_chunk_by_two_processes(cloud, prefix):
    if cloud.name == "rclone":
        pytest.skip("rclone serve s3 knows no conditional writes")
    store = opened(cloud, prefix)
    array = hr.create_array(store, shape=(64,), dtype="int32", chunks=(64,))
    # Pools of two interpreters, which share no lock.
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(4, spawn) as pool:
        parts = [(cloud.url(prefix), cloud.options, part) for part in range(16)]
        list(pool.map(_write_part, *zip(*parts, strict=True)))
    assert_same(array[:], np.repeat(np.arange(1, 17, dtype="int32"), 4))


def _write_part(url, options, part):
    array = hr.open(url, mode="r+", storage_options=options)
    array[4 * part : 4 * part + 4] = part + 1


def no_secrets(cloud, *things):
    text = " ".join(f"{thing!r} {thing}" for thing in things)
    return not [secret for secret in cloud.secrets if secret in text]


def test_secrets_are_never_shown(cloud, prefix):
    store = opened(cloud, prefix)
    hr.create_array(store, shape=(4,), dtype="int32")
    array = hr.open(store)
    assert no_secrets(cloud, store, store.url, array, array.store, store._identity())
    wrong = "".join(reversed(cloud.secrets[0]))
    options = {k: wrong if v == cloud.secrets[0] else v for k, v in cloud.options.items()}
    cloud.secrets.append(wrong)
    if cloud.name == "moto":
        return  # it verifies nothing
    try:
        store = _core.open_store(cloud.url(prefix), "r", options)
    except ValueError as error:  # no base64 backwards
        assert no_secrets(cloud, error)
        return
    with pytest.raises(PermissionError) as caught:
        store._list()
    assert no_secrets(cloud, caught.value)
    assert "answered 40" in str(caught.value)


def test_errors_name_what_to_do(cloud, prefix):
    cloud.bucket, before = "nowhere", cloud.bucket
    try:
        store = opened(cloud, prefix)
        with pytest.raises(FileNotFoundError, match="404"):
            store._list()
    finally:
        cloud.bucket = before
    with pytest.raises(ValueError, match='"aws_acess_key_id" means nothing'):
        opened(cloud, prefix, aws_acess_key_id=SECRET)
    with pytest.raises(ValueError, match='"tineout" means nothing'):
        opened(cloud, prefix, client_options={"tineout": "1s"})
    with pytest.raises(ValueError, match="storage_options") as caught:
        _core.open_store(f"s3://{KEY}:hidden@bucket/a", "r", {})
    assert "hidden" not in str(caught.value)
    with pytest.raises(ValueError) as caught:  # a key with a slash ends the bucket's name
        _core.open_store(f"s3://{KEY}:{SECRET}@bucket/a", "r", {})
    assert SECRET not in str(caught.value)


def test_read_only(cloud, prefix):
    store = opened(cloud, prefix, "r")
    with pytest.raises(PermissionError):
        store._set("k", b"")


@contextlib.contextmanager
def environment(**variables):
    """Only these of all that name credentials."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GS_")):
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with cloud_servers.rclone(tmp_path_factory.mktemp("s3")) as server:
        yield server


def test_s3_by_names_of_fsspec_and_obstore_and_the_environment(s3, tmp_path):
    opened(s3, "names")._set("k", b"v")
    kwargs = {"endpoint_url": s3.endpoint, "region_name": "us-east-1"}
    fsspec = {"key": KEY, "secret": SECRET, "client_kwargs": kwargs}
    names = {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "endpoint": s3.endpoint,
        "aws_region": "us-east-1",
        "client_options": {"timeout": "30s", "allow_http": True},
    }
    for options in (fsspec, names):
        assert bytes(_core.open_store(s3.url("names"), "r", options)._get("k")) == b"v"
    with environment(
        AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_ENDPOINT_URL_S3=s3.endpoint
    ):
        assert bytes(_core.open_store(s3.url("names"), "r", {})._get("k")) == b"v"
    credentials, config = tmp_path / "credentials", tmp_path / "config"
    credentials.write_text(f"[p]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    config.write_text(f"[profile p]\nendpoint_url = {s3.endpoint}\nregion = us-east-1\n")
    with environment(AWS_SHARED_CREDENTIALS_FILE=str(credentials), AWS_CONFIG_FILE=str(config)):
        assert bytes(_core.open_store(s3.url("names"), "r", {"profile": "p"})._get("k")) == b"v"


def test_s3_that_refuses_says_why(s3):
    store = _core.open_store(s3.url("refused"), "a", {**s3.options, "key": "OTHER"})
    for call in (store._list, lambda: store._set("k", b""), lambda: store._get("k")):
        with pytest.raises(PermissionError, match="403"):
            call()


def test_s3_with_payloads_unsigned_and_checksums(s3):
    for options in (
        {"unsigned_payload": True},
        {"checksum_algorithm": "md5"},
        {"unsigned_payload": True, "checksum_algorithm": "none"},
    ):
        store = opened(s3, "payloads", **options)
        store._set("k", b"value")
        assert bytes(store._get("k")) == b"value"


def test_s3_with_credentials_of_services(tmp_path):
    with cloud_servers.moto() as moto:
        opened(moto, "role")._set("k", b"v")
        options = {"endpoint_url": moto.endpoint, "region": "us-east-1"}
        token = tmp_path / "token"
        token.write_text("a.b.c")
        with environment(
            AWS_WEB_IDENTITY_TOKEN_FILE=str(token),
            AWS_ROLE_ARN="arn:aws:iam::123456789012:role/headrace",
            AWS_ENDPOINT_URL_STS=moto.endpoint,
        ):
            assert bytes(_core.open_store(moto.url("role"), "r", options)._get("k")) == b"v"
        with environment(AWS_EC2_METADATA_SERVICE_ENDPOINT=moto.endpoint, HOME=str(tmp_path)):
            store = _core.open_store(moto.url("role"), "r", options)
            try:
                assert bytes(store._get("k")) == b"v"
            except PermissionError as error:
                assert "metadata service" in str(error)
                pytest.skip("moto answers no questions for metadata by this name")


@pytest.mark.parametrize("checksum", ["crc32c", "md5", "sha256", "none"])
def test_s3_with_checksums(checksum):
    with cloud_servers.moto() as moto:
        store = opened(moto, "sums", checksum_algorithm=checksum)
        for nbytes in (0, 9, (64 << 20) + 1):
            store._set("k", bytes(nbytes))
            assert bytes(store._get("k")) == bytes(nbytes)
        store._set_new("l", b"x")
        store._erase_prefix("")
        assert store._list() == []


def test_azure_by_signature_token_and_connection_string():
    with cloud_servers.azure() as azure:
        opened(azure, "p")._set("a b", b"v")
        base = {"account_name": ACCOUNT, "endpoint": azure.endpoint}
        text = f"AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={azure.endpoint}"
        for options in (
            {**base, "sas_token": f"?sv=1&sig={azure.server.sas}"},
            {**base, "bearer_token": azure.server.token},
            {"connection_string": text},
        ):
            store = _core.open_store("abfs://bucket/p", "a", options)
            assert store._list() == ["a b"]
            assert bytes(store._get("a b", 0, 1)) == b"v"
            store._set("c", bytes(65 << 20))
            assert store._list() == ["a b", "c"]
            store._erase("c")
            assert no_secrets(azure, store, store._identity())
        with pytest.raises(PermissionError, match="not public") as caught:
            _core.open_store("az://bucket/p", "r", {**base, "anon": True})._list()
        wrong = {**base, "sas_token": "sig=wrongsecret"}
        with pytest.raises(PermissionError, match="AuthenticationFailed") as caught:
            _core.open_store("az://bucket/p", "r", wrong)._list()
        assert "wrongsecret" not in str(caught.value)


def test_gcs_reads_from_fake_gcs_server():
    objects = {"p/a b/c": b"0123456789", "p/d": b"", "q": b"other"}
    objects |= {f"p/many/{i:04d}": b"x" for i in range(40)}
    with cloud_servers.fake_gcs(objects) as server:
        store = _core.open_store(server.url("p"), "r", server.options)
        assert store._list() == sorted(key[2:] for key in objects if key.startswith("p/"))
        assert store._list_dir("") == ["a b", "d", "many"]
        assert bytes(store._get("a b/c")) == b"0123456789"
        assert bytes(store._get("a b/c", 3, 4)) == b"3456"
        assert bytes(store._get("a b/c", -2)) == b"89"
        assert bytes(store._get("d")) == b""
        assert store._get("e") is None


class Echoes(cloud_servers.ObjectHandler):
    """Repeats in its refusals what it was told."""

    def do_GET(self):
        self.read_query()
        text = f"{self.headers.get('Authorization')} {self.path} {self.server.more}"
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        body = f"<Error><Code>AuthenticationFailed</Code><Message>{text}</Message></Error>"
        self.answer(403, body.encode())

    do_HEAD = do_PUT = do_DELETE = do_GET


@pytest.mark.parametrize(
    ("options", "secrets"),
    [
        ({"bearer_token": "eyJ0.hidden.token"}, ["eyJ0.hidden.token"]),
        ({"sas_token": "sv=1&sig=hid%2Fden%3D&se=2"}, ["hid%2Fden%3D", "hid/den="]),
        ({"account_key": ACCOUNT_KEY}, [ACCOUNT_KEY]),
    ],
)
def test_azure_shows_no_secret_that_a_server_repeats(options, secrets):
    with cloud_servers.fake_server(Echoes) as (server, url):
        server.more = " ".join(secrets)
        base = {"account_name": ACCOUNT, "endpoint": url}
        store = _core.open_store("az://bucket/p", "a", base | options)
        calls = [store._list, lambda: store._get("k"), lambda: store._set("k", b"")]
        for call in calls:
            with pytest.raises(PermissionError) as caught:
                call()
            assert "***" in str(caught.value) or "HEAD" in str(caught.value)  # has no words
            assert not [secret for secret in secrets if secret in str(caught.value)]
