"""The checks in tools/ catch what they are for."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_layers = load("check_layers")
check_files = load("check_files")
check_imports = load("check_imports")
check_locks = load("check_locks")
check_portable = load("check_portable")
check_site = load("check_site")
install_requirements = load("install_requirements")


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "include", "message"),
    [
        ("src/base/a.h", '"format/metadata.h"', "no arrow base -> format"),
        ("src/format/a.cpp", '"store/store.h"', "no arrow format -> store"),
        ("src/format/a.cpp", '"headrace/array.h"', "format may not include headrace/array.h"),
        ("src/codec/a.cpp", '"headrace/store.h"', "codec may not include headrace/store.h"),
        ("src/engine/read/a.cpp", '"cuda/device.h"', "no arrow engine -> cuda"),
        ("src/engine/read/a.cpp", "<cuda_runtime.h>", "only src/cuda includes cuda_runtime.h"),
        ("src/engine/read/a.cpp", "<nvcomp/zstd.h>", "only src/cuda includes nvcomp/zstd.h"),
        ("src/kernels/lz/a.cpp", "<hip/hip_runtime.h>", "only src/simt includes hip/hip_runtime.h"),
        ("src/no_cuda/a.cpp", '"codec/registry.h"', "no_cuda sees only codec/codec.h"),
        ("src/kernels/common/a.h", '"base/bytes.h"', "no arrow kernels -> base"),
        ("src/loader/a.cpp", '"kernels/zstd/plan.h"', "loader sees only kernels/common/fault.h, "),
        ("src/engine/a.h", "<vector>", "src/engine/a.h is in no room of the architecture"),
        ("src/engine/misc/a.h", "<vector>", "src/engine/misc/a.h is in no room"),
        ("src/kernels/a.h", "<span>", "src/kernels/a.h is in no room"),
        ("src/engine/query/a.h", '"engine/fetch/b.h"', "no arrow engine/query -> engine/fetch"),
        ("src/engine/rechunk/a.h", '"engine/read/b.h"', "no arrow engine/rechunk -> engine/read"),
        ("src/kernels/zstd/a.h", '"kernels/lz/b.h"', "no arrow kernels/zstd -> kernels/lz"),
        ("src/kernels/zstd/a.h", '"kernels/zstd/encode/b.h"', "no arrow kernels/zstd -> "),
        ("src/kernels/kernels.h", '"kernels/common/b.h"', "stands in front of the rooms"),
        ("src/util/a.h", "<vector>", "src/util is not a folder of the architecture"),
        ("include/headrace/a.h", "<fmt/format.h>", "no third-party header: fmt/format.h"),
        ("include/headrace/a.h", "<zstd.h>", "third-party header: zstd.h"),
        ("include/headrace/a.h", '"base/bytes.h"', "includes only headrace/*.h"),
        ("python/src/a.cpp", '"engine/read.h"', "python includes only headrace/*"),
        ("cli/a.cpp", '"base/bytes.h"', "cli includes only headrace/*"),
    ],
)
def test_layers_catch_a_forbidden_include(tmp_path, name, include, message):
    write(tmp_path, name, f"#pragma once\n#  include {include}\n")
    (error,) = check_layers.check(tmp_path)
    assert error.startswith(f"{name}:") and message in error


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("src/engine/read/a.cpp", '"codec/codec.h"'),
        ("src/engine/read/a.cpp", '"headrace/array.h"'),
        ("src/engine/write/a.cpp", '"engine/read/b.h"'),
        ("src/kernels/zstd/encode/a.cpp", '"kernels/zstd/bits.h"'),
        ("src/kernels/lz/a.cpp", '"kernels/kernels.h"'),
        ("src/kernels/table.cpp", '"kernels/lz/a.h"'),
        ("src/codec/a.cpp", "<zstd.h>"),
        ("src/cuda/a.cpp", "<cuda_runtime.h>"),
        ("src/no_cuda/a.cpp", '"codec/codec.h"'),
        ("include/headrace/a.h", "<cstdint>"),
        ("cli/a.cpp", '"headrace/headrace.h"'),
        ("cli/a.cpp", '"cli/print.h"'),
    ],
)
def test_layers_accept_an_arrow(tmp_path, name, include):
    write(tmp_path, name, f"#include {include}\n")
    assert check_layers.check(tmp_path) == []


def test_layers_have_no_circle(tmp_path, monkeypatch):
    monkeypatch.setitem(check_layers.ROOMS["engine"], "query", {"request", "node"})
    (error,) = check_layers.check(tmp_path)
    assert error == ("a circle of arrows: query -> node -> device -> fetch -> query")


def test_layers_count_public_headers(tmp_path):
    most = check_layers.MAX_PUBLIC_HEADERS
    for i in range(most + 1):
        write(tmp_path, f"include/headrace/h{i}.h", "#pragma once\n")
    assert check_layers.check(tmp_path) == [f"include: {most + 1} public headers, at most {most}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n" * 801, "801 lines"),
        ("\u00e9t\u00e9\n", "not ASCII"),
        ("a  \n", "blanks at the end"),
        ("a", "one newline"),
        ("a\n\n", "one newline"),
        ("// TO" + "DO: later\n", "needs an issue"),
        ("open('/ho" + "me/ann/x.zarr')\n", "path of one machine"),
        ("cd /tm" + "p/x\n", "path of one machine"),
    ],
)
def test_files_catch(text, message):
    (error,), remarks = check_files.check_text("src/a.cpp", text, "source")
    assert message in error
    assert remarks == []


def test_files_remark_on_a_long_file():
    errors, (remark,) = check_files.check_text("src/a.cpp", "a\n" * 501, "source")
    assert errors == []
    assert "501 lines" in remark


def test_files_accept_a_note_with_its_issue():
    assert check_files.check_text("a.py", "# TO" + "DO(#12): later\n", "source") == ([], [])


def test_files_leave_data_alone():
    assert check_files.kind("tests/fuzz/corpus/zstd/a.json") is None
    assert check_files.kind("src/base/bytes.h") == "source"
    assert check_files.kind("tools/setup") == "source"
    assert check_files.kind("README.md") == "document"


def test_files_sees_untracked_and_skips_ignored(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    write(tmp_path, ".gitignore", "build/\n")
    write(tmp_path, "build/a.py", "\u00e9t\u00e9\n")
    command = [sys.executable, ROOT / "tools" / "check_files.py", tmp_path]
    assert subprocess.run(command, check=False).returncode == 0
    write(tmp_path, "b.py", "\u00e9t\u00e9\n")
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1


def test_requirements_resolve_own_extras():
    pyproject = {
        "build-system": {"requires": ["nanobind"]},
        "project": {
            "dependencies": ["numpy"],
            "optional-dependencies": {"demo": ["headrace[zarr]", "rich"], "zarr": ["zarr"]},
        },
    }
    found = install_requirements.requirements(pyproject, ["demo"])
    assert {"nanobind", "numpy", "rich", "zarr"} <= set(found)
    assert not any("headrace" in requirement for requirement in found)


def test_setup_says_what_is_missing_without_root(tmp_path):
    fakes = {
        "dpkg-query": "echo 'g++ installed'; echo 'libzstd-dev:amd64 installed'",
        "id": "echo 1000",
        "sudo": "exit 1",
        "apt-get": "echo must not run >&2; exit 99",
    }
    for name, body in fakes.items():
        write(tmp_path, name, f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "tools" / "setup"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "apt-get install" in line]
    packages = line.split("apt-get install ")[1].split()
    assert "libblosc-dev" in packages
    assert "g++" not in packages and "libzstd-dev" not in packages
    assert "brew install" in done.stderr and "dnf install" in done.stderr


def test_setup_names_the_libraries():
    done = subprocess.run(
        [ROOT / "tools" / "setup", "libraries"], capture_output=True, text=True, check=True
    )
    names = done.stdout.split()
    assert "libzstd-dev" in names and "libgtest-dev" in names
    assert not {"g++", "clang"} & set(names) and not done.stderr


def test_this_repository_is_clean():
    assert check_layers.check(ROOT) == []
    assert check_imports.check(ROOT) == []


def package(root, **modules):
    for name, text in modules.items():
        write(root, f"python/headrace/{name.replace('__', '/')}.py", text)
    if not (root / "python/headrace/__init__.py").exists():
        write(root, "python/headrace/__init__.py", "")


@pytest.mark.parametrize(
    "back",
    [
        "from . import a",
        "from .a import A",
        "import headrace.a",
        "def f():\n    from .a import A",
        "if TYPE_CHECKING:\n    from .a import A",
    ],
)
def test_imports_catch_a_circle(tmp_path, back):
    package(tmp_path, a="from .b import B", b="from . import c", c=back + "\n")
    found, *lines = check_imports.check(tmp_path)
    assert found.endswith("in a circle: headrace.a, headrace.b, headrace.c")
    assert lines[0] == "  python/headrace/a.py:1: headrace.b" and len(lines) == 3


def test_imports_count_the_package_of_a_module(tmp_path):
    package(tmp_path, a="from .p.b import B", p__b="", p__c="from ..a import A")
    write(tmp_path, "python/headrace/p/__init__.py", "from .c import C")
    (found,) = [error for error in check_imports.check(tmp_path) if "circle" in error]
    assert found.endswith(": headrace.a, headrace.p, headrace.p.c")


def test_imports_see_late_names(tmp_path):
    package(tmp_path, a="from . import version")
    write(tmp_path, "python/headrace/__init__.py", '_LAZY = {"x": ("a", "x")}\n')
    assert "headrace, headrace.a" in check_imports.check(tmp_path)[0]


def test_imports_accept_one_direction(tmp_path):
    write(tmp_path, "python/headrace/_core.pyi", "from .a import A")  # of an extension
    package(tmp_path, a="import os\nfrom . import _core, b", b="from .p.c import C", p__c="")
    write(tmp_path, "python/headrace/p/__init__.py", "from .c import C\nfrom .. import _core")
    assert check_imports.check(tmp_path) == []


GUARDED = """
#include "base/mutex.h"
struct Counter {{
  void add() {{ {lock} ++count; }}
  headrace::Mutex mutex;
  int count GUARDED_BY(mutex) = 0;
}};
void use(Counter& counter) {{ counter.add(); }}
"""


def test_locks_catch_what_is_touched_without_one(tmp_path):
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("no clang++")
    write(tmp_path, "good.cpp", GUARDED.format(lock="headrace::MutexLock lock(mutex);"))
    write(tmp_path, "bad.cpp", GUARDED.format(lock=""))
    assert check_locks.check(clang, tmp_path / "good.cpp") == ""
    assert "requires holding mutex 'mutex'" in check_locks.check(clang, tmp_path / "bad.cpp")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("src/base/a.h", "  std::mutex mutex_;\n", "2: std::mutex: use src/base/mutex.h"),
        ("src/cuda/a.cu", "  std::shared_mutex mutex_;\n", "2: std::shared_mutex: use"),
        ("cli/a.cpp", "  const std::scoped_lock lock(a, b);\n", "2: std::scoped_lock: use"),
        ("python/src/a.cpp", "  std::condition_variable_any c;\n", "2: std::condition_variable"),
        ("src/shm/a.h", "  mutable ForkMutex m_;\n  int a_ GUARDED_BY(n_);\n", "2: m_: no GUARDED"),
        # What another class says of one of the same name does not count.
        (
            "src/a/a.h",
            "  Mutex m;\n};\nstruct B {\n  Mutex m;\n  int a GUARDED_BY(m);\n",
            "2: m: no",
        ),
    ],
)
def test_locks_refuse_a_mutex_that_clang_cannot_check(tmp_path, name, text, message):
    write(tmp_path, name, f"struct A {{\n{text}}};\n")
    (error,) = check_locks.check_text(tmp_path)
    assert error.startswith(f"{name}:{message}")


def test_locks_know_what_says_enough(tmp_path):
    text = """// In place of std::mutex.
class A {
  int n() const REQUIRES(get().mutex_);
 public:
  Mutex mutex_;
#ifdef X
  std::once_flag flag_;
#endif
};
class B {
  mutable ForkMutex mutex_;  // std::shared_mutex is no faster
  ConditionVariable changed_;

  int n_ GUARDED_BY(mutex_) = 0;
};
void take(Mutex& mutex);
"""
    write(tmp_path, "src/base/a.h", text)
    assert check_locks.check_text(tmp_path) == []
    assert check_locks.check_text(ROOT) == []


def test_locks_look_at_what_has_annotations():
    looked_at = {
        path.name for path in (ROOT / "src").rglob("*.cpp") if check_locks.has_annotations(path)
    }
    # Its own members, those of its header, and none.
    assert {"trace.cpp", "session.cpp"} <= looked_at and "utf8.cpp" not in looked_at


def test_sites_have_no_dead_links(tmp_path):
    write(tmp_path, "index.html", '<a href="a/">a</a><a href="a/#here">b</a><img src="x.svg">')
    write(tmp_path, "a/index.html", '<p id="here"><a href="../#there">c</a><a href="https://x/">')
    assert list(check_site.dead_links(tmp_path)) == [
        "a/index.html: ../#there: no such anchor",
        "index.html: x.svg",
    ]
    write(tmp_path, "b/index.html", '<a href="/etc/passwd"></a><a href="../../outside"></a>')
    assert len(list(check_site.dead_links(tmp_path))) == 4


def test_groups_say_what_they_leave_out(monkeypatch, capsys):
    tried = []

    def pip_install(*arguments):
        tried.append(arguments[1:])
        return "ERROR: no such wheel" if "absent" in arguments else None

    monkeypatch.setattr(install_requirements, "pip_install", pip_install)
    install_requirements.install_group("frameworks", ["there"])
    assert tried == [("there",)] and capsys.readouterr().out == ""
    install_requirements.install_group("frameworks", ["absent", "there"])
    assert tried[1:] == [("absent", "there"), ("absent",), ("there",)]
    assert capsys.readouterr().out == (
        "frameworks: left out, with the tests that want it: absent (ERROR: no such wheel)\n"
    )


def test_sources_that_ask_for_linux_are_found_without_a_build(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check_portable, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["check_portable.py"])
    write(tmp_path, "src/base/a_linux.cpp", "#include <sys/epoll.h>\n")
    write(tmp_path, "cli/b.cpp", "#include <pwd.h>\n")
    assert check_portable.main() == 0
    write(tmp_path, "src/base/c.cpp", "#include <pwd.h>\n#include <sys/epoll.h>\n")
    assert check_portable.main() == 1
    assert "src/base/c.cpp:2: <sys/epoll.h> is no header of POSIX" in capsys.readouterr().out


def nightly(tmp_path, *parts, **compilers):
    """Output and status of .ci/nightly with a make that fails for one target."""
    for name in (".ci/nightly", "tools/libcxx_clang"):
        write(tmp_path, name, (ROOT / name).read_text())
    write(tmp_path, ".ci/run", '#!/bin/sh\necho "run $HEADRACE_CI_WHOLE" >>done')
    write(
        tmp_path,
        "bin/make",
        '#!/bin/sh\necho "$@" $PYTHONDONTWRITEBYTECODE >>done\n[ "$1" != test-portable ]',
    )
    for name, text in compilers.items():
        write(tmp_path, f"bin/{name}", f"#!/bin/sh\n{text}")
    programs = (f"bin/{name}" for name in ("make", *compilers))
    for path in (".ci/nightly", ".ci/run", "tools/libcxx_clang", *programs):
        (tmp_path / path).chmod(0o755)
    for name in ("bash", "sh", "dirname", "tail"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    run = subprocess.run(
        [tmp_path / ".ci/nightly", *parts],
        env={
            "PATH": str(tmp_path / "bin"),
            "FUZZ_SECONDS": "7",
            "PYTHONDONTWRITEBYTECODE": "asked for",
        },
        capture_output=True,
        text=True,
    )
    done = tmp_path / "done"
    return run, done.read_text().splitlines() if done.exists() else []


def test_nightly_runs_all_parts_though_one_fails(tmp_path):
    compilers = {"aarch64-linux-gnu-g++": "", "qemu-aarch64-static": "", "apt-get": ""}
    run, done = nightly(tmp_path, **compilers, **{"clang++-19": "echo found"})
    assert done == [
        *("run 1", "test-tsan", "test-shadow"),
        "test-portable PYTEST_ARGS=-n 1 --max-worker-restart=8",
        *("test-libcxx", "test-wheel PYTEST_ARGS=-n 2", "fuzz FUZZ_SECONDS=7", "test-aarch64"),
    ]
    assert run.returncode == 1
    told = [line.split()[-2:] for line in run.stdout.splitlines()]
    assert ["FAILED", "portable"] in told and ["passed", "aarch64"] in told


def test_nightly_leaves_out_what_has_no_compiler(tmp_path):
    run, done = nightly(tmp_path, **{"clang++": "echo"})
    assert not {"test-libcxx", "test-wheel", "test-aarch64"} & {line.split()[0] for line in done}
    assert "left out  libcxx: no clang++ with libc++ 19 or newer" in run.stdout
    assert "left out  aarch64: no aarch64-linux-gnu-g++" in run.stdout


def test_nightly_runs_the_parts_that_are_named(tmp_path):
    run, done = nightly(tmp_path, "fuzz", "aarch64")
    assert (run.returncode, done) == (0, ["fuzz FUZZ_SECONDS=7", "test-aarch64"])
    assert nightly(tmp_path / "other", "fuz")[0].returncode == 2
