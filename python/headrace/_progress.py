"""A bar with rate and time left, for calls that take long."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
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
        bar = _RichBar(label) if _has_rich() else Bar(label)
        bar.begin()
        return bar
    if not callable(progress):
        raise _check.wrong_type("progress", "a function of (done, total), True or None", progress)
    return progress


@contextlib.contextmanager
def showing(progress: Progress | bool | None, label: str) -> Iterator[Progress | None]:
    """The same for a block, after which a bar stands still, however it ended."""
    show = shown(progress, label)
    try:
        yield show
    finally:
        if isinstance(show, _RichBar | Bar):
            show.close()


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

    def begin(self) -> None:
        """Shows it before anything is done, which may take long."""
        self._show(0, None)

    def __call__(self, done: int, total: int) -> None:
        if self._ended:
            return
        self._show(done if total else 1, max(total, 1))
        if done >= total:
            self.close()

    def _show(self, done: int, total: int | None) -> None:
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
            self._task = self._bar.add_task(self._label, total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)

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
        self._open = False  # a line without its end

    def begin(self) -> None:
        """Shows it before anything is done, which may take long."""
        if sys.stderr.isatty():
            self._open = True
            print(f"\r{self._label} [{'.' * _WIDTH}]", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the line of a call that did not come to its end."""
        if self._open:
            self._open = False
            print(file=sys.stderr, flush=True)

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
        self._open = not end
        text = f"\r{self._label} [{bar}] {share:4.0%}{rate}\x1b[K{end}"
        print(text, end="", file=sys.stderr, flush=True)

    def _rate(self, now: float, done: int, total: int) -> str:
        started, done_then = self._first or (now, done)
        if now == started or done == done_then:
            return ""
        rate = (done - done_then) / (now - started)
        left = int((total - done) / rate)
        return f"  {rate / 1e6:.1f} MB/s, {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
