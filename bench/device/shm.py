"""From shared memory to a GPU: a received array of an arena that is pinned, of one that is not,
and what the bus takes.

shm.py OUT.json [--mib 392] [--runs 20]. Needs torch with CUDA. Another process fills the array and
sends it by a channel; this one copies what it received to the device, by torch. The limit is the
same copy from torch's own pinned memory. All take turns; times are the device's, of one copy.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
from pathlib import Path

import headrace as hr
import numpy as np
import torch
from headrace import shm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
import machine


def produce(arena: shm.Arena, channel: shm.Channel, nbytes: int) -> None:
    x = arena.empty((nbytes // 4,), np.float32)
    x[:] = np.arange(x.size, dtype=np.float32)
    channel.put(x)
    channel.put("done", timeout=60)


def received(nbytes: int, pin: bool) -> tuple[shm.Arena, torch.Tensor]:
    arena = shm.Arena(nbytes + 2**20, pin=pin)
    channel = arena.channel(1)
    producer = multiprocessing.get_context("fork").Process(
        target=produce, args=(arena, channel, nbytes)
    )
    producer.start()
    x = channel.get(timeout=60)
    assert channel.get(timeout=60) == "done"
    producer.join()
    writable = np.ndarray(x.shape, x.dtype, arena._memory, _offset(arena, x))
    return arena, torch.from_numpy(writable)


def _offset(arena: shm.Arena, x: np.ndarray) -> int:
    return x.__array_interface__["data"][0] - arena._memory.__array_interface__["data"][0]


def seconds(source: torch.Tensor, there: torch.Tensor) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    there.copy_(source, non_blocking=True)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mib", type=int, default=392)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    nbytes = options.mib * 2**20

    # The processes that produce are forked before this one has a context.
    unpinned_arena, unpinned = received(nbytes, pin=False)
    pinned_arena, pinned = received(nbytes, pin=False)
    pinned_arena.pin()
    sources = {
        "arena, pinned": pinned,
        "arena, not pinned": unpinned,
        "torch's pinned memory": torch.empty(nbytes // 4).pin_memory(),
        "torch's pageable memory": torch.ones(nbytes // 4),
    }
    there = torch.empty(nbytes // 4, device="cuda")
    times = {name: [] for name in sources}
    for run in range(options.runs + 2):
        for name, source in sources.items():
            taken = seconds(source, there)
            if run >= 2:
                times[name].append(taken)
            if "arena" in name:
                assert float(there[-1]) == float(np.float32(nbytes // 4 - 1))
    rows = [
        {
            "source": name,
            "gb_per_s": nbytes / statistics.median(taken) / 1e9,
            "spread": [nbytes / max(taken) / 1e9, nbytes / min(taken) / 1e9],
        }
        for name, taken in times.items()
    ]
    for row in rows:
        print(f"{row['source']:26} {row['gb_per_s']:6.1f} GB/s")
    result = {
        "made": machine.now(),
        "commit": machine.commit(),
        "machine": machine.describe(Path.cwd()),
        "device": torch.cuda.get_device_name(),
        "versions": {"headrace": hr.__version__, "torch": torch.__version__},
        "nbytes": nbytes,
        "runs": options.runs,
        "rows": rows,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    del unpinned_arena


if __name__ == "__main__":
    main()
