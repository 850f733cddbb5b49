"""Secrets of stores across a network searched for in all that headrace says and writes down.

The server knows the secrets of who asks, as a proxy in between may, and repeats them, in words of
errors, in headers and in what it sends in place of an object. Each is searched for as it is, and as
URLs, base64 and hexadecimal digits have it.
"""

import base64
import contextlib
import io
import json
import os
import pickle
import subprocess
import sys
import traceback
import urllib.parse
from pathlib import Path

import cloud_servers
import headrace as hr
import pytest

COMMAND = Path(sys.executable).parent / "headrace"
KEY = base64.b64encode(b"TOP-SECRET of an account").decode()
PLACES = {
    "s3": (
        "s3://bucket/a",
        {"key": "AKID", "secret": "TOP/SECRET+s3", "token": "TOP/SECRET=token", "region": "r"},
        ["TOP/SECRET+s3", "TOP/SECRET=token"],
    ),
    "gs": ("gs://bucket/a", {"token": "ya29.TOP-SECRET"}, ["ya29.TOP-SECRET"]),
    "gs hmac": ("gs://bucket/a", {"key": "GOOG", "secret": "TOP/SECRET+gs"}, ["TOP/SECRET+gs"]),
    "az key": ("az://bucket/a", {"account_name": "acc", "account_key": KEY}, [KEY]),
    "az sas": (
        "az://bucket/a",
        {"account_name": "acc", "sas_token": "sv=1&sig=TOP%2FSECRET%3D"},
        ["TOP%2FSECRET%3D", "TOP/SECRET="],
    ),
    "az bearer": (
        "az://bucket/a",
        {"account_name": "acc", "token": "eyJ.TOP.SECRET"},
        ["eyJ.TOP.SECRET"],
    ),
    "http user": ("http://me:TOPSECRET@HOST/a", {}, ["TOPSECRET"]),
    "http query": ("http://HOST/a?sig=TOP%2FSECRET", {}, ["TOP%2FSECRET", "TOP/SECRET"]),
    "http token": ("http://HOST/a", {"bearer_token": "eyJ.TOP.SECRET"}, ["eyJ.TOP.SECRET"]),
    "http header": ("http://HOST/a", {"headers": {"X-Api-Key": "TOPSECRET"}}, ["TOPSECRET"]),
}


def spellings(secret):
    raw = secret.encode()
    quoted = urllib.parse.quote(secret, safe="")
    found = {secret, quoted, quoted.lower(), raw.hex(), raw.hex().upper()}
    # Within text that is base64 as a whole it may stand at any place of three.
    for at in range(3):
        text = base64.b64encode(b"x" * at + raw).decode()
        found.add(text[4 * ((at + 2) // 3) : len(text) // 4 * 4 - 4])
    return {text.encode() for text in found if len(text) > 7}


class Repeats(cloud_servers.ObjectHandler):
    """What it was asked with, by the server's `way` of saying so."""

    def handle_request(self):
        self.read_query()
        told = [*self.server.secrets, self.path, *(f"{n}: {v}" for n, v in self.headers.items())]
        text = " ".join(told)
        line = urllib.parse.quote(text, safe=" /:=&%+?@")[:2000]
        way = self.server.way
        if isinstance(way, int):
            words = text.replace("&", "&amp;").replace("<", "&lt;")
            error = f"<Error><Code>C</Code><Message>{words}</Message></Error>"
            if way == 400:
                error = json.dumps({"error": {"code": 400, "message": text}})
            self.answer(
                way, error.encode(), {"x-ms-error-code": self.server.secrets[0], "Server": line}
            )
        elif way == "location":
            self.answer(
                302, b"", {"Location": f"http://127.0.0.1:9/{self.server.secrets[0]}?{line}"}
            )
        elif way == "garbage":
            self.answer(200, text.encode(), {"ETag": f'"{self.server.secrets[0]}"'})
        elif way == "range":
            self.answer(206, text.encode(), {"Content-Range": text[:500], "ETag": '"1"'})
        else:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request


@pytest.fixture
def server():
    with cloud_servers.fake_server(Repeats) as (server, url):
        server.url = url
        yield server


def errors_of(calls):
    """All of what they raise, with what lies behind it."""
    for call in calls:
        try:
            call()
        except Exception as error:
            yield "".join(traceback.format_exception(error))
            while error is not None:
                yield f"{error!r} {error} {error.args} {getattr(error, '__notes__', '')}"
                yield repr(vars(error))
                error = error.__cause__ or error.__context__


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("way", [400, 403, 404, 500, "location", "garbage", "range", "close"])
def test_nothing_that_is_said_or_kept_has_a_secret(name, way, server, tmp_path, capfd):
    url, options, secrets = PLACES[name]
    server.way, server.secrets = way, secrets
    host = server.url.removeprefix("http://")
    url = url.replace("HOST", host)
    options = {**options, "max_retries": "0", "timeout": "5"}
    if not url.startswith("http"):
        options["endpoint_url"] = server.url
    said = []
    kept = tmp_path / "kept"
    kept.mkdir()

    def opened(**more):
        return hr.open_store(url, **{"storage_options": options, **more})

    with hr.trace(kept / "trace.json"), contextlib.redirect_stderr(io.StringIO()) as stderr:
        store = opened()
        cached = hr.cached(opened(), memory="1MiB", directory=kept / "cache", disk="1MiB")
        refs = kept / "refs.json"
        text = url.replace("me:TOPSECRET@", "").split("?")[0]
        refs.write_text(
            json.dumps({"version": 1, "refs": {"x": [f"{text}/x", 0, 9], "y": ["k", 0, 1]}})
        )
        allowed = {"allow": "*", "remote_options": options}
        referred = hr.open_store(f"reference://{refs}", storage_options=allowed)
        calls = [
            lambda: hr.open(url, storage_options=options),
            lambda: hr.open_array(url, mode="r+", storage_options=options),
            lambda: hr.create_array(url, shape=(4,), dtype="i4", storage_options=options),
            lambda: hr.copy(url, str(kept / "copy"), storage_options=options),
            lambda: hr.open(f"{url.split('?')[0]}/refs.json", storage_options=options),
            lambda: hr.open(f"icechunk+{url}", storage_options=options),
            lambda: hr.open(f"reference+{url}", storage_options=options),
            lambda: opened()._get("k"),
            lambda: opened()._list(),
            lambda: opened(mode="a")._set("k", b"1"),
            lambda: opened(mode="a")._erase("k"),
            lambda: cached._get("k"),
            lambda: referred._get("x"),
            lambda: hr.open_store(url, storage_options={**options, "no_such_option": secrets[0]}),
        ]
        said += errors_of(calls)
        assert len(said) > 20, said
        said += [json.dumps(hr.doctor(url, storage_options=options), default=str)]
        for each in (store, cached, referred):
            said += [repr(each), str(each), each.url]
            with contextlib.suppress(Exception):
                said += [each._identity()]
            with contextlib.suppress(TypeError):
                (kept / f"pickle {len(said)}").write_bytes(pickle.dumps(each))
    said += [stderr.getvalue(), *capfd.readouterr()]
    if way in (403, "garbage"):
        written = [f"--storage-option={n}={v}" for n, v in options.items() if isinstance(v, str)]
        for words in (["info", url], ["doctor", url], ["ls", url], ["bench", url]):
            done = subprocess.run(
                [COMMAND, *words, *written], capture_output=True, text=True, timeout=60
            )
            said += [done.stdout, done.stderr]
    for secret in secrets:
        for spelling in spellings(secret):
            for text in said:
                assert spelling not in text.encode(errors="replace"), (secret, text)
            for folder, _, files in os.walk(kept):
                for file in files:
                    data = (Path(folder) / file).read_bytes()
                    if file == "refs.json":
                        continue  # the test's own
                    assert spelling not in data, (secret, folder, file)
                    assert spelling not in file.encode(), (secret, folder, file)
