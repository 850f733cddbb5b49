"""Peak memory of a read: the result and the memory budget, whatever the size of the array.

Measured as VmHWM of a process of its own, reset (clear_refs) after import and opening.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers import python

MIB = 2**20
ALLOWED = 64 * MIB
SIDE = 8192  # of float32: 256 MiB

READER = """
import json, sys
import numpy as np
import headrace as hr

def status(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))

what = sys.argv[2]
hr.config.set({"memory_budget": "64MiB"})
array = hr.open_array(sys.argv[1])
out = None
if what == "out":
    out = np.zeros(array.shape, array.dtype)
    out.fill(1)
array[0, 0]
with open("/proc/self/clear_refs", "w") as f:
    f.write("5")
before = status("VmRSS:")
if what == "whole":
    x = array[...]
elif what == "out":
    x = array.read(out=out)
elif what == "column":
    x = array[:, 5:6]
elif what == "steps":
    x = array[::64, ::64]
elif what == "repeat":
    for _ in range(6):
        x = array[:2048]
elif what == "async":
    # The budget is one request's, and as many run side by side as there are threads.
    hr.config.set({"threads": 4})
    x = array.read_async().result()
    futures = [array.read_async((slice(k, k + 1),)) for k in range(500)]
    for future in futures:
        future.result()
    del futures, future
peak = status("VmHWM:")
total = float(x.sum(dtype="f8"))
print(json.dumps({"before": before, "peak": peak, "nbytes": x.nbytes, "sum": total}))
"""


@pytest.fixture(scope="module", params=["chunks", "shards", "one-chunk-rows", "raw"])
def big(request, tmp_path_factory):
    options = {
        "chunks": {"chunks": (1024, 1024)},
        "shards": {"chunks": (256, 256), "shards": (2048, 2048)},
        "one-chunk-rows": {"chunks": (128, SIDE)},
        "raw": {"chunks": (1024, 1024), "compressors": None},
    }[request.param]
    options.setdefault("compressors", zarr.codecs.ZstdCodec(level=1))
    store = tmp_path_factory.mktemp("big") / "a.zarr"
    array = zarr.create_array(str(store), shape=(SIDE, SIDE), dtype="f4", **options)
    row = np.arange(SIDE, dtype="f4") % 251
    for k in range(0, SIDE, 2048):
        array[k : k + 2048] = np.broadcast_to(row, (2048, SIDE))
    yield store, row.astype("f8").sum()
    shutil.rmtree(store)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's clear_refs")
@pytest.mark.parametrize("what", ["whole", "out", "column", "steps", "repeat", "async"])
def test_peak_memory(big, what):
    store, row_sum = big
    facts = json.loads(python(READER, store, what))
    if what in ("whole", "out", "async"):
        assert facts["sum"] == row_sum * SIDE
    result = 0 if what == "out" else facts["nbytes"]
    if what == "repeat":
        result *= 2  # the next result is there before the last one goes
    assert facts["peak"] - facts["before"] <= result + ALLOWED
