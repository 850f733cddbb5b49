"""Every benchmark by its name: runs it, and writes the tables and plots that come of it.

    python bench/run.py                         # what there is
    python bench/run.py shm rechunk             # these, into bench/results; then tables and plots
    python bench/run.py e2e -- --quick          # with these arguments in place of the list's; the
                                                # result is printed where no --out is among them
    python bench/run.py --tables                # all tables again, of what is in bench/results
    python bench/run.py --tables --check        # only says which of them that would change
    python bench/run.py --plots                 # all plots again
    python bench/run.py --every-row FILE        # all that a result of e2e has, as a table

A word like $DATA in a command is a variable of the environment, for what only the reader knows.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import harness
import pages
from catalogue import BENCHMARKS, RESULTS, ROOT, Benchmark, listed
from e2e import cold_table, network_table, results, strings_table
from e2e import table as e2e
from ecosystem import table as ecosystem

from device import stages
from device import table as device


def load(name: str) -> dict:
    return json.loads((RESULTS / name).read_text())


def e2e_table() -> str:
    name = "e2e-cpu.json"
    return e2e.short(results.load(RESULTS / name), f"bench/results/{name}")


def ecosystem_tables() -> str:
    tables = {
        "zarr-pipeline-*.json": ecosystem.pipeline_table,
        "xarray-open*.json": ecosystem.xarray_table,
        "state-dict*.json": ecosystem.state_dict_table,
        "shm.json": ecosystem.shm_tables,
        "shm-device.json": ecosystem.shm_device_table,
        "rechunk.json": ecosystem.rechunk_table,
        "loader-cpu.json": ecosystem.loader_tables,
        "loader-*cuda.json": ecosystem.loader_device_table,
    }
    return "\n\n".join(
        make(load(path.name))
        for pattern, make in tables.items()
        for path in sorted(RESULTS.glob(pattern))
    )


def suite_results() -> list[dict]:
    paths = [*RESULTS.glob("*-suite.json"), *RESULTS.glob("zarr-suite-*.json")]
    return [load(path.name) for path in sorted(paths)]


# By page and marker.
TABLES = {
    ("bench/README.md", "benchmarks"): listed,
    ("bench/README.md", "bench"): e2e_table,
    ("bench/README.md", "device-read"): lambda: device.read_table(load("device-read.json")),
    ("bench/README.md", "device-write"): lambda: device.write_table(load("device-write.json")),
    ("bench/README.md", "device"): lambda: device.decode_table(
        load("device-decode.json"), load("device-nvcomp.json")
    ),
    ("bench/README.md", "device-encode"): lambda: device.encode_table(load("device-encode.json")),
    ("bench/README.md", "cold"): lambda: cold_table.table(load("cold.json")),
    ("bench/README.md", "network"): lambda: network_table.reads(load("network.json")),
    ("bench/README.md", "network-writes"): lambda: network_table.writes(
        load("network-writes.json")
    ),
    ("bench/README.md", "ecosystem"): ecosystem_tables,
    ("docs/suites.md", "suites"): lambda: ecosystem.suites_table(suite_results()),
    ("docs/suites.md", "suites-headrace"): lambda: ecosystem.suites_reasons(
        suite_results(), "reasons"
    ),
    ("docs/suites.md", "suites-both"): lambda: ecosystem.suites_reasons(
        suite_results(), "reasons_with_both"
    ),
    ("docs/cells.md", "cells"): lambda: ecosystem.cells_table(load("cells-cpu.json")),
    ("docs/cells.md", "cells-larger"): lambda: ecosystem.cells_larger_table(
        [load("cells-larger.json"), load("cells-larger-20.json")]
    ),
    ("docs/strings.md", "arrow"): lambda: strings_table.table(load("strings.json")),
    ("docs/strings.md", "on-a-gpu"): lambda: strings_table.table(load("device-strings.json")),
    ("src/kernels/README.md", "stages"): lambda: stages.table(load("device-stages.json")),
    ("src/kernels/README.md", "encode-stages"): lambda: stages.encode_table(
        load("device-stages-encode.json")
    ),
}


def write_tables(check: bool) -> int:
    """How many pages change."""
    changed = 0
    for page in dict.fromkeys(page for page, _ in TABLES):
        old = new = (ROOT / page).read_text()
        for (where, name), make in TABLES.items():
            if where != page:
                continue
            try:
                new = pages.put(new, name, make())
            except FileNotFoundError as error:
                print(f"{page}: {name} stays as it is, there is no {error.filename}")
        if old == new:
            continue
        changed += 1
        print(f"{page} {'is not what bench/results gives' if check else 'is written'}")
        if not check:
            (ROOT / page).write_text(new)
    return changed


def write_plots() -> None:
    from e2e import loader_plot, plot

    report = results.load(RESULTS / "e2e-cpu.json")
    plot.draw(report, ROOT / "docs" / "bench-cpu.svg", list(e2e.ACCESS_NAMES))
    plot.draw(report, ROOT / "docs" / "speed.svg", ["whole", "step", "series", "write"])
    loader_plot.draw(load("loader-cpu.json"), ROOT / "docs" / "loader-cpu.svg")


def words_of(command: str, result: str, instead: list[str] | None) -> list[str]:
    """A command of the list as a process; `instead` takes the place of its arguments."""
    first, *rest = shlex.split(command)
    if "." in first and "/" not in first:
        words = [sys.executable, "-m", first]
        rest += ["--out", "{out}"] if result else []
    else:
        words = [first] if first.startswith("build/") else [sys.executable, first]
    out = RESULTS / result.replace("*", harness.versions("zarr").get("zarr", "*"))
    expanded = (os.path.expandvars(word.replace("{out}", str(out))) for word in rest)
    return [*words, *(expanded if instead is None else instead)]


def run(benchmark: Benchmark, instead: list[str] | None) -> None:
    commands = [words_of(c, result, instead) for result, c in benchmark.commands.items() if c]
    if unset := [word for words in commands for word in words if "$" in word]:
        raise SystemExit(f"set what is called for in {' '.join(unset)}")
    for words in commands if instead is None else commands[-1:]:
        print(shlex.join(words), flush=True)
        subprocess.run(words, cwd=ROOT, check=True, env=harness.ENVIRONMENT)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of the list")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plots", action="store_true")
    parser.add_argument("--every-row", type=Path, metavar="FILE")
    words, instead = sys.argv[1:], None
    if "--" in words:
        at = words.index("--")
        words, instead = words[:at], words[at + 1 :]
    arguments = parser.parse_args(words)
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(
            f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}"
        )
    for name in arguments.names:
        run(BENCHMARKS[name], instead)
    if arguments.every_row:
        print(e2e.full(results.load(arguments.every_row)))
    elif arguments.tables or (arguments.names and instead is None):
        if write_tables(arguments.check) and arguments.check:
            return 1
    elif not arguments.names and not arguments.plots:
        print(listed())
    if arguments.plots or (arguments.names and instead is None):
        write_plots()
    return 0


if __name__ == "__main__":
    sys.exit(main())
