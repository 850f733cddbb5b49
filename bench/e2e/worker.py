"""A peer in its own process: commands and answers are JSON lines on standard input and output.

    python -m e2e.worker PEER

1. The driver sends {"cmd": "hello"}; the answer has the versions, or "error" without the library.
2. "open" an array, then "verify", "read" and "latency" on it; or "write" a new one.
3. End of input ends the worker.

Times exclude the protocol. A result is dropped before the next call: one is alive at a time.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
from e2e import peers
from harness import took


def _status_kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def _reset_peak_rss() -> None:
    # 5 resets VmHWM: https://www.kernel.org/doc/html/latest/filesystems/proc.html
    Path("/proc/self/clear_refs").write_text("5")


def selection_of(items: list) -> tuple:
    return tuple(slice(*i) if isinstance(i, list) else i for i in items)


class Worker:
    def __init__(self, peer):
        self._peer = peer
        self._array = None
        self._source = None
        self._out = None
        self._rss_base_kib = _status_kib("VmRSS")

    def hello(self, _) -> dict:
        return {"versions": self._peer.versions(), "memory": self._peer.MEMORY}

    def open(self, request) -> dict:
        self._array = self._peer.open_array(request["path"], **request.get("options", {}))
        self._rss_base_kib = _status_kib("VmRSS")
        return {}

    def fill_memory(self, request) -> dict:
        self._array = self._peer.create_in_memory(request["spec"])
        self._peer.write(self._array, (Ellipsis,), self._load(request))
        return {}

    def _load(self, request) -> np.ndarray:
        """The source of a write, in memory; kept while requests name the same part of it."""
        key = (request["source"], json.dumps(request["part"]))
        if self._source is None or self._source[0] != key:
            part = selection_of(request["part"])
            self._source = (key, np.array(np.load(request["source"], mmap_mode="r")[part]))
        return self._source[1]

    def verify(self, request) -> dict:
        truth = np.load(request["truth"], mmap_mode="r")
        if "part" in request:
            truth = truth[selection_of(request["part"])]
        for items in request["selections"]:
            selection = selection_of(items)
            wanted = truth[selection]
            got = np.asarray(self._read(selection, request.get("out", False), wanted))
            if got.shape != wanted.shape or got.dtype != wanted.dtype:
                return {"ok": False, "why": f"{got.dtype}{got.shape} at {items}"}
            if not np.array_equal(got.view(np.uint32), wanted.view(np.uint32)):
                return {"ok": False, "why": f"values differ at {items}"}
        self._out = None
        return {"ok": True}

    def _read(self, selection, into_out: bool, like=None):
        if not into_out:
            return self._peer.read(self._array, selection)
        if self._out is None:
            self._out = np.full(like.shape, -1, like.dtype)
        self._peer.read_out(self._array, selection, self._out)
        return self._out

    def read(self, request) -> dict:
        selections = [selection_of(s) for s in request["selections"]]
        into_out = request.get("out", False)
        if into_out and self._out is None:
            self._out = np.zeros(request["out_shape"], np.float32)

        def work():
            for _ in range(request["repeat"]):
                for selection in selections:
                    self._read(selection, into_out)

        return self._timed(work)

    def release(self, _) -> dict:
        self._out = None
        return {}

    def latency(self, request) -> dict:
        selections = [selection_of(s) for s in request["selections"]]
        array, read, clock = self._array, self._peer.read, time.perf_counter_ns
        times = []
        for _ in range(request["repeat"]):
            for selection in selections:
                start = clock()
                read(array, selection)
                times.append(clock() - start)
        return {"ns": times}

    def write(self, request) -> dict:
        data = self._load(request)
        array = self._peer.create(request["path"], request["spec"])
        return self._timed(lambda: self._peer.write(array, (Ellipsis,), data))

    def make(self, request) -> dict:
        """A new array in a bucket."""
        self._array = self._peer.create_in_bucket(request["path"], request["spec"])
        return {}

    def write_part(self, request) -> dict:
        data = self._load(request)
        selection = selection_of(request["part"])
        return self._timed(lambda: self._peer.write(self._array, selection, data))

    def _timed(self, work) -> dict:
        _reset_peak_rss()
        seconds, cpu_s = took(work)
        peak_kib = _status_kib("VmHWM")
        return {
            "seconds": seconds,
            "cpu_s": cpu_s,
            "peak_rss_mib": peak_kib / 1024,
            "peak_over_base_mib": (peak_kib - self._rss_base_kib) / 1024,
        }


def serve(make: Callable[[str], object]) -> int:
    """Answers requests by methods of what `make` gives for the peer's name."""
    # The protocol keeps the real standard output; a library's own prints go to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: dict) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        worker = make(sys.argv[1])
    except ImportError as error:
        answer({"error": f"{type(error).__name__}: {error}", "unavailable": True})
        return 1
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer(getattr(worker, request["cmd"])(request))
        except Exception as error:  # the driver decides whether to stop or to leave the row out
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {error}"})
    return 0


if __name__ == "__main__":
    sys.exit(serve(lambda name: Worker(peers.load(name))))
