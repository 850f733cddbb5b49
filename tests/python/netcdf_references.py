"""Real NetCDF files by references, compared with what netCDF4 reads; a GPU's machine needs neither
netCDF4 nor h5py.

    python tests/python/netcdf_references.py prepare FOLDER *.nc    # needs both
    python tests/python/netcdf_references.py compare FOLDER --device cpu --device simt
    python tests/python/netcdf_references.py compare FOLDER --device cuda --json FILE

`prepare` copies each file, writes it anew as NetCDF4 with deflate, shuffle and chunks, and keeps
the references of `hr.references` and the digests of all variables. `compare` reads each variable,
from files and from a server on the loopback device, and exits with 1 when one differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# Of a chunk, along the last two axes.
EDGE = 256


def digest(array: np.ndarray) -> dict:
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return {
        "shape": list(native.shape),
        "dtype": native.dtype.str,
        "sha256": hashlib.sha256(native.tobytes()).hexdigest(),
    }


def write_anew(source: Path, target: Path) -> None:
    import netCDF4

    with netCDF4.Dataset(source) as old, netCDF4.Dataset(target, "w") as new:
        old.set_auto_maskandscale(False)
        for name, dimension in old.dimensions.items():
            new.createDimension(name, None if dimension.isunlimited() else len(dimension))
        for i, (name, variable) in enumerate(old.variables.items()):
            edges = [
                min(n, EDGE) if d >= variable.ndim - 2 else 1 for d, n in enumerate(variable.shape)
            ]
            made = new.createVariable(
                name,
                variable.dtype,
                variable.dimensions,
                zlib=variable.ndim > 0,
                complevel=1 + i % 9,
                shuffle=i % 3 != 0,
                chunksizes=edges or None,
                fill_value=getattr(variable, "_FillValue", None),
            )
            made.set_auto_maskandscale(False)
            made[...] = variable[...]


def digests_of(path: Path) -> dict:
    import netCDF4

    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return {name: digest(np.asarray(v[...])) for name, v in file.variables.items()}


def prepare(arguments: argparse.Namespace) -> int:
    import headrace as hr

    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {}
    for source in arguments.files:
        copy = folder / source.name
        shutil.copyfile(source, copy)
        anew = folder / f"{source.stem}.4.nc"
        write_anew(source, anew)
        for path in (copy, anew):
            refs = folder / f"{path.name}.json"
            hr.references(path, out=refs)
            wanted[refs.name] = digests_of(path)
    (folder / "digests.json").write_text(json.dumps(wanted, indent=1))
    print(f"{len(wanted)} files, {sum(map(len, wanted.values()))} variables")
    return 0


def compare_all(place: str, folder: Path, device: str, options: dict) -> dict:
    import headrace as hr

    wanted = json.loads((folder / "digests.json").read_text())
    found = {
        "place": "http" if "://" in place else "file",
        "device": device,
        "variables": 0,
        "nbytes": 0,
    }
    differ = []
    begin = time.perf_counter()
    for refs, variables in wanted.items():
        group = hr.open(f"reference://{place}/{refs}", storage_options=options)
        for name, expected in variables.items():
            array = hr.open_array(group.store, name, device=device)[...]
            if not isinstance(array, np.ndarray):
                array = array.to_numpy()
            found["variables"] += 1
            found["nbytes"] += array.nbytes
            if digest(array) != expected:
                differ.append(f"{refs}: {name}: {digest(array)}, netCDF4 reads {expected}")
    return found | {"seconds": round(time.perf_counter() - begin, 3), "differ": differ}


def gpu_of(devices: list[str]) -> str | None:
    if not any(device.startswith("cuda") for device in devices):
        return None
    import torch

    return torch.cuda.get_device_name(0)


def compare(arguments: argparse.Namespace) -> int:
    import headrace as hr

    folder = arguments.folder.resolve()
    script = ROOT / "bench" / "e2e" / "slow_server.py"
    runs = []
    with subprocess.Popen(
        [sys.executable, script, folder, "--delay-ms", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            port = server.stdout.readline().split()[-1]
            far = f"http://127.0.0.1:{port}"
            for device in arguments.device:
                runs.append(compare_all(str(folder), folder, device, {}))
                runs.append(compare_all(far, folder, device, {}))
        finally:
            server.terminate()
    for run in runs:
        print(json.dumps(run))
    if arguments.json:
        head = {"headrace": hr.__version__, "gpu": gpu_of(arguments.device), "runs": runs}
        arguments.json.write_text(json.dumps(head, indent=1) + "\n")
    return int(any(run["differ"] or not run["variables"] for run in runs))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("prepare")
    make.add_argument("folder", type=Path)
    make.add_argument("files", type=Path, nargs="+")
    make.set_defaults(run=prepare)
    check = commands.add_parser("compare")
    check.add_argument("folder", type=Path)
    check.add_argument("--device", action="append", required=True)
    check.add_argument("--json", type=Path)
    check.set_defaults(run=compare)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
