"""Arrays of objects and strings that change while they are written."""

import subprocess
import sys
import textwrap

import headrace as hr
import numpy as np
import pytest

CODE = """
import sys, threading
import headrace as hr
import numpy as np

kind, rounds = sys.argv[2], int(sys.argv[3])
N = 20_000
make = {
    "str": lambda i: f"element {i} of some length, no small string",
    "bytes": lambda i: b"element %d of some length, no small string" % i,
    "strings": lambda i: f"element {i} of some length, no small string",
}[kind]
dtype = bytes if kind == "bytes" else str
src = np.array([make(i) for i in range(N)], "T" if kind == "strings" else object)
known = {make(i) for i in range(N)}
array = hr.create_array(sys.argv[1], shape=N, dtype=dtype, chunks=500, overwrite=True)
if kind == "strings":
    def change():
        src[:] = ""
        src[:] = "another text, of about the same length, all over"
    known |= {"", "another text, of about the same length, all over"}
else:
    def change():
        src[:] = None
        junk = [b"*" * 60 for _ in range(N)]  # takes the memory that was freed
    known |= {dtype(), "None"}  # NumPy's strings make text of None

for _ in range(rounds):
    src[:] = [make(i) for i in range(N)]
    started, done = threading.Event(), threading.Event()
    def write():
        started.set()
        if sys.argv[4] == "async":
            array.write_async(None, src).result()
        else:
            array[:] = src
        done.set()
    thread = threading.Thread(target=write)
    thread.start()
    started.wait()
    while not done.is_set():
        change()
    thread.join()
    strange = [element for element in array[:].tolist() if element not in known]
    assert not strange, strange[:3]
"""


@pytest.mark.parametrize("call", ["sync", "async"])
@pytest.mark.parametrize("kind", ["str", "bytes", "strings"])
def test_elements_are_from_before_or_after(store, kind, call):
    """As NumPy and zarr-python have it: whole elements, nothing of freed memory."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(CODE), store, kind, "5", call],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_is_written_needs_no_array_after_the_call(store):
    array = hr.create_array(store, shape=3000, dtype=str, chunks=100)
    futures = []
    for n in range(20):
        futures.append(
            array.write_async(None, np.array([f"{n} {i}" * 9 for i in range(3000)], "T"))
        )
    for future in futures:
        future.result(60)
    number, rest = array[17].split(" ", 1)
    assert rest.startswith("17") and number.isdigit()


def test_elements_that_numpy_left_empty(store):
    array = hr.create_array(store, shape=4, dtype=bytes, chunks=2)
    array[:] = np.empty(4, object)
    assert array[:].tolist() == [b""] * 4
