"""A bucket that speaks as much of S3 as writers need, in memory, and waits before each answer.

    python -m e2e.bucket_server --delay-ms 20     # prints its port

GET, HEAD, PUT and DELETE of objects, on condition too, uploads in parts, lists of one page. Nobody
is asked who he is. /_counts and /_delay are those of slow_server.py; /_clear drops all objects.
"""

import argparse
import asyncio
import hashlib
import itertools
import json
from dataclasses import asdict, dataclass
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found"}
REASONS |= {405: "Method Not Allowed", 412: "Precondition Failed", 416: "Range Not Satisfiable"}


@dataclass
class Counts:
    requests: int = 0
    reads: int = 0
    writes: int = 0
    received_nbytes: int = 0
    at_once: int = 0
    most_at_once: int = 0
    connections: int = 0


def _tag(content: bytes) -> str:
    return f'"{hashlib.blake2b(content, digest_size=16).hexdigest()}"'


class Bucket:
    def __init__(self, delay_ms: float):
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self._names = itertools.count()
        self.delay_s = delay_ms / 1000
        self.counts = Counts()

    def control(self, path: str, query: str) -> bytes:
        """What the benchmark asks, of which nothing is counted."""
        if path == "/_delay":
            self.delay_s = float(query.removeprefix("ms=")) / 1000
        if path == "/_clear":
            self.objects.clear()
        answer = json.dumps(asdict(self.counts)).encode()
        self.counts = Counts(connections=self.counts.connections)
        return answer

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes):
        parts = urlsplit(target)
        key = unquote(parts.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        counts = self.counts
        if method in ("GET", "HEAD"):
            counts.reads += 1
            return self._list(query) if "prefix" in query else self._read(key, headers)
        counts.writes += 1
        counts.received_nbytes += len(body)
        if "uploads" in query:
            name = f"u{next(self._names)}"
            self.uploads[name] = {}
            xml = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId>"
            return 200, XML, f"{xml}</InitiateMultipartUploadResult>".encode()
        if "uploadId" in query:
            return self._part(method, key, query, body)
        if method == "PUT":
            return self._put(key, headers, body)
        if method == "DELETE":
            self.objects.pop(key, None)
            return 204, {}, b""
        return 405, {}, b""

    def _put(self, key: str, headers: dict[str, str], body: bytes):
        there = self.objects.get(key)
        wanted = headers.get("if-match")
        if wanted is not None and (there is None or there[1] != wanted):
            return 412, {}, b""
        if headers.get("if-none-match") == "*" and there is not None:
            return 412, {}, b""
        self.objects[key] = body, _tag(body)
        return 200, {"ETag": self.objects[key][1]}, b""

    def _part(self, method: str, key: str, query: dict[str, list[str]], body: bytes):
        upload = self.uploads[query["uploadId"][0]]
        if method == "PUT":
            upload[int(query["partNumber"][0])] = body
            return 200, {"ETag": _tag(body)}, b""
        del self.uploads[query["uploadId"][0]]
        if method == "DELETE":
            return 204, {}, b""
        content = b"".join(upload[number] for number in sorted(upload))
        tag = _tag(content)
        self.objects[key] = content, tag
        xml = f"<CompleteMultipartUploadResult><ETag>{escape(tag)}</ETag>"
        return 200, XML, f"{xml}</CompleteMultipartUploadResult>".encode()

    def _read(self, key: str, headers: dict[str, str]):
        if key not in self.objects:
            return 404, XML, b"<Error><Code>NoSuchKey</Code></Error>"
        content, tag = self.objects[key]
        fields = {"ETag": tag, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        wanted = headers.get("range", "").removeprefix("bytes=")
        if not wanted:
            return 200, fields, content
        first, last = wanted.split("-")
        begin = int(first) if first else max(len(content) - int(last), 0)
        end = min(int(last) + 1, len(content)) if first and last else len(content)
        if begin >= end:
            return 416, {"Content-Range": f"bytes */{len(content)}"}, b""
        fields["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        return 206, fields, content[begin:end]

    def _list(self, query: dict[str, list[str]]):
        prefix = query["prefix"][0]
        found = [
            f"<Contents><Key>{escape(name)}</Key><Size>{len(content)}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{escape(tag)}</ETag>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for key, (content, tag) in sorted(self.objects.items())
            if (name := key.split("/", 2)[2]).startswith(prefix)
        ]
        body = (
            f"<ListBucketResult><Name>bench</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>"
            f"<IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>"
        )
        return 200, XML, body.encode()


XML = {"Content-Type": "application/xml"}


class Connection(asyncio.Protocol):
    """One request after another; bodies have a length."""

    def __init__(self, bucket: Bucket):
        self._bucket = bucket
        self._received = bytearray()
        self._head: tuple[str, str, dict[str, str]] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport) -> None:
        self._transport = transport
        self._bucket.counts.connections += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        while True:
            if self._head is None:
                end = self._received.find(b"\r\n\r\n")
                if end < 0:
                    return
                first, *lines = self._received[:end].decode("latin-1").split("\r\n")
                del self._received[: end + 4]
                method, target, _ = first.split(" ")
                pairs = (line.partition(":") for line in lines)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                self._head = method, target, headers
                if headers.get("expect", "").lower() == "100-continue":
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            method, target, headers = self._head
            nbytes = int(headers.get("content-length", 0))
            if len(self._received) < nbytes:
                return
            body = bytes(memoryview(self._received)[:nbytes])
            del self._received[:nbytes]
            self._head = None
            self._request(method, target, headers, body)

    def _request(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        if target.startswith("/_"):
            parts = urlsplit(target)
            return self._send("GET", 200, {}, self._bucket.control(parts.path, parts.query))
        counts = self._bucket.counts
        counts.requests += 1
        counts.at_once += 1
        counts.most_at_once = max(counts.most_at_once, counts.at_once)

        def answer() -> None:
            counts.at_once -= 1
            answered = self._bucket.answer(method, target, headers, body)
            if not self._transport.is_closing():
                self._send(method, *answered)

        asyncio.get_running_loop().call_later(self._bucket.delay_s, answer)

    def _send(self, method: str, status: int, fields: dict[str, str], body: bytes) -> None:
        fields = {"Content-Length": str(len(body)), **fields}
        lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{k}: {v}" for k, v in fields.items())]
        self._transport.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        if method != "HEAD" and body:
            self._transport.write(body)


async def serve(delay_ms: float) -> None:
    bucket = Bucket(delay_ms)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Connection(bucket), "127.0.0.1", 0, backlog=1024)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=0)
    asyncio.run(serve(parser.parse_args().delay_ms))


if __name__ == "__main__":
    main()
