"""Reading a result file of run.py: the best peer of a row, and the limit that holds it."""

import json
from dataclasses import dataclass
from pathlib import Path

SUBJECT = "headrace"
SCHEMA = 1


@dataclass
class Line:
    layout: str
    codec: str
    access: str
    subject: dict | None  # headrace's figures, None where it did not run
    best: str | None  # the fastest peer
    best_figures: dict | None
    limit_mb_s: float | None
    limit_name: str | None

    @property
    def ratio(self) -> float | None:
        if not self.subject or not self.best_figures:
            return None
        return self.best_figures["median_s"] / self.subject["median_s"]

    @property
    def percent_of_limit(self) -> float | None:
        if not self.subject or not self.limit_mb_s:
            return None
        return 100 * self.subject["mb_s"] / self.limit_mb_s


def load(path: Path) -> dict:
    report = json.loads(path.read_text())
    if report.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {report.get('schema')!r}, expected {SCHEMA}")
    return report


def _fastest(entry: dict, direction: str, threads: int) -> tuple[float, str] | None:
    rates = [
        (library[f"{direction}_{threads}"]["mb_s"], library["implementation"])
        for library in entry.get("libraries", [])
        if not library.get("unavailable")
        and (direction == "decode" or library["comparable_encode"])
    ]
    return max(rates) if rates else None


def _on(threads: int) -> str:
    return f"{threads} threads" if threads > 1 else "1 thread"


def limit(report: dict, layout: str, codec: str, access: str) -> tuple[float, str] | None:
    """The rate of the codec's library alone: all threads for large calls, one for a chunk a call.

    None for series and box, where the bytes asked for are not the bytes decoded.
    """
    if access in ("series", "box"):
        return None
    entries = [e for e in report["limits"] if (e["layout"], e["codec"]) == (layout, codec)]
    if not entries:
        return None
    cores = report["machine"]["cores"]
    threads = 1 if access == "chunk" else cores
    if codec != "none":
        found = _fastest(entries[0], "encode" if access == "write" else "decode", threads)
        return found and (found[0], f"{found[1]}, {_on(threads)}")
    if access == "write":
        return None
    # One result of `whole` lies in fresh pages; the others reuse theirs.
    pages = "fresh" if access == "whole" else "used"
    rate = entries[0][f"pread_{pages}_{threads}"]["mb_s"]
    return rate, f"pread, {pages} pages, {_on(threads)}"


def lines(report: dict) -> list[Line]:
    result = []
    for row in report["rows"]:
        figures = {p: r for p, r in row["peers"].items() if "error" not in r}
        others = {p: r for p, r in figures.items() if p != SUBJECT}
        best = min(others, key=lambda p: others[p]["median_s"]) if others else None
        key = (row["layout"], row["codec"], row["access"])
        bound = limit(report, *key)
        result.append(
            Line(
                *key,
                subject=figures.get(SUBJECT),
                best=best,
                best_figures=others.get(best),
                limit_mb_s=bound[0] if bound else None,
                limit_name=bound[1] if bound else None,
            )
        )
    return result
