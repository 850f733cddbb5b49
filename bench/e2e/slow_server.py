"""A server of files on the loopback device that waits before each answer, as one far away does.

    python bench/e2e/slow_server.py FOLDER --delay-ms 20     # prints its port

GET and HEAD, whole files and single ranges, entity tags and If-Match; connections stay open. What
it was asked since the last time is at /_counts, and /_delay?ms=100 sets how long it waits. Files
are read once and kept: it is no disk that is measured.
"""

import argparse
import asyncio
import hashlib
import json
import mmap
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

RANGE = re.compile(r"bytes=(\d*)-(\d*)")
REASONS = {200: "OK", 206: "Partial Content", 404: "Not Found", 405: "Method Not Allowed"}
REASONS |= {412: "Precondition Failed", 416: "Range Not Satisfiable"}


# From here on a file is mapped, not copied.
MAPPED = 64 << 20
# So much of an answer is given to the connection at a time.
PIECE = 1 << 20


def _mapped(file: Path) -> mmap.mmap:
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


@dataclass
class Counts:
    requests: int = 0
    heads: int = 0
    missing: int = 0
    sent_nbytes: int = 0
    at_once: int = 0
    most_at_once: int = 0
    connections: int = 0


class Files:
    def __init__(self, folder: Path):
        self._folder = folder.resolve()
        self._kept: dict[str, tuple[memoryview, str] | None] = {}

    def find(self, path: str) -> tuple[memoryview, str] | None:
        """The bytes and the entity tag."""
        if path not in self._kept:
            file = (self._folder / path.lstrip("/")).resolve()
            if file.is_relative_to(self._folder) and file.is_file():
                content = file.read_bytes() if file.stat().st_size < MAPPED else _mapped(file)
                self._kept[path] = memoryview(content), f'"{hashlib.md5(content).hexdigest()}"'
            else:
                self._kept[path] = None
        return self._kept[path]


class Server:
    def __init__(self, folder: Path, delay_ms: float):
        self.files = Files(folder)
        self.delay_s = delay_ms / 1000
        self.counts = Counts()

    def control(self, path: str, query: str) -> bytes:
        """What the benchmark asks, of which nothing is counted."""
        if path == "/_delay":
            self.delay_s = float(query.removeprefix("ms=")) / 1000
        answer = json.dumps(asdict(self.counts)).encode()
        self.counts = Counts(connections=self.counts.connections)
        return answer


class Connection(asyncio.Protocol):
    def __init__(self, server: Server):
        self._server = server
        self._received = b""
        self._transport: asyncio.Transport
        self._rest = memoryview(b"")  # of an answer, for which there is no room yet
        self._is_full = False

    def connection_made(self, transport) -> None:
        self._transport = transport
        self._server.counts.connections += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head, self._received = self._received[:end], self._received[end + 4 :]
            self._request(head.decode("latin-1"))

    def _request(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (s.partition(":") for s in lines)
        }
        parts = urlsplit(target)
        if parts.path.startswith("/_"):
            return self._send("GET", 200, {}, self._server.control(parts.path, parts.query))
        counts = self._server.counts
        counts.requests += 1
        counts.heads += method == "HEAD"
        counts.at_once += 1
        counts.most_at_once = max(counts.most_at_once, counts.at_once)
        asyncio.get_running_loop().call_later(
            self._server.delay_s, self._answer, counts, method, unquote(parts.path), headers
        )

    def _answer(self, counts: Counts, method: str, path: str, headers: dict[str, str]) -> None:
        counts.at_once -= 1
        status, fields, body = self._find(method, path, headers)
        counts.missing += status == 404
        counts.sent_nbytes += len(body) if method == "GET" else 0
        if not self._transport.is_closing():
            self._send(method, status, fields, body)

    def _find(self, method: str, path: str, headers: dict[str, str]):
        if method not in ("GET", "HEAD"):
            return 405, {}, b""
        found = self._server.files.find(path)
        if found is None:
            return 404, {}, b""
        content, tag = found
        fields = {"ETag": tag, "Accept-Ranges": "bytes"}
        if headers.get("if-match", tag) != tag:
            return 412, fields, b""
        wanted = RANGE.fullmatch(headers.get("range", ""))
        if wanted is None:
            return 200, fields, content
        size = len(content)
        if wanted[1]:
            begin = int(wanted[1])
            end = min(int(wanted[2]) + 1 if wanted[2] else size, size)
        else:
            begin, end = max(size - int(wanted[2]), 0), size
        if begin >= end:
            return 416, {"Content-Range": f"bytes */{size}"}, b""
        fields["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        return 206, fields, content[begin:end]

    def _send(self, method: str, status: int, fields: dict[str, str], body) -> None:
        fields = {"Content-Length": str(len(body)), **fields}
        lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{k}: {v}" for k, v in fields.items())]
        self._transport.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        if method == "GET":
            self._rest = memoryview(body)
            self._send_rest()

    def _send_rest(self) -> None:
        while len(self._rest) and not self._is_full:
            piece, self._rest = self._rest[:PIECE], self._rest[PIECE:]
            self._transport.write(piece)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._send_rest()


async def serve(folder: Path, delay_ms: float) -> None:
    server = Server(folder, delay_ms)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=1024)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay-ms", type=float, default=0)
    args = parser.parse_args()
    asyncio.run(serve(args.folder, args.delay_ms))


if __name__ == "__main__":
    main()
