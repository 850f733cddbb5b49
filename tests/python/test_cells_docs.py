"""The examples of cells, in docs/cells.md and in examples/, run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("zarr")

from cells_store import counts, write

ROOT = Path(__file__).resolve().parents[2]


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_examples_of_the_page(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        x = counts(rng, 150, 20)
        obs = {"cell_type": ["T", "B"] * 75}
        write(tmp_path / "atlas" / f"{name}.zarr", x, obs=obs, layers={"counts": x})
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "cells.md").read_text(), re.S)
    assert len(blocks) == 3
    assert run(tmp_path, "-c", "".join(blocks)) == ""


def test_training_example_resumes(tmp_path):
    def trained(*arguments):
        return run(tmp_path, str(ROOT / "examples" / "cells.py"), *arguments)

    trained("--steps", "70", "--state", "state.json")
    resumed, whole = trained("--steps", "120", "--state", "state.json"), trained("--steps", "120")
    assert resumed == whole
    assert int(re.search(r"(\d+)%", whole)[1]) > 80


def test_torch_example_learns(tmp_path):
    pytest.importorskip("torch")
    told = run(tmp_path, str(ROOT / "examples" / "cells_torch.py"))
    assert int(re.findall(r"(\d+)% of \d+ cells kept out", told)[-1]) > 80
