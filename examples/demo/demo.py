"""Real climate data from Zarr to the best device of this machine: checked, timed and drawn.

    make demo        (or: python examples/demo/demo.py)

Takes NetCDF files, writes their variables as Zarr v2 (blosc) and v3 (zstd, sharded) through xarray,
reads every array with zarr-python and with headrace, compares the two bit for bit, times both in
turn, and draws maps from what headrace read. The exit status is 1 if any array differs.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import convert
import maps
import numpy as np
import sources
import zarr
from rich.console import Console
from rich.table import Table

try:
    import headrace as hr
except ImportError as missing:
    sys.exit(f"headrace is not installed here ({missing}); run `make build`, then `make demo`")

HOME = Path(__file__).resolve().parents[2] / "demo"


@dataclass
class Result:
    stored: convert.Stored
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    equal: bool
    zarr_s: float
    headrace_s: float

    @property
    def speed_up(self) -> float:
        return self.zarr_s / self.headrace_s


def to_numpy(x) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else x.to_numpy()


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return np.array_equal(np.ascontiguousarray(a).view("u1"), np.ascontiguousarray(b).view("u1"))


def _seconds(read) -> float:
    start = time.perf_counter()
    read()
    return time.perf_counter() - start


def measure(stored: convert.Stored, device: str, rounds: int) -> Result:
    theirs = zarr.open_array(stored.array, mode="r")
    ours = hr.open_array(stored.array, mode="r", device=device)
    # The comparison is the warm-up too: it brings the files into the page cache.
    equal = same_bits(theirs[...], to_numpy(ours[...]))
    zarr_s, headrace_s = [], []
    for _ in range(rounds):
        zarr_s.append(_seconds(lambda: theirs[...]))
        headrace_s.append(_seconds(lambda: ours[...]))
    return Result(
        stored,
        theirs.shape,
        str(theirs.dtype),
        theirs.nbytes,
        equal,
        statistics.median(zarr_s),
        statistics.median(headrace_s),
    )


def _table(results: list[Result], device: str) -> Table:
    table = Table(title=f"Zarr to {device}", title_justify="left", header_style="bold")
    for name in ("file", "variable", "shape", "dtype", "Zarr"):
        table.add_column(name, no_wrap=True)
    for name in ("MB", "zarr-python MB/s", "headrace MB/s", "speed-up"):
        table.add_column(name, justify="right")
    table.add_column("equal", justify="center")
    for r in results:
        variable = r.stored.variable
        table.add_row(
            variable.file,
            variable.name,
            " x ".join(map(str, r.shape)),
            r.dtype,
            convert.FORMATS[r.stored.zarr_format],
            f"{r.nbytes / 1e6:.0f}",
            f"{r.nbytes / r.zarr_s / 1e6:.0f}",
            f"{r.nbytes / r.headrace_s / 1e6:.0f}",
            f"{r.speed_up:.1f}x",
            "[green]yes" if r.equal else "[bold red]NO",
            end_section=r.stored.zarr_format == 3,
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", help='"auto", "cpu", "cuda:0", ...')
    parser.add_argument("--source", default="auto", choices=("auto", "ferret", "iris"))
    parser.add_argument("--mb", type=int, default=100, help="least size of an array")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--home", type=Path, default=HOME, help="where cache/ and out/ are")
    args = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console.width = 160  # a log has no edge to wrap at

    cache = args.home / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with console.status("Looking for climate data"):
            source = sources.fetch(cache, args.source)
    except sources.FetchError as error:
        console.print(f"[bold red]No climate data:[/] {error}")
        return 1
    console.print(f"Data: {source.name}, {source.folder}")
    with console.status("Writing Zarr stores (only the first time)"):
        stored = convert.prepare(source, cache, args.mb * 10**6)
    console.print(
        f"The files are small: each variable is repeated along a first axis, tile, to at least "
        f"{args.mb} MB. Chunks of about 1 MB hold one tile, so the repeats compress no better."
    )

    device = str(hr.open_array(stored[0].array, mode="r", device=args.device).device)
    results = []
    with console.status("Reading") as status:
        for s in stored:
            status.update(f"Reading {s.path.name}")
            results.append(measure(s, args.device, args.rounds))
    console.print(_table(results, device))

    versions = f"headrace {hr.__version__}, zarr-python {zarr.__version__}"
    console.print(
        f"{versions}; median of {args.rounds} rounds in turn, warm page cache. "
        f"Speed-up: median {statistics.median(r.speed_up for r in results):.1f}x, "
        f"least {min(r.speed_up for r in results):.1f}x."
    )
    picture = args.home / "out" / f"maps-{source.name.split()[-1]}.png"
    sharded = [s for s in stored if s.zarr_format == 3]
    reader = maps.Reader(hr, sharded, args.device, to_numpy)
    caption = (
        f"{source.name}; read by headrace {hr.__version__} from Zarr v3 (zstd, sharded) to {device}"
    )
    maps.draw(reader, caption, picture)
    console.print(f"Picture: {picture}")

    wrong = [r for r in results if not r.equal]
    if wrong:
        names = ", ".join(r.stored.path.name for r in wrong)
        console.print(f"[bold red]{len(wrong)} of {len(results)} arrays differ:[/] {names}")
        return 1
    console.print(f"[green]All {len(results)} arrays are equal, bit for bit.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
