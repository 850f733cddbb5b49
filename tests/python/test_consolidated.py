"""Consolidated metadata of the groups above a node that is replaced or removed."""

import fcntl
import json
import os
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import edit_json


@pytest.fixture
def group(store):
    return hr.create_group(store)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_go_along_with_what_is_removed(store, zarr_format):
    group = hr.create_group(store, zarr_format=zarr_format)
    inner = group.create_group("inner")
    for name in ("x", "y"):
        group[name] = inner[name] = np.arange(3)
    hr.consolidate_metadata(store)
    group = hr.open_group(store, mode="r+")
    assert group.consolidated
    del group["x"], group["inner/y"]
    assert group.consolidated and group.keys() == ["inner", "y"]
    for opened in (hr.open(store), zarr.open_consolidated(store, mode="r")):
        assert sorted(opened.keys()) == ["inner", "y"] and list(opened["inner"].keys()) == ["x"]
    del group["inner"]
    for opened in (group, hr.open(store), zarr.open_consolidated(store, mode="r")):
        assert list(opened.keys()) == ["y"] and "inner/x" not in opened


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "replace",
    [
        lambda group, store, new: group.__setitem__("in/x", new),
        lambda group, store, new: group.create_array("in/x", data=new, overwrite=True),
        lambda group, store, new: hr.create_array(
            store, "in/x", data=new, overwrite=True, zarr_format=group.zarr_format
        ),
        lambda group, store, new: hr.copy(
            hr.array(new), group["in"].create_group("x", overwrite=True), overwrite=True,
            zarr_format=group.zarr_format,
        ),
        lambda group, store, new: hr.rechunk(
            hr.array(new), hr.open_group(store, "in", mode="r+").create_group(
                "x", overwrite=True), chunks=(2,), overwrite=True
        ),
    ],
    ids=["item", "create", "path", "copy", "rechunk"],
)  # fmt: skip
def test_consolidated_metadata_go_along_with_what_is_replaced(store, zarr_format, replace, request):
    """Those of each group above; read by the old ones the new elements would be others."""
    group = hr.create_group(store, zarr_format=zarr_format)
    group["in/x"] = np.arange(4, dtype="i4")
    group["in/kept"] = np.arange(2)
    for path in ("in", ""):
        hr.consolidate_metadata(store, path)
    group = hr.open_group(store, mode="r+")
    if "rechunk" in request.node.name and zarr_format == 2:
        pytest.skip("a rechunk makes arrays of Zarr 3")
    new = np.array([1.5, 2.5, 3.5], "f4")
    replace(group, store, new)
    for opened in (hr.open(store), hr.open(store, "in"), zarr.open_consolidated(store, mode="r")):
        name = "x" if opened.path == "in" else "in/x"
        assert opened[name].dtype == "f4" and opened[name][:].tolist() == new.tolist()
    assert sorted(hr.open(store)["in"].keys()) == ["kept", "x"]
    if zarr_format == 2:
        assert "in/x/.zarray" in json.loads((Path(store) / ".zmetadata").read_text())["metadata"]


def test_a_group_that_is_replaced_takes_its_members_out_of_consolidated_metadata(group, store):
    group["in/x"] = [1]
    hr.consolidate_metadata(store)
    hr.create_group(store, "in", overwrite=True)
    opened = hr.open(store)
    assert opened.consolidated and opened.keys() == ["in"] and "in/x" not in opened


def replace(store):
    hr.create_array(store, "x", data=[1.5], overwrite=True)


def remove(store):
    del hr.open_group(store, mode="r+")["x"]


@pytest.mark.parametrize("change", [replace, remove])
def test_what_is_not_replaced_or_removed_after_all_stays_in_them(group, store, change):
    group["x"] = np.arange(4, dtype="i4")
    hr.consolidate_metadata(store)
    folder = Path(store) / "x/.rechunk"
    folder.mkdir()
    lock = os.open(folder, os.O_RDONLY)  # as one that is at work holds it
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(RuntimeError, match="a rechunk is at work there"):
        change(store)
    os.close(lock)
    assert hr.open(store).keys() == ["x"] and hr.open(store)["x"][:].tolist() == [0, 1, 2, 3]


def test_cut_off_between_the_two_no_old_metadata_are_left(group, store):
    group["x"] = np.arange(4, dtype="i4")
    hr.consolidate_metadata(store)
    with pytest.raises(TypeError):  # on the way to its elements, which the array has no place for
        hr.create_array(store, "x", data=np.array([b"a", 1], object), overwrite=True)
    assert hr.open(store)["x"][:].tolist() == [0, 1, 2, 3]

    def leave(root):  # what replacing begins with
        del root["consolidated_metadata"]["metadata"]["x"]

    edit_json(Path(store, "zarr.json"), leave)
    assert hr.open(store).keys() == [] and hr.open(store)["x"][:].tolist() == [0, 1, 2, 3]
