"""Says what of others a wheel brings: wheel_parts.py FOLDER

FOLDER/licenses has a file a part, FOLDER/headrace.cdx.json lists them (CycloneDX). For the Python
that has nanobind, after tools/wheel_root and tools/wheel_curl.
"""

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
# Of this machine: archives that are linked, headers that are compiled, and libraries beside it.
PACKAGES = [
    "libaec-dev", "libbz2-dev", "libcli11-dev", "libdeflate-dev",
    "libflatbuffers-dev", "libisal-dev", "liblz4-dev", "liblzma-dev", "libsnappy-dev", "libssl-dev",
    "liburing-dev", "nlohmann-json3-dev", "zlib1g-dev",
]  # fmt: skip
# Built from Debian's source: the folder of it.
SOURCES = {
    "blosc": TOP / "build/wheel-sources/c-blosc",
    "fmt": TOP / "build/wheel-sources/fmtlib",
    "zstd": TOP / "build/wheel-sources/libzstd",
    "curl": TOP / "build/wheel-curl/source",
}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def component(name, version, purl=None):
    found = {"type": "library", "name": name, "version": version}
    return found | ({"purl": purl} if purl else {})


def os_release():
    lines = Path("/etc/os-release").read_text().splitlines()
    return dict(line.replace('"', "").split("=", 1) for line in lines if "=" in line)


def of_package(package, licenses):
    """A package that is installed here."""
    name = re.sub(r"-dev$", "", package)
    shutil.copy(f"/usr/share/doc/{package}/copyright", licenses / name)
    version = output("dpkg-query", "-W", "-f", "${Version}", package)
    system = os_release()
    distro = f"?distro={system['VERSION_CODENAME']}"
    return component(name, version, f"pkg:deb/{system['ID']}/{package}@{version}{distro}")


def archive_package(name):
    """The package of an archive that the compiler finds."""
    archive = Path(output("c++", f"-print-file-name={name}").strip()).resolve()
    return output("dpkg", "-S", str(archive)).split(":")[0]


def of_source(name, folder, licenses):
    """What tools/fetch_source has unpacked."""
    shutil.copy(folder / "debian/copyright", licenses / name)
    changelog = (folder / "debian/changelog").read_text()
    package, version = re.match(r"(\S+) \((\S+)\)", changelog).groups()
    return component(name, version, f"pkg:deb/debian/{package}@{version}?arch=source")


def of_nanobind(licenses):
    version = importlib.metadata.version("nanobind")
    for file in importlib.metadata.files("nanobind"):
        if file.name == "LICENSE" and "licenses" in file.parts:
            shutil.copy(file.locate(), licenses / "nanobind")
    return component("nanobind", version, f"pkg:pypi/nanobind@{version}")


def main(folder):
    licenses = folder / "licenses"
    licenses.mkdir(parents=True)
    # Whose names have a version within.
    named = [archive_package(name) for name in ("libboost_context.a", "libstdc++.a")]
    parts = [of_package(package, licenses) for package in [*PACKAGES, *named]]
    parts += [of_source(name, source, licenses) for name, source in SOURCES.items()]
    parts.append(of_nanobind(licenses))
    parts.append(component("cudart", re.search(r" V([\d.]+)", output("nvcc", "--version"))[1]))
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component("headrace", version, f"pkg:pypi/headrace@{version}")},
        "components": sorted(parts, key=lambda part: part["name"]),
    }
    (folder / "headrace.cdx.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
