"""A bar with rate and time left, for calls that take long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from . import _check

_WIDTH = 30
_INTERVAL_S = 0.1

Progress = Callable[[int, int], object]


def shown(progress: Progress | bool | None, label: str) -> Progress | None:
    """The function to call with what is done and what is in all; of True a bar."""
    if progress is None or progress is False:
        return None
    if progress is True:
        return _RichBar(label) if _has_rich() else Bar(label)
    if not callable(progress):
        raise _check.wrong_type("progress", "a function of (done, total), True or None", progress)
    return progress


def _has_rich() -> bool:
    """Whether rich draws the bar: a terminal or a notebook, and it is installed."""
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return False
    import importlib.util

    return importlib.util.find_spec("rich") is not None


class _RichBar:
    """The same by rich, which draws in notebooks too."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Any = None
        self._task: Any = None
        self._ended = False

    def __call__(self, done: int, total: int) -> None:
        if self._ended:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._bar = Progress(
                "{task.description}",
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr="ipykernel" not in sys.modules),
            )
            self._task = self._bar.add_task(self._label, total=max(total, 1))
            self._bar.start()
        share = done if total else 1
        self._bar.update(self._task, completed=share, total=max(total, 1))
        if done >= total:
            self.close()

    def close(self) -> None:
        """Takes nothing away: what was drawn stays, and the terminal is as it was."""
        if self._bar is not None and not self._ended:
            self._bar.stop()
        self._ended = True

    def __del__(self) -> None:
        self.close()  # of a call that failed


class Bar:
    """Shows bytes done of bytes in all on standard error when that is a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._first: tuple[float, int] | None = None  # what was done before is not of the rate
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        if (now < self._next and done < total) or not sys.stderr.isatty():
            return
        self._next = now + _INTERVAL_S
        share = done / total if total else 1.0
        bar = ("#" * int(share * _WIDTH)).ljust(_WIDTH, ".")
        rate = self._rate(now, done, total)
        end = "\n" if done == total else ""
        text = f"\r{self._label} [{bar}] {share:4.0%}{rate}\x1b[K{end}"
        print(text, end="", file=sys.stderr, flush=True)

    def _rate(self, now: float, done: int, total: int) -> str:
        started, done_then = self._first or (now, done)
        if now == started or done == done_then:
            return ""
        rate = (done - done_then) / (now - started)
        left = int((total - done) / rate)
        return f"  {rate / 1e6:.1f} MB/s, {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
