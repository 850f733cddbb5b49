"""Zip archives appear when they are closed, whole; what raised or was forgotten leaves the old."""

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from forking import fork

COMMAND = Path(sys.executable).parent / "headrace"


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "a.zip"
    hr.save(path, np.full(4, 7))
    return path


def assert_old(path):
    gc.collect()
    assert list(hr.load(path)) == [7, 7, 7, 7]
    assert os.listdir(path.parent) == [path.name]


def by_store(path):
    store = hr.open_store(path, mode="w")
    return store, hr.create_array(store, shape=4, dtype="i8", chunks=1)


def by_group(make):
    def form(path):
        group = make(path)
        return group, group.create_array("x", shape=4, dtype="i8", chunks=1)

    return form


def by_array(make):
    def form(path):
        array = make(path, shape=4, dtype="i8", chunks=1)
        return array, array

    return form


# What users hold while they write, and the array to write to.
FORMS = {
    "store": by_store,
    "open": by_group(lambda path: hr.open(path, mode="w")),
    "open_group": by_group(lambda path: hr.open_group(str(path), mode="w")),
    "create_group": by_group(lambda path: hr.create_group(path, overwrite=True)),
    "open_array": by_array(lambda path, **kwargs: hr.open(path, mode="w", **kwargs)),
    "create_array": by_array(
        lambda path, **kwargs: hr.create_array(path, overwrite=True, **kwargs)
    ),
}


@pytest.fixture(params=list(FORMS))
def form(request):
    return FORMS[request.param]


def test_a_block_that_raises_keeps_the_old_archive(archive, form):
    handle, array = form(archive)
    with pytest.raises(ZeroDivisionError), handle:
        array[:2] = 1
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="closed"):
        array[2:] = 1
    array.store.close()
    assert_old(archive)


def test_a_block_that_ends_publishes(archive, form):
    handle, array = form(archive)
    with handle as entered:
        assert entered is handle
        array[:] = 3
    loaded = hr.load(archive)
    assert list(loaded["x"] if isinstance(loaded, dict) else loaded) == [3] * 4
    handle.close()


def test_what_nobody_closes_is_discarded_with_a_warning(archive, form):
    handle, array = form(archive)
    array[:2] = 1
    with pytest.warns(ResourceWarning, match=r"a\.zip was never closed"):
        del handle, array
        gc.collect()
    assert_old(archive)


def test_close_publishes_and_discard_does_not(archive):
    group = hr.open(archive, mode="w")
    group.create_array("x", shape=1, dtype="i8")[:] = 5
    group.store.discard()
    group.close()
    assert_old(archive)
    group = hr.open(archive, mode="w")
    group.create_array("x", shape=1, dtype="i8")[:] = 5
    group.close()
    group.store.discard()
    assert list(hr.load(archive)["x"]) == [5]


def test_calls_that_fail_discard_what_they_began(archive, monkeypatch):
    class Fails:
        def __array__(self, *_args, **_kwargs):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hr.save(archive, one=np.ones(3), two=Fails())
    assert_old(archive)
    source = hr.create_array("memory://archives", shape=4, dtype="i8", chunks=1)
    source[:] = 3
    chunk = source.store._get("c/2")
    source.store._set("c/2", chunk[: len(chunk) // 2])
    for call in (hr.copy, lambda *a, **k: hr.rechunk(*a, chunks=(2,), **k)):
        with pytest.raises(hr.CorruptError):
            call(source, archive, overwrite=True)
        assert_old(archive)
    for wrong in ({"shape": -1}, {"shape": 4, "chunks": 0}, {"shape": 4, "fill_value": "x"}):
        with pytest.raises((ValueError, TypeError)):
            hr.create_array(archive, overwrite=True, dtype="i8", **wrong)
        with pytest.raises((ValueError, TypeError)):
            hr.open(archive, mode="w", dtype="i8", **wrong)
        assert_old(archive)
    new = archive.with_name("new.zip")
    with pytest.raises(FileNotFoundError):
        hr.open_array(new, mode="a")
    assert_old(archive)


def test_the_command_discards_what_it_began(archive, tmp_path):
    source = hr.create_array(str(tmp_path / "s.zarr"), shape=4, dtype="i8", chunks=1)
    source[:] = 3
    path = tmp_path / "s.zarr" / "c" / "2"
    path.write_bytes(path.read_bytes()[:5])
    for command in (["rechunk", "--chunks", "2"], ["convert"]):
        run = subprocess.run(
            [COMMAND, *command, "--overwrite", tmp_path / "s.zarr", archive],
            capture_output=True,
            check=False,
        )
        assert run.returncode == 1
        assert list(hr.load(archive)) == [7, 7, 7, 7]


def test_zarr_store(tmp_path):
    zarr = pytest.importorskip("zarr")
    from headrace import zarr as hz

    path = tmp_path / "z.zip"
    with hz.Store(path) as store:
        zarr.create_array(store, data=np.arange(3), name="x")
    assert list(hr.load(path)["x"] if isinstance(hr.load(path), dict) else []) == [0, 1, 2]
    other = tmp_path / "other.zip"
    with pytest.raises(ZeroDivisionError), hz.Store(other) as store:
        zarr.create_array(store, data=np.arange(3), name="x")
        raise ZeroDivisionError
    assert not other.exists()
    with hr.open_store(other, mode="w") as handle:
        with hz.Store(handle) as store:  # its owner closes it
            zarr.create_group(store)
        zarr.create_array(hz.Store(handle), data=np.arange(3), name="x")
    assert list(hr.load(other)["x"]) == [0, 1, 2]


def test_a_child_never_publishes(archive):
    group = hr.open(archive, mode="w")
    array = group.create_array("x", shape=1, dtype="i8")
    array[:] = 5

    child = fork()
    if child == 0:
        status = 1
        try:
            group.close()
        except ValueError as error:
            status = 0 if "its parent" in str(error) else 2
        finally:
            group.store.discard()
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert list(hr.load(archive)) == [7, 7, 7, 7]
    group.close()
    assert list(hr.load(archive)["x"]) == [5]


def run_python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_end_of_the_program_warns(archive):
    run = run_python(
        """
        import sys, headrace as hr
        root = hr.open(sys.argv[1], mode="w")
        root.create_array("x", shape=1, dtype="i8")[:] = 5
        """,
        str(archive),
    )
    assert run.returncode == 0
    assert "ResourceWarning" in run.stderr
    assert "a.zip was never closed" in run.stderr
    assert_old(archive)


def test_warnings_that_are_errors_abort_nothing(archive):
    run = run_python(
        """
        import sys, warnings, headrace as hr
        warnings.simplefilter("error")
        root = hr.open(sys.argv[1], mode="w")
        del root
        print("goes on")
        """,
        str(archive),
    )
    assert run.returncode == 0
    assert "goes on" in run.stdout
    assert "ResourceWarning" in run.stderr
    assert_old(archive)


@pytest.mark.parametrize("fsync", ["none", "metadata", "all", True, False])
def test_ways_to_say_what_is_synced(tmp_path, fsync):
    for name in ("a.zarr", "a.zip"):
        options = {"fsync": fsync}
        with hr.open_store(tmp_path / name, mode="w", storage_options=options) as store:
            hr.create_array(store, shape=2, dtype="i8")[:] = 1
            store.sync()
        assert list(hr.load(tmp_path / name)) == [1, 1]
    with pytest.raises(ValueError, match="fsync"):
        hr.open_store(tmp_path / "b.zarr", mode="w", storage_options={"fsync": "some"})


def test_a_node_of_an_archive_by_its_url(tmp_path):
    for name, value in (("a b.zip", 1), ("p%41.zip", 2), ("pA.zip", 3)):
        hr.save(tmp_path / name, x=np.full(3, value))
        url = hr.open(tmp_path / name).store.url
        for place in (url, url.replace("zip://", "file://"), str(tmp_path / name)):
            assert list(hr.open(place)["x"]) == list(hr.open(f"{place}/x")) == [value] * 3


@pytest.mark.parametrize(
    "url", ["zip://http://me:secret@host/a.zip", "zip://a.zarr::https://host/a.zip"]
)
def test_an_archive_across_a_network_is_refused(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    for call in (
        hr.open,
        lambda place: hr.open(place, mode="w"),
        lambda place: hr.save(place, [1]),
    ):
        with pytest.raises(ValueError, match="an archive is a file") as told:
            call(url)
        assert "secret" not in str(told.value)
    assert not list(tmp_path.iterdir())
