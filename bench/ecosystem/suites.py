"""Test suites of other libraries, run as they are and with headrace: what differs, and why."""

import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import harness

Outcomes = dict[str, tuple[str, str]]
Named = Callable[[ElementTree.Element], str]
# Why a test fails whatever reads and writes, by a part of its message.
MACHINE = {
    "Name or service not known": "wants a network",
    "HTTPSConnectionPool": "wants a network",
    "Generic HTTP error": "wants a network",
    "codec not available: ''imagecodecs": "wants imagecodecs",
    "async def functions are not natively supported": "wants pytest-asyncio",
}


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    for kind, name in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(kind)
        if found is not None:
            message = (found.get("message") or found.text or "").strip().partition("\n")[0]
            # Which hosts there are, and where files lie, is no part of what differs.
            message = re.sub(r"https?://\S+|\b[\w-]+(\.[\w-]+)+:\d+", "(a host)", message)
            return name, re.sub(r"(?<![\w.)])(/[\w.+-]+){2,}/?", "(a path)", message)[:300]
    return "passed", ""


def outcomes_of(report: Path, name_of: Named) -> Outcomes:
    """What a report as JUnit writes them says of each test."""
    return {name_of(case): _outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def run(
    report: Path,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    name_of: Named,
) -> Outcomes:
    """Outcome and message of each test; a report that is there already is read again."""
    if not report.exists():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if not report.exists():
            raise RuntimeError(done.stdout + done.stderr)
    return outcomes_of(report, name_of)


def compared(outcomes: dict[str, Outcomes], reasons: Mapping[str, str]) -> dict:
    """Counts of "default" and of "headrace", which tests fail with headrace only, which with both.

    `reasons` are by a part of their names or messages.
    """
    reasons = {**reasons, **MACHINE}

    def reason_for(*texts: str) -> str:
        found = (reason for part, reason in reasons.items() if any(part in t for t in texts))
        return next(found, "unexplained")

    with_both, with_ours = {}, {}
    for test, (found, message) in sorted(outcomes["headrace"].items()):
        if found != "failed":
            continue
        fails_anyway = outcomes["default"].get(test, ("absent",))[0] == "failed"
        (with_both if fails_anyway else with_ours)[test] = {
            "message": message,
            "reason": reason_for(test, message),
        }
    return {
        **{name: Counter(found for found, _ in of.values()) for name, of in outcomes.items()},
        "not_run_by_both": sorted(outcomes["default"].keys() ^ outcomes["headrace"].keys()),
        "failed_with_headrace_only": with_ours,
        "reasons": Counter(row["reason"] for row in with_ours.values()),
        "failed_with_both": with_both,
        "reasons_with_both": Counter(row["reason"] for row in with_both.values()),
    }


def result(suite: str, *packages: str, **facts) -> dict:
    """What is kept of a suite: day, commit and versions as of every benchmark, then `facts`."""
    head = harness.head(f"{suite}-suite", Path(tempfile.gettempdir()), "headrace", *packages)
    return {**head, "suite": suite, **facts}


def save(report: dict, out: Path | None) -> int:
    """1 where a test fails with headrace only and nobody said why."""
    harness.save(report, out)
    return int("unexplained" in report["reasons"])
