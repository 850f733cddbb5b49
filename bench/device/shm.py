"""From shared memory to a GPU: a received array of an arena that is pinned, of one that is not,
and what the bus takes.

Needs torch with CUDA. Another process fills the array and
sends it by a channel; this one copies what it received to the device, by torch. The limit is the
same copy from torch's own pinned memory. All take turns; times are the device's, of one copy.
"""

import multiprocessing
import statistics
from functools import partial
from pathlib import Path

import harness
import numpy as np
import torch
from headrace import shm


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
    args = harness.parser(__doc__, mib=392, runs=20).parse_args()
    nbytes = args.mib * 2**20

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

    def copied(name: str, source: torch.Tensor) -> float:
        taken = seconds(source, there)
        if "arena" in name:
            assert float(there[-1]) == float(np.float32(nbytes // 4 - 1))
        return taken

    ways = {name: partial(copied, name, source) for name, source in sources.items()}
    times = harness.in_turns(ways, args.runs, warm_ups=2)
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
    head = harness.head("shm-device", Path("/dev/shm"), "headrace", "torch")
    device = torch.cuda.get_device_name()
    report = {**head, "device": device, "nbytes": nbytes, "runs": args.runs, "rows": rows}
    harness.save(report, args.out)
    del unpinned_arena


if __name__ == "__main__":
    main()
