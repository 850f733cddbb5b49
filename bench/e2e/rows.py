"""The rows: layout x codec x access, and the calls each makes on its array; see README.md."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np
from e2e.data import CODECS, LAYOUTS, NLAT, NLON

ACCESSES = ("whole", "out", "step", "chunk", "series", "box", "write")
# Rows of many small calls: the time of one call says more than MB/s.
PER_CALL = ("chunk", "series")


@dataclass
class Row:
    layout: str
    codec: str
    access: str
    # One list a call; in it [start, stop] or an index for each axis.
    selections: list = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.layout}-{self.codec}-{self.access}"


def nbytes(selections: list) -> int:
    counts = [np.prod([i[1] - i[0] if isinstance(i, list) else 1 for i in s]) for s in selections]
    return int(sum(counts)) * 4


def _chunk_calls(layout: str, steps: int, count: int) -> list:
    """`count` chunks (inner chunks where sharded) in a fixed random order, clipped to the array."""
    outer, inner = LAYOUTS[layout]
    chunk = inner or outer
    shape = (steps, NLAT, NLON)
    grid = [range(0, n, c) for n, c in zip(shape, chunk, strict=True)]
    starts = [(t, y, x) for t in grid[0] for y in grid[1] for x in grid[2]]
    order = np.random.default_rng(7).permutation(len(starts))[:count]
    return [
        [[b, min(b + c, n)] for b, c, n in zip(starts[i], chunk, shape, strict=True)] for i in order
    ]


def _selections(layout: str, access: str, steps: int) -> list:
    everything = [[0, steps], [0, NLAT], [0, NLON]]
    if access in ("whole", "out", "write"):
        return [everything]
    if access == "step":
        order = np.random.default_rng(7).permutation(steps)[:16]
        return [[int(t), [0, NLAT], [0, NLON]] for t in order]
    if access == "chunk":
        return _chunk_calls(layout, steps, 16 if layout == "4MiB" else 256)
    if access == "series":
        points = np.random.default_rng(7).integers((0, 0), (NLAT, NLON), (2, 2))
        return [[[0, steps], int(y), int(x)] for y, x in points]
    return [[[0, steps], [300, 420], [500, 740]]]


def select(patterns: list[str], steps: int) -> list[Row]:
    """All rows whose name matches one of the shell patterns, in the order they are run."""
    rows = [
        Row(layout, codec, access, _selections(layout, access, steps))
        for layout in LAYOUTS
        for codec in CODECS
        for access in ACCESSES
    ]
    chosen = [r for r in rows if any(fnmatchcase(r.name, p) for p in patterns)]
    if not chosen:
        raise ValueError(f"no row matches {patterns}; rows are {rows[0].name}, {rows[1].name}, ...")
    return chosen
