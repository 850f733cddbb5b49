#!/usr/bin/env python3
"""What the tests run of the library's lines, by folder: C++ by its own tests, Python by pytest.

    tools/coverage.py [cpp|python]    both without; make coverage prepares what it wants

Builds build/coverage and runs the tests of C++ there, then pytest with the ordinary build. C++ that
only Python's tests reach counts as not run, python/src is not looked at. Writes tests/coverage.json
and the table of CONTRIBUTING.md.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "coverage"
RESULT, PAGE = ROOT / "tests" / "coverage.json", ROOT / "CONTRIBUTING.md"
PROGRAMS = ("headrace_tests", "kernel_tests", "shm_tests")


def run(*command: object, **environment: str) -> None:
    subprocess.run(list(map(str, command)), cwd=ROOT, env={**os.environ, **environment}, check=True)


def by_folder(files: dict[str, tuple[int, int]], depth: int) -> list[dict]:
    """Of lines (all, run) by file: a row a folder, and one of all."""
    folders: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file, counts in files.items():
        for folder in ("/".join(file.split("/")[:-1][:depth]), "all"):
            for i, count in enumerate(counts):
                folders[folder][i] += count
    return [
        {"folder": folder, "lines": lines, "run": ran}
        for folder, (lines, ran) in sorted(folders.items(), key=lambda item: item[0] == "all")
    ]


def cpp() -> dict:
    run("cmake", "--preset", "coverage", "--log-level=WARNING")
    run("cmake", "--build", BUILD, "--target", *PROGRAMS)
    for counts in BUILD.rglob("*.gcda"):
        counts.unlink()
    run("ctest", "--preset", "coverage", "-j", os.cpu_count(), "-R", "|".join(PROGRAMS))
    summary = BUILD / "coverage.json"
    run(
        sys.executable, "-m", "gcovr", "--root", ROOT, "--object-directory", BUILD,
        "--filter", "src/", "--filter", "include/", "--merge-mode-functions", "merge-use-line-0",
        "--gcov-ignore-parse-errors", "suspicious_hits.warn_once_per_file",  # loops of simt
        "--json-summary", summary, BUILD,
    )  # fmt: skip
    files = {
        file["filename"]: (file["line_total"], file["line_covered"])
        for file in json.loads(summary.read_text())["files"]
    }
    return {"rows": by_folder(files, 3), "least": least(files)}


def python() -> dict:
    BUILD.mkdir(parents=True, exist_ok=True)
    data, report = BUILD / ".coverage", BUILD / "python.json"
    for part in BUILD.glob(".coverage*"):
        part.unlink()
    settings = {"COVERAGE_FILE": str(data)}
    coverage = (sys.executable, "-m", "coverage")
    run(*coverage, "run", "-m", "pytest", "-n", os.cpu_count(), **settings)
    run(*coverage, "combine", "-q", BUILD, **settings)
    run(*coverage, "json", "-q", "-i", "-o", report, **settings)
    files = {
        file.removeprefix("python/"): (
            found["summary"]["num_statements"],
            found["summary"]["covered_lines"],
        )
        for file, found in json.loads(report.read_text())["files"].items()
    }
    return {"rows": by_folder(files, 2), "least": least(files)}


def least(files: dict[str, tuple[int, int]]) -> list[dict]:
    """The files with the most lines that nothing runs."""
    worst = sorted(files.items(), key=lambda item: item[1][1] - item[1][0])[:12]
    return [{"file": file, "lines": lines, "run": ran} for file, (lines, ran) in worst]


def table(report: dict) -> str:
    lines = ["| folder | lines | run |", "| --- | ---: | ---: |"]
    for name, found in report.items():
        for row in found["rows"]:
            folder = f"**all of {name}**" if row["folder"] == "all" else f"`{row['folder']}`"
            lines.append(f"| {folder} | {row['lines']:,} | {row['run'] / row['lines']:.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measures = {"cpp": cpp, "python": python}
    parser.add_argument("part", nargs="?", choices=list(measures))
    part = parser.parse_args().part
    old = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    report = {
        name: measures[name]() if part in (None, name) else old[name]
        for name in measures
        if part in (None, name) or name in old
    }
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    begin, end = "<!-- coverage:begin -->", "<!-- coverage:end -->"
    head, rest = PAGE.read_text().split(begin)
    PAGE.write_text(f"{head}{begin}\n{table(report)}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
