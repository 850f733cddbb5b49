"""References of kerchunk and VirtualiZarr, read natively.

What they lead to was written by h5py and netCDF4, and what comes out is compared with what these
read, or with what fsspec finds by the same references.
"""

import base64
import json
import pickle
import subprocess
import sysconfig
import warnings
import zlib
from pathlib import Path

import cloud_servers
import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import assert_same

RANDOM = np.random.default_rng(7)
FIELD = np.round(RANDOM.normal(size=(30, 17, 23)), 2).astype("f4")


def opened(path, **options):
    return hr.open(f"reference://{path}", storage_options=options)


@pytest.fixture
def netcdf(tmp_path):
    """A file with the filters that NetCDF4 has, and its references by kerchunk."""
    netCDF4 = pytest.importorskip("netCDF4")
    kerchunk_hdf = pytest.importorskip("kerchunk.hdf")
    path = tmp_path / "field.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", None), ("y", 17), ("x", 23)):
            file.createDimension(name, size)
        kinds = {
            "zlib": {"zlib": True, "shuffle": False},
            "shuffled": {"zlib": True, "complevel": 5},
            "checked": {"zlib": True, "fletcher32": True},
            "only_checked": {"fletcher32": True},
            "plain": {},
        }
        for name, filters in kinds.items():
            variable = file.createVariable(
                name, "f4", ("time", "y", "x"), chunksizes=(4, 9, 23), **filters
            )
            variable[:] = FIELD
        file.createVariable("count", "i8", ("time",), zlib=True)[:] = np.arange(30)
        file.createVariable("contiguous", ">i2", ("y", "x"), endian="big")[:] = np.arange(
            17 * 23
        ).reshape(17, 23)
    # It leaves out what has checksums of HDF5, and says so.
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refs = kerchunk_hdf.SingleHdf5ToZarr(file, str(path), inline_threshold=0).translate()
    return path, refs


def virtual_references(path, target, **options):
    virtualizarr = pytest.importorskip("virtualizarr")
    registry = pytest.importorskip("obspec_utils.registry")
    obstore = pytest.importorskip("obstore")
    stores = registry.ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with virtualizarr.open_virtual_dataset(
            f"file://{path}", registry=stores, parser=virtualizarr.parsers.HDFParser()
        ) as virtual:
            virtual.vz.to_kerchunk(str(target), **options)


def test_netcdf_by_kerchunk(netcdf, tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    path, refs = netcdf
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    group = opened(tmp_path / "refs.json")
    names = {"zlib", "shuffled", "plain", "count", "contiguous"}
    with netCDF4.Dataset(path) as file:
        for name in names:
            wanted = file[name][...].data
            assert_same(group[name][...], wanted)
            assert_same(hr.open_array(group.store, name, device="simt")[...].to_numpy(), wanted)
        assert_same(group["zlib"][5:29:3, 3:12, 7], file["zlib"][5:29:3, 3:12, 7].data)
    assert names <= set(group)


def test_the_same_as_fsspec(netcdf, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    _, refs = netcdf
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    theirs = fsspec.filesystem("reference", fo=str(tmp_path / "refs.json"))
    store = hr.open_store(f"reference://{tmp_path / 'refs.json'}")
    keys = store._list("")
    assert keys == sorted(theirs.find(""))
    for key in keys:
        assert bytes(store._get(key)) == theirs.cat(key), key


def test_compressed_json(netcdf, tmp_path):
    numcodecs = pytest.importorskip("numcodecs")
    _, refs = netcdf
    packed = numcodecs.Zstd().encode(json.dumps(refs).encode())
    (tmp_path / "refs.json.zst").write_bytes(packed)
    assert_same(opened(tmp_path / "refs.json.zst")["zlib"][...], FIELD)


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_virtualizarr(netcdf, tmp_path, kind):
    xr = pytest.importorskip("xarray")
    if kind == "parquet":
        pytest.importorskip("fastparquet")
    path, _ = netcdf
    virtual_references(path, tmp_path / "refs", format=kind)
    group = opened(tmp_path / "refs")
    with xr.open_dataset(path, engine="netcdf4", decode_cf=False) as file:
        for name in ("zlib", "shuffled", "checked", "only_checked", "plain", "count", "contiguous"):
            wanted = file[name].values
            assert_same(group[name][...], wanted)
            assert_same(hr.open_array(group.store, name, device="simt")[...].to_numpy(), wanted)
    assert set(group) == {
        "zlib",
        "shuffled",
        "checked",
        "only_checked",
        "plain",
        "count",
        "contiguous",
    }
    keys = group.store._list("checked/")
    assert len(keys) == len(set(keys)) == 2 + 8 * 2 * 1


def test_inline_templates_and_generators(tmp_path):
    (tmp_path / "data.bin").write_bytes(np.arange(12, dtype="<i4").tobytes())
    zarray = {"zarr_format": 2, "shape": [16], "chunks": [2], "dtype": "<i4", "order": "C"}
    unset = {"compressor": None, "filters": None, "fill_value": -1}
    inline = base64.b64encode(np.array([-5, -6], "<i4").tobytes()).decode()
    refs = {
        "version": 1,
        "templates": {"f": "{{name}}.bin"},
        "gen": [
            {
                "key": "x/{{i}}",
                "url": "{{f(name='data')}}",
                "offset": "{{i * 8}}",
                "length": "8",
                "dimensions": {"i": {"stop": 5}},
            }
        ],
        "refs": {
            "x/.zarray": zarray | unset,
            "x/5": ["{{f(name='data')}}", 40, 8],
            "x/6": "base64:" + inline,
        },
    }
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    array = hr.open_array(f"reference://{tmp_path / 'refs.json'}", "x")
    assert_same(array[...], np.array([*range(12), -5, -6, -1, -1], "i4"))


def test_shards_of_a_zarr_store_by_references(tmp_path):
    array = zarr.create_array(tmp_path / "a.zarr", data=FIELD, chunks=(3, 9, 8), shards=(6, 9, 24))
    files = [path for path in (tmp_path / "a.zarr").rglob("*") if path.is_file()]
    blob, refs = b"", {}
    for path in files:
        key = "x/" + path.relative_to(tmp_path / "a.zarr").as_posix()
        refs[key] = ["blob.bin", len(blob), path.stat().st_size]
        blob += path.read_bytes()
    (tmp_path / "blob.bin").write_bytes(blob)
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    got = hr.open_array(f"reference://{tmp_path / 'refs.json'}", "x")
    assert_same(got[...], array[...])
    assert_same(got[2:28:5, 3:11, 4], FIELD[2:28:5, 3:11, 4])


def test_what_lies_elsewhere_needs_leave(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"\x01\x02")
    folder = tmp_path / "data"
    folder.mkdir()
    zarray = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|u1", "order": "C"}
    unset = {"compressor": None, "filters": None, "fill_value": 0}
    refs = {".zgroup": {"zarr_format": 2}, "x/.zarray": zarray | unset, "x/0": [str(secret), 0, 2]}
    (folder / "refs.json").write_text(json.dumps(refs))
    with pytest.raises(PermissionError, match="allow"):
        opened(folder / "refs.json")["x"][...]
    for allow in (str(tmp_path), [f"file://{tmp_path}"], "*"):
        assert_same(opened(folder / "refs.json", allow=allow)["x"][...], np.array([1, 2], "u1"))
    # Of references that come with the call all is allowed that is said to be, and no more.
    array = hr.open_array("reference://", "x", storage_options={"fo": refs, "allow": str(secret)})
    assert_same(array[...], np.array([1, 2], "u1"))


def test_processes_open_it_by_its_name(netcdf, tmp_path):
    _, refs = netcdf
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    array = opened(tmp_path / "refs.json")["zlib"]
    assert_same(pickle.loads(pickle.dumps(array))[3:5], FIELD[3:5])


def test_the_command_line(netcdf, tmp_path):
    _, refs = netcdf
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    command = Path(sysconfig.get_path("scripts")) / "headrace"
    run = subprocess.run(
        [command, "info", f"reference://{tmp_path / 'refs.json'}"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "shuffled" in run.stdout


class OneObject(cloud_servers.ObjectHandler):
    def do_GET(self):
        self.server.asked.append(self.headers.get("Range"))
        self.answer_object(
            self.server.objects["data"], {"ETag": '"1"'}, self.headers.get("Range"), True
        )

    do_HEAD = do_GET


def test_a_reference_beyond_the_end_fails_alone(tmp_path):
    data = np.arange(40, dtype="u1")
    document = {
        "zarr_format": 2,
        "shape": [50],
        "chunks": [10],
        "dtype": "|u1",
        "compressor": {"id": "zlib", "level": 1},
        "filters": None,
        "fill_value": 0,
        "order": "C",
    }
    chunks = [zlib.compress(bytes(data[i : i + 10])) for i in range(0, 40, 10)]
    with cloud_servers.fake_server(OneObject) as (server, url):
        server.asked = []
        server.objects["data"] = b"".join(chunks)
        refs, at = {".zarray": json.dumps(document)}, 0
        for i, chunk in enumerate(chunks):
            refs[str(i)] = [f"{url}/data", at, len(chunk)]
            at += len(chunk)
        refs["4"] = [f"{url}/data", at - 3, 20]  # the object was cut
        (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
        options = {"allow": f"{url}/"}
        array = hr.open(f"reference://{tmp_path}/refs.json", storage_options=options)
        with pytest.raises(hr.CorruptError, match="chunk 4"):
            array[...]
        assert len([asked for asked in server.asked if asked]) == 1
        assert_same(array[:40], data)


@pytest.mark.parametrize("first", [slice(10, 13), slice(None)])
def test_copies_are_of_the_references_as_they_are(tmp_path, first):
    count = 1 << 18
    data = np.arange(2 * count, dtype="<i4")
    document = {
        "zarr_format": 2,
        "shape": [count],
        "chunks": [count],
        "dtype": "<i4",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
        "order": "C",
    }
    with cloud_servers.fake_server(OneObject) as (server, url):
        server.asked = []
        server.objects["data"] = data.tobytes()

        def array(begin):
            refs = {".zarray": json.dumps(document), "0": [f"{url}/data", 4 * begin, 4 * count]}
            (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
            store = hr.cached(
                f"reference://{tmp_path}/refs.json",
                directory=tmp_path / "copies",
                storage_options={"allow": f"{url}/"},
            )
            return hr.open_array(store)

        assert_same(array(0)[first], data[:count][first])
        assert_same(array(count)[:], data[count:])
        asked = len(server.asked)
        assert_same(array(count)[:], data[count:])
        assert len(server.asked) == asked


def test_virtualizarr_makes_references(netcdf, tmp_path):
    for module in ("virtualizarr", "obspec_utils.registry", "obstore"):
        pytest.importorskip(module)
    netCDF4 = pytest.importorskip("netCDF4")
    path, _ = netcdf
    store = hr.references(path, maker="virtualizarr", out=tmp_path / "refs.json")
    moved = opened(tmp_path / "refs.json")
    with netCDF4.Dataset(path) as file:
        for group in (hr.open(store), moved):
            for name in ("zlib", "shuffled", "checked", "plain", "count", "contiguous"):
                assert_same(group[name][...], file[name][...].data)
    assert "file://" not in (tmp_path / "refs.json").read_text()


def test_virtualizarr_reads_across_a_network_by_options_of_obstore(netcdf):
    """Which fsspec and the store that reads the chunks do not know by these names."""
    for module in ("virtualizarr", "obspec_utils.registry", "obstore"):
        pytest.importorskip(module)
    options = {"client_options": {"allow_http": True, "timeout": "30s"}}
    with cloud_servers.fake_server(OneObject) as (server, url):
        server.asked = []
        server.objects["data"] = Path(netcdf[0]).read_bytes()
        store = hr.references(f"{url}/a.nc", maker="virtualizarr", storage_options=options)
        assert_same(hr.open(store)["zlib"][...], hr.open(hr.references(netcdf[0]))["zlib"][...])
        with pytest.raises(NotImplementedError, match="no URL with a query"):
            hr.references(f"{url}/a.nc?b", maker="virtualizarr", storage_options=options)


@pytest.mark.parametrize("mark", "#?")
def test_virtualizarr_reads_no_other_file_than_is_asked_for(netcdf, tmp_path, mark):
    """It takes what is before the mark for the name."""
    for module in ("virtualizarr", "obspec_utils.registry", "obstore"):
        pytest.importorskip(module)
    content = Path(netcdf[0]).read_bytes()
    for name in ("a", f"a{mark}b.nc"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(NotImplementedError, match="VirtualiZarr reads no name with"):
        hr.references(tmp_path / f"a{mark}b.nc", maker="virtualizarr")


def test_virtualizarr_reads_what_nobody_else_does(netcdf, tmp_path):
    for module in ("virtualizarr", "obspec_utils.registry", "obstore"):
        pytest.importorskip(module)
    data = np.arange(24, dtype="<f4").reshape(4, 6)
    (tmp_path / "a.nc").write_bytes(b"head" + data.tobytes())
    (tmp_path / "a.nc.dmrpp").write_text(
        """<?xml version="1.0" encoding="ISO-8859-1"?>
<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#"
  xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" dapVersion="4.0" name="a.nc"
  dmrpp:href="a.nc">
  <Dimension name="y" size="4"/><Dimension name="x" size="6"/>
  <Float32 name="t"><Dim name="/y"/><Dim name="/x"/>
    <dmrpp:chunks byteOrder="LE">
      <dmrpp:chunk offset="4" nBytes="96"/>
    </dmrpp:chunks>
  </Float32>
</Dataset>
"""
    )
    store = hr.references(tmp_path / "a.nc.dmrpp", allow=tmp_path / "a.nc")
    assert_same(hr.open(store)["t"][...], data)


def test_a_maker_that_is_not_there(netcdf, monkeypatch):
    path, _ = netcdf
    with pytest.raises(ValueError, match="maker"):
        hr.references(path, maker="somebody")
    monkeypatch.setitem(__import__("sys").modules, "virtualizarr", None)
    with pytest.raises(NotImplementedError, match="pip install virtualizarr"):
        hr.references(path, maker="virtualizarr")
