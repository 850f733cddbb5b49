"""The `headrace` command beside the running Python: facts, files, exit status.

Exit status (api.md): 0, 1 failed, 2 usage. Errors go to standard error, and `--json` prints one
JSON document on standard output.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import assert_same, linux_only, smooth

COMMAND = Path(sys.executable).parent / "headrace"


def run(*args, status=0):
    done = subprocess.run([COMMAND, *map(str, args)], capture_output=True, timeout=120)
    assert done.returncode == status, (done.stdout, done.stderr)
    if status:
        assert done.stderr.strip()
    return done.stdout


def run_json(*args, status=0):
    done = subprocess.run([COMMAND, *map(str, args), "--json"], capture_output=True, timeout=120)
    assert done.returncode == status, (done.stdout, done.stderr)
    return json.loads(done.stdout)


@pytest.fixture
def tree(store):
    root = zarr.create_group(store, attributes={"title": "t"})
    data = smooth("f4", (20, 15, 6))
    options = {"dimension_names": ["t", "y", "x"], "attributes": {"units": "K"}}
    root.create_array("g/field", data=data, chunks=(8, 8, 6), **options)
    root.create_array("ints", data=np.arange(12, dtype="i2"), chunks=(5,))
    return store, data


def test_info_json(tree):
    facts = run_json("info", f"{tree[0]}/g/field")
    assert facts["type"] == "array"
    assert facts["shape"] == [20, 15, 6]
    assert facts["chunks"] == [8, 8, 6]
    assert facts["shards"] is None
    assert facts["zarr_format"] == 3
    assert "float32" in facts["dtype"] or "f4" in facts["dtype"]
    assert facts["dimension_names"] == ["t", "y", "x"]
    assert facts["attributes"] == {"units": "K"}
    assert [codec["name"] for codec in facts["codecs"]] == ["bytes", "zstd"]
    group = run_json("info", tree[0])
    assert group["type"] == "group"
    assert {member["name"] for member in group["members"]} == {"g", "ints"}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_info_of_numbers_that_json_lacks(store, zarr_format):
    root = zarr.create_group(store, zarr_format=zarr_format)
    field = root.create_array("x", shape=(4,), dtype="f4", fill_value=np.nan)
    odd = {"units": "K", "of": [np.nan, np.inf, -np.inf], 'N"aN\\': "NaN, Infinity"}
    field.attrs.update(odd)
    root.attrs.update(odd)
    wanted = {**odd, "of": ["NaN", "Infinity", "-Infinity"]}
    facts = run_json("info", f"{store}/x")
    assert (facts["attributes"], facts["fill_value"]) == (wanted, "NaN")
    group = run_json("info", store)
    assert group["attributes"] == wanted
    assert [member["units"] for member in group["members"]] == ["K"]


def test_info_keeps_attributes_apart_that_json_libraries_refuse(store):
    hr.create_array(store, shape=(4,), dtype="u1")
    document = json.loads((Path(store) / "zarr.json").read_text())
    text = json.dumps({**document, "attributes": "HERE"}).replace(
        '"HERE"',
        r"""{"half": "a\ud800b", "\udfff": "\ud83d\ude00\\ud800", "large": 1e999, "units": "K",
        "digits": [123456789012345678901234567890, -9223372036854775809, 18446744073709551615],
        "small": [1e-7, -0.5, -9223372036854775808, true, false, null], "text": "-1e999 NaN"}""",
    )
    (Path(store) / "zarr.json").write_text(text)
    assert run_json("info", store)["attributes"] == {
        "half": "a\ufffdb",
        "\ufffd": "\U0001f600\\ud800",
        "large": "1e999",
        "units": "K",
        "digits": ["123456789012345678901234567890", "-9223372036854775809", 2**64 - 1],
        "small": [1e-7, -0.5, -(2**63), True, False, None],
        "text": "-1e999 NaN",
    }


def test_info_text(tree):
    text = run("info", f"{tree[0]}/g/field").decode()
    for part in ("float32", "zstd", "20", "15"):
        assert part in text


def names(node, above=""):
    for member in node.get("members", ()):
        path = f"{above}{member['name']}"
        yield path
        yield from names(member, f"{path}/")


def test_tree(tree):
    assert sorted(names(run_json("tree", tree[0]))) == ["g", "g/field", "ints"]
    text = run("tree", tree[0]).decode()
    for part in ("g", "field", "ints"):
        assert part in text


def test_read_npy(tree):
    store, data = tree
    got = run("read", f"{store}/g/field", "--selection", "0:2,:,5", "--format", "npy")
    assert_same(np.load(io.BytesIO(got)), data[0:2, :, 5])
    got = run("read", f"{store}/g/field", "--format", "npy")
    assert_same(np.load(io.BytesIO(got)), data)


@pytest.mark.parametrize("name", ["a\rb", "a\0b", "a\nb", "\x7f'\\\t\u00e9\u2028"])
def test_read_npy_with_any_name_of_a_field(store, name):
    data = np.array([(1, 2), (3, 4)], [(name, "<i2"), ("c", "<i2")])
    hr.create_array(store, data=data, zarr_format=2)
    assert_same(np.load(io.BytesIO(run("read", store, "--format", "npy"))), data)


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("3", 3),
        ("-1", -1),
        ("::-2", np.s_[::-2]),
        ("...,0", np.s_[..., 0]),
        ("1:9:3,2:4", np.s_[1:9:3, 2:4]),
        (":, :, 2", np.s_[:, :, 2]),
        ("y=2:4", np.s_[:, 2:4]),
        ("x=-1,t=::5", np.s_[::5, :, -1]),
        ("1=3", np.s_[:, 3]),
    ],
)
def test_read_selections(tree, text, index):
    store, data = tree
    got = run("read", f"{store}/g/field", f"--selection={text}", "--format", "npy")
    assert_same(np.load(io.BytesIO(got)), data[index])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("z=1", b'there is no dimension "z"; there are t, y, x'),
        ("yy=1", b'there is no dimension "yy"; did you mean y?'),
        ("3=1", b'there is no dimension "3"'),
        ("y=1,1=2", b"dimension 1 is given twice"),
        ("y=1,2", b'expected DIMENSION=VALUE, got "2"'),
        ("y=...", b'expected an integer or a slice, got "..."'),
        ("y=", b'expected an integer or a slice, got ""'),
        ("y=a", b"selection: "),
    ],
)
def test_a_selection_by_dimension_that_is_none(tree, text, said):
    place = f"{tree[0]}/g/field"
    done = subprocess.run(
        [COMMAND, "read", place, "--selection", text], capture_output=True, timeout=60
    )
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_read_raw_text_and_file(tree, tmp_path):
    store, data = tree
    raw = run("read", f"{store}/g/field", "--selection", "4", "--format", "raw")
    assert raw == data[4].tobytes()
    out = tmp_path / "x.npy"
    run("read", f"{store}/ints", "--format", "npy", "--output", out)
    assert_same(np.load(out), np.arange(12, dtype="i2"))
    text = run("read", f"{store}/ints", "--format", "text").decode()
    assert [int(word) for word in text.split()] == list(range(12))


def test_read_stats(tree):
    store, _ = tree
    facts = run_json("read", f"{store}/ints", "--format", "stats")
    assert facts["min"] == 0
    assert facts["max"] == 11
    assert facts["mean"] == pytest.approx(5.5)


def test_verify(tree):
    store, _ = tree
    report = run_json("verify", store)
    assert report["ok"] is True
    assert report["bad"] == 0
    assert report["chunks"] == 3 * 2 * 1 + 3
    bad = Path(store, "g/field/c/1/0/0")
    os.truncate(bad, bad.stat().st_size - 2)
    Path(store, "ints/c/2").write_bytes(b"nonsense")
    report = run_json("verify", store, status=1)
    assert report["ok"] is False
    assert report["bad"] == 2
    text = json.dumps(report)
    assert "c/1/0/0" in text and "c/2" in text and "g/field" in text
    text = subprocess.run([COMMAND, "verify", store], capture_output=True).stdout.decode()
    assert "c/1/0/0" in text and "c/2" in text


def test_doctor():
    facts = run_json("doctor")
    assert facts
    assert run("doctor").strip()


@pytest.mark.parametrize(
    "args",
    [
        ("info", "/nonexistent/x.zarr"),
        ("tree", "/nonexistent/x.zarr"),
        ("read", "/nonexistent/x.zarr"),
        ("verify", "/nonexistent/x.zarr"),
    ],
)
def test_failure_is_1_and_names_the_path(args):
    done = subprocess.run([COMMAND, *args], capture_output=True, timeout=60)
    assert done.returncode == 1
    assert b"x.zarr" in done.stderr


def test_failed_read_is_1(tree):
    store, _ = tree
    run("read", f"{store}/g/field", "--selection", "99", status=1)
    Path(store, "g/field/c/0/0/0").write_bytes(b"")
    run("read", f"{store}/g/field", "--format", "raw", status=1)


@pytest.mark.parametrize(
    "args", [(), ("nonsense",), ("info",), ("read", "x", "--format", "png"), ("info", "x", "--no")]
)
def test_usage_is_2(args):
    run(*args, status=2)


def test_help_and_version():
    assert b"verify" in run("--help")
    for command in ("info", "tree", "read", "verify", "bench", "doctor"):
        assert run(command, "--help").strip()
    assert run("--version").strip()


def test_no_progress_and_no_colour_in_a_pipe(tree):
    done = subprocess.run([COMMAND, "verify", tree[0]], capture_output=True, timeout=60)
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\r" not in done.stdout + done.stderr


def test_closed_pipe_is_no_crash(tree):
    """`headrace read ... | head`: no signal other than SIGPIPE, no stack trace."""
    store, _ = tree
    command = f"'{COMMAND}' read '{store}/g/field' --format text | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert done.returncode == 0
    assert b"terminate" not in done.stderr


@pytest.fixture
def planted(tmp_path):
    """Makes a library of the name of a wheel's libcurl in a folder; a file tells that it ran."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to make a library with")
    mark = tmp_path / "it ran"
    source = tmp_path / "planted.c"
    source.write_text(
        "#include <stdio.h>\n"
        f'__attribute__((constructor)) void ran(void) {{ fclose(fopen("{mark}", "w")); }}\n'
    )

    def plant(folder):
        folder.mkdir(parents=True)
        library = folder / "libheadrace_curl.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return mark

    return plant


# dladdr(), which it asks, tells a program's file on other systems, but not on Linux.
@linux_only("way to its own file from any name that it is called by")
@pytest.mark.parametrize("called", ["headrace", "venv/bin/headrace"])
def test_the_libcurl_of_a_wheel_is_found_whatever_the_command_is_called_by(
    planted, tmp_path, called
):
    program = Path(os.path.realpath(COMMAND))
    if program.read_bytes().startswith(b"#!"):  # a wheel's, which starts the program
        program = Path(sysconfig.get_path("platlib"), "headrace.scripts/headrace")
    mark = planted(tmp_path / "site/headrace")
    command = tmp_path / "site/headrace.scripts/headrace"
    command.parent.mkdir()
    shutil.copy(program, command)
    libraries = program.parents[1] / "headrace.libs"
    if libraries.exists():
        (tmp_path / "site/headrace.libs").symlink_to(libraries)
    arguments = [called, "info", "http://127.0.0.1:9/a"]
    done = subprocess.run(arguments, executable=command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 1
    assert mark.exists(), done.stderr


def test_no_library_of_the_current_folder_is_loaded(planted, tmp_path):
    mark = planted(tmp_path / "here")
    arguments = ["headrace", "info", "http://127.0.0.1:9/a"]
    done = subprocess.run(arguments, executable=COMMAND, cwd=tmp_path / "here", capture_output=True)
    assert done.returncode == 1 and done.stderr
    assert not mark.exists()
