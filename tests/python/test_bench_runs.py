"""The scripts of bench/: each starts, and the smallest run of those that need no GPU gives what a
result in bench/results has and what the tables are made from."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import needs_uring

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(hr.__file__).parents[1]  # what is tested; another headrace may be installed
BENCH = ROOT / "bench"
COMMAND = Path(sys.executable).parent / "headrace"
SCRIPTS = [
    path
    for folder in ("e2e", "device", "ecosystem")
    for path in sorted((BENCH / folder).glob("*.py"))
    if "parse_args" in path.read_text()
]
# What a script imports before it reads its arguments, beside what each installation has.
NEEDS = {
    "device/nvcomp_peer.py": ("cupy",),
    "device/read.py": ("torch",),
    "device/shm.py": ("torch",),
    "device/small.py": ("torch",),
    "device/strings.py": ("torch",),
    "device/write.py": ("torch",),
    "e2e/shm.py": ("torch", "xarray"),
    "ecosystem/state_dict.py": ("torch", "safetensors"),
    "ecosystem/xarray_open.py": ("xarray",),
}


def start(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{BENCH}{os.pathsep}{PACKAGES}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.fixture
def measured(folder):
    """The result of a benchmark of the list with these arguments."""

    def measure(name, *arguments):
        out = folder / f"{name}.json"
        out.unlink(missing_ok=True)
        start(BENCH / "run.py", name, "--", *arguments, "--out", out)
        return json.loads(out.read_text())

    return measure


@pytest.fixture
def table(monkeypatch):
    """Of a name in ecosystem/table.py: a table without its title."""
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("ecosystem.table")
    yield lambda name, result: getattr(module, name)(result).partition("\n\n")[2].splitlines()
    for name in [n for n, m in sys.modules.items() if str(BENCH) in str(m)]:
        del sys.modules[name]


def kept(name):
    return json.loads((BENCH / "results" / name).read_text())


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_starts(path):
    name = path.relative_to(BENCH)
    for module in NEEDS.get(str(name), ()):
        pytest.importorskip(module)
    said = start("-m", ".".join(name.with_suffix("").parts), "--help")
    assert said.startswith("usage:")


def test_e2e(measured, folder):
    arguments = ["--peers", "headrace,zarr", "--runs", 5, "--steps", 2, "--data", folder]
    result = measured("e2e", "--rows", "shard-blosc-*", *arguments)
    before = kept("e2e-cpu.json")
    assert result.keys() == before.keys()
    names = [row["access"] for row in result["rows"]]
    assert names == [row["access"] for row in before["rows"][:7]]
    figures = {row["access"]: row["peers"]["headrace"] for row in before["rows"]}
    for row in result["rows"]:
        assert row["peers"]["headrace"].keys() == figures[row["access"]].keys()
        assert row["peers"]["headrace"]["verified"] and row["peers"]["zarr"]["verified"]
    assert result["limits"][0].keys() == before["limits"][1].keys()
    text = start(BENCH / "run.py", "--every-row", folder / "e2e.json")
    assert text.count("\n") == 2 + len(names) and "% of " in text


def test_e2e_says_of_a_peer_that_it_does_not_know(folder):
    run = [sys.executable, BENCH / "run.py", "e2e", "--", "--peers", "headrace,nobody"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "no peer nobody" in done.stderr


def test_checkouts(measured):
    arguments = ["--rows", "128KiB-none-whole,shard-none-write", "--steps", 2, "--runs", 2]
    result = measured("before-after", f"a={PACKAGES}", f"b={PACKAGES}", "--only", "cpu", *arguments)
    assert [row["row"] for row in result["rows"]] == ["128KiB-none-whole", "shard-none-write"]
    known = {row["row"] for row in kept("before-after.json")["rows"]}
    for row in result["rows"]:
        assert row["ok"] and row["row"] in known
        assert all(0 < least <= median for least, median in row["ms"].values())
    assert list(result["means"]) == ["cpu: b / a"]


def test_checkouts_on_a_device(measured):
    pytest.importorskip("torch")
    arguments = ["--rows", "128KiB-blosc-*", "--steps", 1, "--runs", 1, "--only", "simt"]
    result = measured("before-after", f"a={PACKAGES}", *arguments)
    assert [(row["where"], row["row"], row["ok"]) for row in result["rows"]] == [
        ("simt", "128KiB-blosc-whole", True)
    ]


def test_small_calls(measured):
    arguments = ["--peers", "headrace,zarr", "--chunks", "16KiB", "--codecs", "none", "--runs", 1]
    result = measured("small-calls", *arguments)
    before = kept("small-calls.json")
    assert set(result) == set(before)
    assert [row["store"] for row in result["rows"]] == ["file", "memory"]
    for row in result["rows"]:
        figures = row["peers"]["headrace"]
        assert figures.keys() == before["rows"][0]["peers"]["headrace"].keys()
        assert figures["calls"] == 400 and 0 < figures["min_us"] <= figures["median_us"]
    assert result["import"]["headrace"].keys() == before["import"]["headrace"].keys()


@needs_uring  # io="uring" and direct=True are two of its ways
def test_file_io(measured, folder):
    result = measured("file-io", "--codecs", "none", "--runs", 2, "--steps", 2, "--data", folder)
    before = kept("file-io.json")["rows"]
    assert [list(row["ways"]) for row in result["rows"]] == [list(r["ways"]) for r in before[:2]]
    assert result["rows"][1]["ways"]["uring"].keys() == before[1]["ways"]["uring"].keys()
    assert result["rows"][0]["ways"]["pread"]["speed_up_over_pread"] == 1


def test_fsync(measured, folder):
    result = measured("fsync", "--folder", folder, "--runs", 1)
    for row, before in zip(result["rows"], kept("fsync.json")["rows"], strict=True):
        assert row["what"] == before["what"]
        assert row["ways"]["all"].keys() == before["ways"]["all"].keys()


def test_write_limits(measured, folder):
    arguments = ["--codecs", "zstd", "--layouts", "shard", "--runs", 1, "--steps", 2]
    result = measured("write-limits", *arguments, "--data", folder, "--write-to", folder / "w")
    before = kept("write-limits.json")["rows"][0]
    (row,) = result["rows"]
    assert row.keys() == before.keys() and row["library"].startswith("libzstd")
    assert not list((folder / "w").iterdir())


def test_shm(measured, table):
    pytest.importorskip("torch")
    pytest.importorskip("xarray")
    result = measured("shm", "--rounds", 1, "--steps", 4)
    assert result["settings"]["nbytes"] == 4 * 700 * 1400 * 4
    before = table("shm_tables", kept("shm.json"))
    lines = table("shm_tables", result)
    assert [line.split("|")[1:2] for line in lines[2:]] == [b.split("|")[1:2] for b in before[2:]]


def test_rechunk(measured, folder, table):
    peers = ["headrace", "zarr", "one pass"]
    arguments = ["--peers", ",".join(peers), "--steps", 2, "--rounds", 1, "--data", folder]
    result = measured("rechunk", *arguments)
    before = kept("rechunk.json")["rows"]
    assert list(result["rows"]) == list(before)
    assert result["rows"]["recompress"]["zarr"].keys() == before["recompress"]["zarr"].keys()
    assert table("rechunk_table", result)[0] == "| to | headrace | zarr | one pass |"


def test_loader(measured, folder, table):
    arguments = ["--steps", 16, "--lat", 9, "--lon", 16, "--chunk-steps", 2, "--data", folder]
    result = measured("loader", "--peers", "headrace,headrace-lean", *arguments)
    before = kept("loader-cpu.json")
    assert result["settings"].keys() == before["settings"].keys()
    headrace = result["rows"][0]["peers"]["headrace"]
    assert headrace.keys() == before["rows"][0]["peers"]["headrace"].keys()
    assert headrace["epochs"] == 1 and headrace["samples"] == 16
    assert table("loader_tables", result)[2].startswith("| 2 | blosc |")


def test_loader_with_a_device(measured, folder, table):
    pytest.importorskip("torch")
    arguments = ["--device", "cpu", "--cores", 1, "--peers", "headrace", "--ways", "fast"]
    size = ["--steps", 16, "--lat", 9, "--lon", 16, "--variables", 1, "--chunk-steps", 2]
    arguments += ["--codecs", "zstd", "--seconds", 0.1, "--data", folder]
    result = measured("loader-device", *size, *arguments)
    before = kept("loader-cuda.json")
    assert result["settings"].keys() == before["settings"].keys()
    assert result["rows"][0].keys() == before["rows"][0].keys()
    assert table("loader_device_table", result)[2].startswith("| 2 | zstd | as fast as it goes |")


def test_zarr_latency(measured):
    result = measured("zarr-latency", "--rows", "64 chunks", "--latency-ms", 0, "--rounds", 1)
    (row,) = result["rows"].values()
    assert row["headrace"]["requests"] == row["headrace, 32 threads"]["requests"] == 64
    assert row["default"]["requests"] >= 64


def test_zarr_pipeline(measured, folder, table):
    pytest.importorskip("zarrs")
    arguments = ["--rounds", 1, "--steps", 2, "--data", folder]
    result = measured("zarr-pipeline", "--rows", "128KiB-none-*", *arguments)
    assert list(result["rows"]) == [
        f"128KiB-none-{a}" for a in ("whole", "step", "chunk", "series", "box", "write")
    ]
    assert "-" not in table("pipeline_table", result)[2].split("|")


def test_xarray_open(measured, folder, table):
    pytest.importorskip("xarray")
    result = measured("xarray-open", "--runs", 1, "--steps", 2, "--data", folder)
    before = kept("xarray-open-cpu.json")["rows"]
    for name, row in result["rows"].items():
        assert {access: row[access].keys() for access in row} == {
            access: before[name][access].keys() for access in before[name]
        }
    assert len(table("xarray_table", result)) == 2 + 3


def test_state_dict(measured, folder, table):
    pytest.importorskip("safetensors")
    result = measured("state-dict", "--gib", 0.01, "--runs", 1, "--folder", folder / "weights")
    before = kept("state-dict-cpu.json")["rows"]
    assert [row.keys() for row in result["rows"]] == [row.keys() for row in before]
    assert len(table("state_dict_table", result)) == 2 + len(before)


def test_choice_is_fitted_to_what_is_kept(folder):
    kept_file = BENCH / "results" / "device-choice.json"
    said = start("-m", "device.choice", "--fit", "--out", kept_file)
    assert "zstd     host" in said and "GB/s a thread" in said


def test_suites_tell_what_fails_with_headrace_only(tmp_path, monkeypatch, folder):
    monkeypatch.syspath_prepend(str(BENCH))
    suites = importlib.import_module("ecosystem.suites")
    (tmp_path / "test_it.py").write_text(
        "import os, pytest\n"
        "def test_passes(): pass\n"
        "def test_skips(): pytest.skip('why')\n"
        "def test_fails(): assert False, 'always: ' + __file__ + ' and http://a.b/c/d'\n"
        "def test_swapped(): assert 'SWAPPED' not in os.environ, 'counts requests'\n"
    )
    outcomes = {
        name: suites.run(
            tmp_path / f"{name}.xml",
            ["-c", "/dev/null", "test_it.py"],
            tmp_path,
            {**os.environ, **environment},
            lambda case: case.get("name"),
        )
        for name, environment in (("default", {}), ("headrace", {"SWAPPED": "1"}))
    }
    found = suites.compared(outcomes, {"counts requests": "it counts"})
    assert found["default"] == {"passed": 2, "skipped": 1, "failed": 1}
    assert found["headrace"] == {"passed": 1, "skipped": 1, "failed": 2}
    assert list(found["failed_with_headrace_only"]) == ["test_swapped"]
    assert found["reasons"] == {"it counts": 1}
    assert found["reasons_with_both"] == {"unexplained": 1}
    message = found["failed_with_both"]["test_fails"]["message"]
    assert message.startswith("AssertionError: always: (a path) and (a host)")
    unexplained = suites.compared(outcomes, {"always": "it always does"})
    assert unexplained["reasons"] == {"unexplained": 1}
    assert unexplained["reasons_with_both"] == {"it always does": 1}
    report = suites.result("own", "pytest", **found)
    assert {"date", "commit", "machine"} < report.keys()
    assert report["versions"]["pytest"] == pytest.__version__
    assert suites.save(report, tmp_path / "own.json") == 0
    assert suites.save({**report, **unexplained}, tmp_path / "own.json") == 1


def test_conformance_suite_reads_with_the_command_and_with_zarr_python(tmp_path, folder):
    zarr = pytest.importorskip("zarr")
    if not shutil.which("bats"):
        pytest.skip("no bats")
    zarr.save_array(tmp_path / "data" / "five.zarr", np.arange(5))
    (tmp_path / "tests.bats").write_text(
        '@test "reads" {\n'
        "  run $ZARR_CLI --array_path=$ZARR_CONFORMANCE_DATA/five.zarr\n"
        '  [ "$status" -eq 0 ]\n'
        "}\n"
        '@test "has none" {\n'
        "  run $ZARR_CLI --array_path=$ZARR_CONFORMANCE_DATA/none.zarr\n"
        '  [ "$status" -eq 0 ]\n'
        "}\n"
    )
    out = tmp_path / "result.json"
    start(
        *("-m", "ecosystem.conformance_suite", "--source", tmp_path, "--out", out),
        *("--command", COMMAND),
    )
    result = json.loads(out.read_text())
    assert result["default"] == result["headrace"] == {"passed": 1, "failed": 1}
    assert list(result["failed_with_both"]) == ["has none"]
    assert result["same_elements"] == {"five": True}


def test_downstream_suite_tells_what_was_left_to_zarr_python(tmp_path, monkeypatch, folder):
    pytest.importorskip("zarr")
    monkeypatch.syspath_prepend(str(BENCH))
    downstream = importlib.import_module("ecosystem.downstream_suite")
    (tmp_path / "own.py").write_text(
        "import numcodecs\n"
        "class Pipeline: pass\n"
        "class Same(numcodecs.abc.Codec):\n"
        "    codec_id = 'same'\n"
        "    def encode(self, buf): return buf\n"
        "    def decode(self, buf, out=None): return buf\n"
        "numcodecs.register_codec(Same)\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import own, zarr\n"
        "def array():\n"
        "    given = {'zarr_format': 2, 'compressors': own.Same()}\n"
        "    return zarr.create_array({}, shape=4, dtype='i4', **given)\n"
        "def test_reads(): assert (array()[:] == 0).all()\n"
        "def test_own():\n"
        "    with zarr.config.set({'codec_pipeline.path': 'own.Pipeline'}):\n"
        "        pipeline = array().async_array.codec_pipeline\n"
        "    assert type(pipeline) is own.Pipeline\n"
        "    assert 'Batched' in type(pipeline).__mro__[1].__name__, 'another pipeline'\n"
    )
    suite = downstream.Suite(("-c", "/dev/null", "test_it.py"), set_by_tests="own.Pipeline")
    outcomes, fallbacks = downstream.run(suite, tmp_path, tmp_path)
    assert {test: found for test, (found, _) in outcomes["default"].items()} == {
        "test_it::test_reads": "passed",
        "test_it::test_own": "passed",
    }
    assert outcomes["headrace"]["test_it::test_reads"] == ("passed", "")
    assert outcomes["headrace"]["test_it::test_own"][0] == "failed"
    assert "another pipeline" in outcomes["headrace"]["test_it::test_own"][1]
    assert sum(fallbacks.values()) == 1, fallbacks
