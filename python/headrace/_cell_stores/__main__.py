"""What ``headrace cells`` runs: `headrace.cells.convert` with the arguments of the command."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import warnings
from typing import Any, TextIO

from .. import _core
from .._cells._anndata import frame, length_of
from .._info import counted
from . import convert

_FAILED = 1


def _parser() -> argparse.ArgumentParser:
    """The command has checked them, and has the help."""
    parser = argparse.ArgumentParser("headrace cells", add_help=False, allow_abbrev=False)
    parser.add_argument("action", choices=["convert"])
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--matrix", action="append")
    parser.add_argument("--obs", action="append")
    parser.add_argument("--join", default="inner")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-shuffle", action="store_true")
    parser.add_argument("--chunk-rows", type=int, default=64)
    parser.add_argument("--shard-size", default="1GB")
    parser.add_argument("--max-memory", default="4GiB")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser


def _say(text: object) -> None:
    print(f"headrace: {_core.printable(str(text))}", file=sys.stderr)


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    del category, filename, lineno, file, line
    _say(message)


def _converted(given: argparse.Namespace) -> dict[str, Any]:
    *stores, out = given.stores
    group = convert(
        stores,
        out,
        matrices=given.matrix,
        obs=given.obs,
        join=given.join,
        shuffle=not given.no_shuffle,
        seed=given.seed,
        chunk_rows=given.chunk_rows,
        shard_size=given.shard_size,
        max_memory=given.max_memory,
        processes=given.processes,
        overwrite=given.overwrite,
        progress=True,
    )
    cells, variables = (length_of(frame(group, name)) for name in ("obs", "var"))
    return {"destination": out, "cells": cells, "variables": variables}


def main() -> int:
    given = _parser().parse_args()
    warnings.showwarning = _warned
    try:
        made = _converted(given)
        if given.json:
            print(json.dumps(made, indent=2), flush=True)
        else:
            cells, variables = made["cells"], made["variables"]
            text = f"{made['destination']}: {counted(cells, 'cell')}, "
            text += counted(variables, "variable")
            print(_core.printable(text), flush=True)
    except KeyboardInterrupt:
        _say("cells: stopped; the same command goes on")
        # As one that was ended by the signal, which the shell is to know.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return _FAILED
    except BrokenPipeError:  # who read what is printed has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except MemoryError:
        _say("out of memory")
        return _FAILED
    except KeyError as error:
        _say(error.args[0] if error.args else error)
        return _FAILED
    except (ValueError, NotImplementedError, OSError, RuntimeError) as error:
        _say(error)
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
