"""What several test files share."""

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import headrace as hr
import numcodecs
import numpy as np
import pytest
import zarr

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
sys.path.insert(0, str(GOLDEN / "generate"))

from formula import smooth, values  # noqa: E402, F401

DOCTOR = hr.doctor()
PORTABLE = DOCTOR["portable"]


def linux_only(feature):
    """The mark of a test of what the portable build leaves out (docs/mac.md)."""
    return pytest.mark.skipif(PORTABLE, reason=f"the portable build has no {feature}")


needs_publications = linux_only("publications")
needs_memfd = linux_only("memory that never had a name (memfd)")
needs_mapped_files = linux_only("files that stay mapped for devices")
# A kernel may refuse it, too.
needs_uring = pytest.mark.skipif(
    not DOCTOR["io_uring"]["available"], reason=f"no io_uring: {DOCTOR['io_uring']['why_not']}"
)
HAS_CUDA = any(d["device"] == "cuda:0" and d["available"] for d in DOCTOR["devices"])
DEVICES = ["simt", pytest.param("cuda", marks=pytest.mark.skipif(not HAS_CUDA, reason="no GPU"))]


def on_a_terminal(command, **elsewhere):
    """What a command shows on a terminal, and its status; `elsewhere`: streams that are not there.

    Without a fork of this process, which has threads.
    """
    terminal, its_end = pty.openpty()
    streams = {"stdin": its_end, "stdout": its_end, "stderr": its_end, **elsewhere}
    with subprocess.Popen(command, **streams) as process:
        os.close(its_end)
        shown = b""
        try:
            while more := os.read(terminal, 4096):
                shown += more
        except OSError:  # Linux: the other end is closed
            pass
        finally:
            os.close(terminal)
    return shown.decode(), process.returncode


def native(x):
    """`x` as an array in the byte order of this machine."""
    x = np.asarray(x)
    return x.astype(x.dtype.newbyteorder("="), copy=False)


def assert_same(got, wanted):
    """Equal shape, dtype but for byte order, and bits: NaN payloads and the sign of zero count."""
    got, wanted = native(got), native(wanted)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if got.tobytes() != wanted.tobytes():
        size = max(1, got.dtype.itemsize)
        left = np.frombuffer(got.tobytes(), np.uint8).reshape(-1, size)
        right = np.frombuffer(wanted.tobytes(), np.uint8).reshape(-1, size)
        bad = np.flatnonzero((left != right).any(axis=1))
        first = np.unravel_index(bad[0], got.shape)
        raise AssertionError(
            f"{len(bad)} of {got.size} elements differ, first at {tuple(map(int, first))}: "
            f"got {got[first]!r}, wanted {wanted[first]!r}"
        )


def assert_selected(got, data, index):
    """`got` is data[index]; where NumPy gives a scalar, a 0-d array will do."""
    if isinstance(data[index], np.ndarray):
        return assert_same(got, data[index])
    index = index if isinstance(index, tuple) else (index,)
    wanted = data[index if any(k is ... for k in index) else (*index, ...)]
    got = np.asarray(got)
    assert (got.shape, got.dtype.kind) == ((), wanted.dtype.kind)
    # A NumPy scalar is native, and as long as its text.
    return assert_same(got.astype(wanted.dtype), wanted)


def as_bytes(x):
    """The bytes of whatever buffer a codec call returned."""
    return bytes(x) if isinstance(x, bytes | bytearray) else np.asarray(x).tobytes()


def write_zarr(path, data, **options):
    """An array written by zarr-python."""
    options.setdefault("chunks", tuple(max(1, s // 2) for s in data.shape))
    name = options.pop("name", None)
    array = zarr.create_array(path, name=name, shape=data.shape, dtype=data.dtype, **options)
    array[...] = data
    return array


def read_zarr(path, name=None):
    """The whole array as zarr-python reads it, in memory of its own."""
    return np.array(zarr.open_array(path, path=name, mode="r")[...])


def chunk_files(path):
    """The chunk files below a folder, by key relative to it, metadata left out."""
    root = Path(path)
    found = (p for p in root.rglob("*") if p.is_file())
    return {
        p.relative_to(root).as_posix(): p
        for p in found
        if not p.name.startswith(".z") and p.name != "zarr.json"
    }


def edit_json(path, change):
    """Rewrites a metadata file: `change` edits the parsed value or returns another."""
    value = json.loads(Path(path).read_text())
    changed = change(value)
    Path(path).write_text(json.dumps(value if changed is None else changed))


def python(code, *args, timeout=120, check=True):
    """Runs Python code in a process of its own, warnings as errors; gives its standard output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=dict(os.environ),
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done.stdout


def wait_until(true, timeout=60):
    """Polls; for what another process does and nobody tells of."""
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, f"not so within {timeout} s"
        time.sleep(0.002)


def cpu_seconds(pid):
    """What a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_asleep(pid):
    """Whether the main thread of a process waits for something."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def read_in_process(where, queue):
    """The body of a multiprocessing child: here, since a child can import this file by name."""
    import headrace as hr

    queue.put(hr.open_array(where)[...].tobytes())


def library(name, device):
    """A library of arrays on GPUs, skipped where it is not there or sees no GPU."""
    if device != "cuda":
        pytest.skip("arrays of GPUs")
    return pytest.importorskip(name)


class OfTheApplication(numcodecs.abc.Codec):
    """A codec that numcodecs knows, when it is registered, and headrace does not."""

    codec_id = "headrace_test_inverted"

    def encode(self, buf):
        return bytes(255 - np.frombuffer(buf, "u1"))

    def decode(self, buf, out=None):
        return numcodecs.compat.ndarray_copy(self.encode(buf), out)


numcodecs.register_codec(OfTheApplication)


def shm_names():
    """Shared memory of headrace's that has a name. Other tests and processes have theirs."""
    entries = [entry for entry in os.scandir("/dev/shm") if entry.is_file()]
    return sorted(entry.name for entry in entries if entry.name.startswith("headrace-"))
