"""bench/: its list and its tables, and the times of kernels where they can be had without a GPU."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DEVICE_BENCH = ROOT / "build" / "dev" / "bench" / "device" / "headrace_device_bench"


@pytest.fixture
def bench(monkeypatch):
    """Imports a module of bench/, and forgets them all afterwards."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(ROOT / "bench")):
            del sys.modules[name]


def test_every_result_is_of_a_benchmark_of_the_list(bench):
    catalogue = bench("catalogue")
    of_list = [
        path
        for benchmark in catalogue.BENCHMARKS.values()
        for result in benchmark.results
        for path in catalogue.RESULTS.glob(result)
    ]
    assert sorted(of_list) == sorted(catalogue.RESULTS.iterdir())


def test_commands_of_the_list_are_there(bench):
    for benchmark in bench("catalogue").BENCHMARKS.values():
        for command in filter(None, benchmark.commands.values()):
            first, *_ = command.split()
            module = ROOT / "bench" / f"{first.replace('.', '/')}.py"
            assert first.startswith("build/") or (ROOT / first).exists() or module.exists(), command


def test_tables_are_what_the_results_give():
    run = [sys.executable, str(ROOT / "bench" / "run.py"), "--tables", "--check"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    if not DEVICE_BENCH.exists():
        pytest.skip("built without nvcc")
    folder = tmp_path_factory.mktemp("stages")
    steps = np.random.default_rng(0).integers(-3, 4, 1 << 16).cumsum()
    (280 + steps * 2.0**-9).astype(np.float32).tofile(folder / "field.f32")
    out = folder / "stages.json"
    run = [DEVICE_BENCH, folder / "field.f32", "--stages", "--simt", "--json", out, "8x32"]
    subprocess.run(run, check=True, capture_output=True)
    return json.loads(out.read_text())


def test_stages_have_every_kernel_of_a_decode(stages):
    rows = {row["codec"]: row for row in stages["rows"]}
    assert set(rows) == {"zstd-3", "lz4", "blosc-lz4", "zlib-6"}
    assert not any(row["wrong_chunks"] for row in rows.values())
    kernels = {launch["kernel"]: launch for launch in rows["zstd-3"]["launches"]}
    assert list(kernels)[:2] == ["DecodeEntropy<SequenceDecoder<WideEntries, 1>>", "PlaceBlocks"]
    assert kernels["PlaceBlocks"]["grid"] == 2  # a warp a source, four a block
    assert kernels["PlaceBlocks"]["threads"] == 128
    assert kernels["PlaceBlocks"]["shared_nbytes"] == 0
    for row in rows.values():
        assert all(launch["microseconds"] > 0 for launch in row["launches"])


def test_stages_as_a_table(stages, bench):
    text = bench("device.stages").table(stages)
    assert "| zstd-3 `PlaceBlocks` | a warp a source | 128 | 0 |" in text
    assert "| blosc-lz4, the whole call |" in text


def test_a_kernel_that_nobody_described_stops_the_table(stages, bench):
    changed = json.loads(json.dumps(stages))
    changed["rows"][0]["launches"][0]["kernel"] = "Unheard<1>"
    with pytest.raises(ValueError, match="Unheard<1>"):
        bench("device.stages").table(changed)
