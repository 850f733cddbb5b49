"""Arrays between processes, without pickling or copying their bytes.

Examples
--------
>>> import headrace.shm as shm
>>> shm.install()  # multiprocessing's queues, pipes and pools, and torch's DataLoader, use it

or by hand:

>>> arena = shm.Arena("1GiB")
>>> channel = arena.channel(capacity=64)
>>> channel.put({"t2m": x})  # in one process
>>> channel.get(timeout=10)  # in another; x is a read-only view of shared memory
"""

from __future__ import annotations

from ._arena import Arena, Channel
from ._install import install, uninstall
from ._publish import Publication, attach, publish
from ._share import collate, share

__all__ = [
    "Arena",
    "Channel",
    "Publication",
    "attach",
    "collate",
    "install",
    "publish",
    "share",
    "uninstall",
]
