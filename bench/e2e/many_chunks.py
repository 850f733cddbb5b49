"""An array of a million chunks, each an object of a bucket or a reference.

    python bench/run.py many-chunks -- --side 20

The array has side^3 chunks of 256 bytes. The bucket is made up as it is asked: a process of Python
that lists 1,000 objects a page, without a delay, so that the figures are bounds of headrace's from
above. The references are kerchunk's JSON, all into one file. Each run is a process of its own,
whose peak of memory counts: it opens the array, lists the chunks that are stored, and reads one
step of side^2 chunks and one chunk. Requests are those of the bucket.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import harness
from e2e.bucket_server import XML, Bucket, Connection

EDGE = 8  # of a chunk, in two dimensions
CHUNK = bytes(range(256))
TAG = '"made-up"'
PAGE = 1000


def metadata(side: int) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": [1, EDGE, EDGE]}}
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [side, side * EDGE, side * EDGE],
            "data_type": "float32",
            "chunk_grid": grid,
            "chunk_key_encoding": {"name": "default"},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }
    ).encode()


class MadeUp(Bucket):
    """/bench/a/zarr.json and /bench/a/c/i/j/k, in the order of their names, which nobody keeps."""

    def __init__(self, side: int):
        super().__init__(delay_ms=0)
        self._document = metadata(side)
        self._names = sorted(str(i) for i in range(side))
        self._known = set(self._names)

    def _object(self, number: int) -> tuple[str, int]:
        side = len(self._names)
        if number == side**3:
            return "a/zarr.json", len(self._document)
        i, rest = divmod(number, side * side)
        j, k = divmod(rest, side)
        return f"a/c/{self._names[i]}/{self._names[j]}/{self._names[k]}", len(CHUNK)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes):
        parts = urlsplit(target)
        query = parse_qs(parts.query, keep_blank_values=True)
        if method not in ("GET", "HEAD"):
            return 405, {}, b""
        self.counts.reads += 1
        if "prefix" in query:
            return self._list(query)
        key = unquote(parts.path).removeprefix("/bench/")
        if key == "a/zarr.json":
            return 200, {"ETag": TAG}, self._document
        names = key.removeprefix("a/c/").split("/")
        if key.startswith("a/c/") and len(names) == 3 and self._known.issuperset(names):
            return 200, {"ETag": TAG}, CHUNK
        return 404, XML, b"<Error><Code>NoSuchKey</Code></Error>"

    def _list(self, query: dict[str, list[str]]):
        if query["prefix"][0] not in ("", "a/", "a/c/") or "delimiter" in query:
            return 501, XML, b"<Error><Code>NotImplemented</Code></Error>"
        count = len(self._names) ** 3 + (query["prefix"][0] != "a/c/")
        first = int(query.get("continuation-token", ["0"])[0])
        last = min(first + PAGE, count)
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{nbytes}</Size><ETag>{escape(TAG)}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, nbytes in map(self._object, range(first, last))
        )
        more = last < count
        token = f"<NextContinuationToken>{last}</NextContinuationToken>" if more else ""
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        return 200, XML, f"<ListBucketResult>{truncated}{found}</ListBucketResult>".encode()


async def serve(side: int) -> None:
    bucket = MadeUp(side)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Connection(bucket), "127.0.0.1", 0, backlog=1024)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


def write_references(folder: Path, side: int) -> Path:
    (folder / "chunks.bin").write_bytes(CHUNK * 2)
    path = folder / "refs.json"
    with path.open("w") as out:
        document = json.dumps(metadata(side).decode())
        out.write(f'{{"version": 1, "refs": {{"zarr.json": {document}')
        for i in range(side):
            for j in range(side):
                for k in range(side):
                    offset = (i + j + k) % 2 * len(CHUNK)
                    out.write(f',"c/{i}/{j}/{k}":["{folder}/chunks.bin",{offset},{len(CHUNK)}]')
        out.write("}}")
    return path


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(url: str, side: int) -> dict:
    import headrace as hr

    remote = url.startswith("s3:")
    endpoint = f"http://{url.removeprefix('s3:')}"
    options = {"anon": True, "region": "us-east-1", "endpoint_url": endpoint}
    before = _peak_mib()
    row = {}

    def step(name: str, work):
        start = time.perf_counter()
        result = work()
        row[f"{name}_s"] = round(time.perf_counter() - start, 4)
        row[f"{name}_peak_mib"] = round(_peak_mib() - before, 1)
        if remote:
            with urllib.request.urlopen(f"{endpoint}/_counts") as answer:
                row[f"{name}_requests"] = json.load(answer)["requests"]
        return result

    def opened():
        if remote:
            return hr.open_array("s3://bench/a", storage_options=options)
        return hr.open_array(url)

    array = step("open", opened)
    assert step("list", lambda: array.nchunks_initialized) == side**3
    assert step("step", lambda: array[0]).tobytes()[: 4 * EDGE] == CHUNK[: 4 * EDGE]
    step("chunk", lambda: array[side - 1, :EDGE, :EDGE])
    return row


def _median_run(runs: list[dict]) -> dict:
    return sorted(runs, key=lambda run: run["list_s"])[len(runs) // 2]


def main() -> None:
    parser = harness.parser(__doc__, side=100, runs=3, serve=False)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return asyncio.run(serve(args.side))
    if args.measure:
        print(json.dumps(measure(args.measure, args.side)))
        return None
    module = [sys.executable, "-m", "e2e.many_chunks", "--side", str(args.side)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = harness.head("many-chunks", folder, "headrace")
        report["rows"] = []
        server = subprocess.Popen(
            [*module, "--serve"], stdout=subprocess.PIPE, text=True, env=harness.ENVIRONMENT
        )
        try:
            bucket = f"s3:127.0.0.1:{int(server.stdout.readline())}"
            references = f"reference://{write_references(folder, args.side)}"
            for kind, url in (("bucket", bucket), ("references", references)):
                runs = [
                    json.loads(
                        subprocess.check_output(
                            [*module, "--measure", url], env=harness.ENVIRONMENT
                        )
                    )
                    for _ in range(args.runs)
                ]
                row = {"chunks": args.side**3, "of": kind, "runs": args.runs}
                report["rows"].append(row | _median_run(runs))
        finally:
            server.kill()
            server.wait()
    harness.save(report, args.out)
    return None


if __name__ == "__main__":
    main()
