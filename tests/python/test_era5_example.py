"""examples/era5_unet.py, and that both of its ways train on the same windows."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
EXAMPLE = Path(__file__).parents[2] / "examples" / "era5_unet.py"
TINY = ["--steps", "18", "--size", "10", "18", "--batch", "4", "--width", "4", "--chunk-steps", "5"]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("era5_unet", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store(example, tmp_path):
    example.make_store(tmp_path / "era5.zarr", steps=18, nlat=10, nlon=18, chunk_steps=5)
    return tmp_path / "era5.zarr"


def windows(batches, name):
    """In the order of their values: the ways shuffle differently."""
    rows = [row.numpy() for batch in batches for row in batch[name]]
    return np.stack(sorted(rows, key=lambda row: row.flat[0]))


def test_plain_windows_are_those_of_the_store(example, store):
    args = example.parse([str(store), "--plain", "--workers", "0"])
    array = example.hr.open_array(store, "t2m")
    mean, std = array.attrs["mean"], array.attrs["std"]
    values = array[...]
    assert np.isclose(values.mean(dtype="f8"), mean) and np.isclose(values.std(dtype="f8"), std)
    wanted = np.stack([(values[i : i + 3] - mean) / std for i in range(16)])
    wanted = wanted[np.argsort(wanted[:, 0, 0, 0])]
    found = windows(example.plain_batches(args), "t2m")
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("name", ["t2m", "z500"])
def test_both_ways_have_the_same_windows(example, store, name):
    args = example.parse([str(store), "--workers", "0"])
    plain = windows(example.plain_batches(args), name)
    found = windows(example.headrace_batches(args), name)
    assert found.shape == (16, 3, 10, 18)
    np.testing.assert_allclose(found, plain, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--mixed"], id="headrace"),
        pytest.param(["--plain", "--workers", "1"], id="plain"),
    ],
)
def test_the_example_trains(tmp_path, options):
    command = [sys.executable, "-W", "error", str(EXAMPLE), str(tmp_path / "era5.zarr"), *TINY]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["loader"] == ("plain" if "--plain" in options else "headrace")
    assert report["samples_s"] > 0 and 0 <= report["stall_percent"] < 100
    assert all(np.isfinite(report["loss"]))


@pytest.fixture(scope="module")
def loader_timeline():
    path = EXAMPLE.parents[1] / "bench" / "e2e" / "loader_timeline.py"
    spec = importlib.util.spec_from_file_location("loader_timeline", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_trace_is_a_timeline_of_stages(example, loader_timeline, store, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    trace, plot = tmp_path / "trace.json", tmp_path / "timeline.svg"
    command = ["era5_unet.py", str(store), "--width", "4", "--trace", str(trace)]
    monkeypatch.setattr(sys, "argv", command)
    example.main()
    spans = loader_timeline.timeline(json.loads(trace.read_text()))
    assert list(spans) == ["fetch", "decode", "gather", "wait", "train"]
    assert all(spans.values()) and spans["wait"][0][0] == 0
    assert len(spans["train"]) == 4  # steps of 4 samples of 16
    monkeypatch.setattr(sys, "argv", ["loader_timeline.py", str(trace), str(plot)])
    loader_timeline.main()
    assert all(f"<!-- {stage} -->" in plot.read_text() for stage in spans)


def test_spans_are_united(loader_timeline):
    assert loader_timeline.union([(3, 4), (0, 1), (0.5, 2), (2.5, 2.75)]) == [
        (0, 2),
        (2.5, 2.75),
        (3, 4),
    ]
    assert loader_timeline.union([(0, 1), (1.5, 2)], gap=0.5) == [(0, 2)]


def test_timeline(example, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "timeline.svg"
    example.plot(path, [(0.0, 0.1, 0.4), (0.4, 0.45, 0.8)], "18.8 % of the time waiting")
    assert "18.8 % of the time waiting" in path.read_text()
