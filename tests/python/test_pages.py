"""Every example on a page of docs/ runs as it stands there, in a folder with a small data set.

Of a page the blocks of `python` and `sh` run one after the other, in one process and folder. What
stands for a GPU is "simt" where there is none. A block of `py` is not run: the line above says why,
and it is looked at for its syntax alone. `console` and `text` are shown, not run.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import HAS_CUDA

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$", re.M | re.S
)
RUN = {"python", "sh"}
SHOWN = {"console", "text", "cpp", "cmake", "py"}
# Pages whose examples have a test of their own.
ELSEWHERE = {
    "loader.md": "test_loader_docs.py",
    "cells.md": "test_cells_docs.py",
    "shm.md": "test_shm_docs.py",
}
# What a page needs beside headrace and zarr.
NEEDS = {
    "cluster.md": ["distributed", "xarray"],
    "dask.md": ["dask"],
    "devices.md": ["torch"],
    "gpu.md": ["torch"],
    "index.md": ["xarray"],
    "rechunk.md": ["xarray", "h5netcdf"],
    "stores.md": ["xarray", "h5netcdf"],
    "torch.md": ["torch"],
    "xarray.md": ["xarray"],
    "zarr.md": ["torch"],
}


def blocks(page):
    """(line, kind, code, the line above) of each block; those that include a file left out."""
    text = (DOCS / page).read_text()
    found = []
    for match in BLOCK.finditer(text):
        before = text[: match.start()]
        above = before.rstrip("\n").rpartition("\n")[2].strip()
        code = textwrap.dedent(match["code"])
        found.append((before.count("\n") + 1, match["kind"], code, above))
    return found


PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
WITH_EXAMPLES = [
    page
    for page in PAGES
    if page not in ELSEWHERE
    and any(kind in RUN and "--8<--" not in code for _, kind, code, _ in blocks(page))
]


def era5(folder, steps=48):
    """What pages call era5.zarr and era5.nc: a field of time, latitude and longitude."""
    import zarr

    rng = np.random.default_rng(5)
    field = np.cumsum(rng.normal(size=(steps, 73, 144)), axis=0).astype("float32")
    axes = {
        "time": (np.arange(steps), {"units": "hours since 2020-01-01", "calendar": "standard"}),
        "lat": (np.linspace(90, -90, 73), {"units": "degrees_north"}),
        "lon": (np.arange(144) * 2.5, {"units": "degrees_east"}),
    }
    group = zarr.open_group(folder / "era5.zarr", mode="w", zarr_format=3)
    for name, (values, attributes) in axes.items():
        axis = group.create_array(
            name, shape=values.shape, dtype=values.dtype, dimension_names=[name]
        )
        axis[:] = values
        axis.attrs.update(attributes)
    for name in ("t2m", "u10"):
        array = group.create_array(
            name, shape=field.shape, dtype="float32", chunks=(4, 73, 144),
            dimension_names=list(axes),
        )  # fmt: skip
        array[:] = field
        array.attrs["units"] = "K"
    return field, axes


def netcdf(folder, field, axes):
    """era5.nc, and two files that go on from one another."""
    import xarray as xr

    def dataset(begin, end):
        coordinates = {
            name: (name, values[begin:end] if name == "time" else values, attributes)
            for name, (values, attributes) in axes.items()
        }
        return xr.Dataset({"t2m": (tuple(axes), field[begin:end], {"units": "K"})}, coordinates)

    encoding = {"t2m": {"zlib": True, "chunksizes": (4, 73, 144)}}
    for name, begin, end in (("era5", 0, 48), ("2020", 0, 24), ("2021", 24, 48)):
        dataset(begin, end).to_netcdf(
            folder / f"{name}.nc", engine="h5netcdf", encoding=encoding, unlimited_dims=["time"]
        )


def for_this_machine(code):
    """Without a GPU "simt" stands for it, whose memory is torch's CPU's."""
    if HAS_CUDA:
        return code
    code = re.sub(r'(torch\.\w+\([^\n]*?device=)"cuda:0"', r'\1"cpu"', code)
    return code.replace('"cuda:0"', '"simt"').replace('"headrace-cuda"', '"headrace-simt"')


RUNNER = """
import json, subprocess, sys
space = {"__name__": "__main__"}
for line, kind, code in json.load(sys.stdin):
    if kind == "sh":
        subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
    else:
        exec(compile(chr(10) * line + code, sys.argv[1], "exec"), space)
"""


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_examples_of_the_page(page, tmp_path):
    for module in ["zarr", *NEEDS.get(page, [])]:
        pytest.importorskip(module)
    field, axes = era5(tmp_path)
    if "h5netcdf" in NEEDS.get(page, []):
        netcdf(tmp_path, field, axes)
    work = [
        (line, kind, for_this_machine(code))
        for line, kind, code, _ in blocks(page)
        if kind in RUN and "--8<--" not in code
    ]
    scripts = os.path.dirname(sys.executable)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER, str(DOCS / page)],
        cwd=tmp_path, input=json.dumps(work), capture_output=True, text=True, timeout=110,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    for line, kind, code, above in blocks(page):
        where = f"{page}:{line}"
        assert kind in RUN | SHOWN or not re.search(r"^(headrace|pip|import) ", code, re.M), where
        if kind == "py":
            assert re.fullmatch(r"<!-- not run: .+ -->", above), f"{where}: why is it not run?"
            compile(code, where, "exec")


def test_examples_that_pages_include_are_run_by_a_test():
    here = Path(__file__)
    others = (path for path in here.parent.glob("test_*.py") if path != here)
    tests = "\n".join(path.read_text() for path in others)
    included = {
        match
        for page in PAGES
        for match in re.findall(r'--8<-- "examples/([\w/]+\.\w+)"', (DOCS / page).read_text())
    }
    assert included >= {"shm_queue.py", "state_dict.py", "jax_mesh.py", "ray_batches.py"}
    for name in included:
        assert f'"{name}"' in tests, name


def test_pages_with_a_test_of_their_own_have_it():
    for page, test in ELSEWHERE.items():
        assert f'"{page}"' in (Path(__file__).parent / test).read_text()


def test_the_landing_page_shows_what_the_readme_runs():
    """Its C++ block is that of README.md, which a test compiles."""
    shown = next(code for _, kind, code, _ in blocks("index.md") if kind == "cpp")
    assert shown in (ROOT / "README.md").read_text()


def test_runner_tells_of_a_failure():
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "page"],
        input=json.dumps([(1, "python", "x = 1"), (5, "python", "assert x == 2")]),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "line 6" in done.stderr
    assert hr.__version__
