"""headrace into memory of a device that is there already; a call ends when the device has it."""

import headrace as hr
import torch
from e2e.peers.headrace_peer import MEMORY, versions  # noqa: F401

_out: dict = {}  # by the place and the shape


class OnDevice:
    """A result, copied to the host for whoever compares it."""

    def __init__(self, tensor: torch.Tensor):
        self._tensor = tensor

    def __array__(self, dtype=None, copy=None):
        return self._tensor.cpu().numpy()


def open_array(path: str, device: str):
    # What simt, kernels run on the CPU, takes for its memory is the host's.
    return hr.open_array(path, mode="r", device=device), "cpu" if device == "simt" else device


def read(opened, selection):
    array, place = opened
    if any(part != slice(0, n) for part, n in zip(selection, array.shape, strict=True)):
        raise ValueError("only whole arrays are read to a device")
    key = place, tuple(array.shape)
    if key not in _out:
        _out.clear()
        _out[key] = torch.empty(key[1], dtype=torch.float32, device=place)
    array.read(out=_out[key])
    if place != "cpu":
        torch.cuda.synchronize()
    return OnDevice(_out[key])
