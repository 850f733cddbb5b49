"""Values of wrong types for arguments of public functions, and what an error has to say of them."""

import pickle
import re

import headrace as hr
import numpy as np
import pytest


class Thing:
    """Of no type that anything takes."""


WRONG = {
    "none": None,
    "bool": True,
    "int": 7,
    "negative": -7,
    "huge": 1 << 80,
    "float": 2.5,
    "nan": float("nan"),
    "text": "nonsense",
    "surrogate": "\udcff",
    "empty": "",
    "bytes": b"bytes",
    "list": [1, "x"],
    "nested": [[None]],
    "dict": {1: 2},
    "names": {"a": "b"},
    "class": int,
    "thing": Thing(),
    "array": np.zeros((2, 2)),
    "objects": np.array([None, "x"], object),
    "slice": slice("a", None),
}

# What a public function may raise for a wrong argument.
GOOD = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    OSError,
    NotImplementedError,
    OverflowError,
    MemoryError,
    AttributeError,
    BufferError,
    pickle.PicklingError,
    hr.DeviceError,
    ImportError,
)
BAD_WORDS = re.compile(
    r"bad_cast|incompatible function arguments|incompatible constructor arguments|nb::|nanobind|"
    r"unknown error|object has no attribute|object is not (subscriptable|iterable)|"
    r"unhashable type"
)
# What Python and NumPy say, and the last resort of the library, which name no argument.
UNNAMED = re.compile(
    r"could not convert|float\(\) argument|The truth value|an argument is of a type|"
    r"'\w+' object|'<=' not|dictionary update|only integer|only 0-dim|"
    r"no data type|NumPy type|expected str, bytes or os\.PathLike|codec: |ufunc "
)


class Place:
    """A store with an array and a group, made anew for each call that may change it."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0

    def new(self):
        self.count += 1
        return str(self.folder / f"{self.count}.zarr")

    def cells(self):
        """An AnnData store of a dense matrix."""
        path = self.new()
        root = hr.create_group(path, attributes={"encoding-type": "anndata"})
        hr.create_array(path, "X", shape=(6, 4), dtype="f4", chunks=(2, 4))[:] = 1
        frame = {"encoding-type": "dataframe", "_index": "_index"}
        for name, rows in (("obs", 6), ("var", 4)):
            hr.create_group(path, name, attributes=frame)
            names = hr.create_array(root[name], "_index", shape=rows, dtype=str, chunks=8)
            names[:] = [str(row) for row in range(rows)]
        return path

    def group(self):
        group = hr.create_group(self.new())
        group.create_array("x", shape=(6, 4), dtype="f4", chunks=(2, 4))[:] = 1
        return group

    def array(self):
        return self.group()["x"]

    def hdf5(self):
        h5py = pytest.importorskip("h5py")
        path = f"{self.new()}.h5"
        self.folder.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            file["x"] = np.ones(3, "f4")
        return path


def complaint(error, name):
    """What is wrong with an error; None for a good one."""
    text = str(error)
    if not isinstance(error, GOOD) or type(error) is AttributeError:
        return "its class"
    if BAD_WORDS.search(text) or (UNNAMED.match(text) and name not in text):
        return "its words"
    return None


def complaints(make, place):
    """What is wrong with the errors of a call that gets each wrong value for each argument."""
    function, arguments = make(place)
    function(**arguments)  # is good
    found = []
    for name in arguments:
        for kind, value in WRONG.items():
            function, arguments = make(place)
            try:
                function(**{**arguments, name: value})
            except Exception as error:
                wrong = complaint(error, name)
                if wrong:
                    found.append(f"{name}={kind}: {wrong}: {type(error).__name__}: {error}"[:300])
    return found
