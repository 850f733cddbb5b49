"""The driver's end of a worker (worker.py): one process a peer, one request at a time."""

import json
import os
import subprocess
import sys

from harness import ENVIRONMENT


class PeerError(RuntimeError):
    """A peer answered a request with an error."""


class Unavailable(PeerError):
    """The peer's library is not installed or does not load."""


class Client:
    def __init__(
        self,
        peer: str,
        log,
        name: str = "",
        folder: str = "",
        module: str = "e2e.worker",
        python: str = sys.executable,
    ):
        """`name` is what it goes by in results, `folder` the first one with modules."""
        self.peer = name or peer
        self.repeat = 1  # how often a round repeats a row's calls; the driver settles it
        self.memory = False  # whether the peer serves a store in memory
        path = os.pathsep.join(filter(None, [folder, ENVIRONMENT["PYTHONPATH"]]))
        self._process = subprocess.Popen(
            [python, "-m", module, peer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**ENVIRONMENT, "PYTHONPATH": path},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, cmd: str, **request) -> dict:
        try:
            self._process.stdin.write(json.dumps({"cmd": cmd, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words are still to be read
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise PeerError(f"[{self.peer}] worker ended with status {code} in {cmd}; see its log")
        answer = json.loads(line)
        if "error" in answer:
            kind = Unavailable if answer.get("unavailable") else PeerError
            raise kind(f"[{self.peer}] {cmd}: {answer['error']}")
        return answer

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
