import faulthandler
import gc
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies

# pytest runs with --import-mode=importlib, which puts no folder on the path.
sys.path.insert(0, str(Path(__file__).parent))

import headrace as hr
from helpers import DEVICES

HANG_SECONDS = 120

_checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
_shared = {"deadline": None, "suppress_health_check": _checks}
settings.register_profile("ci", max_examples=40, derandomize=True, database=None, **_shared)
settings.register_profile("long", max_examples=2000, **_shared)
settings.load_profile(os.environ.get("HEADRACE_HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config):
    # The peer's own notices about formats without a specification and about slow combinations.
    for message in (
        "ignore:(?s).*does not have a Zarr V3 specification",
        "ignore:(?s).*not in the Zarr version 3 specification",
        "ignore:(?s).*Combining a .sharding_indexed. codec",
        "ignore:(?s).*Consolidated metadata is currently not part",
        # JAX, of a process that forks once JAX is there.
        "ignore:os.fork.* was called:RuntimeWarning",
    ):
        config.addinivalue_line("filterwarnings", message)
    config.stash[_stderr] = os.dup(sys.__stderr__.fileno())


_stderr = pytest.StashKey[int]()


def pytest_collection_finish():
    """What libraries and tests have made by now is looked at by no collection more: that of half a
    million objects takes 0.3 s, and the processes that tests fork copy the pages of each."""
    # Hypothesis makes its generator of random numbers at the first of its tests, and warns of one
    # that nothing refers to. From Python 3.14 on the collector knows of the dict that does even
    # while that has nothing in it, and does not look into it once it is frozen.
    given(strategies.none())(lambda _: None)()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Which libraries were not there, so that a green run does not hide what it left out."""
    reasons = (str(report.longrepr) for report in terminalreporter.stats.get("skipped", ()))
    found = (re.search(r"could not import '([\w.]+)'", reason) for reason in reasons)
    missing = Counter(match[1] for match in found if match)
    if missing:
        counts = (f"{name} ({count} skipped)" for name, count in sorted(missing.items()))
        terminalreporter.write_line(f"not installed here: {', '.join(counts)}")


@pytest.fixture(autouse=True)
def no_hang(request):
    """A test that hangs ends the run with the stacks of all threads."""
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=request.config.stash[_stderr])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def store(tmp_path):
    """The path of a store that does not exist yet."""
    return str(tmp_path / "store.zarr")


@pytest.fixture(params=DEVICES)
def device(request):
    """A type of device; small arrays are decoded there as well."""
    with hr.config.set({"device_min_decode_nbytes": 0, "device_slab_nbytes": 4096}):
        yield request.param
