"""GPUDirect Storage: `gds` of the configuration, and what `hr.doctor()` says of it.

With the cuFile of tests/fake, which fills the memory of "simt", each time in a process of its own:
cuFile is opened once a process.
"""

import json
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import python

FAKE = Path(__file__).parents[2] / "build" / "dev" / "tests" / "libfake_cufile.so"

READ = """
import json, sys
import headrace as hr
store, trace, gds = sys.argv[1:]
hr.config.set(gds=gds)
report = {"doctor": hr.doctor()["gds"], "error": "", "sum": None, "bytes": {}}
try:
    with hr.trace(trace):
        report["sum"] = int(hr.open_array(store, device="simt")[...].to_numpy().sum())
    for event in json.load(open(trace))["traceEvents"]:
        name = event["name"]
        report["bytes"][name] = report["bytes"].get(name, 0) + event["args"]["bytes"]
except NotImplementedError as error:
    report["error"] = str(error)
print(json.dumps(report))
"""

pytestmark = pytest.mark.skipif(not FAKE.exists(), reason="the C++ tests are not built")


@pytest.fixture
def read(store, tmp_path, monkeypatch):
    """Reads an uncompressed array to simt with a cuFile that finds this, and this `gds`."""
    data = np.arange(4096, dtype="i4").reshape(64, 64)
    array = hr.create_array(store, shape=data.shape, dtype="i4", chunks=(16, 16), compressors=None)
    array[...] = data

    def read(finds, gds):
        monkeypatch.setenv("HEADRACE_SIMT_CUFILE", str(FAKE))
        monkeypatch.setenv("FAKE_CUFILE", finds)
        report = json.loads(python(READ, store, tmp_path / "trace.json", gds))
        assert report["error"] or report["sum"] == data.sum()
        return report

    return read


@pytest.mark.parametrize("gds", ["auto", "on"])
def test_where_it_is_native(read, gds):
    report = read("nvidia-fs", gds)
    assert report["doctor"] == {
        "available": True,
        "why_not": "",
        "device": "simt",
        "library": str(FAKE),
        "driver": "nvidia-fs 2.26",
        "used": "for files of chunks without a compressor",
    }
    assert report["bytes"]["gds"] == 4 * 4096
    assert "fetch" not in report["bytes"] and "copy" not in report["bytes"]


def test_never_in_compatibility_mode(read):
    report = read("insists", "auto")
    assert not report["doctor"]["available"]
    assert report["doctor"]["why_not"] == "the driver insists on its compatibility mode"
    assert report["doctor"]["used"].startswith("no:")
    assert report["bytes"]["fetch"] == 4 * 4096 and "gds" not in report["bytes"]
    assert "insists on its compatibility mode" in read("insists", "on")["error"]


def test_off(read):
    report = read("nvidia-fs", "off")
    assert report["doctor"]["available"] and report["doctor"]["used"].startswith("no:")
    assert report["bytes"]["fetch"] == 4 * 4096 and "gds" not in report["bytes"]


def test_without_a_gpu_it_is_not_looked_for(monkeypatch):
    monkeypatch.delenv("HEADRACE_SIMT_CUFILE", raising=False)
    gds = hr.doctor()["gds"]
    assert gds["device"] == "cuda"
    assert gds["driver"] if gds["available"] else gds["why_not"]


def test_settings():
    assert hr.config.get("gds") == "off"
    with pytest.raises(ValueError, match='"auto", "on" or "off"'):
        hr.config.set(gds="yes")
