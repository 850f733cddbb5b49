"""Where the demo's climate data comes from, and which variables it takes.

First choice are the NetCDF files of Debian's `ferret-datasets` (Levitus and Ocean Atlas
climatologies, US Navy winds, COADS, ETOPO5). Without apt, the smaller files of PyPI's
`iris-sample-data` serve.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALLED = Path("/usr/share/ferret-vis/data")


@dataclass(frozen=True)
class Variable:
    file: str
    name: str
    dtype: str | None = None  # store it as this type; the demo checks that nothing is lost


FERRET = (
    Variable("levitus_climatology.cdf", "TEMP"),
    Variable("levitus_climatology.cdf", "SALT"),
    Variable("ocean_atlas_subset.nc", "TEMP"),
    Variable("monthly_navy_winds.cdf", "UWND"),
    Variable("monthly_navy_winds.cdf", "VWND"),
    Variable("coads_climatology.cdf", "SST"),
    Variable("etopo5.cdf", "ROSE", "int16"),
)
IRIS = (
    Variable("A1B_north_america.nc", "air_temperature"),
    Variable("ostia_monthly.nc", "surface_temperature"),
    Variable("orca2_votemper.nc", "votemper"),
)


@dataclass(frozen=True)
class Source:
    name: str
    folder: Path
    variables: tuple[Variable, ...]


class FetchError(RuntimeError):
    """No source could be had; the message has what each attempt said."""


def _run(command: list[str], cwd: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise FetchError(f"{' '.join(command)}: {lines[-1] if lines else done.returncode}")


def _as_root() -> list[str] | None:
    """The prefix that makes a command run as root without asking, or None."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True).returncode == 0:
        return [sudo, "-n"]
    return None


def _apt_install() -> Path:
    prefix = _as_root()
    if prefix is None:
        raise FetchError("apt-get install: neither root nor sudo without a password")
    install = [*prefix, "apt-get", "install", "-y", "--no-install-recommends", "ferret-datasets"]
    try:
        _run(install)
    except FetchError:
        _run([*prefix, "apt-get", "update"])  # a bare machine has no package lists yet
        _run(install)
    return INSTALLED


def _apt_download(cache: Path) -> Path:
    unpacked = cache / "ferret-datasets"
    folder = unpacked / INSTALLED.relative_to("/")
    if not folder.is_dir():
        unpacked.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "download", "ferret-datasets"], cwd=unpacked)
        package = next(unpacked.glob("ferret-datasets_*.deb"))
        _run(["dpkg-deb", "-x", str(package), str(unpacked)])
        package.unlink()
    return folder


def _ferret(cache: Path) -> Source:
    if INSTALLED.is_dir():
        return Source("Debian ferret-datasets", INSTALLED, FERRET)
    if not shutil.which("apt-get"):
        raise FetchError("ferret-datasets: this system has no apt-get")
    try:
        folder = _apt_install()
    except FetchError as first:
        try:
            folder = _apt_download(cache)
        except FetchError as second:
            raise FetchError(f"{first}; {second}") from second
    return Source("Debian ferret-datasets", folder, FERRET)


def _iris(cache: Path) -> Source:
    target = cache / "iris-sample-data"
    folder = target / "iris_sample_data" / "sample_data"
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        _run([*pip, "--target", str(target), "iris-sample-data"])
    return Source("PyPI iris-sample-data", folder, IRIS)


def fetch(cache: Path, wanted: str = "auto") -> Source:
    """The first source that can be had; `wanted` names one ("ferret", "iris") to try alone."""
    attempts = {"ferret": _ferret, "iris": _iris}
    failures = []
    for name, attempt in attempts.items():
        if wanted not in ("auto", name):
            continue
        try:
            source = attempt(cache)
        except FetchError as error:
            failures.append(str(error))
            continue
        absent = {v.file for v in source.variables if not (source.folder / v.file).is_file()}
        if not absent:
            return source
        failures.append(f"{source.folder} lacks {', '.join(sorted(absent))}")
    raise FetchError("; ".join(failures))
