"""headrace.torch with DTensors: four processes, gloo, on the CPU."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_processes_save_and_load_their_parts(tmp_path):
    script = Path(__file__).with_name("torch_ranks.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr


def test_common_grid():
    from headrace.torch._parts import Part, common_grid

    def rows(*ranges):
        return [Part((start, 0), (stop - start, 5)) for start, stop in ranges]

    assert common_grid(rows((0, 4), (4, 8), (8, 9))) == (4, 5)
    assert common_grid(rows((0, 4), (4, 4))) == (4, 5)
    assert common_grid(rows((0, 3), (3, 5), (5, 8))) is None
    assert common_grid([Part((0,), (0,))]) == (0,)


def test_chunks_and_shards_divide_a_part():
    from headrace.torch._layout import Layout

    layout = Layout(chunk_nbytes=4000, shard_nbytes=16000)
    for rows in (1, 7, 96, 97, 100, 4096, 6):
        chunks, shards = layout.part((rows, 100), 4)
        assert rows % (shards or chunks)[0] == 0, rows
        assert (shards or chunks)[0] % chunks[0] == 0
    assert layout.part((96, 100), 4) == ((8, 100), (32, 100))
    assert layout.part((97, 100), 4) == ((97, 100), None)  # a prime
