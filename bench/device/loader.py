"""Training on GPUs: shuffled, normalised bfloat16 batches of ERA5-like fields, beside its peers.

    python bench/run.py loader-device
    python bench/run.py loader-device -- --device cpu --cores 2 --variables 1 --steps 32

A sample is one step of all variables, (x - mean) / std in bfloat16 in the GPU's memory. headrace
decodes and converts there; the peers (loader_peers.py) read and decode on the host: zarr-python in
`--cores` workers of a DataLoader or of DALI's external source, xbatcher in the same, insitubatch
and zarr-beluga in their threads. Their batches are copied from pinned memory and converted on the
GPU. Those that are not installed are left out. Every peer runs on `--cores` processors a GPU, in
processes of its own started by torchrun, and takes its turn. CPU seconds are those of its workers
too, from their start. Two ways to consume, each for
--seconds: as fast as batches come ("fast"), and with a training step of 0.1 s, which multiplies
matrices ("train"). The stall is the share of the time in which the loop waited for a batch.
Every step has to come once an epoch, over all ranks. The files are in the page cache.
"""

import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np
from e2e import data, loader_data
from e2e.loader_worker import cpu_seconds

STEP_S = 0.1


class Work:
    """A training step: products of matrices that take STEP_S."""

    def __init__(self, device):
        import torch

        self._torch = torch
        n = 256 if device == "cpu" else 4096
        self._a = torch.randn(n, n, device=device, dtype=torch.bfloat16) / 64
        self._times = 1
        self._seconds(20)
        self._times = max(round(STEP_S / (self._seconds(100) / 100)), 1)

    def _seconds(self, times):
        begin = time.perf_counter()
        for _ in range(times):
            self._a @ self._a
        if self._a.is_cuda:
            self._torch.cuda.synchronize()
        return time.perf_counter() - begin

    def step(self):
        self._seconds(self._times)


def look_at(batch) -> bool:
    """Takes every element, and waits for the device."""
    import torch

    total = sum(x.sum(dtype=torch.float32) for x in batch.values())
    return bool(torch.isfinite(total).item())


def consume(peer, job, work) -> dict:
    waits, times = [], []
    seen, ends = [], []
    first = None
    batches = peer.batches(job)
    cpu = cpu_seconds()
    begin = time.perf_counter()
    while True:
        asked = time.perf_counter()
        got = next(batches)
        if got is None:
            ends.append(len(seen))
            continue
        steps, batch = got
        if not look_at(batch):
            raise ValueError("a batch is not finite")
        now = time.perf_counter()
        if first is None:
            first = now - begin
        else:
            waits.append(now - asked)
        seen += steps
        del batch, got
        if work is not None:
            work.step()
        times.append(time.perf_counter() - begin)
        if times[-1] > job["seconds"] and ends:
            break
    seconds = time.perf_counter() - begin
    facts = peer.facts()
    batches.close()
    del batches
    gc.collect()  # ends workers, whose time counts then
    return {
        "seconds": round(seconds, 3),
        "first_batch_s": round(first, 3),
        "samples": len(seen),
        "epoch": seen[: ends[0]],
        "waited_s": sum(waits),
        "wait_p50_ms": round(1e3 * statistics.median(waits), 2),
        "wait_p99_ms": round(1e3 * float(np.percentile(waits, 99)), 2),
        "cpu_s": cpu_seconds() - cpu,
        **facts,
    }


def rank_main(job: dict, out: Path) -> None:
    """Of one process that torchrun started."""
    job["rank"] = int(os.environ["RANK"])
    cores = job["cores"]
    own = sorted(os.sched_getaffinity(0))[job["rank"] * cores : (job["rank"] + 1) * cores]
    os.sched_setaffinity(0, own)
    import torch
    from device.loader_peers import PEERS

    on_gpu = job["device"] == "cuda"
    if on_gpu:
        job["device"] = f"cuda:{job['rank']}"
        torch.cuda.set_device(job["device"])
        torch.zeros(1, device=job["device"])
    file = out / f"{job['rank']}.json"
    try:
        peer = PEERS[job["peer"]]()
        if job["gpus"] > 1 and not peer.ranks:
            raise ImportError(f"{job['peer']} has no ranks")
    except ImportError as error:
        file.write_text(json.dumps({"unavailable": str(error)}))
        return
    work = Work(job["device"]) if job["way"] == "train" else None
    found = consume(peer, job, work)
    found["versions"] = harness.versions("numpy", *peer.packages)
    if on_gpu:
        free, total = torch.cuda.mem_get_info()
        found["device_used_mib"] = (total - free) >> 20
    file.write_text(json.dumps(found))


def run(job: dict) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={job['gpus']}", __file__, "--out", folder]
        command += ["--job", json.dumps(job)]
        subprocess.run(command, check=True, env={**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"})
        ranks = [json.loads(p.read_text()) for p in sorted(Path(folder).glob("*.json"))]
    if "unavailable" in ranks[0]:
        return ranks[0]
    epoch = sorted(step for rank in ranks for step in rank.pop("epoch"))
    if job["steps"] % (job["gpus"] * job["batch"]) == 0 and epoch != job["times"]:
        raise ValueError(f"{job['peer']}: an epoch without each step once")
    seconds = max(rank["seconds"] for rank in ranks)
    nbytes = sum(rank["samples"] for rank in ranks) * job["sample_nbytes"]
    cpu = sum(rank["cpu_s"] for rank in ranks)
    return {
        "gb_per_s_per_gpu": round(nbytes / seconds / 1e9 / len(ranks), 3),
        "samples_per_s": round(nbytes / job["sample_nbytes"] / seconds, 1),
        "cores_per_gpu": round(cpu / seconds / len(ranks), 2),
        "cpu_s_per_gb": round(cpu / (nbytes / 1e9), 3),
        "stall": round(sum(rank["waited_s"] for rank in ranks) / len(ranks) / seconds, 4),
        "ranks": ranks,
    }


def job_of(path: Path, store: loader_data.Store, args) -> dict:
    import headrace

    group = headrace.open_group(str(path))
    statistics_of = {}
    for name in store.names:
        sample = group[name][:8]
        statistics_of[name] = (float(sample.mean()), float(sample.std()))
    return loader_data.job(
        path,
        store,
        args,
        statistics=statistics_of,
        times=group["time"][:].tolist(),
        block_chunks=args.block_chunks,
        memory_budget=args.memory_budget,
        cores=args.cores,
        workers=args.cores,
        gpus=args.gpus,
        device=args.device,
    )


def main() -> None:
    parser = harness.parser(
        __doc__,
        data=Path("/dev/shm/headrace-loader"),
        steps=256,
        lat=data.NLAT,
        lon=data.NLON,
        variables=6,
        chunk_steps=(1, 8),
        codecs=loader_data.CODECS,
        batch=8,
        block_chunks=8,
        memory_budget="4GiB",  # less than the data have
        peers=("",),  # all of loader_peers.py
        ways=("fast", "train"),
        seconds=5.0,
        cores=4,
        gpus=1,
        device="cuda",
        job="",  # of a process that torchrun starts
    )
    args = parser.parse_args()
    if args.job:
        rank_main(json.loads(args.job), args.out)
        return
    import torch
    from device.loader_peers import PEERS  # which brings torch, that workers have no use for

    args.data.mkdir(parents=True, exist_ok=True)
    named = ("steps", "variables", "batch", "block_chunks", "memory_budget", "seconds", "gpus")
    settings = {name: getattr(args, name) for name in named}
    report = {
        **harness.head("loader-cuda", args.data),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "settings": {**settings, "cores_per_gpu": args.cores, "step_s": STEP_S},
        "rows": [],
    }
    peers = list(PEERS) if args.peers == ("",) else args.peers
    for codec, chunk_steps in itertools.product(args.codecs, args.chunk_steps):
        shape = (args.steps, args.lat, args.lon, args.variables)
        store = loader_data.Store(*shape, chunk_steps, codec)
        job = job_of(loader_data.prepare(args.data, store), store, args)
        for way, peer in itertools.product(args.ways, peers):
            row = run({**job, "peer": peer, "way": way})
            if "unavailable" in row:
                print(f"{peer}: {row['unavailable']}", flush=True)
                continue
            about = {"codec": codec, "chunk_steps": chunk_steps, "way": way, "peer": peer}
            report["rows"].append({**about, **row})
            print(
                f"{codec:6} {chunk_steps:3} {way:6} {peer:18}"
                f" {row['gb_per_s_per_gpu']:7.2f} GB/s a GPU"
                f" {row['cores_per_gpu']:5.2f} cores stall {100 * row['stall']:5.1f} %",
                flush=True,
            )
            if args.out:
                harness.save(report, args.out)


if __name__ == "__main__":
    main()
