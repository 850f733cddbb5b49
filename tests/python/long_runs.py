"""The tests of what survives and of what concurrent users see, at full length, with their numbers.

    python tests/python/long_runs.py --json bench/results/linearizability.json linearizable
    python tests/python/long_runs.py --json bench/results/faults.json faults \\
        build/dev/tests/headrace_tests
    python tests/python/long_runs.py --json bench/results/faults-network.json network \\
        build/dev/tests/headrace_tests

`linearizable` runs test_linearizable.py once for each of many first seeds, on a file system in
memory where there is one: locks and orders are looked at, not disks. `faults` runs the C++ tests of
failing system calls, killed writers and power cuts. `network` runs those of servers that spoil what
they answer: reads, writes and arrays, --schedules of each. What fails does not stop the rest; the
exit status is 1 then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEMORY = Path("/dev/shm")
# Of one pytest: a test of it stays well below the time after which conftest.py takes it for hung.
PIECE = 120_000
# Tests of these names count their kills for "writes, appends, rechunks and archives".
WRITERS = ("write", "append", "rechunk", "zip")


def linearizable(args: argparse.Namespace) -> dict:
    total = Counter(steps=0, histories=0, violations=0)
    pieces = []
    while total["steps"] < args.steps:
        # Seeds of a piece go up by one for each history of a test, of which there are few.
        seed = args.seed + 1000 * len(pieces)
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            found = Path(folder, "results.json")
            environment = os.environ | {
                "HEADRACE_TEST_STEPS": str(min(PIECE, args.steps)),
                "HEADRACE_TEST_SEED": str(seed),
                "HEADRACE_TEST_RESULTS": str(found),
            }
            test = [HERE / "test_linearizable.py", "-q", f"--basetemp={folder}/tests"]
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *test],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            piece = json.loads(found.read_text())
        if done.returncode != 0:
            print(done.stdout, flush=True)
        print(json.dumps(piece), flush=True)
        pieces.append(piece | {"passed": done.returncode == 0})
        total.update({name: piece[name] for name in total})
        if piece["steps"] == 0:
            break
    return {
        "done": dict(total),
        "passed": all(piece["passed"] for piece in pieces),
        "pieces": pieces,
    }


def run_tests(args: argparse.Namespace, filters: str, settings: dict) -> tuple[dict, bool]:
    """The report of tests of C++, and whether all passed."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        found = Path(folder, "results.json")
        done = subprocess.run(
            [args.binary, f"--gtest_filter={filters}", f"--gtest_output=json:{found}"],
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout, flush=True)
        return json.loads(found.read_text()), done.returncode == 0


def faults(args: argparse.Namespace) -> dict:
    settings = {
        "HEADRACE_FAULTS": "all",
        "HEADRACE_FAULT_SCHEDULES": str(args.schedules),
        "HEADRACE_KILLS": str(args.kills),
        "HEADRACE_POWER_CUTS": str(args.power_cuts),
    }
    report, passed = run_tests(args, "*FaultsTest*:*KillTest*:*PowerCut*", settings)
    total: Counter[str] = Counter()
    tests = {}
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{suite['name'].rpartition('/')[2]}.{test['name']}"
            counts = {
                key: int(test[key])
                for key in ("faulty_runs", "kills", "states_after_a_cut")
                if key in test
            }
            tests[name] = counts | {"seconds": test["time"], "passed": "failures" not in test}
            what, _, scenario = test["name"].partition("/")
            total.update(counts)
            if what == "RandomSchedules":
                total["random_schedules_with_a_fault"] += counts["faulty_runs"]
            if what == "AtAnyInstant":
                total["kills_at_any_instant"] += counts["kills"]
                if scenario.startswith(WRITERS):
                    total["kills_at_any_instant_of_writers"] += counts["kills"]
    return {
        "settings": settings,
        "done": dict(total),
        "failed": sorted(name for name, test in tests.items() if not test["passed"]),
        "passed": passed,
        "tests": tests,
    }


def network(args: argparse.Namespace) -> dict:
    settings = {"HEADRACE_FAULT_SCHEDULES": str(args.schedules)}
    tests = {}
    # They wait more than they work.
    with ThreadPoolExecutor() as pool:
        runs = {
            name: pool.submit(run_tests, args, f"NetworkFaults.{name}", settings)
            for name in ("Reads", "Writes", "Arrays")
        }
    passed = True
    for name, run in runs.items():
        report, its_own = run.result()
        passed &= its_own
        (suite,) = report["testsuites"]
        (test,) = suite["testsuite"]
        names = ("schedules", "right", "raised", "spoiled", "longest_ms", "peak_kib")
        counts = {key: int(test[key]) for key in names}
        tests[name] = counts | {"seconds": test["time"], "passed": "failures" not in test}
    done = {
        name: sum(test[name] for test in tests.values())
        for name in ("schedules", "right", "raised", "spoiled")
    }
    return {"settings": settings, "done": done, "passed": passed, "tests": tests}


def facts(what: str, folder: Path) -> dict:
    sys.path.insert(0, str(HERE.parents[1] / "bench"))
    import harness

    return harness.head(what, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, default=MEMORY if MEMORY.is_dir() else None)
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("linearizable")
    command.add_argument("--steps", type=int, default=1_000_000)
    command.add_argument("--seed", type=int, default=0, help="the first")
    command.set_defaults(run=linearizable)
    command = commands.add_parser("faults")
    command.add_argument("binary", help="headrace_tests")
    command.add_argument("--schedules", type=int, default=1000)
    command.add_argument("--kills", type=int, default=6600, help="2,000 of the writers among them")
    command.add_argument("--power-cuts", type=int, default=10, help="states at each instant")
    command.set_defaults(run=faults)
    command = commands.add_parser("network")
    command.add_argument("binary", help="headrace_tests")
    command.add_argument("--schedules", type=int, default=1000)
    command.set_defaults(run=network)
    args = parser.parse_args()
    result = facts(args.what, args.folder or Path(tempfile.gettempdir()))
    begin = time.perf_counter()
    done = args.run(args)
    result |= {"seconds": round(time.perf_counter() - begin, 1), **done}
    print(json.dumps({key: result[key] for key in ("what", "seconds", "done", "passed")}))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
