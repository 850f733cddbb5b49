"""`headrace bench` of an array across a network: what its store gives, by requests at a time."""

import json
import subprocess
import sys
import time
from pathlib import Path

import cloud_servers
import headrace as hr
import numpy as np
import pytest

zarr = pytest.importorskip("zarr", minversion="3.1.6")

COMMAND = Path(sys.executable).parent / "headrace"
DATA = np.random.default_rng(1).bytes(64 << 10)


class Counting(cloud_servers.ObjectHandler):
    def do_GET(self):
        with self.server.lock:
            self.server.methods.append(self.command)
        time.sleep(0.005)
        data = self.server.objects.get(self.path[1:].split("?")[0])
        if data is None:
            return self.fail(404, "NoSuchKey")
        self.answer_object(data, {"ETag": '"1"'}, self.headers.get("Range"), True)

    def do_PUT(self):
        raise AssertionError("a benchmark writes nothing")

    do_HEAD = do_GET
    do_DELETE = do_POST = do_PUT


@pytest.fixture
def server():
    with cloud_servers.fake_server(Counting) as (server, url):
        server.url, server.methods = url, []
        store = zarr.storage.MemoryStore()
        values = np.frombuffer(DATA, "u1")
        zarr.create_array(store, name="x", data=values, chunks=(4096,), compressors=None)
        server.objects = {key: value.to_bytes() for key, value in store._store_dict.items()}
        yield server


def run(*args):
    return subprocess.run([COMMAND, "bench", *args], capture_output=True, text=True, timeout=120)


def test_levels_and_bounds(server):
    begin = time.monotonic()
    options = ["--json", "--seconds", "2", "--max-depth", "12", "--max-nbytes", "2000000"]
    done = run(f"{server.url}/x?sig=hidden", *options)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 20
    assert "hidden" not in done.stdout + done.stderr
    report = json.loads(done.stdout)
    levels = report["levels"]
    assert [level["depth"] for level in levels] == [1, 2, 4, 8, 12]
    assert all(level["mb_s"] > 0 and level["small_s"] > 0 for level in levels)
    # At most what was allowed, and one more of each that were under way.
    assert sum(level["nbytes"] for level in levels) <= 2_000_000 + 5 * 12 * 4096
    assert report["latency_ms"]["min"] >= 5
    assert report["latency_ms"]["p50"] <= report["latency_ms"]["p95"]
    assert report["objects"] == 16 and report["object_nbytes"] == 4096
    assert report["io_depth"]["best"] in (1, 2, 4, 8, 12)
    # Of a server that waits, more at a time is more.
    assert levels[3]["small_s"] > 2 * levels[0]["small_s"]


def test_text(server):
    done = run(f"{server.url}/x", "--seconds", "0.5", "--max-depth", "2")
    assert done.returncode == 0, done.stderr
    assert "latency" in done.stdout and "io_depth" in done.stdout and "####" in done.stdout


def test_a_store_that_lists(tmp_path):
    with cloud_servers.rclone(tmp_path) as cloud:
        array = hr.create_array(
            cloud.url("a"), shape=(40,), dtype="i4", chunks=(10,), storage_options=cloud.options
        )
        array[...] = np.arange(40)
        options = [f"--storage-option={name}={value}" for name, value in cloud.options.items()]
        done = run(cloud.url("a"), *options, "--json", "--seconds", "0.5", "--max-depth", "2")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["objects"] == 4


def test_what_cannot_be_measured(server, tmp_path):
    hr.create_array(tmp_path / "a", shape=(4,), dtype="i4")
    done = run(tmp_path / "a", "--pattern", "requests")
    assert done.returncode == 1 and "across a network" in done.stderr
    for key in [key for key in server.objects if "/c/" in key]:
        del server.objects[key]
    done = run(f"{server.url}/x")
    assert done.returncode == 1 and "no chunk" in done.stderr
    assert run(f"{server.url}/x", "--pattern", "whole").returncode == 0
