"""Collects what one writer wrote: stores into archives, expectations into a manifest and an .npz.

The .npz keeps the native bytes of each expected array in C order under their sha256.
"""

import hashlib
import json
import shutil
import tempfile
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent.parent
FIXED_DATE = (2020, 1, 1, 0, 0, 0)


def native(expected):
    expected = np.ascontiguousarray(expected).reshape(np.shape(expected))
    return expected.astype(expected.dtype.newbyteorder("="), copy=False)


def dtype_spec(dtype):
    """A dtype as JSON: a string of NumPy, a name of ml_dtypes, or the list of fields."""
    if dtype.fields:
        return json.loads(json.dumps(np.lib.format.dtype_to_descr(dtype)))
    return dtype.name if dtype.type.__module__ == "ml_dtypes" else dtype.str


class Golden:
    def __init__(self, writer, versions):
        self.writer = writer
        self.versions = versions
        self.work = Path(tempfile.mkdtemp())
        self.entries = []
        self.expected = {}
        self.stores = {}

    def folder(self, name):
        """A path to write a folder store to; it becomes stores/<writer>-<name>.zip."""
        self.stores[name] = "folder"
        return str(self.work / name)

    def zip(self, name):
        """A path where the writer itself makes a zip store, to be read as it is."""
        self.stores[name] = "zip"
        return str(self.work / f"{name}.zip")

    def add(
        self, store, path, expected, *, zarr_format, chunks, features=(), optional=False, **more
    ):
        """Expect the array at `path` of `store`.

        optional: a reader may raise NotImplementedError instead of returning the values.
        more: chunks, shards, attributes, dimension_names, raises: further expectations.
        """
        expected = native(expected)
        entry = {
            "store": store,
            "path": path,
            "zarr_format": zarr_format,
            "shape": list(expected.shape),
            "dtype": dtype_spec(expected.dtype),
            "chunks": chunks and list(chunks),
            "sha256": hashlib.sha256(expected.tobytes()).hexdigest(),
            "features": list(features),
        }
        if optional:
            entry["optional"] = True
        entry.update(more)
        self.entries.append(entry)
        self.expected[entry["sha256"]] = np.frombuffer(expected.tobytes(), np.uint8)

    def refuse(self, store, path, *, zarr_format, raises, features=(), items=None):
        """Expect the named error; a reader may return `items`, a flat list, where one is given."""
        entry = {"store": store, "path": path, "zarr_format": zarr_format, "raises": raises}
        self.entries.append({**entry, "items": items, "features": list(features)})

    def close(self):
        for sub in ("stores", "expected", "manifest"):
            (HERE / sub).mkdir(exist_ok=True)
        for old in (HERE / "stores").glob(f"{self.writer}-*.zip"):
            old.unlink()
        for name, kind in self.stores.items():
            target = HERE / "stores" / f"{self.writer}-{name}.zip"
            if kind == "zip":
                shutil.copy(self.work / f"{name}.zip", target)
            else:
                pack(self.work / name, target)
        write_npz(HERE / "expected" / f"{self.writer}.npz", self.expected)
        manifest = {
            "writer": self.writer,
            "versions": self.versions,
            "stores": {name: {"kind": kind} for name, kind in self.stores.items()},
            "arrays": self.entries,
        }
        text = json.dumps(manifest, indent=1, ensure_ascii=True)
        (HERE / "manifest" / f"{self.writer}.json").write_text(compact(text) + "\n")
        shutil.rmtree(self.work)
        size = sum(p.stat().st_size for p in HERE.rglob("*") if p.is_file())
        print(f"{self.writer}: {len(self.entries)} arrays, golden tree now {size / 1e6:.2f} MB")


def compact(text):
    """One array entry a line."""
    data = json.loads(text)
    arrays = ",\n  ".join(json.dumps(entry) for entry in data.pop("arrays"))
    head = json.dumps(data, indent=1)[:-2]
    return head + ',\n "arrays": [\n  ' + arrays + "\n ]\n}"


def pack(folder, target):
    """A zip that comes out the same for the same tree."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), FIXED_DATE)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, path.read_bytes())


def write_npz(target, arrays):
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "x.npy"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in sorted(arrays):
                np.save(path, arrays[name], allow_pickle=False)
                info = zipfile.ZipInfo(f"{name}.npy", FIXED_DATE)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, path.read_bytes())
