"""`headrace cp` and `sync`: what they refuse, and what they say."""

import subprocess
import sys
import zipfile
from pathlib import Path

import headrace as hr
import pytest

COMMAND = Path(sys.executable).parent / "headrace"


def run(*args, status=0):
    done = subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


@pytest.mark.parametrize("command", [("cp",), ("sync",), ("sync", "--delete")])
@pytest.mark.parametrize("kind", ["folder", "folders", "archive"])
@pytest.mark.parametrize("destination", ["new/er", "new.zip"])
def test_a_source_of_nothing_is_not_found(tmp_path, command, kind, destination):
    source = tmp_path / ("source.zip" if kind == "archive" else "source")
    if kind == "archive":
        zipfile.ZipFile(source, "w").close()
    else:
        Path(source, "x" if kind == "folders" else "").mkdir(parents=True)
    done = run(*command, source, tmp_path / destination, status=1)
    assert "there is no object" in done.stderr
    assert not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == [source.name]
