"""What libheadrace.so and the Python module let others see, by the symbols in them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import headrace as hr
import headrace._core
import pytest

ROOT = Path(__file__).parents[2]
ABI = "HEADRACE_" + ".".join(hr.__version__.split(".")[:2])
OURS = re.compile(r"_Z(T[ISV])?N[KVRO]*8headrace")
NM = shutil.which("nm")
pytestmark = pytest.mark.skipif(not NM, reason="no nm of binutils")


def nm(*arguments):
    command = [NM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=True).stdout


def exported(library) -> dict[str, str]:
    """Name of each symbol, as it is mangled, to its version."""
    found = {}
    for line in nm("-D", "--defined-only", "--with-symbol-versions", library).splitlines():
        name, _, version = line.split()[-1].partition("@@")
        if name != ABI:  # the version itself
            found[name] = version
    return found


@pytest.fixture(scope="module")
def build():
    """The build folder that the command of this environment comes from."""
    build = Path(os.path.dirname(sys.executable), "headrace").resolve().parents[1]
    if not (build / "libheadrace.so").is_file():
        pytest.skip("the command here comes from no build with HEADRACE_SHARED")
    return build


@pytest.fixture(scope="module")
def symbols(build):
    return exported(build / "libheadrace.so")


def demangled(names):
    tool = shutil.which("c++filt")
    if not tool:
        pytest.skip("no c++filt of binutils")
    text = "\n".join(names)
    done = subprocess.run(
        [tool], input=text, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def test_file_is_named_by_its_abi(build):
    library = (build / "libheadrace.so").resolve()
    assert library.name == f"libheadrace.so.{hr.__version__}"
    assert (build / ABI.replace("HEADRACE_", "libheadrace.so.")).resolve() == library


def test_exports_are_of_headrace_and_have_its_version(symbols):
    assert {name for name in symbols if not OURS.match(name)} == set()
    assert set(symbols.values()) == {ABI}
    for name in ("_ZTIN8headrace5ErrorE", "_ZTVN8headrace5ErrorE", "_ZN8headrace5DType7float32E"):
        assert name in symbols


def test_exports_are_declared_in_public_headers(symbols):
    headers = (ROOT / "include" / "headrace").glob("*.h")
    code = re.sub(r"//.*", "", "\n".join(path.read_text() for path in headers))
    words = set(re.findall(r"\w+", code))
    others = []
    for text in demangled(sorted(symbols)):
        text = re.sub(r"^(?:typeinfo|typeinfo name|vtable) for ", "", text)
        path = re.match(r"headrace((?:::~?\w+)+)", text)
        assert path, text
        if not set(re.findall(r"\w+", path[1])) <= words:
            others.append(text)
    assert others == []


def test_whatever_the_command_and_the_module_use_is_exported(build, symbols):
    """They see public headers only, and use most of these."""
    for objects in (
        [build / "cli" / "libheadrace_commands.a"],
        (build / "python" / "CMakeFiles" / "_core.dir").rglob("*.o"),
    ):
        wanted, there = set(), set()
        for path in objects:
            for line in nm(path).splitlines():
                kind, name = line.split()[-2:] if len(line.split()) > 1 else ("", "")
                if OURS.match(name):
                    (wanted if kind in "Uw" else there).add(name)
        wanted -= there
        assert len(wanted) > 50
        assert wanted - set(symbols) == set()


def test_module_exports_what_python_looks_for_alone():
    if sys.platform != "linux":
        pytest.skip("version scripts are of Linux")
    assert set(exported(headrace._core.__file__)) == {"PyInit__core"}
