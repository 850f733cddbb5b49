"""headrace.shm and those that are not to be trusted, or do not go on: other users, descriptors that
are something else by now, and processes that are stopped."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import headrace
import headrace.shm as shm
import numpy as np
import pytest
from headrace.shm._arena import Address, arena_at
from helpers import needs_publications
from shm_children import produce_for_ever

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")

NOBODY = 65534

# Serves a publication whose pickle makes a file, as the user `uid`, under the name that the victim
# would use.
SQUATTER = """
import array, fcntl, os, pickle, socket, struct, sys

name, uid, marker = sys.argv[1], int(sys.argv[2]), sys.argv[3]
owner = os.geteuid()
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)


class Attack:
    def __reduce__(self):
        return os.system, (f"touch {marker}",)


text = pickle.dumps(Attack())
body = struct.pack("QQQQQ", 0x43494C4255505248, 64 + (len(text) + 63) // 64 * 64, 1, 64, len(text))
memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
os.write(memory, body.ljust(64, b"\\0") + text.ljust((len(text) + 63) // 64 * 64, b"\\0"))
fcntl.fcntl(memory, 1033, 15)  # F_ADD_SEALS: all of them
server = socket.socket(socket.AF_UNIX)
server.bind(f"\\0headrace-{owner}-{name}")
server.listen()
print("ready", flush=True)
while True:
    with server.accept()[0] as connection:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))]
        try:
            connection.sendmsg([b"\\0"], rights)
        except OSError:
            pass
"""


@pytest.fixture
def name():
    return f"headrace-trust-{os.getpid()}"


@pytest.fixture
def squatter(name, tmp_path):
    """Starts one as a user; what its pickle would make. It is killed in the end."""
    started = []

    def start(uid, code=SQUATTER):
        marker = tmp_path / "ran"
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", code, name, str(uid), str(marker)],
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return marker

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@needs_publications
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_what_another_user_serves_is_not_loaded(name, squatter):
    marker = squatter(NOBODY)
    for timeout in (0, 0.1):
        with pytest.raises(FileNotFoundError, match=f"a process of uid {NOBODY} serves that name"):
            shm.attach(name, timeout=timeout)
    with pytest.raises(ValueError, match=f"uid {NOBODY}"):
        shm.publish(name, 1)
    assert not marker.exists()


@needs_publications
def test_the_squatter_does_what_it_should(name, squatter):
    """A pickle of one's own user is trusted: without this the test above would prove nothing."""
    marker = squatter(os.geteuid())
    assert shm.attach(name) == 0
    assert marker.exists()


@needs_publications
def test_what_is_no_publication_is_corrupt(name, squatter):
    squatter(os.geteuid(), SQUATTER.replace("fcntl.fcntl(memory", "None and fcntl.fcntl(memory"))
    with pytest.raises(headrace.CorruptError, match="cut it short"):
        shm.attach(name)


def test_what_is_behind_a_descriptor_by_now(tmp_path):
    """An arena that a message names may be gone, and its descriptor another thing."""
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    os.mkfifo(tmp_path / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for path, flags in (
        (tmp_path / "file", os.O_RDWR),
        (tmp_path / "fifo", os.O_RDWR),
        ("/dev/null", os.O_RDWR),
        (tmp_path, os.O_RDONLY),
    ):
        fd = os.open(path, flags)
        with pytest.raises(FileNotFoundError, match="never had it"):
            arena_at(Address("0" * 32, os.getpid(), fd))
        os.close(fd)
    arena = shm.Arena(1 << 16)
    with pytest.raises(FileNotFoundError, match="never had it"):
        arena_at(Address("0" * 32, os.getpid(), arena._core.fd))
    del arena
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_stopped_process_is_not_waited_for():
    """Wherever it is stopped, with the lock among other places."""
    arena = shm.Arena(2 << 20)
    channel = arena.channel(4)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=produce_for_ever, args=(channel, 0), daemon=True)
    child.start()
    try:
        for _ in range(30):
            got = [channel.get(timeout=30)]
            os.kill(child.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
            begin = time.monotonic()
            try:
                while True:
                    got.append(channel.get(timeout=0.01))
            except TimeoutError:
                pass
            try:
                got.append(arena.empty(1000, timeout=0.01))
                got[-1][...] = 1
            except TimeoutError:
                pass
            assert all((array == 1).all() for array in got)
            del got
            assert time.monotonic() - begin < 20
            os.kill(child.pid, signal.SIGCONT)
    finally:
        child.kill()
        child.join(30)
    while not channel.empty():
        channel.get(timeout=30)
    assert arena.stats()["blocks"] == 1


def test_an_interrupt_ends_a_wait_for_a_stopped_process():
    """The lock's word names a process that is alive and does not give it back."""
    arena = shm.Arena(1 << 20)
    word = 64  # Header::lock in src/shm/layout.h
    assert (arena._memory[word : word + 4].view("u4") & 0x1FF == 0).all()
    arena._memory[word : word + 4].view("u4")[0] |= 1  # place 0: this process itself

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    try:
        for call in (arena.stats, arena.reclaim, arena.channel, lambda: arena.empty(10_000)):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                call()
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        arena._memory[word : word + 4] = np.zeros(4, "u1")
    assert arena.stats()["blocks"] == 0
