"""What the command does where its streams cannot be written, and with the files it writes.

Nothing of it may end by a signal, and none of it changes the exit status: 0, 1 failed, 2 usage.
"""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr
from helpers import smooth

COMMAND = Path(sys.executable).parent / "headrace"

# How a shell may have left standard error: full, closed, a pipe that nobody reads, a folder's end.
BAD_STREAMS = ["2>/dev/full", "2>&-", "2> >(exit 0)", "2</dev/null"]


def shell(line, **options):
    return subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, **options)


@pytest.fixture
def tree(store):
    root = zarr.create_group(store)
    root.create_array("g/field", data=smooth("f4", (20, 15, 6)), chunks=(8, 8, 6))
    root.create_array("ints", data=np.arange(12, dtype="i2"), chunks=(5,))
    return store


# Of each command one that fails, one of usage, and one that does well.
def commands(tree, tmp_path):
    a, out = f"'{tree}/ints'", f"'{tmp_path}/out"
    return [
        ("info nope.zarr", 1),
        ("tree nope.zarr", 1),
        ("read nope.zarr", 1),
        ("verify nope.zarr", 1),
        ("advise nope.zarr", 1),
        ("bench nope.zarr", 1),
        (f"rechunk nope.zarr {out}.z' --chunks 1", 1),
        (f"convert nope.zarr {out}.z'", 1),
        (f"rechunk {a} {a} --chunks 1", 1),
        ("", 2),
        ("nonsense", 2),
        ("info", 2),
        (f"read {a} --selection ,,", 2),
        (f"read {a} --threads -1", 2),
        (f"rechunk {a} {out}.z' --chunks x", 2),
        ("doctor --nonsense", 2),
        ("version x", 2),
        (f"info {a}", 0),
        (f"tree '{tree}'", 0),
        (f"read {a}", 0),
        (f"read {a} -o {out}.npy'", 0),
        (f"verify '{tree}'", 0),
        (f"advise {a}", 0),
        (f"bench {a} -n 1", 0),
        (f"rechunk {a} {out}1.zarr' --chunks 3", 0),
        (f"convert '{tree}' {out}2.zarr'", 0),
        ("doctor", 0),
        ("version", 0),
    ]


@pytest.mark.parametrize("stream", BAD_STREAMS)
def test_status_is_the_same_without_standard_error(tree, tmp_path, stream):
    for line, status in commands(tree, tmp_path):
        done = shell(f"'{COMMAND}' {line} {stream}")
        assert done.returncode == status, (line, stream, done)


def test_status_is_the_same_when_nobody_reads(tree, tmp_path):
    """Both streams into a pipe whose reader is gone: quiet, and no signal."""
    for line, status in commands(tree, tmp_path):
        read, write = os.pipe()
        os.close(read)
        process = subprocess.run(
            ["bash", "-c", f"exec '{COMMAND}' {line}"], stdout=write, stderr=write, timeout=60
        )
        os.close(write)
        writes_results = status == 0 and "rechunk" not in line and "convert" not in line
        expected = 1 if writes_results and " -o " not in line else status
        assert process.returncode == expected, (line, process)


@pytest.mark.parametrize("stream", [">/dev/full", ">&-"])
def test_results_that_cannot_be_written_are_a_failure(tree, tmp_path, stream):
    for line, status in commands(tree, tmp_path):
        done = shell(f"'{COMMAND}' {line} {stream}")
        silent = "rechunk" in line or "convert" in line or " -o " in line
        assert done.returncode == (1 if status == 0 and not silent else status), (line, done)
        assert silent or done.stderr


def test_no_file_becomes_a_closed_stream(tree, tmp_path):
    """A file opened in place of standard error would take the messages among its elements."""
    out = tmp_path / "copy.zarr"
    line = f"rechunk '{tree}/ints' '{out}' --chunks 3 --codec none"
    for closed in ("2>&-", "<&- >&- 2>&-", ">&- 2>&-"):
        assert shell(f"'{COMMAND}' {line} --overwrite {closed}").returncode == 0
        assert (hr.open_array(out)[:] == np.arange(12)).all()
        assert sorted(p.stat().st_size for p in out.glob("c/*")) == [6] * 4


@pytest.mark.parametrize("command", ["rechunk", "convert"])
@pytest.mark.parametrize("reader", ["| true", "2>&1 | true", "| head -n 1", "2>&1 | head -n 1"])
def test_a_closed_pipe_ends_no_copy(tree, tmp_path, command, reader):
    out = tmp_path / "copy.zarr"
    chunks = "--chunks 3" if command == "rechunk" else ""
    line = f"'{COMMAND}' {command} '{tree}/ints' '{out}' {chunks}"
    done = shell(f"set -o pipefail; {line} {reader}")
    assert done.returncode == 0, done
    assert (hr.open_array(out)[:] == np.arange(12)).all()
    assert not list(out.glob("**/.rechunk*"))


def test_plan_is_told_beside_the_results(tree, tmp_path):
    arguments = [COMMAND, "rechunk", f"{tree}/ints", f"{tmp_path}/c.zarr", "--chunks", "3"]
    done = subprocess.run(arguments, capture_output=True, timeout=60, text=True)
    assert done.stdout == ""
    assert "chunks (3,)" in done.stderr
    done = subprocess.run([*arguments, "--plan"], capture_output=True, timeout=60, text=True)
    assert "chunks (3,)" in done.stdout  # all there is to say
    done = subprocess.run(
        [*arguments, "--overwrite", "--json"], capture_output=True, timeout=60, text=True
    )
    assert json.loads(done.stdout)["done"] is True


# Files


def read_to(tree, out, *options, status=0):
    done = subprocess.run(
        [COMMAND, "read", f"{tree}/ints", "-o", out, *options], capture_output=True, timeout=60
    )
    assert done.returncode == status, done
    return done.stderr.decode()


@pytest.mark.parametrize("name", ["x.npy", "X.NPY", "a.b.npy", ".npy"])
def test_npy_by_its_name(tree, tmp_path, name):
    read_to(tree, tmp_path / name)
    assert (np.load(tmp_path / name) == np.arange(12)).all()


def test_formats_by_their_names(tree, tmp_path):
    data = np.arange(12, dtype="i2")
    for suffix in (".raw", ".bin"):
        read_to(tree, tmp_path / f"x{suffix}")
        assert (tmp_path / f"x{suffix}").read_bytes() == data.tobytes()
    read_to(tree, tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_text().split() == [str(i) for i in range(12)]
    read_to(tree, tmp_path / "x.txt", "--format", "npy")  # what is said counts
    assert (np.load(tmp_path / "x.txt") == data).all()
    done = subprocess.run(
        [COMMAND, "read", f"{tree}/ints", "--json", "-o", tmp_path / "y.npy"], capture_output=True
    )
    assert json.loads(done.stdout)["format"] == "npy"


@pytest.mark.parametrize("name", ["x", "x.npz", "x.dat", "npy", "x.npy.part", "x.csv"])
def test_other_names_say_no_format(tree, tmp_path, name):
    message = read_to(tree, tmp_path / name, status=2)
    assert "--format" in message
    assert not list(tmp_path.glob("x*"))
    read_to(tree, tmp_path / name, "--format", "raw")
    assert (tmp_path / name).stat().st_size == 24


def test_files_of_others_stay(tree, tmp_path):
    for name in ("x.npy.partial", ".x.npy.partial", "x.npy~"):
        (tmp_path / name).write_text("mine")
    before = set(os.listdir(tmp_path))
    read_to(tree, tmp_path / "x.npy")
    read_to(tree, tmp_path / "x.npy")
    bad = next(Path(tree, "ints/c").iterdir())
    bad.write_bytes(b"nonsense")
    kept = (tmp_path / "x.npy").read_bytes()
    read_to(tree, tmp_path / "x.npy", status=1)
    assert (tmp_path / "x.npy").read_bytes() == kept
    assert set(os.listdir(tmp_path)) == before | {"x.npy"}
    for name in before - {"store.zarr"}:
        assert (tmp_path / name).read_text() == "mine"


def test_links_stay_and_lead_where_they_led(tree, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "x.npy.partial").symlink_to(victim)
    read_to(tree, tmp_path / "x.npy")
    assert victim.read_text() == "mine"

    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "real.npy").write_text("old")
    (folder / "real.npy").chmod(0o640)
    (tmp_path / "link.npy").symlink_to("folder/real.npy")
    (tmp_path / "again.npy").symlink_to(tmp_path / "link.npy")
    read_to(tree, tmp_path / "again.npy")
    assert (tmp_path / "again.npy").is_symlink() and (tmp_path / "link.npy").is_symlink()
    assert (np.load(folder / "real.npy") == np.arange(12)).all()
    assert stat.S_IMODE((folder / "real.npy").stat().st_mode) == 0o640

    (tmp_path / "dangling.npy").symlink_to("folder/new.npy")
    read_to(tree, tmp_path / "dangling.npy")
    assert (np.load(folder / "new.npy") == np.arange(12)).all()
    (tmp_path / "round.npy").symlink_to("round.npy")
    assert "round.npy" in read_to(tree, tmp_path / "round.npy", status=1)
    assert "folder" in read_to(tree, folder, "--format", "npy", status=1)


def test_devices_and_pipes_are_written_as_they_are(tree, tmp_path):
    assert "space" in read_to(tree, "/dev/full", "--format", "npy", status=1)
    read_to(tree, "/dev/null", "--format", "raw")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    done = shell(f"'{COMMAND}' read '{tree}/ints' -o /dev/stdout --format raw | cat")
    assert done.stdout == np.arange(12, dtype="i2").tobytes()
    os.mkfifo(tmp_path / "fifo")
    done = shell(
        f"cat '{tmp_path}/fifo' & '{COMMAND}' read '{tree}/ints' -o '{tmp_path}/fifo' --format raw;"
        " wait"
    )
    assert done.stdout == np.arange(12, dtype="i2").tobytes()


# Words


def test_numbers_out_of_range_are_named(tree):
    done = shell(f"'{COMMAND}' verify '{tree}' --threads -1", text=True)
    assert done.returncode == 2
    assert "--threads: expected a number, 0 or more" in done.stderr
    assert len(done.stderr) < 300
    assert shell(f"'{COMMAND}' verify '{tree}' --threads 99999999999999999999").returncode == 2
    assert shell(f"'{COMMAND}' verify '{tree}' --threads 0").returncode == 0


@pytest.mark.parametrize(
    ("word", "meant"), [("inf", "info"), ("trees", "tree"), ("verif", "verify"), ("xyzzy", None)]
)
def test_a_command_that_is_none_is_named(tree, word, meant):
    done = shell(f"'{COMMAND}' {word} '{tree}'", text=True)
    assert done.returncode == 2
    assert f'there is no command "{word}"' in done.stderr
    assert ("did you mean" in done.stderr) == (meant is not None)
    assert meant is None or f"did you mean {meant}?" in done.stderr


CHECKED = {
    "crc32c": {"compressors": [zarr.codecs.Crc32cCodec()]},
    "gzip": {"compressors": [zarr.codecs.GzipCodec()]},
    "zstd-sum": {"compressors": [zarr.codecs.ZstdCodec(checksum=True)]},
    "shard": {"shards": (4,), "chunks": (2,), "compressors": [zarr.codecs.GzipCodec()]},
    "v2-zlib": {"zarr_format": 2, "compressors": numcodecs.Zlib()},
    "v2-fletcher": {"zarr_format": 2, "compressors": None, "filters": [numcodecs.Fletcher32()]},
}
UNCHECKED = {
    "none": {"compressors": None},
    "zstd": {"compressors": [zarr.codecs.ZstdCodec()]},
    "blosc": {"compressors": [zarr.codecs.BloscCodec()]},
    "shard-of-zstd": {"shards": (4,), "chunks": (2,), "compressors": [zarr.codecs.ZstdCodec()]},
    "v2-zstd": {"zarr_format": 2, "compressors": numcodecs.Zstd()},
    "v2-lzma-alone": {"zarr_format": 2, "compressors": numcodecs.LZMA(format=2)},
}


@pytest.mark.parametrize("name", [*CHECKED, *UNCHECKED])
def test_verify_says_which_arrays_have_no_checksum(tmp_path, name):
    options = {"chunks": (4,), **(CHECKED | UNCHECKED)[name]}
    zarr.create_array(tmp_path / "a", data=np.arange(8, dtype="i4"), **options)
    done = subprocess.run([COMMAND, "verify", tmp_path / "a", "--json"], capture_output=True)
    report = json.loads(done.stdout)
    assert report["arrays"][0]["checksum"] is (name in CHECKED)
    assert report["without_checksum"] == (name in UNCHECKED)
    text = subprocess.run([COMMAND, "verify", tmp_path / "a"], capture_output=True, text=True)
    assert ("1 array has no checksum: changed values may go unseen" in text.stdout) == (
        name in UNCHECKED
    )
    assert "1 array, " in text.stdout and text.returncode == 0


def test_verify_counts_arrays_without_checksum(tree):
    done = subprocess.run([COMMAND, "verify", tree], capture_output=True, text=True)
    assert "2 arrays have no checksum" in done.stdout
