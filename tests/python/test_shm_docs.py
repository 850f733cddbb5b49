"""The examples of headrace.shm, in docs/shm.md and in examples/, run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import needs_publications

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "shm.md").read_text(), re.S)
    if "--8<--" not in block
]


def run_example(name, *args):
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_page_has_examples():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, marks=needs_publications) if "shm.publish" in block else block
        for block in BLOCKS
    ],
)
def test_examples_of_the_page(tmp_path, block):
    script = tmp_path / "example.py"  # children import it
    script.write_text(block)
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_queue_example():
    lines = run_example("shm_queue.py").splitlines()
    assert [line.split()[0] for line in lines] == [str(seed) for seed in range(8)]


def test_data_loader_example():
    pytest.importorskip("torch")
    out = run_example("shm_dataloader.py", "--steps", "24", "--arena", "256MiB")
    assert out.startswith("mean 11.50, ") and out.endswith(", 0 of them pickled\n")
