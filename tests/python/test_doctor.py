"""`headrace doctor URL` and `hr.doctor(url)`: each thing that can be wrong, on loopback."""

import datetime
import email.utils
import json
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import cloud_servers
import headrace as hr
import numpy as np
import pytest
import zarr
from cloud_servers import ACCOUNT, KEY, SECRET, FakeServer, ObjectHandler, free_port

COMMAND = Path(sys.executable).parent / "headrace"
DATA = np.arange(600, dtype="f4").reshape(20, 30)


def findings(url, options=None, good=None):
    """What both ways to ask say, which is one."""
    report = hr.doctor(url, storage_options=options)
    text = json.dumps(report)
    for secret in (SECRET, "hidden"):
        assert secret not in text
    if good is not None:
        assert report["good"] is good, report
    assert all(set(row) == {"check", "state", "says"} for row in report["findings"])
    return report["findings"]


def says(rows, check, state):
    """The words of that finding, of which there is one."""
    found = [row["says"] for row in rows if row["check"] == check and row["state"] == state]
    assert len(found) == 1, rows
    return found[0]


class Objects(ObjectHandler):
    """A web server of objects; `server.twist` may answer first."""

    date = None

    def date_time_string(self, timestamp=None):
        return self.date or super().date_time_string(timestamp)

    def do_GET(self):
        _, parts, query, _, _ = self.read_query()
        name = urllib.parse.unquote(parts.path)[1:]
        if self.server.twist is not None and self.server.twist(self, name, query):
            return
        data = self.server.objects.get(name)
        if data is None:
            return self.fail(404, "NoSuchKey")
        self.answer_object(data, {"ETag": '"1"'}, self.headers.get("Range"), self.server.suffixes)

    do_HEAD = do_GET


@pytest.fixture
def server():
    with cloud_servers.fake_server(Objects) as (server, url):
        server.twist, server.suffixes = None, True
        root = zarr.create_group(zarr.storage.MemoryStore())
        root.create_array("t2m", data=DATA, chunks=(10, 10))
        zarr.consolidate_metadata(root.store)
        for key, value in root.store._store_dict.items():
            server.objects[f"bucket/a.zarr/{key}"] = value.to_bytes()
        server.url = url
        yield server


def s3(server, **options):
    return {"key": KEY, "secret": SECRET, "endpoint_url": server.url, "region": "r"} | options


def test_all_is_well(server):
    rows = findings(f"{server.url}/bucket/a.zarr/t2m", good=True)
    assert "(20, 30)" in says(rows, "zarr", "good")
    assert "end" in says(rows, "ranges", "good")
    assert " ms" in says(rows, "latency", "good")
    rows = findings(f"{server.url}/bucket/a.zarr", good=True)
    assert says(rows, "zarr", "good") == "a group"
    assert "1 by its consolidated" in says(rows, "members", "good")


def test_the_command_says_the_same_and_its_status_what_came_of_it(server):
    def run(*args):
        return subprocess.run([COMMAND, "doctor", *args], capture_output=True, text=True)

    good = run(f"{server.url}/bucket/a.zarr?token=hidden")
    assert good.returncode == 0, good
    assert "a group" in good.stdout and "hidden" not in good.stdout + good.stderr
    bad = run(
        "s3://bucket/b.zarr",
        "--json",
        *[f"--storage-option={name}={value}" for name, value in s3(server).items()],
    )
    assert bad.returncode == 1
    report = json.loads(bad.stdout)
    assert report["good"] is False and SECRET not in bad.stdout
    assert run("--storage-option", "anon=true").returncode == 2


def test_a_name_that_leads_nowhere():
    text = says(findings("http://nowhere.invalid/a.zarr", good=False), "name", "problem")
    assert "nowhere.invalid" in text and "spelling" in text


def test_nobody_listens():
    rows = findings(f"http://127.0.0.1:{free_port()}/a.zarr", good=False)
    assert "refused" in says(rows, "connection", "problem").lower() or "onnect" in rows[-1]["says"]


def test_nobody_answers(server):
    server.twist = lambda self, name, query: time.sleep(3) or True
    rows = findings(f"{server.url}/bucket/a.zarr", {"timeout": "1s"}, good=False)
    assert "firewall" in says(rows, "connection", "problem")


def test_a_proxy_that_is_not_there_and_one_that_refuses(server):
    options = {"proxy": f"http://user:hidden@127.0.0.1:{free_port()}"}
    rows = findings(f"{server.url}/bucket/a.zarr", options, good=False)
    assert "127.0.0.1" in says(rows, "proxy", "note")
    assert says(rows, "connection", "problem")

    def refuse(self, name, query):
        self.fail(407, "")
        return True

    server.twist = refuse
    rows = findings("http://example.invalid/a.zarr", {"proxy": server.url}, good=False)
    assert "proxy wants to know" in says(rows, "proxy", "problem")
    rows = findings("https://example.invalid/a.zarr", {"proxy": server.url}, good=False)
    assert says(rows, "proxy", "problem")


# --- TLS ---


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Signs itself; the same, ended long ago; of another host."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("tls")

    def make(name, host, *more):
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
        command += ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
        command += ["-addext", f"subjectAltName={host}", *more]
        subprocess.run(command, check=True, capture_output=True)
        return folder / f"{name}.pem", folder / f"{name}.key"

    here = "IP:127.0.0.1"
    made = {"good": make("good", here, "-days", "2"), "host": make("host", "DNS:else.invalid")}
    pem, key = make("expired", here)
    # `openssl req` makes none that has ended, `openssl x509` signs one anew that has.
    made["expired"] = pem, key
    return made


@pytest.fixture
def tls(server, certificates):
    """The same server behind TLS, by the name of its certificate."""
    started = []

    def start(name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificates[name])
        secure = FakeServer(("127.0.0.1", 0), Objects)
        secure.objects, secure.lock = server.objects, threading.Lock()
        secure.twist, secure.suffixes = None, True
        secure.handle_error = lambda *args: None  # who refuses a certificate hangs up
        secure.socket = context.wrap_socket(
            secure.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=secure.serve_forever, daemon=True).start()
        started.append(secure)
        return f"https://127.0.0.1:{secure.server_port}/bucket/a.zarr"

    yield start
    for secure in started:
        secure.shutdown()
        secure.server_close()


def test_tls_of_an_issuer_that_is_known(tls, certificates):
    url = tls("good")
    findings(url, {"ca_bundle": str(certificates["good"][0])}, good=True)
    findings(url, {"verify": False}, good=True)


def test_tls_of_nobody_that_is_known(tls):
    text = says(findings(tls("good"), good=False), "tls", "problem")
    assert "ca_bundle" in text and "issuer" in text


def test_tls_of_another_host(tls, certificates):
    rows = findings(tls("host"), {"ca_bundle": str(certificates["host"][0])}, good=False)
    assert "of another host" in says(rows, "tls", "problem")


def test_tls_that_has_ended(tls, certificates, tmp_path):
    pem, key = certificates["expired"]
    request = tmp_path / "request.csr"
    extensions = tmp_path / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1\n")
    (tmp_path / "index").write_text("")
    (tmp_path / "serial").write_text("01\n")
    config = tmp_path / "config"
    config.write_text(
        "[ca]\ndefault_ca=d\n[d]\n"
        f"new_certs_dir={tmp_path}\ndatabase={tmp_path}/index\nserial={tmp_path}/serial\n"
        f"default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n"
    )
    subject = ["openssl", "req", "-new", "-key", key, "-subj", "/CN=test", "-out", request]
    subprocess.run(subject, check=True, capture_output=True)
    sign = ["openssl", "ca", "-batch", "-selfsign", "-config", config, "-keyfile", key]
    sign += ["-in", request, "-out", tmp_path / "old.pem", "-extfile", extensions, "-notext"]
    sign += ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
    subprocess.run(sign, check=True, capture_output=True)
    pem.write_text((tmp_path / "old.pem").read_text())
    rows = findings(tls("expired"), {"ca_bundle": str(pem)}, good=False)
    assert "has ended" in says(rows, "tls", "problem")


def test_tls_without_a_bundle(tls, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    text = says(findings(tls("good"), good=False), "tls", "problem")
    assert "missing.pem" in text and "SSL_CERT_FILE" in text


def test_tls_where_there_is_none(server, tls):
    plain = server.url.replace("http:", "https:")
    assert "http://" in says(findings(f"{plain}/bucket/a.zarr", good=False), "tls", "problem")
    # Python's TLS server hangs up on plain text, without a word that would name the remedy.
    findings(tls("good").replace("https:", "http:"), good=False)


# --- what a server says ---


def test_clocks_that_differ(server):
    late = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=42)

    def twist(self, name, query):
        self.date = email.utils.format_datetime(late, usegmt=True)

    server.twist = twist
    rows = findings(f"{server.url}/bucket/a.zarr", good=False)
    text = says(rows, "clock", "problem")
    assert "42 minutes" in text or "41 minutes" in text
    assert "ahead" in text


@pytest.mark.parametrize(
    ("status", "code", "check", "words"),
    [
        (403, "RequestTimeTooSkewed", "clock", "clock is wrong"),
        (403, "SignatureDoesNotMatch", "credentials", "secret key is not that"),
        (403, "InvalidAccessKeyId", "credentials", "does not know the access key"),
        (400, "ExpiredToken", "credentials", "has expired"),
        (403, "AccessDenied", "permission", "do not allow it"),
        (404, "NoSuchBucket", "bucket", "no such bucket"),
        (500, "InternalError", "server", "InternalError"),
        (400, "AuthorizationHeaderMalformed", "region", 'region="eu-9"'),
        (301, "PermanentRedirect", "region", 'region="eu-9"'),
    ],
)
def test_what_s3_says(server, status, code, check, words):
    def twist(self, name, query):
        body = f"<Error><Code>{code}</Code><Message>{KEY}</Message></Error>"
        region = {"x-amz-bucket-region": "eu-9"} if check == "region" else {}
        self.answer(status, body.encode(), region)
        return True

    server.twist = twist
    rows = findings("s3://bucket/a.zarr", s3(server), good=False)
    assert words in says(rows, check, "problem")


def test_s3_of_others(tmp_path):
    with cloud_servers.rclone(tmp_path) as server:
        array = hr.create_array(
            server.url("g/a.zarr"), shape=(4,), dtype="i4", storage_options=server.options
        )
        array[...] = 1
        rows = findings(server.url("g/a.zarr"), server.options, good=True)
        assert says(rows, "list", "good")
        rows = findings(server.url("g"), server.options, good=False)
        text = "".join(row["says"] for row in rows if row["check"] == "zarr")
        assert "a.zarr; open s3://bucket/g/a.zarr" in text
        rows = findings(server.url("g/a.zarr/c"), server.options, good=False)
        assert any("lies above, at s3://bucket/g/a.zarr" in row["says"] for row in rows)
        rows = findings(server.url("g/a.zarr"), server.options | {"secret": "wrong"}, good=False)
        assert says(rows, "credentials", "problem")
        rows = findings("s3://nowhere/a.zarr", server.options, good=False)
        assert "no such bucket" in says(rows, "bucket", "problem")


def test_no_credentials(server, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {"endpoint_url": server.url, "region": "r"}
    rows = findings("s3://bucket/a.zarr", options, good=False)
    assert says(rows, "credentials", "problem")
    assert "anon=true" in says(rows, "anonymous", "note")
    assert says(rows, "zarr", "good") == "a group"


def test_credentials_that_a_public_place_refuses(server):
    def twist(self, name, query):
        if self.headers.get("Authorization"):
            self.fail(403, "InvalidAccessKeyId")
            return True
        if "list-type" in query:
            self.fail(403, "AccessDenied")
            return True

    server.twist = twist
    rows = findings("s3://bucket/a.zarr", s3(server), good=False)
    assert "anon=true" in says(rows, "anonymous", "note")
    assert says(rows, "zarr", "good") == "a group"
    assert "consolidated" in says(rows, "list", "note")
    rows = findings("s3://bucket/a.zarr", {"anon": True, "endpoint_url": server.url}, good=True)


def test_azure_and_google():
    with cloud_servers.azure() as azure:
        base = {"account_name": ACCOUNT, "endpoint": azure.endpoint}
        wrong = base | {"sas_token": "sv=1&sig=hidden"}
        rows = findings("az://bucket/p", wrong, good=False)
        assert "token has expired" in says(rows, "credentials", "problem")
        rows = findings("az://elsewhere/p", azure.options, good=False)
        assert "no such container" in says(rows, "bucket", "problem")
        rows = findings("az://bucket/p", base | {"anon": True}, good=False)
        assert "not public" in says(rows, "credentials", "problem")
    with cloud_servers.gcs() as gcs:
        options = gcs.options | {"token": "ya29.hidden"}
        rows = findings("gs://bucket/p", options, good=False)
        assert says(rows, "credentials", "problem")
        assert 'token="anon"' in says(rows, "anonymous", "note")
        rows = findings("gs://elsewhere/p", gcs.options, good=False)
        assert "no such bucket" in says(rows, "bucket", "problem")


def test_ranges_that_are_not_known(server):
    server.suffixes = False
    rows = findings(f"{server.url}/bucket/a.zarr", good=True)
    assert "bytes=-1" in says(rows, "ranges", "note")

    def twist(self, name, query):
        del self.headers["Range"]

    server.twist = twist
    rows = findings(f"{server.url}/bucket/a.zarr", good=True)
    assert "knows no ranges" in says(rows, "ranges", "note")


def test_a_redirect(server):
    def twist(self, name, query):
        if name.startswith("old/"):
            self.answer(302, b"", {"Location": f"{server.url}/bucket/{name[4:]}?key=hidden"})
            return True

    server.twist = twist
    rows = findings(f"{server.url}/old/a.zarr", good=True)
    assert f"{server.url}/bucket/a.zarr/zarr.json" in says(rows, "redirect", "note")


def test_pages_in_place_of_documents(server):
    def twist(self, name, query):
        self.answer(200, b"<!DOCTYPE html><p>Log in", {"Content-Type": "text/html"})
        return True

    server.twist = twist
    rows = findings(f"{server.url}/bucket/a.zarr", good=False)
    assert "text/html" in says(rows, "content", "problem")


def test_encoded_objects(server):
    def twist(self, name, query):
        data = server.objects.get(name)
        if data:
            self.answer(200, data, {"Content-Encoding": "br", "ETag": '"1"'})
            return True

    server.twist = twist
    rows = findings(f"{server.url}/bucket/a.zarr", good=False)
    assert "(br)" in says(rows, "content", "problem")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.zip", b"PK\3\4....", "zip archive"),
        ("refs.json", b'{"version": 1}', "reference://"),
        ("x.nc", b"\x89HDF\r\n\x1a\n", "HDF5"),
        ("x.bin", b"12345678", "no folder"),
        ("a.zarr/zarr.json", None, "open the folder above"),
    ],
)
def test_an_object_in_place_of_a_folder(server, name, data, words):
    if data:
        server.objects[f"bucket/{name}"] = data
    rows = findings(f"{server.url}/bucket/{name}", good=False)
    assert words in says(rows, "object", "note")


def test_nothing_there(server):
    rows = findings(f"{server.url}/bucket/none", good=False)
    texts = [row["says"] for row in rows if row["check"] == "zarr"]
    assert "look at the name" in texts[-1]
    rows = findings(f"{server.url}/bucket/a.zarr/t2m/none", good=False)
    assert any("lies above" in row["says"] and '"none"' in row["says"] for row in rows)


def test_options_that_nobody_knows(server):
    rows = findings(f"{server.url}/bucket/a.zarr", {"colour": "hidden"}, good=False)
    assert "colour" in says(rows, "options", "problem")
    rows = findings("nonsense://a", None, good=False)
    assert rows


def test_a_place_is_named_once(tmp_path):
    rows = findings(str(tmp_path / "nope"), good=False)
    assert says(rows, "store", "problem") == f"there is no folder {tmp_path}/nope"


def test_paths(tmp_path):
    zarr.create_group(tmp_path / "ERA_5.zarr").create_array("x", data=DATA)
    assert says(findings(str(tmp_path / "ERA_5.zarr/x"), good=True), "zarr", "good")
    rows = findings(str(tmp_path / "era5.zarr"), good=False)
    assert "beside it lies ERA_5.zarr" in says(rows, "names", "note")
    rows = findings(str(tmp_path), good=False)
    assert any("below it are" in row["says"] for row in rows)
    (tmp_path / "x.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    rows = findings(str(tmp_path / "x.nc"), good=False)
    assert "HDF5" in says(rows, "object", "note")
    broken = tmp_path / "ERA_5.zarr/x/zarr.json"
    broken.write_text("{")
    rows = findings(str(tmp_path / "ERA_5.zarr/x"), good=False)
    assert says(rows, "zarr", "problem")


def test_stores_of_fsspec_show_no_secret(tmp_path):
    pytest.importorskip("fsspec")
    rows = findings(f"fsspec+file://{tmp_path}/none", None, good=False)
    assert rows[0]["state"] == "problem"
    report = hr.doctor("fsspec+http://me:hidden@127.0.0.1:1/a?sig=hidden")
    assert report["good"] is False and "hidden" not in json.dumps(report)
    findings("simplecache::http://me:hidden@127.0.0.1:1/a?sig=hidden", good=False)


@pytest.mark.parametrize("before", ["reference://", "icechunk+", "icechunk://", "zip://"])
def test_what_stands_behind_another_scheme_shows_no_secret(before):
    for ending in ("a.json", "a.json?sig=hidden"):
        url = f"{before}http://me:hidden@127.0.0.1:1/{ending}"
        assert findings(url, good=False)
        for command in ("doctor", "du"):
            done = subprocess.run([COMMAND, command, url], capture_output=True, text=True)
            assert done.returncode == 1
            assert "hidden" not in done.stdout + done.stderr
