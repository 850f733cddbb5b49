"""Links among groups: every walk ends, and says what it left out."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import headrace as hr
import numpy as np
import pytest

COMMAND = Path(sys.executable).parent / "headrace"
GROUPS = {
    2: {".zgroup": {"zarr_format": 2}},
    3: {"zarr.json": {"zarr_format": 3, "node_type": "group"}},
}


def put_group(folder, zarr_format=3):
    os.makedirs(folder, exist_ok=True)
    for name, document in GROUPS[zarr_format].items():
        Path(folder, name).write_text(json.dumps(document))
    return Path(folder)


def put_array(path, zarr_format=3):
    data = np.arange(6, dtype="i2")
    array = hr.create_array(
        str(path), shape=6, dtype="i2", chunks=(4,), zarr_format=zarr_format, fill_value=0
    )
    array[:] = data


def run(*arguments, status=0):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, timeout=60)
    assert done.returncode == status, done
    return done


def paths(node, above=""):
    """Of the output of tree --json: what it shows and what it left out."""
    shown, left = set(), set()
    for member in node.get("members", ()):
        path = f"{above}{member['name']}"
        if "left_out" in member:
            left.add(path)
        else:
            shown.add(path)
            below = paths(member, path + "/")
            shown |= below[0]
            left |= below[1]
    return shown, left


def walk(group, above=""):
    for name, node in group.items():
        yield above + name
        if isinstance(node, hr.Group):
            yield from walk(node, f"{above}{name}/")


def to_itself(root, zarr_format):
    (root / "a").symlink_to(".")
    (root / "b").symlink_to(root)
    return {"x", "sub", "sub/y"}, {"a", "b"}


def to_above(root, zarr_format):
    (root / "sub/up").symlink_to("..")
    (root / "sub/here").symlink_to(".")
    return {"x", "sub", "sub/y"}, {"sub/up", "sub/here"}


def around_the_root(root, zarr_format):
    """Out of the store by a link and back by a real folder."""
    put_group(root.parent, zarr_format)
    (root / "out").symlink_to("..")
    return {"x", "sub", "sub/y", "out"}, {f"out/{root.name}"}


def to_each_other(root, zarr_format):
    put_group(root / "other", zarr_format)
    (root / "sub/to").symlink_to("../other")
    (root / "other/back").symlink_to("../sub")
    shown = {"x", "sub", "sub/y", "sub/to", "other", "other/back", "other/back/y"}
    return shown, {"sub/to/back", "other/back/to"}


def no_cycle(root, zarr_format):
    (root / "again").symlink_to("sub")
    (root / "array").symlink_to("x")
    return {"x", "sub", "sub/y", "again", "again/y", "array"}, set()


@pytest.fixture(params=[2, 3])
def zarr_format(request):
    return request.param


@pytest.fixture(params=[to_itself, to_above, around_the_root, to_each_other, no_cycle])
def linked(request, tmp_path, zarr_format):
    root = put_group(tmp_path / "in" / "s.zarr", zarr_format)
    put_array(root / "x", zarr_format)
    put_group(root / "sub", zarr_format)
    put_array(root / "sub/y", zarr_format)
    return root, *request.param(root, zarr_format)


def test_command_ends_and_names_what_it_left_out(linked):
    root, shown, left = linked
    assert paths(json.loads(run("tree", root, "--json").stdout)) == (shown, left)
    text = run("tree", root).stdout.decode()
    assert text.count("left out, a link that leads back") == len(left)
    report = json.loads(run("verify", root, "--json").stdout)
    arrays = {path for path in shown if path[-1] in "xy" or path.endswith("array")}
    assert {array["path"] for array in report["arrays"]} == arrays
    assert set(report["left_out"]) == left
    text = run("verify", root).stdout.decode()
    assert all(f"left out: {path}: " in text for path in left)
    facts = json.loads(run("info", root, "--json").stdout)
    assert set(facts["left_out"]) == {path for path in left if "/" not in path}


def test_python_ends_and_names_what_it_left_out(linked):
    root, shown, left = linked
    group = hr.open_group(root)
    assert set(walk(group)) == shown
    text = str(group.tree())
    assert text.count("left out, a link that leads back") == len(left)
    assert set(group.links_back()) == {path for path in left if "/" not in path}
    names = {name for name, _ in group.arrays()} | {name for name, _ in group.groups()}
    assert names == {path for path in shown if "/" not in path}


def test_copies_and_consolidation_end(linked, tmp_path):
    root, shown, left = linked
    done = run("rechunk", root, tmp_path / "copy.zarr", "--chunks", "3")
    assert set(walk(hr.open_group(tmp_path / "copy.zarr"))) == shown
    assert all(f"left out: {path}: " in done.stderr.decode() for path in left)
    hr.consolidate_metadata(root)
    group = hr.open_group(root)
    assert group.consolidated
    assert set(walk(group)) == shown
    assert group.tree()


def test_a_link_that_leads_back_can_still_be_opened(linked):
    root, _, left = linked
    group = hr.open_group(root)
    for path in left:
        assert isinstance(group[path], hr.Group)


def deep_documents(depth, zarr_format=3):
    name, document = next(iter(GROUPS[zarr_format].items()))
    text = json.dumps(document)
    return {"/".join([*["g"] * n, name]): text for n in range(depth + 1)}


@pytest.mark.parametrize("kind", ["folder", "zip", "memory"])
def test_depth_is_bounded(tmp_path, kind, zarr_format):
    documents = deep_documents(100, zarr_format)
    if kind == "folder":
        for name, text in documents.items():
            path = tmp_path / "deep" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        store = str(tmp_path / "deep")
    elif kind == "zip":
        store = f"{tmp_path}/deep.zip"
        with zipfile.ZipFile(store, "w") as archive:
            for name, text in documents.items():
                archive.writestr(name, text)
    else:
        store = hr.memory_store()
        for name, text in documents.items():
            store._set(name, text.encode())
    group = hr.open_group(store)
    with pytest.raises(NotImplementedError, match="deeper than 64"):
        list(walk(group))
    assert "deeper than 64" in str(group.tree())
    assert len(str(group.tree(level=3)).splitlines()) == 4
    if kind in ("folder", "zip"):
        assert "deeper than 64" in run("tree", store).stdout.decode()
        report = json.loads(run("verify", store, "--json", status=1).stdout)
        assert "deeper than 64" in report["arrays"][0]["bad"][0]["message"]
        done = run("rechunk", store, tmp_path / "c.zarr", "--chunks", "1", status=1)
        assert b"deeper than 64" in done.stderr
        # Any of it can be looked at from further down.
        assert run("tree", f"{store}/{'/'.join(['g'] * 64)}", "--depth", "1")
    if kind == "folder":
        with pytest.raises(NotImplementedError, match="deeper than 64"):
            hr.consolidate_metadata(store)


def test_depth_of_consolidated_metadata_is_bounded(tmp_path):
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    nodes = {"/".join(["g"] * n): group for n in range(1, 2000)}
    consolidated = {"kind": "inline", "must_understand": False, "metadata": nodes}
    put_group(tmp_path / "s")
    (tmp_path / "s/zarr.json").write_text(
        json.dumps(group | {"consolidated_metadata": consolidated})
    )
    assert hr.open_group(tmp_path / "s").consolidated
    assert "deeper than 64" in str(hr.open_group(tmp_path / "s").tree())
    assert b"deeper than 64" in run("tree", tmp_path / "s").stdout
