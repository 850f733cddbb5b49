"""`import headrace` is cheap: time, threads, modules, files."""

import json

from helpers import python

RUNS = 9

# In the processor's time, whatever else the machine does.
TIMED = """
import time
begin = time.process_time()
import numpy
between = time.process_time()
import headrace
print((time.process_time() - between) / (between - begin))
"""

HEAVY = [
    "asyncio", "cupy", "dask", "fsspec", "jax", "matplotlib", "ml_dtypes", "multiprocessing",
    "numcodecs", "obstore", "pandas", "torch", "urllib.request", "xarray", "zarr",
]  # fmt: skip


def test_import_takes_less_than_half_of_numpys(monkeypatch, tmp_path):
    """Some 0.3, from bytecode, as users have both. A limit in seconds would be the machine's."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    python(TIMED)
    assert min(float(python(TIMED)) for _ in range(RUNS)) < 0.5


def test_import_starts_no_thread_and_no_process():
    code = """
import os, threading
import numpy
before = set(os.listdir("/proc/self/task"))
import headrace
assert set(os.listdir("/proc/self/task")) == before
assert threading.active_count() == 1
assert not os.path.exists(f"/proc/self/task/{os.getpid()}/children") or not open(
    f"/proc/self/task/{os.getpid()}/children").read().strip()
"""
    python(code)


def test_import_loads_no_heavy_module():
    code = """
import json, sys
import numpy
before = set(sys.modules)
import headrace
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    loaded = {name.split(".")[0] for name in json.loads(python(code))}
    loaded |= set(json.loads(python(code)))
    assert sorted(loaded & set(HEAVY)) == []


def test_import_loads_no_cuda_library_and_leaves_no_file_open():
    code = """
import os
import numpy
def files():
    return {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{fd}")}
before = files()
import headrace
assert files() <= before, files() - before
maps = open("/proc/self/maps").read()
assert "libcuda" not in maps and "libcufile" not in maps and "libnvcomp" not in maps
"""
    python(code)


def test_import_prints_nothing():
    assert python("import headrace") == ""


PUBLIC = [
    "open", "open_array", "open_group", "create_array", "create_group", "consolidate_metadata",
    "save", "load", "copy", "read_many", "codecs", "config", "doctor", "Array", "Group", "Store",
    "Future", "CorruptError", "DeviceError", "CancelledError", "__version__",
]  # fmt: skip


def test_public_names():
    code = """
import json, sys
import headrace as hr
wanted = [*json.loads(sys.argv[1]), *hr.__all__]
print(json.dumps([name for name in wanted if not hasattr(hr, name)]))
"""
    assert json.loads(python(code, json.dumps(PUBLIC))) == []
