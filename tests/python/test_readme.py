"""What the README shows a user runs as it stands there: its blocks in turn, in one folder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import headrace as hr
import pytest
from helpers import assert_same

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(name: str) -> str:
    """The code between the markers of this name."""
    found = re.search(
        rf"<!-- {name}:begin -->\n```\w*\n(.*?)```\n<!-- {name}:end -->", README, re.S
    )
    assert found, f"README.md has no {name} between its markers"
    return found[1]


def run(*command, cwd, env=None, says=r""):
    """The output; on standard error it says what matches."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=110, env=env)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert re.fullmatch(says, done.stderr, re.S), (command, done.stdout, done.stderr)
    return done.stdout


def run_python(folder):
    return run(sys.executable, "-W", "error", "-c", block("quickstart"), cwd=folder)


def run_shell(folder):
    # The command of this Python's environment, which need not be on the path.
    scripts = os.path.dirname(sys.executable)
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    return run(
        "bash", "-euo", "pipefail", "-c", block("quickstart-shell"),
        cwd=folder, env={**os.environ, "PATH": path},
        says=r"array: chunks \(48, 9, 9\), .*1 block of [^\n]*\n",  # the plan
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the Python block ran, twice: a user may do so."""
    folder = tmp_path_factory.mktemp("readme")
    for _ in range(2):
        assert "(48, 181, 360) float32 (1, 181, 360) m/s" in run_python(folder)
    return folder


def test_blocks_leave_what_the_next_one_reads(folder):
    assert [path.name for path in folder.iterdir()] == ["wind.zarr"]


def test_shell_block_goes_on_from_the_python_block(folder):
    assert "float32" in run_shell(folder)
    assert {path.name for path in folder.iterdir()} == {"wind.zarr", "series.zarr"}
    wind, series = hr.open(folder / "wind.zarr"), hr.open(folder / "series.zarr")
    assert series.chunks == (48, 9, 9)
    assert_same(series[:], wind[:])


def test_one_line_switches(folder, tmp_path):
    switch = dict(re.findall(r"^\| ([\w-]+) \| `([^`]+)`", README, re.M))
    for module in ("zarr", "xarray"):
        pytest.importorskip(module)
    script = f"""
import headrace, headrace.loader, headrace.shm, headrace as hr, numpy as np, xarray as xr, zarr

{switch["zarr-python"]}
z = zarr.open_array("wind.zarr")
assert type(z.async_array.codec_pipeline).__module__.startswith("headrace"), z
path = {str(tmp_path / "set.zarr")!r}
xr.Dataset({{"wind": (("t", "y", "x"), z[0:8])}}).to_zarr(path, zarr_format=3, consolidated=False)
assert np.array_equal({switch["xarray"]}.wind, z[0:8])
arrays = {{"wind": hr.open("wind.zarr")}}
assert next(iter({switch["training"]}))["wind"].shape == (8, 1, 181, 360)
assert callable({switch["multiprocessing"].removesuffix("()")})  # its arena of 1 GiB takes seconds
"""
    run(sys.executable, "-c", script, cwd=folder, says=r".*")


def test_cpp_block_goes_on_from_the_python_block(folder, tmp_path):
    build = Path(os.path.dirname(sys.executable), "headrace").resolve().parents[1]
    if not (build / "CMakeCache.txt").is_file():
        pytest.skip("the command here comes from no build folder")
    cmake = shutil.which("cmake", path=os.path.dirname(sys.executable)) or "cmake"
    (tmp_path / "main.cpp").write_text(block("quickstart-cpp"))
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        "project(readme LANGUAGES CXX)\n"
        "find_package(headrace REQUIRED)\n"
        "add_executable(readme main.cpp)\n"
        "target_link_libraries(readme PRIVATE headrace::headrace)\n"
    )
    prefix = tmp_path / "prefix"
    run(cmake, "--install", build, "--component", "cpp", "--prefix", prefix, cwd=tmp_path)
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug"]
    run(cmake, "-S", tmp_path, "-B", tmp_path / "build", *options, cwd=tmp_path)
    run(cmake, "--build", tmp_path / "build", cwd=tmp_path)
    assert run(tmp_path / "build" / "readme", cwd=folder) == "10 steps, 1303200 bytes\n"


def test_quick_start_is_the_example():
    example = (ROOT / "examples" / "quickstart.py").read_text()
    assert example.partition('"""\n\n')[2] == block("quickstart")


@pytest.mark.parametrize(("page", "lines"), [("README.md", 120), ("ARCHITECTURE.md", 150)])
def test_pages_stay_short(page, lines):
    assert len((ROOT / page).read_text().splitlines()) <= lines


def test_smallest_codec_is_the_one_that_is_tested():
    page = (ROOT / "src" / "codec" / "README.md").read_text()
    shown = re.search(
        r"<!-- smallest-codec:begin -->\n```cpp\n(.*?)```\n<!-- smallest-codec:end -->", page, re.S
    )
    assert shown[1] == (ROOT / "tests" / "unit" / "codec_xor8.cpp").read_text()


def test_benchmark_table_names_its_file():
    page = (ROOT / "bench" / "README.md").read_text()
    table = page.partition("<!-- bench:begin -->")[2].partition("<!-- bench:end -->")[0]
    for name in re.findall(r"bench/results/[\w.-]+", table):
        assert (ROOT / name).is_file(), name
    assert "bench/results/" in table
