"""Icechunk repositories, read natively: all that zarr finds through icechunk's own store."""

import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from cloud_servers import file_server
from helpers import DEVICES, assert_same

icechunk = pytest.importorskip("icechunk")

RANDOM = np.random.default_rng(3)
FIELD = RANDOM.normal(size=(20, 12, 14)).astype("f4")

# Before icechunk 2.3 it was None.
LOCAL_FILES = getattr(icechunk.credentials, "LocalFileSystemAccess", None)


def create(path, **config):
    config = icechunk.RepositoryConfig(**config) if config else None
    storage = icechunk.local_filesystem_storage(str(path))
    return icechunk.Repository.create(storage, config=config)


def assert_all_same(path, theirs, **options):
    """Every array of the session, by the path of the repository, read natively."""
    group = zarr.open_group(theirs.store, mode="r")
    ours = hr.open(path, storage_options=options)
    arrays = [(name, node) for name, node in group.members(max_depth=None)]
    assert arrays
    for name, node in arrays:
        if isinstance(node, zarr.Array):
            assert_same(ours[name][...], node[...])
        else:
            assert set(ours[name]) == set(node)
    assert set(ours) == set(group)


@pytest.fixture
def repository(tmp_path):
    repository = create(tmp_path / "repo", inline_chunk_threshold_bytes=200)
    session = repository.writable_session("main")
    root = zarr.create_group(session.store)
    root.attrs["title"] = "a field"
    root.create_array("field", data=FIELD, chunks=(5, 6, 7))
    root.create_array("sharded", data=FIELD, chunks=(5, 3, 7), shards=(10, 6, 14))
    root.create_array("deep/er/small", data=np.arange(7), chunks=(3,))
    root.create_array("scalar", data=np.array(2.5))
    root.create_array("holes", shape=(40, 40), chunks=(10, 10), dtype="i2", fill_value=-3)[
        10:20, 5:35
    ] = 8
    session.commit("first")
    return repository


def test_arrays_and_groups(repository, tmp_path):
    theirs = repository.readonly_session("main")
    for place in (
        tmp_path / "repo",
        f"icechunk://{tmp_path}/repo",
        f"icechunk+file://{tmp_path}/repo",
    ):
        assert_all_same(str(place), theirs)
    group = hr.open(tmp_path / "repo")
    assert group.attrs["title"] == "a field"
    assert_same(group["sharded"][3:17:2, 4:9, 5], FIELD[3:17:2, 4:9, 5])
    keys = group.store._list("")
    assert "field/c/3/1/1" in keys
    assert "scalar/c" in keys
    assert [key for key in keys if key.startswith("holes/c")] == [
        f"holes/c/1/{i}" for i in range(4)
    ]
    assert keys == sorted(keys)


@pytest.mark.parametrize("device", DEVICES)
def test_to_a_device(repository, tmp_path, device):
    for name in ("field", "sharded"):
        array = hr.open_array(tmp_path / "repo", name, device=device)
        assert_same(array[2:19].to_numpy(), FIELD[2:19])


def test_a_repository_across_a_network_is_named_as_one(repository, tmp_path):
    with file_server(tmp_path, lambda request: None) as url:
        for opener in (hr.open, hr.open_group):
            with pytest.raises(FileNotFoundError, match=rf"icechunk\+{url}/repo") as failure:
                opener(f"{url}/repo")
            assert "no node" not in str(failure.value)
        assert_same(hr.open(f"icechunk+{url}/repo")["field"][...], FIELD)
        with pytest.raises(FileNotFoundError) as failure:
            hr.open(url)
        assert "Icechunk" not in str(failure.value)


def test_branches_tags_and_snapshots(repository, tmp_path):
    first = repository.lookup_branch("main")
    repository.create_tag("v1", first)
    repository.create_branch("work", first)
    session = repository.writable_session("work")
    root = zarr.open_group(session.store)
    root["field"].append(FIELD[:3] * 2)
    root["field"][0] = 0
    del root["deep"]
    second = session.commit("changed")
    path = tmp_path / "repo"
    assert_all_same(path, repository.readonly_session(branch="work"), branch="work")
    assert_all_same(path, repository.readonly_session(snapshot_id=second), snapshot=second)
    assert_all_same(path, repository.readonly_session(tag="v1"), tag="v1")
    assert_all_same(path, repository.readonly_session("main"))
    assert hr.open(path, storage_options={"branch": "work"})["field"].shape == (23, 12, 14)
    repository.delete_tag("v1")
    for options in ({"tag": "v1"}, {"branch": "no"}, {"snapshot": "X" * 20}, {"snapshot": "../x"}):
        with pytest.raises(FileNotFoundError):
            hr.open(path, storage_options=options)
    with pytest.raises(ValueError, match="one of"):
        hr.open(path, storage_options={"branch": "main", "tag": "v1"})
    with pytest.raises(PermissionError, match="icechunk"):
        hr.open(f"icechunk://{path}", mode="r+")


def test_what_is_kept_is_of_one_snapshot(repository, tmp_path):
    path = tmp_path / "repo"
    before = hr.open(path, "field")
    sent = pickle.dumps(before)
    session = repository.writable_session("main")
    zarr.open_group(session.store)["field"][...] = 0
    later = session.commit("changed")
    assert_same(pickle.loads(sent)[...], FIELD)
    assert (hr.open(path, "field")[...] == 0).all()
    assert_same(hr.open(before.store.url, "field")[...], FIELD)
    # Copies on disk, too.
    for options in ({"snapshot": later}, {"snapshot": before.store.url[-20:]}, {}):
        store = hr.cached(path, directory=tmp_path / "cache", memory=0, storage_options=options)
        wanted = hr.open(path, "field", storage_options=options)[...]
        for _ in range(2):
            assert_same(hr.open_array(store, "field")[...], wanted)


def test_the_command_line_copies_the_files_of_a_repository(repository, tmp_path):
    def run(*arguments):
        command = [Path(sys.executable).parent / "headrace", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    path, copy = tmp_path / "repo", tmp_path / "copy"
    files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    assert run("ls", "-r", path).stdout.split() == files
    assert run("cp", path, copy).returncode == 0
    assert_all_same(copy, repository.readonly_session("main"))
    # Its arrays by its own scheme; not to where their chunks lie.
    arrays = tmp_path / "arrays"
    assert run("cp", f"icechunk://{path}", arrays).returncode == 0
    assert_same(hr.open(arrays, "field")[...], FIELD)
    for target in (path, tmp_path):
        refused = run("sync", "--delete", f"icechunk://{path}", target)
        assert refused.returncode == 1
        assert "within the other" in refused.stderr
    assert run("ls", "-r", path).stdout.split() == files


def test_many_manifests(tmp_path):
    splitting = icechunk.ManifestSplittingConfig.from_dict(
        {icechunk.ManifestSplitCondition.AnyArray(): {icechunk.ManifestSplitDimCondition.Any(): 3}}
    )
    repository = create(
        tmp_path / "repo",
        inline_chunk_threshold_bytes=0,
        manifest=icechunk.ManifestConfig(splitting=splitting),
    )
    session = repository.writable_session("main")
    root = zarr.create_group(session.store)
    for name in ("a", "b"):
        root.create_array(name, data=FIELD, chunks=(2, 3, 4))
    session.commit("first")
    session = repository.writable_session("main")
    zarr.open_group(session.store)["a"][4:9] = 1
    session.commit("second")
    assert len(list((tmp_path / "repo/manifests").iterdir())) > 4
    assert_all_same(tmp_path / "repo", repository.readonly_session("main"))


def test_virtual_chunks(tmp_path):
    (tmp_path / "data").mkdir()
    blob = tmp_path / "data/blob.bin"
    blob.write_bytes(b"head" + FIELD.tobytes())
    container = icechunk.VirtualChunkContainer(
        f"file://{tmp_path}/data/", icechunk.local_filesystem_store(str(tmp_path / "data"))
    )
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(container)
    leave = icechunk.containers_credentials({f"file://{tmp_path}/data/": LOCAL_FILES})
    repository = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "repo")), config, leave
    )
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array(
        "x", shape=FIELD.shape, chunks=(1, 12, 14), dtype="f4", compressors=None
    )
    step = FIELD[0].nbytes
    session.store.set_virtual_refs(
        "x",
        [
            icechunk.VirtualChunkSpec(
                [i, 0, 0],
                f"file://{blob}",
                4 + i * step,
                step,
                None,
                datetime.now(UTC) + timedelta(seconds=9),
            )
            for i in range(20)
        ],
        validate_containers=True,
    )
    session.commit("virtual")
    with pytest.raises(PermissionError, match="allow"):
        hr.open(tmp_path / "repo")["x"][...]
    allowed = {"allow": [f"file://{tmp_path}/data"]}
    assert_all_same(tmp_path / "repo", repository.readonly_session("main"), **allowed)
    os.utime(blob, (4e9, 4e9))
    with pytest.raises(OSError, match="changed since"):
        hr.open(tmp_path / "repo", storage_options=allowed)["x"][...]


def test_broken_files_are_corrupt(repository, tmp_path):
    snapshot = repository.lookup_branch("main")
    path = tmp_path / "repo/snapshots" / snapshot
    whole = path.read_bytes()
    for broken in (
        b"",
        whole[:30],
        whole[:-5],
        whole[:38] + b"\x00" + whole[39:],
        b"x" + whole[1:],
    ):
        path.write_bytes(broken)
        with pytest.raises(hr.CorruptError):
            hr.open(tmp_path / "repo")
    for version in (3, 255):
        path.write_bytes(whole[:36] + bytes([version]) + whole[37:])
        with pytest.raises(NotImplementedError):
            hr.open(tmp_path / "repo")


def test_locations_of_virtual_chunks_are_urls(tmp_path):
    """icechunk keeps "a b" as "a%20b"; a file of that name is another one."""
    folder = tmp_path / "data"
    folder.mkdir()
    names = ["plain", "a b", "a%20b", "p%41", "\xe9", "h#x", "q?x", "plus+", "50%"]
    container = f"file://{folder}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(container, icechunk.local_filesystem_store(str(folder)))
    )
    repository = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "repo")),
        config=config,
        authorize_virtual_chunk_access={container: LOCAL_FILES},
    )
    session = repository.writable_session("main")
    for i, name in enumerate(names):
        (folder / name).write_bytes(np.full(4, i, "i4").tobytes())
        zarr.create_array(
            session.store, name=str(i), shape=4, chunks=4, dtype="i4", compressors=None
        )
        session.store.set_virtual_ref(f"{i}/c/0", container + name, offset=0, length=16)
    session.commit("virtual")
    theirs = zarr.open_group(repository.readonly_session("main").store, mode="r")
    ours = hr.open(tmp_path / "repo", storage_options={"allow": str(folder)})
    compared = []
    for i, name in enumerate(names):
        try:
            wanted = theirs[str(i)][...]
        except (FileNotFoundError, icechunk.IcechunkError):
            continue  # "h#x" and "q?x", which end for icechunk at the sign
        assert_same(ours[str(i)][...], wanted)
        compared.append(name)
    assert {"plain", "a b", "a%20b", "\xe9", "plus+"} <= set(compared)
