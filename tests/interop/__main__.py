"""Who reads what who wrote: `python tests/interop --python LIBRARY=INTERPRETER ...`.

Every library writes the arrays of cases.py and reads those of all others, in a process of its own
and, where versions conflict, in an environment of its own:

    pip install zarr==2.18.7 'numcodecs<0.16' ml_dtypes      # zarr2
    pip install zarr==3.1.6 ml_dtypes                        # zarr3
    pip install zarr==3.4.2 ml_dtypes                        # zarr3.4, Python 3.12
    pip install zarrs==0.2.3 zarr==3.1.6 ml_dtypes           # zarrs
    pip install tensorstore ml_dtypes                        # tensorstore
    pip install rasterio ml_dtypes                           # gdal, Python 3.12: GDAL 3.12

    python tests/interop --python zarr2=/envs/zarr2/bin/python --python ... \\
        --json bench/results/interop.json --markdown docs/interop.md

A library that is not named is left out; headrace runs in this environment. Exits with 1 when a
library fails without a reason that report.py knows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from cases import Case, all_cases, digest
from libraries import LIBRARIES, array_folder
from report import UNEXPLAINED, report, to_markdown

PACKAGE = Path(__file__).resolve().parents[2] / "python"


class Worker:
    """A library in its environment."""

    def __init__(self, name: str, python: str, root: Path):
        self.name, self.root = name, root
        self._command = [python, str(Path(__file__).with_name("worker.py"))]
        self.versions: dict[str, str] = {}

    def run(self, action: str, ids: list[str]) -> dict[str, dict]:
        """The outcome of each id. One that ends the process is an outcome too."""
        found: dict[str, dict] = {}
        while len(found) < len(ids):
            left = [i for i in ids if i not in found]
            done = subprocess.run(
                [*self._command, action, self.name, str(self.root)],
                input=" ".join(left),
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            )
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            if not lines:
                raise RuntimeError(f"{self.name}: {done.stderr}")
            self.versions = lines[0]
            found.update((i, outcome) for i, outcome in lines[1:])
            if done.returncode:
                last = done.stderr.strip().splitlines()
                why = next((line for line in last if "Check failed" in line), last[-1])
                crashed = next(i for i in ids if i not in found)
                found[crashed] = {"error": f"the process ended: {why}"[:300]}
        return found


def stored_otherwise(case: Case, where: Path) -> str | None:
    """What of the stored metadata is not what the case asks for."""
    where = array_folder(where)
    if case.zarr_format == 2:
        document = json.loads((where / ".zarray").read_text())
        compressor = document["compressor"]
        wanted = {
            "chunks": list(case.layout.chunks),
            "filters": [codec["id"] for codec in case.filters_v2],
            "compressor": case.compressor_v2 and case.compressor_v2["id"],
            "order": "F" if case.layout.column_order else "C",
        }
        found = {
            "chunks": document["chunks"],
            "filters": [codec["id"] for codec in document["filters"] or []],
            "compressor": compressor and compressor["id"],
            "order": document["order"],
        }
        if len(case.layout.shape) < 2:
            found["order"] = wanted["order"]
    else:
        document = json.loads((where / "zarr.json").read_text())
        names = [codec["name"] for codec in [*case.filters_v3, case.serializer_v3]]
        names += [codec["name"] for codec in case.compressors_v3]
        wanted = {"sharded": case.layout.shards is not None, "codecs": names}
        codecs = document["codecs"]
        sharded = codecs[0]["name"] == "sharding_indexed"
        inner = codecs[0]["configuration"]["codecs"] if sharded else codecs
        found = {"sharded": sharded, "codecs": [codec["name"] for codec in inner]}
    return None if found == wanted else f"stored otherwise: {found}, asked for {wanted}"


def run(pythons: dict[str, str], root: Path, cases: list[Case], known: dict) -> dict:
    """`known`: by library, outcomes of reads that need not be had again."""
    workers = {name: Worker(name, python, root) for name, python in pythons.items()}
    by_id = {case.id: case for case in cases}
    writes = {}
    for name, worker in workers.items():
        writes[name] = outcomes = worker.run("write", list(by_id))
        for id_, outcome in outcomes.items():
            if "error" not in outcome:
                other = stored_otherwise(by_id[id_], root / name / id_)
                outcome.update({"error": other} if other else {})
        print(name, "wrote", sum("error" not in o for o in outcomes.values()), flush=True)

    expected = {id_: digest(case.expected) for id_, case in by_id.items()}
    there = [
        f"{writer}/{id_}"
        for writer, outcomes in writes.items()
        for id_, outcome in outcomes.items()
        if "error" not in outcome
    ]
    reads = {}
    for name, worker in workers.items():
        old = known.get(name, {})
        fresh = worker.run("read", [where for where in there if where not in old])
        reads[name] = outcomes = {where: fresh.get(where) or old[where] for where in there}
        for where, outcome in fresh.items():
            id_ = where.partition("/")[2]
            if "error" not in outcome and outcome["digest"] != expected[id_]:
                outcome["differs"] = f"differs: other values than written, as {outcome['dtype']}"
        print(name, "read", sum(o.keys() == {"digest", "dtype"} for o in outcomes.values()))
    versions = {name: worker.versions for name, worker in workers.items()}
    return {"versions": versions, "writes": writes, "reads": reads}


def others(reads: dict, library: str) -> dict:
    """The outcomes in which a library had no part."""
    return {
        reader: {
            where: outcome
            for where, outcome in outcomes.items()
            if not where.startswith(f"{library}/")
        }
        for reader, outcomes in reads.items()
        if reader != library
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", default=[], metavar="LIBRARY=INTERPRETER")
    parser.add_argument("--cases", default="", help="a regular expression that ids must contain")
    parser.add_argument("--raw", type=Path, help="file for every outcome, to look into")
    parser.add_argument("--renew", help="run what concerns this library, the rest is in --raw")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    pythons = dict(choice.split("=", 1) for choice in arguments.python)
    pythons.setdefault("headrace", sys.executable)
    pythons = {name: pythons[name] for name in LIBRARIES if name in pythons}
    cases = [case for case in all_cases() if re.search(arguments.cases, case.id)]
    known = {}
    if arguments.renew:
        known = others(json.loads(arguments.raw.read_text())["reads"], arguments.renew)
    with tempfile.TemporaryDirectory() as root:
        outcomes = run(pythons, Path(root), cases, known)
    if arguments.raw:
        arguments.raw.write_text(json.dumps(outcomes))
    result = report(**outcomes)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    markdown = to_markdown(result)
    print(markdown)
    if arguments.markdown:
        arguments.markdown.write_text(markdown)
    return int(any(row["reason"] == UNEXPLAINED for row in result["limits"]))


if __name__ == "__main__":
    sys.exit(main())
