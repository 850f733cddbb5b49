"""Rows of matrices moved to their places: the two passes of `convert` and `write`."""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core, codecs
from .._cells import Cells
from .._cells import cells as open_cells
from ..group import Group, create_group
from ..loader._cell_options import BatchMatrix, batch_matrix, is_wide_integer
from ..loader._cell_order import PlannedWindow
from ..loader._cell_windows import WindowReader

Rows = np.ndarray[Any, Any]
_EXACT = 2.0**53  # up to which float64 has all integers


@dataclass(frozen=True)
class Job:
    """What processes are told."""

    stores: Any
    paths: tuple[str, ...]
    join: str
    seed: int | None  # None: the order stays
    chunk_rows: int
    shard_nbytes: int
    block_nbytes: int
    work: str
    count: int  # of cells


class Conversion:
    """What one process does of a job, block by block and shard by shard."""

    def __init__(self, job: Job, cells: Cells | None = None) -> None:
        self.job = job
        if cells is None:
            cells = open_cells(job.stores, {path: path for path in job.paths}, join=job.join)
        if cells.n_obs != job.count:
            raise ValueError(f"cells: {job.count} cells became {cells.n_obs} meanwhile")
        self.cells = cells
        self.work = Path(job.work)
        # As rows are read of stores of several types, and as the result has them.
        self._read: list[BatchMatrix] = [self._matrix(path) for path in job.paths]
        self.matrices: list[BatchMatrix] = [
            dataclasses.replace(item, dtype=self._integers(item) or item.dtype)
            for item in self._read
        ]

    def _matrix(self, path: str) -> BatchMatrix:
        stored = {np.dtype(matrix.data.dtype) for matrix in self.cells.matrices(path)}
        wide = any(is_wide_integer(one) for one in stored)
        integers = all(one.kind in "biu" for one in stored)
        # Of what float64 does not hold the values are looked at, block by block.
        dtype = np.float64 if len(stored) > 1 and (wide or integers) else None
        output = "dense" if self._is_dense(path) else "csr"
        return batch_matrix(self.cells, path, output, dtype, None, "cpu")

    def _integers(self, item: BatchMatrix) -> np.dtype[Any] | None:
        """What stores of several types of integers become, where there is one that holds all."""
        stored = _types(item)
        if len(stored) == 1 or any(one.kind not in "biu" for one in stored):
            return None
        common = self.cells.dtype(item.selected.name)
        return None if common.kind == "f" else common

    def _is_dense(self, path: str) -> bool:
        """Where one store has it sparse it is sparse."""
        return all(matrix.indices is None for matrix in self.cells.matrices(path))

    @cached_property
    def order(self) -> Rows:
        """``(cells,)``: the cell at each place."""
        count = self.cells.n_obs
        if self.job.seed is None:
            return np.arange(count)
        return np.random.default_rng(self.job.seed).permutation(count)

    @cached_property
    def _places(self) -> Rows:
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places))
        return places

    @cached_property
    def _reader(self) -> WindowReader:
        # A block is bounded where it is cut; one row may be larger than all that is allowed.
        return WindowReader(self.cells, [item.selected for item in self.matrices], 1 << 62, "cpu")

    @property
    def edges(self) -> list[int]:
        """Blocks of cells that are read together: of one store, and no larger than is allowed."""
        return self._cuts[0]

    @property
    def block_sizes(self) -> list[int]:
        """Decoded bytes of each block, as the stores have them."""
        return self._cuts[1]

    @cached_property
    def _cuts(self) -> tuple[list[int], list[int]]:
        edges, sizes = [0], []
        for store in range(len(self.cells.offsets) - 1):
            first, end = (int(at) for at in self.cells.offsets[store : store + 2])
            nbytes = np.zeros(end - first + 1, np.int64)  # up to each row
            for item in self.matrices:
                matrix = item.selected.matrices[store]
                if matrix.indptr is None:
                    row = matrix.shape[1] * np.dtype(matrix.data.dtype).itemsize
                    nbytes += np.arange(len(nbytes)) * row
                else:
                    width = np.dtype(matrix.data.dtype).itemsize + 4
                    nbytes += np.asarray(matrix.indptr.read(device="cpu")).astype(np.int64) * width
            nbytes = np.maximum.accumulate(nbytes)  # what falls is found when it is read
            at = 0
            while at < end - first:
                begin, wanted = at, nbytes[at] + self.job.block_nbytes
                at = max(at + 1, int(np.searchsorted(nbytes, wanted, side="right")) - 1)
                edges.append(first + at)
                sizes.append(int(nbytes[at] - nbytes[begin]))
        return edges, sizes

    def blocks_to_do(self) -> list[int]:
        rows = self.work / "rows"
        rows.mkdir(exist_ok=True)
        for left in rows.glob("*.tmp"):
            shutil.rmtree(left)
        return [i for i in range(len(self.edges) - 1) if not (rows / str(i)).exists()]

    def block(self, number: int) -> None:
        """Keeps the rows of a block in the order of their places."""
        begin, end = self.edges[number : number + 2]
        own = self._places[begin:end]
        rows = np.argsort(own)
        plan = self._reader.plan(PlannedWindow(np.array([begin]), np.array([end])))
        assert plan is not None
        windows = self._reader.read(plan)
        folder = self.work / "rows" / f"{number}.{os.getpid()}.tmp"
        folder.mkdir()
        _save(folder / "places.npy", own[rows])
        for at, item in enumerate(self._read):
            window = windows[item.selected.name]
            if item.output == "dense":
                data = _dense(window, rows, item)
                self._check_integers(item, data, begin)
                _save(folder / f"{at}.data.npy", _become(data, item, self.matrices[at]))
                continue
            offsets, data, indices = _csr(window, rows, item)
            self._check_integers(item, data, begin)
            _save(folder / f"{at}.offsets.npy", offsets)
            _save(folder / f"{at}.data.npy", _become(data, item, self.matrices[at]))
            _save(folder / f"{at}.indices.npy", indices)
        _sync_folder(folder)
        os.rename(folder, folder.with_name(str(number)))
        _sync_folder(folder.parent)

    def _check_integers(self, item: BatchMatrix, data: Rows, first: int) -> None:
        """ValueError where integers of one store were rounded to become what another one has."""
        store = int(np.searchsorted(self.cells.offsets, first, side="right")) - 1
        matrix = item.selected.matrices[store]
        if not is_wide_integer(np.dtype(matrix.data.dtype)) or item.dtype.kind != "f":
            return
        values = data.view(item.dtype)
        if values.size and max(values.max(), -values.min()) >= _EXACT:
            raise ValueError(
                f"{matrix.where}: {matrix.data.dtype} of 2^53 and more, which float64, that of "
                "stores of several types together, does not hold; convert them apart"
            )

    @cached_property
    def _blocks(self) -> list[_Block]:
        return [
            _Block(self.work / "rows" / str(number), self.matrices)
            for number in range(len(self.edges) - 1)
        ]

    def indptr(self, at: int) -> Rows:
        """Where each row of a sparse matrix begins in the result."""
        if at not in self._indptrs:
            found = np.zeros(self.cells.n_obs + 1, np.int64)
            for block in self._blocks:
                found[1:][block.places] = np.diff(block.parts[at][1])
            self._indptrs[at] = np.cumsum(found)
        return self._indptrs[at]

    @cached_property
    def _indptrs(self) -> dict[int, Rows]:
        return {}

    def prepare(self) -> None:
        """Creates the arrays of the result, unless all of them are there."""
        (self.work / "done").mkdir(exist_ok=True)
        if (self.work / "prepared").exists():
            return
        store = self.work / "store"
        root = create_group(str(store), overwrite=True)
        for folder in ("layers", "obsm"):
            encoded(root.create_group(folder), "dict", "0.1.0")
        for at, item in enumerate(self.matrices):
            self._create(root, at, item)
        root.store.sync()
        (self.work / "prepared").touch()

    def _create(self, root: Group, at: int, item: BatchMatrix) -> None:
        path, columns = item.selected.name, item.selected.columns
        chunk, shard, extent = self._grid(at)
        blosc = codecs.Blosc(cname="lz4", clevel=3, shuffle="shuffle")
        if item.output == "dense":
            made = root.create_array(
                path,
                shape=(extent, columns),
                dtype=item.dtype,
                chunks=(chunk, max(1, columns)),
                shards=(shard, max(1, columns)),
                compressors=blosc,
            )
            encoded(made, "array", "0.2.0")
            return
        shape = [self.cells.n_obs, columns]
        group = encoded(root.create_group(path), "csr_matrix", "0.1.0", shape=shape)
        index = np.min_scalar_type(max(columns - 1, 0))
        options: dict[str, Any] = {
            "shape": extent, "chunks": chunk, "shards": shard, "compressors": blosc
        }  # fmt: skip
        group.create_array("data", dtype=item.dtype, **options)
        group.create_array("indices", dtype=index, **options)
        indptr = self.indptr(at)
        group.create_array(
            "indptr",
            shape=len(indptr),
            dtype=np.int64,
            chunks=min(len(indptr), 1 << 16),
            compressors=blosc,
        )[:] = indptr

    def _grid(self, at: int) -> tuple[int, int, int]:
        """Extents of a chunk and a shard along dimension 0, and of that."""
        item, count, rows = self.matrices[at], self.cells.n_obs, self.job.chunk_rows
        if item.output == "dense":
            extent, chunk = count, rows
        else:
            extent = int(self.indptr(at)[-1])
            chunk = rows * extent // max(count, 1)
        chunk = max(1, min(chunk, extent))
        most = max(1, min(extent, self.job.shard_nbytes // max(self._width(at), 1)))
        chunk = min(chunk, most)
        return chunk, most // chunk * chunk, extent

    def shards_to_do(self) -> list[tuple[int, int]]:
        found = []
        for at in range(len(self.matrices)):
            _, shard, extent = self._grid(at)
            found += [(at, number) for number in range(-(-extent // shard))]
        return [task for task in found if not self._mark(*task).exists()]

    def shard_nbytes(self, at: int, number: int) -> int:
        """Decoded bytes of a shard of a matrix: of a sparse one both of its arrays."""
        _, shard, extent = self._grid(at)
        return (min((number + 1) * shard, extent) - number * shard) * self._width(at)

    @property
    def result_nbytes(self) -> int:
        """Of all shards."""
        return sum(self._grid(at)[2] * self._width(at) for at in range(len(self.matrices)))

    def _width(self, at: int) -> int:
        """Bytes along dimension 0: of a row of a dense matrix, of an element of a sparse one."""
        item = self.matrices[at]
        dense = item.output == "dense"
        return item.selected.columns * item.dtype.itemsize if dense else item.dtype.itemsize + 4

    def _mark(self, at: int, number: int) -> Path:
        return self.work / "done" / f"{at}-{number}"

    def shard(self, at: int, number: int) -> None:
        """Writes a shard of a matrix, and marks it as done once it is on the disk."""
        item = self.matrices[at]
        _, shard, extent = self._grid(at)
        begin, end = number * shard, min((number + 1) * shard, extent)
        where = (str(self.work / "store"), item.selected.name)
        if item.output == "dense":
            window, rows = self._window(at, begin, end)
            array = _opened(*where)
            array[begin:end] = _dense(window, rows, item, True).view(item.dtype)
        else:
            indptr = self.indptr(at)
            first = int(np.searchsorted(indptr, begin, side="right")) - 1
            last = int(np.searchsorted(indptr, end, side="left"))
            window, rows = self._window(at, first, last)
            _, data, indices = _csr(window, rows, item, True)
            own = slice(begin - int(indptr[first]), end - int(indptr[first]))
            array = _opened(where[0], f"{where[1]}/data")
            array[begin:end] = data[own].view(item.dtype)
            array = _opened(where[0], f"{where[1]}/indices")
            array[begin:end] = indices[own].astype(array.dtype)
        array.store.sync()
        self._mark(at, number).touch()

    def _window(self, at: int, begin: int, end: int) -> tuple[_core.CellWindow, Rows]:
        """Rows of the result, as they lie in the blocks, and the order to take them in."""
        item = self.matrices[at]
        dense = item.output == "dense"
        runs: list[tuple[Any, ...]] = []
        places = []
        for block in self._blocks:
            first, last = (int(i) for i in np.searchsorted(block.places, [begin, end]))
            if first == last:
                continue
            places.append(block.places[first:last])
            data, offsets, indices = block.parts[at]
            if dense:
                runs.append((0, first, last - first, _bytes(data[first:last]), None, None))
                continue
            own = np.ascontiguousarray(offsets[first : last + 1])
            part = slice(int(own[0]), int(own[-1]))
            runs.append((0, first, last - first, _bytes(data[part]), _bytes(indices[part]), own))
        described = (
            f"{self.work}/rows {item.selected.name}",
            item.selected.columns,
            item.dtype,
            None if dense else np.dtype(np.int32),
            None,
        )
        rows = np.argsort(np.concatenate([np.empty(0, np.int64), *places]))
        if len(rows) != end - begin:
            raise RuntimeError(f"{self.work}: {len(rows)} of {end - begin} rows are there")
        return _core.CellWindow([described], runs, item.selected.columns), rows


class _Block:
    """The rows of a block, in files that are read as far as they are used."""

    def __init__(self, folder: Path, matrices: list[BatchMatrix]) -> None:
        self.places: Rows = np.load(folder / "places.npy")
        self.parts: list[tuple[Rows, Rows, Rows]] = []
        for at, item in enumerate(matrices):
            data = np.load(folder / f"{at}.data.npy", mmap_mode="r")
            if item.output == "dense":
                self.parts.append((data, data[:0], data[:0]))
                continue
            offsets = np.load(folder / f"{at}.offsets.npy", mmap_mode="r")
            indices = np.load(folder / f"{at}.indices.npy", mmap_mode="r")
            self.parts.append((data, offsets, indices))


_KEEP = (None, False, None)


def _bits(item: BatchMatrix) -> np.dtype[Any]:
    """What files have: of types that NumPy has from elsewhere it writes none."""
    return np.dtype(f"u{item.dtype.itemsize}")


def _csr(
    window: _core.CellWindow, rows: Rows, item: BatchMatrix, moved: bool = False
) -> tuple[Rows, Rows, Rows]:
    offsets = np.zeros(len(rows) + 1, np.int64)
    window.count(rows, offsets)
    data = np.empty(int(offsets[-1]), _bits(item))
    indices = np.empty(len(data), np.int32)
    window.gather_csr(
        rows, offsets, _how(item, moved), _bytes(data), _bytes(indices), item.dtype.itemsize
    )
    return offsets, data, indices


def _dense(window: _core.CellWindow, rows: Rows, item: BatchMatrix, moved: bool = False) -> Rows:
    data = np.empty((len(rows), item.selected.columns), _bits(item))
    window.gather_dense(rows, _how(item, moved), _bytes(data), item.dtype.itemsize)
    return data


def _become(data: Rows, read: BatchMatrix, item: BatchMatrix) -> Rows:
    if read.dtype == item.dtype:
        return data
    result: Rows = data.view(read.dtype).astype(item.dtype).view(_bits(item))
    return result


def _types(item: BatchMatrix) -> set[Any]:
    return {np.dtype(matrix.data.dtype) for matrix in item.selected.matrices}


def _how(item: BatchMatrix, moved: bool) -> Any:
    """In the first pass rows of stores of several types get the one of the result."""
    return _KEEP if moved or len(_types(item)) == 1 else item.transform


def _bytes(values: Rows) -> Rows:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _save(path: Path, values: Rows) -> None:
    """As `numpy.save`, which says of a full disk how much it has written, and neither where nor
    why not all."""
    values = np.ascontiguousarray(values)
    header = np.lib.format.header_data_from_array_1_0(values)
    try:
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.write(_bytes(values).data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def encoded(node: Any, kind: str, version: str, **attributes: Any) -> Any:
    node.attrs.update({"encoding-type": kind, "encoding-version": version, **attributes})
    return node


def _opened(store: str, path: str) -> _core.Array:
    from .._open import open_array

    return open_array(store, path, mode="r+", device="cpu")
