"""Four processes that save and load together: run by test_torch_distributed.py with a folder."""

import os
import sys
from pathlib import Path

import headrace as hr
import torch
import torch.distributed as dist
from headrace.torch import _save, load_state_dict, save_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

SIZE = 4
SHAPE = (10, 9)
PLACEMENTS = {
    "rows": [Replicate(), Shard(0)],
    "columns": [Replicate(), Shard(1)],
    "both": [Shard(0), Shard(1)],
    "twice": [Shard(0), Shard(0)],  # 10 rows: 3, 2, 3, 2 on no regular grid
    "copies": [Replicate(), Replicate()],
}


def values(shape=SHAPE):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def placements_meet(store, rank):
    mesh = init_device_mesh("cpu", (2, 2))
    state = {name: distribute_tensor(values(), mesh, at) for name, at in PLACEMENTS.items()}
    # Of two rows one process of each pair has none.
    state["short"] = distribute_tensor(values((1, 3)), mesh, [Shard(0), Shard(0)])
    state["plain"] = torch.full((3,), float(rank))
    save_state_dict({"model": state, "step": 5}, store, chunk_nbytes=64, shard_nbytes=128)

    loaded = load_state_dict(store)
    assert loaded["step"] == 5
    for name in PLACEMENTS:
        assert torch.equal(loaded["model"][name], values()), name
    assert torch.equal(loaded["model"]["short"], values((1, 3)))
    assert torch.equal(loaded["model"]["plain"], torch.zeros(3))

    for at in PLACEMENTS.values():
        target = {name: distribute_tensor(torch.zeros(SHAPE), mesh, at) for name in PLACEMENTS}
        target = {"model": target}
        load_state_dict(store, into=target, strict=False)
        for name, tensor in target["model"].items():
            assert torch.equal(tensor.full_tensor(), values()), (name, at)


def each_reads_its_part(store, rank):
    mesh = init_device_mesh("cpu", (SIZE,))
    whole = values((16, 8))
    save_state_dict({"x": distribute_tensor(whole, mesh, [Shard(0)])}, store)
    array = hr.open_array(store, "x")
    assert array.chunks == (4, 8)
    dist.barrier()
    if rank == 0:
        (Path(store) / "x" / "c" / "3" / "0").write_bytes(b"cut short")
    dist.barrier()
    target = {"x": distribute_tensor(torch.zeros(16, 8), mesh, [Shard(0)])}
    try:
        load_state_dict(store, into=target)
    except hr.CorruptError:
        assert rank == 3
    else:
        assert rank != 3
        assert torch.equal(target["x"].to_local(), whole[4 * rank : 4 * rank + 4])


def fully_sharded_module(store, rank):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Linear(10, 3))
    whole = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_state_dict(whole, f"{store}/whole-{rank}")  # no DTensor: each for itself
    fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
    save_state_dict(model.state_dict(), f"{store}/sharded")
    for name, tensor in load_state_dict(f"{store}/sharded").items():
        assert torch.equal(tensor, whole[name]), name
    for source in ("sharded", f"whole-{rank}"):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        load_state_dict(f"{store}/{source}", into=model)
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor.full_tensor(), whole[name]), name


def failure_is_everybodys(store, rank):
    mesh = init_device_mesh("cpu", (SIZE,))
    state = {"x": distribute_tensor(values((8, 2)), mesh, [Shard(0)])}
    start = _save._Target._start
    if rank == 2:
        _save._Target._start = lambda *_: (_ for _ in ()).throw(OSError("disk full"))
    try:
        save_state_dict(state, store)
    except OSError as error:
        assert rank == 2 and str(error) == "disk full"
    except RuntimeError as error:
        assert rank != 2 and str(error) == "rank 2 failed: OSError: disk full", error
    else:
        raise AssertionError("the save went through")
    finally:
        _save._Target._start = start
    try:
        load_state_dict(store)
    except ValueError as error:
        assert "no state dict" in str(error)
    else:
        raise AssertionError("half a state dict was loaded")
    dist.barrier()
    for of_one, why in [(0, "rank 1 lacks this"), (1, "rank 1 has what the first process lacks")]:
        more = {"y": state["x"] + 1} if rank == of_one else {}
        try:
            save_state_dict(state | more, store, overwrite=True)
        except (ValueError, RuntimeError) as error:
            assert f"y: {why}" in str(error)
        else:
            raise AssertionError("unequal names were saved")


def disks_of_their_own(store, rank):
    """One path, which on another machine leads to what was saved there before."""
    mesh = init_device_mesh("cpu", (SIZE,))
    place = f"{store}-{rank // 2}"
    if rank == 2:
        save_state_dict({"x": -values((8, 2))}, place)
    dist.barrier()
    state = {"x": distribute_tensor(values((8, 2)), mesh, [Shard(0)])}
    try:
        save_state_dict(state, place)
    except (ValueError, RuntimeError) as error:
        assert "is not what the first process made there" in str(error), error
    else:
        raise AssertionError("parts were written to two places")
    dist.barrier()
    if rank == 2:
        assert torch.equal(load_state_dict(place)["x"], -values((8, 2)))


CASES = (
    placements_meet,
    each_reads_its_part,
    fully_sharded_module,
    failure_is_everybodys,
    disks_of_their_own,
)


def run(folder, rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=SIZE)
    for case in CASES:
        case(f"{folder}/{case.__name__}", rank)
        dist.barrier()
    dist.destroy_process_group()


def main():
    children = []
    for rank in range(SIZE):  # forked: torch is imported once
        child = os.fork()
        if child == 0:
            try:
                run(sys.argv[1], rank)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * SIZE


if __name__ == "__main__":
    main()
