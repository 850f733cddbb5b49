"""Tables of names and values as HTML: all text is escaped, and the colours are the page's."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from ._core import printable

_STYLE = (
    "font-family:monospace;font-size:12px;color:inherit;background:transparent;border-collapse:"
    "collapse;border:none"
)
_CELL = (
    "text-align:left;vertical-align:top;border:none;background:transparent;padding:1px 8px 1px 0"
)


def _text(value: Any) -> str:
    # Names of files that are no UTF-8 have lone surrogates, which no page may hold.
    return html.escape(printable(str(value).encode(errors="backslashreplace").decode()))


def table(rows: Iterable[tuple[str, str]], title: str = "") -> str:
    """Names and values beneath each other."""
    lines = "".join(
        f'<tr style="background:transparent"><th style="{_CELL};font-weight:normal;opacity:.65">'
        f'{_text(name)}</th><td style="{_CELL}">{_text(value)}</td></tr>'
        for name, value in rows
    )
    head = f"<div><b>{_text(title)}</b></div>" if title else ""
    return f'{head}<table style="{_STYLE}">{lines}</table>'


def beside(left: str, right: str) -> str:
    """Two pieces of HTML next to each other."""
    row = f'<tr style="background:transparent"><td style="{_CELL}">{left}</td>'
    far = f'<td style="{_CELL};padding-left:24px">{right}</td></tr>'
    return f'<table style="{_STYLE}">{row}{far}</table>'
