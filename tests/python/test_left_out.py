"""What copies a group, or looks at all of it, takes the nodes as they are, and says what it left
out."""

import json
import shutil
import subprocess
import warnings
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import assert_same, read_zarr
from test_cli import COMMAND, run_json


def of_the_other_format(folder, zarr_format):
    hr.create_array(folder / "bad", data=np.arange(4), zarr_format=5 - zarr_format)
    return f"an array of Zarr {5 - zarr_format} in a group of Zarr {zarr_format}"


def without_a_group(folder, zarr_format):
    hr.create_array(folder / "bad/deeper/z", data=np.arange(3), zarr_format=zarr_format)
    return "a folder without a group's document, which has g/bad/deeper/z"


def leads_back(folder, zarr_format):
    (folder / "bad").symlink_to("..")
    return "a link that leads back to a group it is in"


@pytest.fixture(params=[2, 3])
def zarr_format(request):
    return request.param


@pytest.fixture(params=[of_the_other_format, without_a_group, leads_back])
def said(request, store, zarr_format):
    """Why "g/bad" of the store is left out, which has the array "g/good"."""
    root = hr.create_group(store, zarr_format=zarr_format)
    root.create_group("g")["good"] = np.arange(4)
    for name in ("notes", ".rechunk/between-0", ".git/x"):
        Path(store, "g", name).mkdir(parents=True)
        Path(store, "g", name, "readme.txt").write_text("nothing of Zarr")
    hr.create_array(Path(store, "g", ".hidden/z"), data=np.arange(3), zarr_format=zarr_format)
    return request.param(Path(store, "g"), zarr_format)


@pytest.mark.parametrize("copy", [hr.copy, lambda *a: hr.rechunk(*a, chunks=(2,))])
def test_copies_say_what_they_leave_out(store, tmp_path, said, copy):
    with pytest.warns(UserWarning) as told:
        out = copy(store, tmp_path / "out.zarr")
    (warning,) = told
    assert str(warning.message).endswith(f"left out /g/bad: {said}")
    assert warning.filename == __file__
    assert list(out["g"]) == ["good"]


def test_the_command_says_what_it_leaves_out(store, tmp_path, said):
    target = tmp_path / "out.zarr"
    line = f"left out: g/bad: {said}\n"
    for command in (("convert",), ("rechunk", "--chunks", "2", "--overwrite")):
        done = subprocess.run(
            [COMMAND, command[0], store, target, *command[1:]], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr.count(line)) == (0, 1), done
    plan = subprocess.run(
        [COMMAND, "convert", store, target, "--plan"], capture_output=True, text=True
    )
    assert plan.stdout.startswith(line)
    assert run_json("convert", store, target, "--plan")["left_out"] == ["g/bad"]
    verified = subprocess.run([COMMAND, "verify", store], capture_output=True, text=True)
    assert verified.stdout.startswith(line + "1 array, 1 chunk, 0 bad\n")
    report = run_json("verify", store)
    assert (report["ok"], report["left_out"]) == (True, ["g/bad"])


def change_behind_consolidated_metadata(root):
    """What they do not have: new rows, attributes, an array, one array less."""
    group = hr.open_group(root, mode="r+", use_consolidated=False)
    group["g/x"].append(np.array([5, 6], "i4"))
    group["g/x"].attrs["units"] = "K"
    group["g"].attrs["title"] = "new"
    group["g"].create_array("y", shape=2, dtype="i4")[...] = 7
    shutil.rmtree(Path(root, "g/gone"))


@pytest.fixture
def stale(store, zarr_format):
    root = hr.create_group(store, zarr_format=zarr_format)
    inner = root.create_group("g")
    for name in ("x", "gone"):
        inner.create_array(name, shape=4, chunks=2, dtype="i4")[...] = [1, 2, 3, 4]
    hr.consolidate_metadata(store)
    change_behind_consolidated_metadata(store)
    return store


def check_copy(path):
    group = hr.open_group(path)
    assert group.consolidated
    assert sorted(group["g"]) == ["x", "y"]
    assert group["g"].attrs["title"] == "new"
    assert group["g/x"].attrs["units"] == "K"
    assert_same(read_zarr(str(path), "g/x"), np.arange(1, 7, dtype="i4"))
    assert_same(read_zarr(str(path), "g/y"), np.full(2, 7, "i4"))


GONE = "/g/gone: named by consolidated metadata alone: there is no such node"


@pytest.mark.parametrize("copy", [hr.copy, lambda *a: hr.rechunk(*a, chunks=None)])
def test_copies_of_groups_whose_consolidated_metadata_are_old(stale, tmp_path, copy):
    for name, source in (("a", stale), ("b", hr.open_group(stale))):
        with pytest.warns(UserWarning, match=GONE):
            copy(source, tmp_path / name)
        check_copy(tmp_path / name)
    assert hr.open_group(stale)["g/x"].shape == (4,)  # as it is documented


def test_the_command_with_consolidated_metadata_that_are_old(stale, tmp_path):
    command = [COMMAND, "convert", stale, tmp_path / "out.zarr", "--verify"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count(f"left out: {GONE[1:]}")) == (0, 1)
    check_copy(tmp_path / "out.zarr")
    report = run_json("verify", stale)
    assert [row["path"] for row in report["arrays"]] == ["g/x", "g/y"]
    assert (report["chunks"], report["left_out"]) == (4, ["g/gone"])


class Unlisted(zarr.storage.MemoryStore):
    """As a web server: it has what it is asked for, and says of nothing that it is there."""

    supports_listing = False

    async def list_dir(self, prefix):
        raise NotImplementedError("this server does not list")
        yield


class ListedInPart(zarr.storage.MemoryStore):
    async def list_dir(self, prefix):
        async for name in super().list_dir(prefix):
            if name != "g":
                yield name


@pytest.mark.parametrize("kind", [Unlisted, ListedInPart])
def test_stores_that_do_not_list_are_read_by_consolidated_metadata(kind, tmp_path, zarr_format):
    root = zarr.create_group(store := zarr.storage.MemoryStore(), zarr_format=zarr_format)
    root.create_array("g/x", data=np.arange(4), chunks=(2,))
    root.create_array("h", data=np.arange(3))
    zarr.consolidate_metadata(store)
    source = kind(store._store_dict)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, copy in (("a", hr.copy), ("b", lambda *a: hr.rechunk(*a, chunks=None))):
            out = copy(hr.open(source), tmp_path / name)
            assert sorted(out) == ["g", "h"]
            assert_same(out["g/x"][...], np.arange(4))


def test_a_group_of_both_formats_is_whole(store, tmp_path):
    """As those who change from one to the other write them."""
    third, second = tmp_path / "3.zarr", tmp_path / "2.zarr"
    for path, zarr_format in ((third, 3), (second, 2)):
        root = hr.create_group(path, zarr_format=zarr_format)
        root["x"] = np.arange(4)
    shutil.copytree(third, store)
    shutil.copytree(second, store, dirs_exist_ok=True)
    assert list(hr.copy(store, tmp_path / "out.zarr")) == ["x"]


def test_documents_that_are_none(store, tmp_path):
    root = hr.create_group(store)
    root["good"] = np.arange(4)
    Path(store, "bad").mkdir()
    Path(store, "bad", ".zarray").write_text("{}")
    Path(store, "bad", ".zattrs").write_text("[")
    with pytest.warns(UserWarning, match="left out /bad: "):
        hr.copy(store, tmp_path / "out.zarr")
    assert json.loads(Path(tmp_path, "out.zarr/good/zarr.json").read_text())["shape"] == [4]
