"""The examples of docstrings, which are the reference's, run in a folder with a small data set.

What an example prints is compared where that does not hang on the data set. "cuda:0" is "simt"
where there is no GPU, and a bucket is a folder.
"""

import ast
import contextlib
import doctest
import importlib
import re
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import HAS_CUDA, needs_publications, needs_uring

PACKAGE = Path(hr.__file__).parent
# Why an example is not run here, and what runs the like.
LEFT_OUT = {
    "set_allocator": "CUDA's memory: tests/python/test_device.py",
    "QueuedBatch": "CUDA's streams: tests/python/test_device_async.py",
    "cells": "an atlas: tests/python/test_cells_docs.py",
    "convert": "files of donors: tests/python/test_cell_convert.py",
    "_cell_stores/_convert.py write": "AnnData in memory: tests/python/test_cell_write.py",
    "CellLoader": "an atlas: tests/python/test_cells_docs.py",
    "Transform": "an atlas: tests/python/test_cells_docs.py",
    "jax.py": "a mesh of devices: examples/jax_mesh.py in tests/python/test_jax.py",
    "jax.py read": "a mesh of devices: examples/jax_mesh.py in tests/python/test_jax.py",
    "mlx.py": "MLX: tests/python/test_frameworks.py",
    "mlx.py read": "MLX: tests/python/test_frameworks.py",
    "zarr/mlx.py": "MLX: tests/python/test_zarr_mlx.py",
    "ray.py": "a cluster: examples/ray_batches.py in tests/python/test_ray.py",
    "ray.py read_zarr": "a cluster: examples/ray_batches.py in tests/python/test_ray.py",
    "ZarrDatasource": "a cluster: tests/python/test_ray.py",
    "shm/__init__.py": "other processes: tests/python/test_shm_docs.py",
    "shm/_install.py install": "other processes: tests/python/test_shm_install.py",
    "HeadraceBackendEntrypoint": "CuPy: tests/python/test_xarray.py",
    "DeviceAccessor": "CuPy: tests/python/test_xarray.py",
}
# What they print is compared.
COMPARED = (
    "codecs.py",
    "config.py",
    "_doctor.py",
    "load",
    "shm/_arena.py Channel",
    "load_metadata",
)
NEEDS = {"torch": "torch", "dask": "dask", "xarray": "xarray", "zarr": "zarr"}


def examples():
    """(file, name of the object or "", examples) of each docstring that has some."""
    parser = doctest.DocTestParser()
    paths = sorted([*PACKAGE.rglob("*.py"), PACKAGE / "_core.pyi"])
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found = parser.get_examples(ast.get_docstring(node) or "")
                if found:
                    yield path.relative_to(PACKAGE).as_posix(), getattr(node, "name", ""), found


def marks_of(file, found):
    """What examples need."""
    if file == "shm/_publish.py":
        return needs_publications
    return needs_uring if any('"uring"' in each.source for each in found) else ()


EXAMPLES = [
    pytest.param(
        file,
        name,
        found,
        id=f"{file} {name}".strip(),
        marks=marks_of(file, found),
    )
    for file, name, found in examples()
]


def here(code):
    """The code as it can run on this machine."""
    code = code.replace("s3://bucket/", "").replace("/nvme/cache", "cache").replace("1GiB", "64MiB")
    code = re.sub(r'"lat": 256, "lon": 256', '"lat": 16, "lon": 16', code)
    code = code.replace("(1, 721, 1440)", "(1, 73, 144)").replace(
        "(24, 721, 1440)", "(24, 73, 144)"
    )
    code = code.replace("(10, 721, 1440)", "(10, 73, 144)")
    code = code.replace("num_workers=4", "num_workers=2")
    if HAS_CUDA:
        return code
    device = "cpu" if "torch." in code and "load_state_dict" in code else "simt"
    return code.replace('"cuda:0"', f'"{device}"')


def data_set(folder):
    """What docstrings take for granted, by name; `folder` has era5.zarr."""
    field = np.random.default_rng(1).normal(size=(48, 73, 144)).astype("float32")
    names = ["time", "lat", "lon"]
    group = hr.create_group(folder / "era5.zarr")
    for path in ("t2m", "u", "v", "surface/t2m"):
        array = group.create_array(
            path, shape=field.shape, dtype="f4", chunks=(4, 73, 144), dimension_names=names
        )
        array[:] = field
    a = hr.open_array(folder / "era5.zarr", "t2m", mode="r+")
    space = {
        "hr": hr, "headrace": hr, "np": np, "a": a, "array": a, "t2m": a, "z500": a,
        "group": group, "field": field, "days": field[:, 0], "train": lambda *batch: None,
    }  # fmt: skip
    images = hr.create_array(hr.memory_store(), shape=(128, 4), dtype="f4", chunks=(16, 4))
    labels = hr.create_array(hr.memory_store(), shape=128, dtype="i4", chunks=16)
    return {**space, "images": images, "labels": labels, "state": {"w": field}, "dataset": [field]}


def libraries(file, space):
    """The modules that a file's examples name, skipped where they are not there."""
    for part, module in NEEDS.items():
        if file.startswith(part):
            pytest.importorskip(module)
            importlib.import_module(f"headrace.{part}")
    with contextlib.suppress(ImportError):
        import torch
        import torch.utils.data

        space |= {"torch": torch, "DataLoader": torch.utils.data.DataLoader}
        if file.startswith("torch"):
            space["model"] = torch.nn.Sequential(torch.nn.Linear(4, 3))
            space["opt"] = torch.optim.SGD(space["model"].parameters(), momentum=0.9)
    for name in ("zarr", "xarray"):
        with contextlib.suppress(ImportError):
            space["xr" if name == "xarray" else name] = importlib.import_module(name)


def prepare(file, name, space, folder):
    """What single examples go on from."""
    where = f"{file} {name}"
    module = importlib.import_module("headrace." + file.removesuffix(".py").split("/")[0]) if (
        file.split("/")[0].removesuffix(".py") in ("torch", "shm", "loader", "lazy", "xarray")
    ) else None  # fmt: skip
    for each in getattr(module, "__all__", ()):
        space.setdefault(each, getattr(module, each))
    if file.startswith("shm"):
        import headrace.shm as shm

        space |= {"shm": shm, "arena": shm.Arena("64MiB"), "indices": [0]}
        space["channel"] = space["arena"].channel(capacity=2)
    if name == "attach":
        space["kept"] = space["shm"].publish("weights", space["state"])
    if name == "shuffle_quality":
        space["loader"] = space["Loader"](space["a"], batch_size=4)
    if name == "load":
        hr.save("one.zarr", np.arange(10))
    if name == "references":
        h5py = pytest.importorskip("h5py")
        for year in ("2020", "2021"):
            with h5py.File(folder / f"{year}.nc", "w") as file5:
                t2m = file5.create_dataset("t2m", data=space["field"], chunks=(4, 73, 144))
                t2m.dims[0].label = "time"
    if name in ("load_metadata", "load_state_dict"):
        space["save_state_dict"](space["model"].state_dict(), "model.zarr", metadata={"step": 1000})
    if where == "jax.py write":
        jax = pytest.importorskip("jax")
        space |= {
            "x": jax.numpy.zeros((64, 64)),
            "write": importlib.import_module("headrace.jax").write,
        }
    if file == "dask.py":
        space["x"] = importlib.import_module("headrace.dask").from_zarr("era5.zarr", "t2m")


@pytest.fixture
def settings():
    """What examples set for good is as it was, afterwards."""
    before = hr.config.get()
    yield
    hr.config.set(before)
    with contextlib.suppress(ImportError):
        import zarr

        zarr.config.reset()


@pytest.mark.parametrize(("file", "name", "found"), EXAMPLES)
def test_examples(file, name, found, tmp_path, monkeypatch, settings):
    where = f"{file} {name}".strip()
    if where in LEFT_OUT or name in LEFT_OUT:
        pytest.skip(LEFT_OUT.get(where) or LEFT_OUT[name])
    monkeypatch.chdir(tmp_path)
    space = data_set(tmp_path)
    libraries(file, space)
    code = "".join(each.source for each in found)
    if "torch" not in space and re.search(r"torch\.|DataLoader|collate", code):
        pytest.skip("needs torch")
    prepare(file, name, space, tmp_path)
    compared = file in COMPARED or name in COMPARED or where in COMPARED
    steps = [
        doctest.Example(here(each.source), each.want if compared else "", lineno=each.lineno)
        for each in found
    ]
    failed = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

    class Runner(doctest.DocTestRunner):
        def report_failure(self, out, test, example, got):
            if compared and example.want:
                failed.append(f"{example.source}: expected {example.want}, got {got}")

        def report_unexpected_exception(self, out, test, example, raised):
            failed.append(f"{example.source}: {raised[0].__name__}: {raised[1]}")

    test = doctest.DocTest(steps, space, where, file, 0, "")
    Runner(verbose=False, optionflags=flags).run(test, out=lambda text: None, clear_globs=False)
    assert not failed, "\n".join(failed)


def test_every_example_that_is_left_out_is_there():
    known = {f"{file} {name}".strip() for file, name, _ in examples()}
    known |= {name for _, name, _ in examples()}
    assert set(LEFT_OUT) <= known
    assert len(EXAMPLES) > 60
