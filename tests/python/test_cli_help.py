"""What the command says of itself: suggestions, examples, completion, manual page, facts."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import on_a_terminal

COMMAND = Path(sys.executable).parent / "headrace"
COMMANDS = [
    "info", "tree", "read", "verify", "advise", "rechunk", "convert", "cells", "ls", "du", "cp",
    "sync", "bench", "doctor", "completion", "version", "help",
]  # fmt: skip


def run(*args, status=0):
    done = subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


@pytest.fixture
def weather(tmp_path):
    path = str(tmp_path / "weather.zarr")
    group = hr.create_group(path, attributes={"title": "one \x1b[31mtest"})
    group.create_array(
        "t2m",
        data=np.zeros((4, 6), "f4"),
        chunks=(2, 6),
        dimension_names=["time", "x"],
        attributes={"units": "K", "long_name": "temperature"},
    )
    group.create_array("one", data=np.arange(3))
    group.create_group("deep")
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_examples_that_its_parser_takes(command):
    text = run(command, "--help")
    assert "Examples:" in text
    examples = [line.strip() for line in text.partition("Examples:")[2].splitlines()]
    examples = [line for line in examples if line.startswith("headrace ")]
    assert examples or command == "completion"
    for example in examples:
        words = re.findall(r'"[^"]*"|\S+', example.partition(" > ")[0])
        words = [word.strip('"') for word in words[1:]]
        # A place that is not there is another failure than a word that the parser does not take.
        done = subprocess.run(
            [COMMAND, *words], capture_output=True, text=True, timeout=60,
            cwd="/", env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true"},
        ) if not any("://" in word for word in words) else None  # fmt: skip
        assert done is None or done.returncode in (0, 1), (example, done.stderr)


def test_what_was_meant(weather):
    for args, said in (
        (["inf", weather], 'no command "inf"; did you mean info?'),
        (["nothing-like-it"], "there are info, tree, read"),
        ([weather, "info"], f"the command comes first: did you mean headrace info {weather}?"),
        (["inof", "info"], 'no command "inof"; did you mean info?'),
        (["help", "inf"], 'no command "inf"; did you mean info?'),
        (["info", weather, "--jsn"], "headrace info has no option --jsn; did you mean --json?"),
        (["read", weather, "--select", "0"], "no option --select; did you mean --selection?"),
        (["info", weather, "--device", "cpu"], "has no option --device"),
        (["tree", weather, "--threads", "1"], "has no option --threads"),
        (["tree", weather, "deep", "extra"], 'unexpected argument "extra"'),
        (["read", weather, "--threads", "-1"], "expected a number, 0 or more"),
        (["convert", weather, "x.zarr", "--codec", "zsdt:3"], '"zsdt"; did you mean zstd?'),
        (["convert", weather, "x.zarr", "--codec", "else"], "there are zstd, gzip, lz4, blosc"),
    ):
        error = run(*args, status=2)
        assert said in error, error
        assert len(error) < 500
    for args, said in (
        (["info", weather + "/t2n"], "did you mean t2m?"),
        (["info", weather.replace("weather", "waether")], "did you mean weather.zarr?"),
        (["read", weather], "name one of its arrays; there are one, t2m"),
        (["advise", weather], "there are one, t2m"),
        (["bench", weather], "there are one, t2m"),
        (["info", os.path.dirname(weather)], "below it there are weather.zarr"),
    ):
        error = run(*args, status=1)
        assert said in error, error


def test_help_is_a_command_too():
    assert run("help") == run("--help")
    for command in [*COMMANDS, "manual"]:
        assert run("help", command) == run(command, "--help")


def test_what_is_in_a_place_without_a_node(weather, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other/b").mkdir(parents=True)
    (tmp_path / "other/a.txt").touch()
    (tmp_path / "other/b/c").touch()
    documents = "zarr.json, .zarray or .zgroup"
    for args, said in (
        (["info", tmp_path / "empty"], "/empty: the folder is empty"),
        (["info", tmp_path / "other"], f"/other: there is no {documents}, but a.txt, b/"),
        (["info", tmp_path / "other", "x"], f"'x' in file://{tmp_path}/other: nothing is there"),
        (["info", tmp_path / "nope/x.zarr"], f"'nope/x.zarr' in file://{tmp_path}: nothing"),
        (["info", "nope-it-is.zarr"], "no store at nope-it-is.zarr: there is no such file or"),
        (["info", "/nope/x.zarr"], "no store at /nope/x.zarr: there is no such file or folder"),
        (["info", ""], "headrace: store: the path is empty"),
        (["info", weather + "/t2m/zarr.json"], f"give the folder that it describes, {weather}"),
        (["verify", weather, "nothing-like-it"], f"'nothing-like-it' in file://{weather}; there"),
        (["tree", weather, "t2n"], "did you mean t2m?"),
    ):
        error = run(*args, status=1)
        assert said in error, error


def test_the_path_may_stand_by_itself(weather):
    assert "(4, 6)" in run("info", weather, "t2m")
    assert run("read", weather, "one").split() == ["0", "1", "2"]
    assert "1 array, 1 chunk, 0 bad" in run("verify", weather, "one")


def test_the_home_folder(weather, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "(4, 6)" in run("info", "~/weather.zarr/t2m")
    run("cp", "~/weather.zarr", "~/copy.zarr")
    run("read", "~/copy.zarr", "one", "--output=~/one.npy")
    assert np.load(tmp_path / "one.npy").tolist() == [0, 1, 2]
    run("doctor", "~/copy.zarr")
    assert "~nobody-of-that-name/x" in run("info", "~nobody-of-that-name/x", status=1)


def test_info_shows_attributes_and_members(weather):
    text = run("info", weather)
    assert "\x1b" not in text
    assert re.search(r"title +one", text)
    assert re.search(r't2m +\(4, 6\) +float32 +\["time","x"\] K', text)
    assert re.search(r"deep +group", text)
    assert re.search(r"units +K", run("info", weather, "t2m"))
    facts = json.loads(run("info", weather, "--json"))
    members = {member["name"]: member for member in facts["members"]}
    assert members["t2m"]["shape"] == [4, 6] and members["t2m"]["units"] == "K"
    assert members["deep"]["type"] == "group"


def test_info_counts_what_is_stored(weather):
    text = run("info", weather, "--storage")
    assert re.search(r"arrays +2, of 120 B", text), text
    facts = json.loads(run("info", weather, "--storage", "--json"))
    both = [hr.open(weather)[name].nbytes_stored() for name in ("t2m", "one")]
    assert facts["nbytes_stored"] == sum(both)
    # All of t2m is its fill value.
    assert facts["nchunks_initialized"] == 1
    assert "1 chunk," in run("info", weather, "one", "--storage")


def test_a_broken_member_hides_no_neighbour(weather):
    Path(weather, "t2m/zarr.json").write_text("{")
    text = run("info", weather)
    assert "(3,)" in text and "t2m" in text


def test_doctor_is_short(tmp_path):
    text = run("doctor")
    lines = text.splitlines()
    assert len(lines) <= 7
    assert lines[0].startswith(f"headrace {hr.__version__}: good, arrays are read to")
    assert [line.split()[0] for line in lines[1:5]] == ["cpu", "gpu", "files", "codecs"]
    long = run("doctor", "--all")
    assert len(long.splitlines()) > 40
    assert "libzstd" in long
    assert re.search(r"device_slab_nbytes +\d+(\.\d+)? [KMG]iB", long)
    assert json.loads(run("doctor", "--json"))["version"] == hr.__version__


def test_verify_shows_progress_by_chunk_on_a_terminal(tmp_path):
    path = str(tmp_path / "large.zarr")
    data = np.random.default_rng(0).integers(0, 1 << 20, (64, 1 << 17), dtype="i4")
    hr.create_array(path, data=data, chunks=(1, 1 << 17), compressors=hr.codecs.BZ2(1))
    text, status = on_a_terminal([COMMAND, "verify", path, "--threads", "1"])
    assert status == 0, text
    shares = [int(share) for share in re.findall(r"verify \[[#.]+\] +(\d+) %", text)]
    assert len(set(shares)) > 2, text
    assert shares == sorted(shares)
    piped = subprocess.run([COMMAND, "verify", path], capture_output=True, text=True, timeout=60)
    assert piped.returncode == 0 and piped.stderr == "" and "verify [" not in piped.stdout


BASH = shutil.which("bash")


def completed(*words):
    """What bash proposes for the last of the words."""
    script = """
source <("$1" completion bash)
shift
COMP_WORDS=(headrace "$@")
COMP_CWORD=$#
_headrace
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        [BASH, "--norc", "-c", script, "bash", str(COMMAND), *words],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(BASH is None, reason="no bash")
def test_completion_in_bash(tmp_path, monkeypatch):
    assert sorted(completed("")) == sorted(COMMANDS)
    assert completed("ver") == ["verify", "version"]
    assert completed("info", "--st") == ["--storage-option", "--storage"]
    assert completed("read", "x.zarr", "--format", "") == ["npy", "raw", "text", "stats"]
    assert completed("bench", "x.zarr", "--pattern", "c") == ["chunk"]
    assert sorted(completed("completion", "")) == ["bash", "fish", "zsh"]
    assert sorted(completed("help", "")) == sorted(COMMANDS)
    assert "--device" not in completed("info", "--")
    (tmp_path / "some.zarr").mkdir()
    assert completed("info", str(tmp_path / "so")) == [str(tmp_path / "some.zarr")]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(shell, tmp_path):
    script = run("completion", shell)
    for command in COMMANDS:
        assert command in script
    if shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(script)
        done = subprocess.run([shell, "-n", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_scripts_know_all_options():
    """Each option of each command's help is in each script: they come from one parser."""
    scripts = {shell: run("completion", shell) for shell in ("bash", "zsh", "fish")}
    for command in COMMANDS:
        for option in re.findall(
            r"(?<![\w-])--([a-z][\w-]*)", run(command, "--help").partition("Examples:")[0]
        ):
            assert f"--{option}" in scripts["bash"], (command, option)
            assert f"--{option}" in scripts["zsh"], (command, option)
            assert f"-l {option}" in scripts["fish"], (command, option)


def test_manual_page():
    page = run("manual")
    assert page.splitlines()[1].startswith(".TH HEADRACE 1")
    for command in COMMANDS:
        assert f".SS {command}\n" in page
    assert "manual" not in run("--help").split()
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, capture_output=True, text=True
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
    for line in page.splitlines():
        assert not line.startswith("'")
        assert not line.startswith(".") or re.match(r"\.(\\\"|TH|SH|SS|TP|PP|nf|fi)", line), line
