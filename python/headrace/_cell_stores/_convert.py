"""`convert` and `write`: cells as one sharded store of AnnData, shuffled once.

1. Cells are read in blocks that fit into memory, one behind another, each block is put into the
   order of the places of its cells in the result, and is kept in a folder `rows/<block>`.
2. Each shard of the result is gathered from all blocks, of each of which it takes consecutive rows.
3. The frames are written, and the folder gets its name, all at once.

All lies in `<out>.converting` until then. A block, and the mark of a shard that is done, appear
whole and after what they say is on the disk; so a call that was killed goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import IO, Any

import numpy as np

from .. import _check
from .._cells import cells as open_cells
from .._cells._anndata import encoding, name_of
from .._cells._data import _opened
from .._place import overlap
from .._progress import Progress, showing
from ..config import _nbytes
from ..errors import CorruptError
from ..group import Group
from ._frames import common_columns, digest, names_of_cells, write_frames
from ._memory import InMemory
from ._rows import Conversion, Job

_VERSION = 1
# What is in the folder of the work.
_WORK = {
    "lock", "workers", "job.json", "job.tmp", "prepared", "rows", "done", "store", "finished",
}  # fmt: skip


def convert(
    stores: Any,
    out: str | os.PathLike[str],
    *,
    matrices: Iterable[str] | None = None,
    obs: Iterable[str] | None = None,
    join: str = "inner",
    shuffle: bool = True,
    seed: int = 0,
    chunk_rows: int = 64,
    shard_size: int | str = "1GB",
    max_memory: int | str = "4GiB",
    processes: int = 1,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
) -> Group:
    """Write the cells of AnnData stores and files as one store, shuffled, in shards.

    It is laid out as annbatch lays out its own: Blosc (LZ4, level 3, shuffle), chunks of about
    ``chunk_rows`` cells, indices of the smallest type; anndata, annbatch and `headrace.cells`
    read it. The order is a permutation of all cells, each as likely as any other. Rows are kept on
    the disk meanwhile, uncompressed, in ``<out>.converting``: that takes the room of all matrices.
    A call that was killed or failed goes on where it stopped when it is repeated; ``out`` is not
    there before it is whole.

    Parameters
    ----------
    stores
        As `headrace.cells` takes them, files ``.h5ad`` too.
    out
        Path of a folder.
    matrices
        Paths as "X", "layers/counts", "obsm/X_pca"; None: X and those of layers and obsm that all
        stores have, dense or csr_matrix.
    obs
        Columns; None: those that all stores have.
    join
        As in `headrace.cells`. Columns of var are kept where all stores have the same variables:
        those of the first.
    shuffle, seed
        False keeps the order. Of one seed the order is always the same.
    chunk_rows, shard_size
        Cells of a chunk in the mean, and the decoded bytes of a shard at most.
    max_memory
        Of the rows in memory, of all processes together; a shard takes a quarter at most, decoded.
        Columns of obs, names, and in each process some 50 bytes a cell are beside it.
    processes
        Each of them reads, gathers and compresses by all threads; more than one helps where
        Python's part of the work is what holds it.
    overwrite
        Replace what is at ``out``, and do not go on with another call's work.
    progress
        Called with the bytes done and the bytes in all, each row counted when it is kept and when
        it is written; True shows a bar on standard error.

    Raises
    ------
    ValueError
        There is something at ``out``; another process converts to it; what another call has left
        was made of other cells or arguments; stores that do not fit together, or have no matrix of
        these kinds in common; an X that is a csc_matrix, unless ``matrices`` names others.
    NotImplementedError
        ``out`` is a URL or a zip archive.
    headrace.CorruptError
        A store whose parts contradict each other.

    Examples
    --------
    >>> hr.cells.convert(["donor1.h5ad", "donor2.h5ad"], "atlas.zarr", seed=1)
    """
    options = _Options(
        matrices, obs, join, shuffle, seed, chunk_rows, shard_size, max_memory, overwrite
    )
    return _written(stores, out, options, processes, progress)


def write(
    adata: Any,
    out: str | os.PathLike[str],
    *,
    matrices: Iterable[str] | None = None,
    obs: Iterable[str] | None = None,
    join: str = "inner",
    shuffle: bool = True,
    seed: int = 0,
    chunk_rows: int = 64,
    shard_size: int | str = "1GB",
    max_memory: int | str = "4GiB",
    overwrite: bool = False,
    progress: Progress | bool | None = None,
) -> Group:
    """Write cells held in memory as one store, shuffled, in shards: `convert` of AnnData objects.

    Layout, order and guarantees are those of `convert`. Matrices are read where they lie: a
    csc_matrix is made a csr_matrix first, and of a dense one that is not C-contiguous there is a
    copy. A call that was killed or failed goes on when it is repeated with the same values, of
    which the work keeps a digest. Wants zarr-python.

    Parameters
    ----------
    adata
        An ``anndata.AnnData``, or a list of them, on the host.
    out, join, shuffle, seed, chunk_rows, shard_size, max_memory, overwrite, progress
        As in `convert`. ``max_memory`` is beside the objects themselves.
    matrices
        Paths as "X", "layers/counts", "obsm/X_pca"; None: X and those of layers and obsm that all
        objects have, dense or sparse, of numbers.
    obs
        Columns: numbers, booleans, strings, categorical ones; None: those that all objects have.

    Raises
    ------
    TypeError
        ``adata`` is no AnnData.
    ValueError
        As `convert`; an object that is backed by a file; a column of another kind.
    NotImplementedError
        ``out`` is a URL or a zip archive.
    headrace.CorruptError
        A sparse matrix whose parts contradict each other.

    Examples
    --------
    >>> hr.cells.write(adata, "atlas.zarr", seed=1)
    """
    options = _Options(
        matrices, obs, join, shuffle, seed, chunk_rows, shard_size, max_memory, overwrite
    )
    _folder(out)
    options.check()
    if obs is not None:
        options = replace(options, obs=list(obs))
    return _written(InMemory(adata, options.obs), out, options, 1, progress)


@dataclass(frozen=True)
class _Options:
    """What both take."""

    matrices: Iterable[str] | None
    obs: Iterable[str] | None
    join: str
    shuffle: bool
    seed: int
    chunk_rows: int
    shard_size: int | str
    max_memory: int | str
    overwrite: bool

    def check(self) -> None:
        for name, number, least in (("seed", self.seed, 0), ("chunk_rows", self.chunk_rows, 1)):
            _at_least(name, number, least)
        _check.flag("shuffle", self.shuffle)
        _check.flag("overwrite", self.overwrite)
        for name, given in (("matrices", self.matrices), ("obs", self.obs)):
            if given is not None and (isinstance(given, str) or not isinstance(given, Iterable)):
                raise _check.wrong_type(name, "names, or None", given)


def _at_least(name: str, number: int, least: int) -> None:
    _check.integer(name, number)
    if number < least:
        raise ValueError(f"{name}: expected {least} or more, got {number}")


def _written(
    stores: Any,
    out: Any,
    options: _Options,
    processes: int,
    progress: Progress | bool | None,
) -> Group:
    target = _folder(out)
    options.check()
    _at_least("processes", processes, 1)
    overwrite = options.overwrite
    work = target.with_name(target.name + ".converting")
    target.parent.mkdir(parents=True, exist_ok=True)
    over = work.with_name(work.name + ".over")
    if not overwrite and not _is_placed(work) and not over.exists():
        _refuse_what_is_at(target)
    _refuse_what_is_no_store(target)
    for folder in (work, over):
        _refuse_what_is_not_ours(folder)
    groups = stores.groups if isinstance(stores, InMemory) else _opened(stores)
    for group in groups:
        if overlap(group.store, group.path, str(target)):
            raise ValueError(f"cells: {target} and {name_of(group)}, a source, overlap")
    paths = _matrices(groups) if options.matrices is None else list(dict.fromkeys(options.matrices))
    if not paths:
        raise ValueError("matrices: expected one or more, got none")
    for path in paths:
        # Of raw and obsp more than rows would have to be moved.
        if path != "X" and str(path).partition("/")[0] not in ("layers", "obsm"):
            raise ValueError(f"matrices: expected X, layers/... or obsm/..., got {path!r}")
    columns = common_columns(groups) if options.obs is None else list(dict.fromkeys(options.obs))
    data = open_cells(groups, {path: path for path in paths}, obs=columns, join=options.join)
    names = names_of_cells(groups)
    memory = _nbytes("max_memory", options.max_memory) // processes
    job = Job(
        stores=None if isinstance(stores, InMemory) else stores,
        paths=tuple(paths),
        join=options.join,
        seed=int(options.seed) if options.shuffle else None,
        chunk_rows=int(options.chunk_rows),
        shard_nbytes=max(1, min(_nbytes("shard_size", options.shard_size), memory // 4)),
        block_nbytes=max(1, memory // 4),
        work=str(work),
        count=data.n_obs,
    )
    conversion = Conversion(job, data)
    identity = _identity(job, data, names)
    if isinstance(stores, InMemory):
        identity["values"] = stores.digest(paths)
    is_done = _removed(over, target, identity) and not (work / "job.json").exists()
    if is_done and not overwrite:
        return _opened_group(target)
    with _locked(work, target):
        if not overwrite and not _is_placed(work):  # as it is now that nobody else converts
            try:
                _refuse_what_is_at(target)
            except ValueError:
                if not (work / "job.json").exists():
                    _remove(work)
                raise
        with open(work / "workers", "w") as workers:
            fcntl.flock(workers, fcntl.LOCK_EX)  # those of a call that was killed end at once
        _begin(work, identity, overwrite)
        if not (work / "finished").exists():
            with showing(progress, "cells") as show:
                _move(job, conversion, processes, show)
            write_frames(conversion, groups, names)
            (work / "job.tmp").write_text(str((work / "store").stat().st_ino))
            os.rename(work / "job.tmp", work / "finished")
            _sync(work)
        if (work / "store").exists():
            if not overwrite:  # others may have put it there meanwhile
                _refuse_what_is_at(target)
            elif os.path.lexists(target):  # it goes whole, as what is new comes
                _refuse_what_is_no_store(target)  # others may have put that there, too
                os.rename(target, work / f"replaced-{os.getpid()}")
            os.rename(work / "store", target)  # fails where something was put there just now
            _sync(target.parent)
        # Under another name, which no call converts in, while it goes file by file.
        _refuse_what_is_not_ours(over)
        _remove(over)
        os.rename(work, over)
        _remove(over)
    return _opened_group(target)


def _opened_group(target: Path) -> Group:
    from .._open import open_group

    return open_group(target)


def _is_placed(work: Path) -> bool:
    """Whether a call was killed when its result was there, and it had only to remove its work."""
    return (work / "finished").exists() and not (work / "store").exists()


@contextmanager
def _locked(work: Path, target: Path) -> Iterator[None]:
    while True:
        work.mkdir(exist_ok=True)
        try:
            lock = open(work / "lock", "w")  # noqa: SIM115
        except FileNotFoundError:  # who had it has just renamed the folder
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"cells: another process converts to {target}") from None
            if _is_at(lock, work / "lock"):
                try:
                    yield
                finally:  # a child that was forked meanwhile has the descriptor, too
                    fcntl.flock(lock, fcntl.LOCK_UN)
                return


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether it still is: who had its lock may have renamed or removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _removed(over: Path, target: Path, identity: Mapping[str, Any]) -> bool:
    """Removes what a killed call had begun to remove; whether that made what is at the target, of
    the same cells by the same arguments."""
    try:
        lock = open(over / "lock", "r+")  # noqa: SIM115
    except FileNotFoundError:
        _remove(over)  # nearly gone, if it is there
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # it was not killed
            return False
        try:
            found = json.loads((over / "job.json").read_text())
            made = (over / "finished").read_text()
            is_it = found == identity and made == str(target.stat().st_ino)
        except (FileNotFoundError, ValueError):
            is_it = False
        _remove(over)
    return is_it


def _remove(folder: Path) -> None:
    """What says whose it was goes last."""
    last = ("finished", "job.json", "lock")
    with suppress(FileNotFoundError):  # another call removes it, too
        names = [name for name in os.listdir(folder) if name not in last]
        for path in (folder / name for name in (*names, *last)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        folder.rmdir()


def _refuse_what_is_at(target: Path) -> None:
    if os.path.lexists(target):
        raise ValueError(f"cells: there is something at {target}: overwrite=True replaces it")


def _refuse_what_is_no_store(target: Path) -> None:
    """Only a store is replaced, and what is empty."""
    documents = ("zarr.json", ".zgroup", ".zarray")
    if not os.path.lexists(target) or any((target / name).is_file() for name in documents):
        return
    if not target.is_dir() or any(target.iterdir()):
        raise ValueError(f"cells: {target} is no Zarr store, and is not replaced")


def _refuse_what_is_not_ours(work: Path) -> None:
    """A folder of the name that work goes by, with other things in it than work has."""
    if not os.path.lexists(work):
        return
    ours = work.is_dir() and all(
        path.name in _WORK or path.name.startswith("replaced-") for path in work.iterdir()
    )
    if not ours:
        raise ValueError(f"cells: {work} is in the way, and holds what is not of a conversion")


def _folder(out: Any) -> Path:
    if not isinstance(out, str | os.PathLike):
        raise _check.wrong_type("out", "the path of a folder", out)
    path = os.fsdecode(out)
    if "://" in path or path.lower().endswith(".zip"):
        raise NotImplementedError(
            f"cells: {path} is no folder: convert to one, and copy it there (headrace cp)"
        )
    return Path(os.path.abspath(path))


def _matrices(groups: Sequence[Group]) -> list[str]:
    """Those that all stores have and that are read; says which are left out."""
    found = [_matrices_of(group) for group in groups]
    kept = [path for path in found[0] if all(own.get(path) in _READ for own in found)]
    if not kept:
        there = [f"{path} ({kind})" for own in found for path, kind in own.items()]
        raise ValueError(
            "matrices: expected X, layers or obsm with a matrix that all have, csr_matrix or array "
            f"of two dimensions, found {', '.join(dict.fromkeys(there)) or 'none'}"
        )
    for group, own in zip(groups, found, strict=True):
        if own.get("X") == "csc_matrix":
            raise ValueError(
                f"matrices: X of {group.store.url} is a csc_matrix, which is not read: leave it "
                f"out (matrices={kept}), or give the object to hr.cells.write, which makes it a "
                "csr_matrix"
            )
    left_out = sorted({path for own in found for path in own} - set(kept))
    for name in ("raw", "uns", "obsp", "varm", "varp"):
        if any(name in group and _has_something(group[name]) for group in groups):
            left_out.append(name)
    if left_out:
        warnings.warn(f"cells: left out: {', '.join(left_out)}", stacklevel=4)
    return kept


def _has_something(node: Any) -> bool:
    return bool(node.keys()) if isinstance(node, Group) else encoding(node) != "null"


def _group(group: Group, name: str) -> Group:
    found = group[name]
    if not isinstance(found, Group):
        raise CorruptError(f"{name_of(found)}: expected a group, got an array")
    return found


# Kinds of matrices.
_READ = ("csr_matrix", "array")


def _matrices_of(group: Group) -> dict[str, str]:
    """Paths of matrices, and their kinds."""
    paths = ["X"] if "X" in group else []
    for folder in ("layers", "obsm"):
        if folder in group:
            paths += [f"{folder}/{name}" for name in _group(group, folder)]
    found = {}
    for path in paths:
        node = group[path]
        kind = encoding(node)
        if isinstance(node, Group):
            kind = "group of arrays" if kind == "array" else kind
        elif kind == "array" and node.ndim != 2:
            kind = f"array of shape {node.shape}"
        found[path] = kind
    return found


def _identity(job: Job, data: Any, names: np.ndarray[Any, Any]) -> dict[str, Any]:
    """What a call goes on with: the same cells, by their metadata, and the same arguments."""
    return {
        "version": _VERSION,
        "arguments": [
            list(job.paths), job.join, job.seed, job.chunk_rows, job.shard_nbytes, job.block_nbytes,
            sorted(data.obs),
        ],
        "cells": digest(data, names),
    }  # fmt: skip


def _begin(work: Path, identity: Mapping[str, Any], overwrite: bool) -> None:
    """Notes what is done here, or checks that it is what was begun."""
    note = work / "job.json"
    if note.exists():
        try:
            found = json.loads(note.read_text())
        except ValueError:
            found = None
        if found == identity:
            return
        if not overwrite:
            raise ValueError(
                f"cells: {work} was begun with other cells or arguments: overwrite=True, or "
                "removing it, begins anew"
            )

    def noted(what: Mapping[str, Any]) -> None:
        (work / "job.tmp").write_text(json.dumps(what))
        _sync(work)
        os.rename(work / "job.tmp", note)

    if note.exists():
        noted({})  # of what is half removed nothing goes on
    for path in work.iterdir():
        if path.name not in ("lock", "workers", "job.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    noted(identity)


def _sync(folder: Path) -> None:
    """All of the file system that the folder is on."""
    from .._stores import open_store

    open_store(folder, mode="r+").sync()


_conversion: Conversion | None = None
_alive: int | None = None  # a file whose lock says that this process may still write


def _start(job: Job) -> None:
    """In a process of the pool, which is not to outlive the one that began it."""
    global _conversion, _alive
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal it gets to all; the first ends
    _alive = os.open(Path(job.work) / "workers", os.O_RDWR)  # kept until the process ends
    fcntl.flock(_alive, fcntl.LOCK_SH)
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    _conversion = Conversion(job)


def _begun(pool: ProcessPoolExecutor, tasks: list[tuple[str, Any]]) -> Iterator[None]:
    """Their results. Processes that are started here hear of no interrupt before they ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.map(_do, tasks)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _do(task: tuple[str, Any]) -> None:
    assert _conversion is not None
    kind, what = task
    _conversion.block(what) if kind == "block" else _conversion.shard(*what)


def _move(job: Job, conversion: Conversion, processes: int, show: Progress | None) -> None:
    """Both passes. Bytes are counted as the sources have them, in the second in proportion."""
    sizes = conversion.block_sizes
    everything = sum(sizes)
    blocks = conversion.blocks_to_do()
    done = everything - sum(sizes[number] for number in blocks)

    def kept(number: int) -> None:
        nonlocal done
        done += sizes[number]
        if show is not None and done < everything:
            show(done, 2 * everything)

    if show is not None and done < everything:
        show(done, 2 * everything)
    _run(job, conversion, "block", blocks, processes, kept)
    conversion.prepare()
    shards = conversion.shards_to_do()
    left = sum(conversion.shard_nbytes(*task) for task in shards)
    elements = max(conversion.result_nbytes, 1)

    def show_shards() -> None:
        if show is not None:
            show(2 * everything - everything * left // elements, 2 * everything)

    def written(task: tuple[int, int]) -> None:
        nonlocal left
        left -= conversion.shard_nbytes(*task)
        show_shards()

    show_shards()
    _run(job, conversion, "shard", shards, processes, written)


def _run(
    job: Job,
    conversion: Conversion,
    kind: str,
    tasks: Sequence[Any],
    processes: int,
    done: Callable[[Any], None],
) -> None:
    if processes == 1 or len(tasks) < 2:
        for task in tasks:
            conversion.block(task) if kind == "block" else conversion.shard(*task)
            done(task)
        return
    count = min(processes, len(tasks))
    with (
        ProcessPoolExecutor(
            count, get_context("spawn"), initializer=_start, initargs=(job,)
        ) as pool,
        # Closed, it drops what no process has begun; an interrupt waits for the others.
        closing(_begun(pool, [(kind, task) for task in tasks])) as results,  # type: ignore[type-var]
    ):
        for task, _ in zip(tasks, results, strict=True):
            done(task)
