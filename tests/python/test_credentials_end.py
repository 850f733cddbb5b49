"""Credentials that end while they are used, earlier than was said or without a word of it."""

import json
import os
import socket
import threading
import time
import traceback

import cloud_servers
import headrace as hr
import numpy as np
import pytest


class Bucket(cloud_servers.GcsHandler):
    """As much of S3 as writers need, for who has the session token of now."""

    def handle_request(self):
        server = self.server
        if self.path == "/credentials":
            server.fetches += 1
            time.sleep(server.slow)
            if server.gives_none:
                return self.answer(500)
            keys = {"AccessKeyId": "AK", "SecretAccessKey": "hidden", "Token": server.token}
            return self.answer(200, json.dumps(keys | {"Expiration": server.end}).encode())
        body, _, query, _, name = self.read_query()
        with server.lock:
            server.requests += 1
            if self.headers.get("x-amz-security-token") != server.token:
                server.refused += 1
                return self.fail(400, "ExpiredToken")
            server.served += 1
            if server.every and server.served % server.every == 0:
                server.token = f"hidden-{server.served}"
            if not name:
                return self.list(query)
            if "uploads" in query or "uploadId" in query:
                return self.upload(name, query, body)
            there = server.objects.get(name)
            wanted = self.headers.get("If-Match")
            is_new = self.headers.get("If-None-Match") == "*"
            if (is_new and there) or (wanted and (not there or wanted != f'"e{there[0]}"')):
                return self.fail(412, "PreconditionFailed")
            return self.object(name, body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_request

    def broken(self, body):
        return False

    def object_headers(self, name):
        return {"ETag": super().object_headers(name)["ETag"]}


@pytest.fixture
def server(monkeypatch):
    with cloud_servers.fake_server(Bucket) as (server, url):
        server.token, server.end, server.every, server.slow = "hidden", "2999-01-01T00:00:00Z", 0, 0
        server.requests = server.served = server.refused = server.fetches = 0
        server.gives_none = False
        server.uploads = {}
        server.options = {"endpoint_url": url, "region": "us-east-1", "max_concurrency": "16"}
        for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/credentials")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
        yield server


def made(server, values):
    array = hr.create_array(
        "s3://bucket/a",
        shape=values.shape,
        dtype="f4",
        chunks=(1, 8, 8),
        storage_options=server.options,
    )
    array[:] = values
    return array


VALUES = np.random.default_rng(1).normal(size=(120, 8, 8)).astype("f4")


def test_reads_and_writes_go_on_with_the_next_ones(server):
    server.every = 100
    array = made(server, VALUES)
    array[:, ::2] = VALUES[:, ::2] * 2  # read, and put back on condition
    expected = VALUES.copy()
    expected[:, ::2] *= 2
    assert np.array_equal(hr.open_array("s3://bucket/a", storage_options=server.options), expected)
    assert server.refused >= 3
    # One fetch for all that met the end at a time, and one for each of three stores.
    assert server.fetches <= server.served // server.every + 3
    server.every = 3
    store = hr.open_store("s3://bucket", mode="a", storage_options=server.options)
    assert len(list(store._list("a"))) == 121


def test_an_upload_in_parts_goes_on(server):
    data = np.random.default_rng(2).bytes(150 << 20)
    store = hr.open_store("s3://bucket", mode="a", storage_options=server.options)
    server.every = 4
    store._set("large", data)
    assert server.objects["large"][1] == data
    assert server.refused and not server.uploads


def test_what_cannot_be_renewed_is_said(server):
    array = made(server, VALUES)
    server.token, server.gives_none = "hidden-later", True
    with pytest.raises(OSError, match="gave no credentials") as failure:
        array[:]
    assert "hidden" not in "".join(traceback.format_exception(failure.value))
    # Those of the options are the only ones.
    keys = {"key": "AK", "secret": "hidden", "token": "hidden-never"}
    before = server.requests
    with pytest.raises(PermissionError, match="get new credentials") as failure:
        hr.open_array("s3://bucket/a", storage_options=server.options | keys)
    assert server.requests == before + 1
    assert "hidden" not in "".join(traceback.format_exception(failure.value))


def test_who_gives_up_does_not_wait_for_credentials(server):
    array = made(server, VALUES)
    server.token, server.slow = "hidden-later", 8
    work = array.read_async((0, ...))
    threading.Timer(0.3, work.cancel).start()
    begin = time.monotonic()
    with pytest.raises(BaseException, match="cancelled"):
        work.result()
    assert time.monotonic() - begin < 7


def test_a_service_of_credentials_that_hangs_is_waited_for_no_longer_than_was_said(server):
    server.slow = 10
    begin = time.monotonic()
    with pytest.raises((OSError, TimeoutError)) as failure:
        hr.open_array("s3://bucket/a", storage_options=server.options | {"timeout": "1"})
    assert time.monotonic() - begin < 9
    assert "endpoint of credentials" in str(failure.value)


@pytest.fixture
def silent():
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("url", "options", "variable", "who"),
    [
        ("s3://bucket/a", {}, "AWS_ENDPOINT_URL_STS", "AWS STS for the role arn:r"),
        ("s3://bucket/a", {"profile": "r"}, "AWS_ENDPOINT_URL_STS", "AWS STS for the role arn:r"),
        ("az://bucket/a", {"client_id": "c"}, "AZURE_AUTHORITY_HOST", "Entra for the client c"),
    ],
)
@pytest.mark.parametrize("act", ["open", "create", "list"])
def test_a_service_that_says_nothing_is_named(
    silent, tmp_path, monkeypatch, url, options, variable, who, act
):
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("hidden")
    config = "[profile b]\naws_access_key_id=AK\naws_secret_access_key=hidden\n"
    (tmp_path / "config").write_text(config + "[profile r]\nrole_arn=arn:r\nsource_profile=b\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    if variable == "AWS_ENDPOINT_URL_STS":
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:r")
    monkeypatch.setenv(variable, silent)
    options = {"endpoint_url": "http://127.0.0.1:9", "timeout": "0.5"} | options
    if url.startswith("az"):
        options["account_name"] = "a"
    if "client_id" in options:
        options |= {"tenant_id": "t", "federated_token_file": str(tmp_path / "token")}
    begin = time.monotonic()
    with pytest.raises(TimeoutError) as failure:
        if act == "open":
            hr.open_array(url, storage_options=options)
        elif act == "create":
            hr.create_array(url, shape=4, dtype="f4", storage_options=options)
        else:
            list(hr.open_store(url, storage_options=options)._list(""))
    assert time.monotonic() - begin < 10
    shown = "".join(traceback.format_exception(failure.value))
    assert who in shown
    assert silent in shown
    assert "no answer within its deadline" in shown
    assert "hidden" not in shown
