"""The examples of the loader, in docs/loader.md and in examples/, run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import DEVICES, python

ROOT = Path(__file__).resolve().parents[2]


def test_examples_of_the_page():
    page = (ROOT / "docs" / "loader.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) == 4
    assert python("".join(blocks)) == ""


def example(name, *args):
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_training_example_resumes(tmp_path):
    def run(*args):
        return example("loader_train.py", *args)[0]

    state = str(tmp_path / "state.json")
    run("--steps", "70", "--state", state)
    resumed, whole = run("--steps", "150", "--state", state), run("--steps", "150")
    assert resumed == whole
    assert float(whole.split()[-1]) < 0.3


@pytest.mark.parametrize("place", ["cpu", *(place for place in DEVICES if place != "simt")])
def test_example_of_dali(place):
    pytest.importorskip("nvidia.dali")
    device, memory = ("cpu", "host") if place == "cpu" else ("cuda:0", "GPU")
    wanted = [f"epoch {i}: 31 batches of [16, 3, 32, 64] on the {memory}" for i in range(2)]
    assert example("loader_dali.py", "--device", device) == wanted
