"""zarr-conformance-tests: what a Zarr library's command reads, tested by bats.

    git clone https://github.com/Bisaloo/zarr-conformance-tests
    CONFORMANCE=zarr-conformance-tests python bench/run.py conformance-suite

The tests start $ZARR_CLI --array_path=PATH and look at its exit status alone. Here that is this
script with a peer's name: headrace's is the command `headrace read`, the default one zarr-python.
What both wrote, as .npy, is compared beyond that. Needs bats (Debian: bats), zarr and the command.
"""

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import harness
from ecosystem import suites

SUITE = "zarr-conformance-tests"
PEERS = ("default", "headrace")
# Variables of the environment of the tests' process.
WRITTEN, COMMAND = "HEADRACE_CONFORMANCE_WRITTEN", "HEADRACE_CONFORMANCE_COMMAND"


def read(peer: str, argument: str) -> int:
    """As $ZARR_CLI: an array's elements into a folder of the peer's; the exit status."""
    path = Path(argument.removeprefix("--array_path="))
    out = Path(os.environ[WRITTEN], peer, f"{path.stem}.npy")
    out.parent.mkdir(exist_ok=True)
    if peer == "headrace":
        command = [os.environ[COMMAND], "read", str(path), "--output", str(out)]
        return subprocess.run(command, check=False).returncode
    import numpy as np
    import zarr

    np.save(out, np.ascontiguousarray(zarr.open_array(path, mode="r")[...]))
    return 0


def run(source: Path, peer: str, command: str, folder: Path) -> suites.Outcomes:
    reports = folder / f"{peer}-report"
    reports.mkdir()
    environment = {
        **harness.ENVIRONMENT,
        WRITTEN: str(folder),
        COMMAND: command,
        "ZARR_CLI": f"{sys.executable} {Path(__file__).resolve()} {peer}",
        "ZARR_CONFORMANCE_DATA": str(source / "data"),
    }
    words = ["bats", "--report-formatter", "junit", "--output", str(reports)]
    words.append(str(source / "tests.bats"))
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    report = reports / "report.xml"
    if not report.exists():
        raise RuntimeError(done.stdout + done.stderr)
    return suites.outcomes_of(report, lambda case: case.get("name"))


def same(folder: Path) -> dict[str, bool]:
    """Whether both peers wrote the same bytes, of each array that the default one read."""
    default, ours = (folder / peer for peer in PEERS)
    names = sorted(path.name for path in default.glob("*.npy"))
    equal, _, _ = filecmp.cmpfiles(default, ours, names, shallow=False)
    return {name.removesuffix(".npy"): name in equal for name in names}


def main() -> int:
    made = harness.parser(__doc__, source=Path(SUITE))
    made.add_argument("--command", default=shutil.which("headrace"), help="default: that of $PATH")
    args = made.parse_args()
    source = args.source.resolve()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = {peer: run(source, peer, args.command, Path(folder)) for peer in PEERS}
        equal = same(Path(folder))
    report = suites.result(
        SUITE,
        "zarr",
        "numpy",
        **suites.compared(outcomes, {}),
        same_elements=equal,
    )
    report["versions"] |= {
        SUITE: harness.git(source, "log", "-1", "--format=%h of %cs") or "unknown",
        "bats": subprocess.check_output(["bats", "--version"], text=True).split()[-1],
    }
    return suites.save(report, args.out) or int(not all(equal.values()))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in PEERS:
        sys.exit(read(*sys.argv[1:]))
    sys.exit(main())
