"""Names that there are not: what was meant is said, and what there is."""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from cloud_servers import file_server
from headrace._suggest import did_you_mean, nearest
from headrace.loader import Loader
from helpers import python


@pytest.fixture
def weather(tmp_path):
    path = str(tmp_path / "weather.zarr")
    group = hr.create_group(path, attributes={"title": "test"})
    for name in ("t2m", "u10", "v10"):
        group.create_array(name, data=np.zeros((4, 6), "f4"), dimension_names=["time", "x"])
    return path


def test_the_nearest_name():
    assert nearest("ztsd", ["gzip", "zstd", "blosc"]) == "zstd"
    assert nearest("T2M", ["t2m", "u10"]) == "t2m"
    assert nearest("something", ["t2m", "u10"]) is None
    assert did_you_mean("q", ["a", "b"], "there are") == "; there are a, b"
    assert did_you_mean("q", []) == ""
    many = [f"long{i}" for i in range(12)]
    assert did_you_mean("q", many, "there are").endswith("long7 and 4 more")


def test_names_of_any_length_and_number():
    """Whoever wrote them chose them: they fill no screen, and nobody waits for what was meant."""
    message = did_you_mean("t2m", ["y" * 10**6, "x" * 10**6], "there are")
    assert message == f"; there are {'y' * 97}..., {'x' * 97}..."
    letters = sorted("tas_Amon_CNRM-CM6-1_historical_r1i1p1f2_gr_185001-201412" * 3)
    known = ["".join(letters[i % 160 :] + letters[: i % 160]) + str(i) for i in range(10_000)]
    begin = time.process_time()
    did_you_mean("".join(reversed(letters)), known, "there are")
    assert time.process_time() - begin < 5


def test_get_looks_at_no_other_member(weather, monkeypatch):
    """The message of a KeyError that nobody sees would."""
    looked = []
    monkeypatch.setattr(hr.Group, "_what_is_there", lambda self, name: looked.append(name) or "")
    group = hr.open_group(weather)
    assert group.get("t2n", 5) == 5
    assert group.get("") is None
    assert group.get("/t2m").shape == (4, 6)
    assert looked == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: hr.open(p)["t2n"], KeyError, "did you mean 't2m'"),
        (lambda p: hr.open(p)["quite other"], KeyError, "there are t2m, u10, v10"),
        (lambda p: hr.open(p, "t2n"), FileNotFoundError, "did you mean 't2m'"),
        (lambda p: hr.open(p + "/t2n"), FileNotFoundError, "did you mean 't2m'"),
        (lambda p: hr.open(p.replace("weather", "waether")), FileNotFoundError,
            r"did you mean 'weather\.zarr'"),
        (lambda p: hr.open_array(p, "t2n"), FileNotFoundError, "t2n"),
        (lambda p: hr.open(p).attrs["titel"], KeyError, "did you mean 'title'"),
        (lambda p: hr.open(p, mode="r+").attrs.pop("titel"), KeyError, "did you mean .title"),
        (lambda p: hr.open(p, modee="r"), TypeError, "unknown argument 'modee'.*'mode'"),
        (lambda p: hr.open(p, chunks=3), TypeError, "chunks: only for a mode that creates"),
        (lambda p: hr.open_group(p, modee="r"), TypeError, "unknown argument 'modee'.*'mode'"),
        (lambda p: hr.create_array(p, "y", shape=3, dtype="f4", compressor=None), TypeError,
            "unknown argument 'compressor'; did you mean 'compressors'"),
        (lambda p: hr.create_array(p, "y", shape=3, dtype="f4", compressors="ztsd"),
            NotImplementedError, "did you mean 'zstd'"),
        (lambda p: hr.create_array(p, "y", shape=3, dtype="f4",
            compressors={"name": "ztsd"}), NotImplementedError, "did you mean 'zstd'"),
        (lambda p: hr.create_array(p, "y", shape=3, dtype="flot32"), ValueError,
            "dtype: .*did you mean 'float32'"),
        (lambda p: hr.create_array(p, "y", shape=3, dtype="V0"), NotImplementedError, "dtype: "),
        (lambda p: hr.create_array(p, "y", shape=3, dtype=5), TypeError, "dtype: "),
        (lambda p: hr.codecs.Zstd(lvl=3), TypeError,
            r"Zstd\(\): unknown argument 'lvl'; did you mean 'level'"),
        (lambda p: Loader({"x": hr.open(p)["t2m"]}, sample_dim="tiem"), ValueError,
            "no variable has it; did you mean 'time'"),
        (lambda p: Loader(p, sample_dim="tiem"), ValueError, "'tiem'; did you mean 'time'"),
        (lambda p: hr.config.set(thread=3), ValueError, "did you mean 'threads'"),
        (lambda p: hr.codecs.Zstandard, AttributeError, "did you mean 'Zstd'"),
        (lambda p: hr.open_arrray, AttributeError, "did you mean 'open_array'"),
        (lambda p: hr.open(p)["t2m"].read(0, devise="cpu"), TypeError, "did you mean 'device'"),
        (lambda p: hr.open(p)["t2m"].read({"tiem": 0}), ValueError, "did you mean 'time'"),
        (lambda p: Loader(p, sample_dim="time", batchsize=3), TypeError,
            "Loader.*unknown argument 'batchsize'; did you mean 'batch_size'"),
        (lambda p: hr.advise(p + "/t2m", patch={"y": 2}), ValueError, "no dimension 'y'"),
        (lambda p: hr.advise(p), ValueError, "got a group; there are t2m, u10, v10"),
        (lambda p: hr.rechunk(p, p + "2", chunk=(1, 1), chunks=None), TypeError,
            "unknown argument 'chunk'"),
        (lambda p: hr.create_array(p, mode="w", shape=1, dtype="f4"), TypeError, "'mode'"),
    ],
)  # fmt: skip
def test_what_was_meant(weather, call, error, message):
    with pytest.raises(error, match=message):
        call(weather)


def test_a_hostile_name_reaches_no_terminal(tmp_path):
    group = hr.create_group(str(tmp_path / "h.zarr"))
    group.create_array("a\x1b[31mb", shape=1, dtype="f4")
    with pytest.raises(KeyError) as raised:
        group["a\x1b[31mc"]
    assert "\x1b" not in raised.value.args[0].partition(";")[2]


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    hr.save("~/mine.zarr", np.arange(3))
    assert (tmp_path / "mine.zarr/zarr.json").is_file()
    assert hr.load("~/mine.zarr").tolist() == [0, 1, 2]
    hr.copy("~/mine.zarr", "~/copy.zip")
    assert hr.load("~/copy.zip").tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="overlap"):
        hr.copy("~/mine.zarr", str(tmp_path / "mine.zarr"), overwrite=True)
    assert hr.doctor("~/mine.zarr")["good"]
    with hr.trace("~/trace.json"):
        hr.load("~/mine.zarr")
    assert (tmp_path / "trace.json").is_file()


def test_an_archive_with_the_folder_inside(tmp_path, weather):
    archive = str(tmp_path / "w.zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for folder, _, names in os.walk(weather):
            for name in names:
                path = os.path.join(folder, name)
                file.write(path, os.path.relpath(path, os.path.dirname(weather)))
    with pytest.raises(FileNotFoundError, match=r"pass path='weather\.zarr'"):
        hr.open(archive)
    assert list(hr.open(archive, "weather.zarr")) == ["t2m", "u10", "v10"]


def test_a_folder_of_stores_and_an_empty_one(tmp_path, weather):
    with pytest.raises(FileNotFoundError, match=r"the folder has 'weather\.zarr'"):
        hr.open(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"/empty: the folder is empty$"):
        hr.open(str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match=r"/empty: the folder is empty$"):
        hr.open_group(str(tmp_path / "empty"))
    (tmp_path / "empty/a.txt").touch()
    with pytest.raises(
        FileNotFoundError, match=r"no zarr\.json, \.zarray or \.zgroup, but a\.txt$"
    ):
        hr.open(str(tmp_path / "empty"))


@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zgroup", ".zmetadata", ".zattrs"])
def test_the_document_of_a_node(tmp_path, name):
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / name).write_text("{}")
    with pytest.raises(ValueError, match=rf"folder that it describes, {tmp_path}/x\.zarr$"):
        hr.open(str(tmp_path / "x.zarr" / name))


def test_handles_of_zarr_python(weather):
    group = zarr.open_group(weather, mode="r")
    assert list(hr.open(group)) == ["t2m", "u10", "v10"]
    array = hr.open(group["t2m"])
    assert (array.shape, array.path) == ((4, 6), "t2m")
    assert hr.open(group, "u10").path == "u10"
    assert hr.open_group(group.store_path).path == ""
    hr.open(zarr.open_array(weather, path="t2m", mode="r+"), mode="r+")[:] = 1
    assert hr.load(weather, "t2m").sum() == 24


def test_mappings(weather):
    fsspec = pytest.importorskip("fsspec")
    mapper = fsspec.get_mapper(weather)
    assert hr.open(mapper)["t2m"].shape == (4, 6)
    held = {key: mapper[key] for key in mapper}
    assert hr.open(held)["t2m"][:].shape == (4, 6)
    with pytest.raises(ValueError, match="a dict of bytes is read only"):
        hr.open(held, mode="r+")
    buffers = {}
    zarr.create_array(buffers, name="x", data=np.arange(4))
    assert hr.open(buffers, "x")[:].tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="store: expected a dict of"):
        hr.open({"a": 1})


def test_stores_of_other_libraries_are_named_by_what_they_are(tmp_path, weather):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/s22/x", b"")
    opened = zarr.storage.FsspecStore.from_url("memory://s22")
    with pytest.raises(FileNotFoundError) as raised:
        hr.open(opened)
    assert "0x" not in str(raised.value) and "<" not in str(raised.value)
    assert "#" not in str(raised.value)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: hr.open(""), ValueError, "^store: the path is empty$"),
        (lambda p: hr.create_group(p), ValueError, r"is there already: overwrite=True, or mode"),
        (lambda p: hr.rechunk(p + "/t2m", p + "2", chunks=(1, 2, 3)), ValueError,
            r"^chunks: expected 2 extents, got \(1, 2, 3\)$"),
        (lambda p: hr.open(p)["t2m"].with_implementations({"zstd": "x"}), ValueError,
            r"^\[with_implementations\] implementation of zstd: expected one of"),
        (lambda p: hr.open(p)["t2m"].read(implementations={"zsdt": "libzstd"}), ValueError,
            r'^t2m implementations: there is no codec "zsdt"$'),
        (lambda p: hr.rechunk(p + "/t2m", p + "2", chunks=(0, 2)), ValueError,
            r"^\[rechunk\] chunks: "),
        (lambda p: hr.save(p + "2", {"x": np.zeros(3)}), TypeError,
            r"^save: expected arrays, got dict: .* save\(store, \*\*arrays\)$"),
    ],
)  # fmt: skip
def test_messages_name_the_argument_once(weather, call, error, message):
    with pytest.raises(error, match=message):
        call(weather)


def test_a_broken_document_is_named_once(weather):
    for path in ("", "t2m/"):
        document = os.path.join(weather, path, "zarr.json")
        with open(document, "w") as file:
            file.write('{"zarr_format": 3}')
        with pytest.raises(hr.CorruptError) as raised:
            hr.open(weather, path)
        assert str(raised.value).count("zarr.json") == 1, raised.value


@pytest.fixture
def served(tmp_path):
    """A folder and its URL; which paths were asked for, and which get what status."""
    asked, refused = [], {}

    def look(request):
        asked.append(request.path)
        return refused.get(request.path)

    with file_server(tmp_path, look) as url:
        yield tmp_path, url, asked, refused


def command(*args):
    words = [Path(sys.executable).parent / "headrace", "info", *args]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, (done.stdout, done.stderr)
    return done.stderr


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_a_web_server_has_by_consolidated_metadata(served, zarr_format):
    folder, url, asked, _ = served
    root = zarr.open_group(folder / "d.zarr", mode="w", zarr_format=zarr_format)
    for name in ("temp", "u10", "deep/t2m", "deep/v10"):
        root.create_array(name, shape=3, dtype="f4")
    zarr.consolidate_metadata(folder / "d.zarr", zarr_format=zarr_format)
    place = f"{url}/d.zarr"
    for open_ in (hr.open, hr.open_array, hr.open_group):
        asked.clear()
        with pytest.raises(FileNotFoundError, match=r"404 .* and \.zgroup; did you mean 'temp'\?$"):
            open_(place, "tempp")
        documents = [f"/d.zarr/tempp/{name}" for name in ("zarr.json", ".zarray", ".zgroup")]
        hint = ["/d.zarr/zarr.json", "/d.zarr/.zmetadata"][: 4 - zarr_format]
        assert [path for path in asked if "/tempp/" not in path] == hint
        assert {path for path in asked if "/tempp/" in path} == set(documents)
        with pytest.raises(FileNotFoundError, match=r"; did you mean 't2m'\?$"):
            open_(place, "deep/t2n")
        with pytest.raises(FileNotFoundError, match=r"; there are deep, temp, u10$"):
            open_(place, "other")
        with pytest.raises(FileNotFoundError, match=r"; did you mean 'temp'\?$"):
            open_(f"{place}/tempp")
        with pytest.raises(FileNotFoundError, match=r"by its folder, not by its document$"):
            open_(place, "zarr.json")
    for words in ([place, "tempp"], [f"{place}/tempp"]):
        assert command(*words).endswith(".zarray and .zgroup; did you mean temp?\n")
    assert command(place, "deep/t2n").endswith("; did you mean t2m?\n")
    # Of one that is there nothing else is asked, and another kind is no other name.
    asked.clear()
    hr.open_array(place, "temp")
    assert not [path for path in asked if "/temp/" not in path]
    with pytest.raises(FileNotFoundError, match=r"it is a group$"):
        hr.open_array(place, "deep")
    shutil.rmtree(folder / "d.zarr/temp")
    with pytest.raises(FileNotFoundError, match=r"\.zarray and \.zgroup$"):
        hr.open(place, "temp")


@pytest.mark.parametrize("what", ["none", "array", "malformed", 403, 404, 503])
def test_a_hint_that_fails_hides_no_error(served, what):
    folder, url, _, refused = served
    document = folder / "d.zarr/zarr.json"
    hr.create_group(folder / "d.zarr")
    if what == "array":
        hr.create_array(folder / "d.zarr", shape=3, dtype="f4", overwrite=True)
    elif what == "malformed":
        document.write_text(document.read_text()[:-3] + ', "consolidated_metadata": {"metadata": 1')
    elif what != "none":
        refused["/d.zarr/zarr.json"] = what
    for place in ((f"{url}/d.zarr", "tempp"), (f"{url}/d.zarr/tempp",)):
        for open_ in (hr.open, hr.open_array, hr.open_group):
            with pytest.raises(FileNotFoundError, match=r"\.zarray and \.zgroup$"):
                before = time.monotonic()
                open_(*place)
            assert time.monotonic() - before < 5  # nothing is asked for again
        assert command(*place).endswith(".zarray and .zgroup\n")


@pytest.mark.parametrize("call", [hr.open, hr.open_array, hr.open_group])
@pytest.mark.parametrize("arguments", [(), ("gone",), (2, "gone", "/a/b")])
def test_what_a_store_raises_itself_stays_as_it_is(call, arguments):
    raised = FileNotFoundError(*arguments)

    class Failing(zarr.storage.MemoryStore):
        async def get(self, *args, **kwargs):
            raise raised

        exists = getsize = get

    with pytest.raises(FileNotFoundError) as caught:
        call(Failing(), "x", mode="r")
    error = caught.value
    assert (error.args, error.filename) == (raised.args, raised.filename)


def test_submodules_come_when_they_are_asked_for():
    code = """
import sys
import headrace as hr
assert "headrace.loader" not in sys.modules
assert hr.loader.Loader and hr.shm.Arena and hr.errors.CorruptError
assert hr.codecs.Zstd and hr.config.get and hr.lazy.LazyArray
try:
    hr.torch
except AttributeError as error:
    assert "pip install 'headrace[torch]'" in str(error), error
else:
    assert hr.torch.load_state_dict
print("good")
"""
    assert python(code).strip() == "good"


def test_a_library_that_is_not_there_is_named():
    code = """
import sys
sys.modules["jax"] = None
import headrace as hr
assert not hasattr(hr, "jax")
try:
    hr.jax
except AttributeError as error:
    print(error)
"""
    assert python(code).strip() == (
        "headrace.jax needs jax, which is not installed (pip install 'headrace[jax]')"
    )


def test_python_dash_m():
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"headrace {hr.__version__}\n"), done.stderr
