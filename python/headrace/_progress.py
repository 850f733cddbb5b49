"""A bar with rate and time left, for calls that take long."""

from __future__ import annotations

import sys
import time

_WIDTH = 30
_INTERVAL_S = 0.1


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
