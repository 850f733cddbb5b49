"""The weights of a PyTorch network as a Zarr group: save, load, load in part, go on training."""

import tempfile

import headrace as hr
import torch
from headrace.torch import load_metadata, load_state_dict, save_state_dict

folder = tempfile.TemporaryDirectory()
path = f"{folder.name}/model.zarr"


def network(**kwargs):
    return torch.nn.Sequential(
        torch.nn.Linear(64, 256, **kwargs), torch.nn.GELU(), torch.nn.Linear(256, 10, **kwargs)
    )


model = network(dtype=torch.bfloat16)
save_state_dict(model.state_dict(), path, metadata={"step": 1000})
print(hr.open(path).tree())  # arrays like any others

# Into the parameters that are there, on whatever device they are.
other = network(dtype=torch.bfloat16)
print(load_state_dict(path, into=other), load_metadata(path))
assert torch.equal(other[0].weight, model[0].weight)

# A network without memory gets its parameters where they are to be, as what they are to be.
large = network(device="meta")
load_state_dict(path, into=large, device="cpu", dtype=torch.float32)
assert torch.equal(large[2].weight, model[2].weight.float())

# A part of it; and a part of one tensor, as of every Zarr array.
last = load_state_dict(path, names=lambda name: name.startswith("2."))
assert list(last) == ["2.weight", "2.bias"]
rows = hr.open_array(path, "0.weight")[:16]
assert rows.shape == (16, 64)

# Optimizers and whatever else a run needs.
run = {"model": model.state_dict(), "seed": 7, "schedule": [("warmup", 100), ("cosine", None)]}
save_state_dict(run, f"{folder.name}/run.zarr")
assert load_state_dict(f"{folder.name}/run.zarr")["schedule"] == run["schedule"]
folder.cleanup()
