"""Test suites of other libraries, run as they are and with headrace: what differs, and why."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Outcomes = dict[str, tuple[str, str]]


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    for kind, name in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(kind)
        if found is not None:
            message = (found.get("message") or "").partition("\n")[0]
            # Which hosts there are is no part of what differs.
            return name, re.sub(r"https?://\S+|\b[\w-]+(\.[\w-]+)+:\d+", "(a host)", message)[:300]
    return "passed", ""


def run(
    report: Path,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    name_of: Callable[[ElementTree.Element], str],
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
    return {name_of(case): _outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def compared(own: str, outcomes: dict[str, Outcomes], reasons: Mapping[str, str]) -> dict:
    """Counts of `own` and of "headrace", and which tests fail with headrace only.

    `reasons` are by a part of their names or messages.
    """

    def reason_for(*texts: str) -> str:
        found = (reason for part, reason in reasons.items() if any(part in t for t in texts))
        return next(found, "unexplained")

    failed = {
        test: {"message": message, "reason": reason_for(test, message)}
        for test, (found, message) in sorted(outcomes["headrace"].items())
        if found == "failed" and outcomes[own].get(test, ("absent",))[0] != "failed"
    }
    return {
        **{name: Counter(found for found, _ in of.values()) for name, of in outcomes.items()},
        "not_run_by_both": sorted(outcomes[own].keys() ^ outcomes["headrace"].keys()),
        "failed_with_headrace_only": failed,
        "reasons": Counter(row["reason"] for row in failed.values()),
    }
