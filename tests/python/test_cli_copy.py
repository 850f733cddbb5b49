"""`headrace cp` and `sync`: what they refuse, and what they say."""

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import cloud_servers
import headrace as hr
import pytest

COMMAND = Path(sys.executable).parent / "headrace"


def run(*args, status=0):
    done = subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


@pytest.mark.parametrize("command", [("cp",), ("sync",), ("sync", "--delete")])
@pytest.mark.parametrize("kind", ["folder", "folders", "archive"])
@pytest.mark.parametrize("destination", ["new/er", "new.zip"])
def test_a_source_of_nothing_is_not_found(tmp_path, command, kind, destination):
    source = tmp_path / ("source.zip" if kind == "archive" else "source")
    if kind == "archive":
        zipfile.ZipFile(source, "w").close()
    else:
        Path(source, "x" if kind == "folders" else "").mkdir(parents=True)
    done = run(*command, source, tmp_path / destination, status=1)
    assert "there is no object" in done.stderr
    assert not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def array_of(path, values):
    array = hr.create_array(path, shape=8, chunks=4, dtype="u1")
    array[...] = values
    return array


@pytest.mark.parametrize("command", ["cp", "sync"])
def test_what_is_left_out_is_counted(tmp_path, command):
    """A name within an archive that leads out of it is no object's."""
    source = tmp_path / "source.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("a", "1")
        archive.writestr("../b", "2")
    done = json.loads(run(command, source, tmp_path / "target", "--json").stdout)
    assert (done["copied"], done["left_out"], done["removed_meanwhile"]) == (1, 1, 0)


COPIES = [("cp",), ("cp", "--verify"), ("cp", "--resume"), ("sync",), ("sync", "--checksum")]


@pytest.mark.parametrize("command", COPIES)
@pytest.mark.parametrize("inside", ["", "g/x"])
def test_old_chunks_are_no_elements_of_a_copy(tmp_path, command, inside):
    source, target = tmp_path / "source", tmp_path / "target"
    array_of(source / inside, [1, 1, 1, 1, 0, 0, 0, 0])
    array_of(target / inside, 7)
    done = run(*command, source, target, status=1)
    first = f"{inside}/c/1" if inside else "c/1"
    assert f"1 object that the source lacks (first: {first})" in done.stderr
    assert "sync --delete" in done.stderr
    assert hr.open_array(target / inside)[...].tolist() == [7] * 8
    run("sync", "--checksum", "--delete", source, target)
    assert hr.open_array(target / inside)[...].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    run(*command, source, target)


def test_sync_takes_chunks_of_the_same_size_that_were_written_since(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    array = hr.create_array(source, shape=8, chunks=4, dtype="u1", compressors=None)
    array[...] = 1
    time.sleep(0.05)  # a step of the file system's clock
    run("sync", source, target)
    assert "copied 0 of 3 objects" in run("sync", source, target).stdout
    array[:4] = 2
    assert "3 were there in the same size" in run("sync", "--size-only", source, target).stdout
    assert hr.open_array(target)[...].tolist() == [1] * 8
    assert "copied 1 of 3 objects" in run("cp", "--resume", source, target).stdout
    assert hr.open_array(target)[...].tolist() == [2] * 4 + [1] * 4
    assert "excludes" in run("sync", "--size-only", "--checksum", source, target, status=2).stderr


@pytest.mark.parametrize("command", [("cp",), ("rechunk", "--chunks", "2"), ("convert",)])
@pytest.mark.parametrize("name", ["new.zip", "new.zip/", "zip://{}/new.any"])
def test_an_archive_is_a_new_one_however_it_is_named(tmp_path, command, name):
    array_of(tmp_path / "source", 3)
    target = name.format(tmp_path) if "{}" in name else f"{tmp_path}/{name}"
    run(*command, tmp_path / "source", target)
    assert hr.open_array(target)[...].tolist() == [3] * 8
    run(*command, tmp_path / "source", target, status=1)
    if command != ("cp",):
        array_of(tmp_path / "source2", 4)
        run(*command, tmp_path / "source2", target, "--overwrite")
        assert hr.open_array(target)[...].tolist() == [4] * 8


def test_what_lies_beside_an_array_stays(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    array_of(source / "x", 1)
    array_of(target / "y", 7)
    (target / "notes.txt").write_text("mine")
    for command in COPIES:
        run(*command, source, target)
    assert hr.open_array(target / "x")[...].tolist() == [1] * 8
    assert hr.open_array(target / "y")[...].tolist() == [7] * 8
    assert (target / "notes.txt").read_text() == "mine"


@pytest.fixture(scope="module")
def unnamed():
    """Of a bucket with objects whose keys no path can be."""
    with cloud_servers.fake_server(cloud_servers.GcsHandler) as (server, endpoint):
        server.uploads, server.allowed = {}, [""]
        for key in ("z/a", "z/x/", "z/x//b", "z/x/y", "z/../q", "z/c\\d", "z/e//\x1b[31m"):
            server.objects[key] = (next(cloud_servers.ObjectHandler.versions), b"text")
        options = {"anon": "true", "endpoint_url": endpoint}
        words = [
            w for name, value in options.items() for w in ("--storage-option", f"{name}={value}")
        ]
        yield "gs://bucket/z", words


@pytest.mark.parametrize("command", ["ls -r", "ls -l", "du", "cp", "sync", "sync --delete"])
def test_what_no_key_names_is_told(unnamed, tmp_path, command):
    url, options = unnamed
    names = [tmp_path / "copy"] if command.startswith(("cp", "sync")) else []
    text = "left out: 5 objects whose keys are no paths (first: ../q)\n"
    done = run(*command.split(), url, *names, *options)
    assert done.stderr == text
    done = run(*command.split(), url, *names, "--json", *options)
    assert done.stderr == text
    json.loads(done.stdout)
    if names:
        assert sorted(p.name for p in names[0].rglob("*") if p.is_file()) == ["a", "y"]


def test_what_no_key_names_here_is_told(unnamed, tmp_path):
    url, options = unnamed
    done = run("ls", url, *options)
    assert done.stdout.split() == ["a", "e", "x"]
    assert "left out: 2 objects" in done.stderr
    done = run("ls", "-r", f"{url}/e", *options)
    assert done.stderr == "left out: 1 object whose key is no path (first: /\\x1b[31m)\n"
    done = run("cp", f"{url}/e", tmp_path / "copy", *options, status=1)
    assert "no object whose key is a path" in done.stderr
    assert not (tmp_path / "copy").exists()


def test_what_no_key_names_in_an_archive_is_told(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("a/", "a/b", "../q"):
            archive.writestr(name, "" if name.endswith("/") else "text")
    done = run("cp", tmp_path / "a.zip", tmp_path / "copy")
    assert done.stderr == "left out: 1 object whose key is no path (first: ../q)\n"


@pytest.mark.parametrize("command", [("cp", "--verify"), ("sync", "--checksum", "--delete")])
@pytest.mark.parametrize("removed", [False, True])
def test_what_is_listed_and_not_found(tmp_path, command, removed):
    class Handler(cloud_servers.GcsHandler):
        def object(self, name, body):
            if not name.endswith("c/1"):
                return super().object(name, body)
            if removed:
                self.server.objects.pop(name, None)
            return self.fail(404, "NoSuchKey")

    target = tmp_path / "target"
    with cloud_servers.fake_server(Handler) as (server, endpoint):
        server.uploads, server.allowed = {}, [""]
        array_of(tmp_path / "source", [1] * 8)
        for path in tmp_path.rglob("*"):
            if path.is_file():
                name = path.relative_to(tmp_path / "source").as_posix()
                server.objects[f"a/{name}"] = "1", path.read_bytes()
        options = [f"--storage-option={o}" for o in ("anon=true", f"endpoint_url={endpoint}")]
        done = run(*command, "gs://bucket/a", target, *options, status=0 if removed else 1)
    assert (target / "zarr.json").exists() == removed
    if removed:
        assert done.stderr == "left out: 1 object removed meanwhile (first: c/1)\n"
        assert "copied 2 of 3 objects" in done.stdout
    else:
        assert "1 object is listed and not found when read (first: c/1)" in done.stderr


def test_what_is_refused_leaves_no_folders(tmp_path):
    group = hr.create_group(tmp_path / "g.zarr")
    group.create_array("x", shape=4, dtype="i4", chunks=2)[:] = 1
    (tmp_path / "link").symlink_to("g.zarr")
    for *command, source in (["cp", "g.zarr"], ["rechunk", "--chunks", "1", "g.zarr"]):
        for place in ("g.zarr/x/new", "g.zarr/new/er", "link/new"):
            run(*command, tmp_path / source, tmp_path / place, status=1)
    run("convert", tmp_path / "g.zarr/x", tmp_path / "g.zarr/x/c/new", status=1)
    names = {path.name for path in (tmp_path / "g.zarr").rglob("*")}
    assert names == {"zarr.json", "x", "c", "0", "1"}
