"""`Loader`, over the C++ part."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .. import _check, _core, config
from .._info import counted
from .._suggest import checks_names
from ..config import _nbytes
from . import _arrays, _options
from ._batches import Batch

if TYPE_CHECKING:
    from ._dali import DaliBatches
    from ._torch import Place, TorchBatches


class Loader:
    """Batches of samples of arrays that share a dimension, in a shuffled order that is known.

    An iterator over an epoch. It goes on where it stopped: after a ``break``, after
    `load_state_dict`. The end of an epoch ends the iteration, and the next iteration is the next
    epoch.

    The first iteration starts a thread that makes batches ahead; chunks are read and decoded by the
    threads of the library, each once as far as the memory allows. Without ``prefetch`` there is no
    thread. Loaders may be used in a child after a fork, and pickle where their arrays do.

    Parameters
    ----------
    arrays
        Arrays by name, with one extent along the sample dimension; or one `Array`. Or a `Group` or
        a path: its arrays, without those that are coordinates and those that lack ``sample_dim``,
        where that is a name. Or a data set that xarray opened with the engine "headrace", of whole
        arrays as they are stored (``mask_and_scale=False``). Or a list of such, of the same names:
        several stores as one data set. Their arrays have the same shape but for the sample
        dimension, chunks of their own, and one type where ``dtype`` does not convert them. No
        sample reaches from one store into another.
    weights
        Of the stores, to mix them by. None: an epoch has each sample of each store once, as if they
        were one array. With weights the stores come in turn by them, evenly at any place of the
        epoch; a store that gives more than its samples begins again, in another order.
    samples_per_epoch
        With weights: "first_exhausted", until one more sample would be the second time for one of a
        store; "all_exhausted", until each sample has come; or a number. Under ``shuffle="block"``
        it is refused where the plan of the order alone would pass ``memory_budget``.
    batch_size
        Samples in a batch of this rank.
    sample_dim
        Name or number of the dimension along which samples are taken.
    window, stride
        A sample has ``window`` steps, ``stride`` apart.
    lead_time
        Further steps, counted from the last of the window: one or several.
    patch
        Sizes by dimension: samples are patches of these. They tile the dimension; the last is moved
        back to end with it.
    halo
        Indices at both sides of a patch that are read as well: a number, or numbers by dimension.
    padding
        What a halo has outside of the array: "zero" (0 in the batch) or "wrap" (the other end, for
        longitudes). For all, or by dimension.
    select
        Indices or a slice by dimension: only these are read, in this order.
    exclude
        Steps that no sample may touch: a boolean mask of the sample dimension, or one or a list of
        indices, slices and pairs ``(start, stop)``. Of several stores a list of such, None for
        those without.
    shuffle
        "block": blocks of chunks in random order, the samples of some at a time mixed; each chunk
        is read about once. "global": a random order of all samples, which reads chunks many times.
        None: in order. True is "block", False is None.
    block_chunks
        Chunks along the sample dimension that are mixed at a time. Stores have their part of them
        by weight, one a lane at least.
    lanes
        Parts of the order that are read side by side, ``block_chunks`` at most. Ranks share chunks
        unless the world size divides it. It is a part of the order, as are ``seed`` and
        ``block_chunks``.
    seed, epoch
        Of the order: with the same ones it is the same, whatever the threads, ``prefetch`` and
        world size.
    rank, world_size
        This process among all; those of torchrun's environment when None.
    device
        Where batches are made: "cpu", "cuda:0"; None is the configured default.
    dtype
        "float16", "bfloat16", "float32" or "float64", for all or by name; None is the array's.
    normalize
        ``(mean, std)`` by name: numbers, or one for each index of the first dimension beside the
        sample dimension. ``(x - mean) / std`` is computed in float32, or in float64 for wider
        arrays. Of several stores the same for all, or a list of such dicts.
    fill_nan
        What NaN becomes after that; a number, or numbers by name.
    layout
        None: ``(batch, steps, *rest)``. "NCHW" and "NHWC": all but the last two dimensions are
        channels.
    stack
        Names of arrays by the name of the tensor that holds them, along the channels.
    drop_last
        Leave out the samples that make no whole batch on all ranks. Kept, they are a smaller last
        batch, with no sample for some ranks if they are fewer than these.
    prefetch
        Batches made ahead.
    memory_budget
        Bytes, or as in "4GiB": batches (one of them the caller's), decoded chunks, and what it
        takes to decode them.
    on_bad_chunk
        For a chunk that is corrupt: "raise"; "skip", where the next good sample of the batch takes
        the place; "fill", where its elements are NaN, then ``fill_nan``. `stats` tells which.

    Raises
    ------
    ValueError
        Arrays or arguments that do not fit together.
    TypeError
        An argument of a type that it cannot have.
    MemoryError
        ``memory_budget`` has no room for the batches and a chunk.
    headrace.CorruptError
        By the iteration: a corrupt chunk. The next iteration tries the same batch again.
    NotImplementedError
        A conversion that there is not, as from dates.

    Examples
    --------
    >>> loader = Loader({"t2m": a}, batch_size=8, sample_dim="time", window=2, lead_time=[1, 4])
    >>> next(loader)["t2m"].shape
    (8, 4, 721, 1440)
    """

    @checks_names
    def __init__(
        self,
        arrays: Any,
        *,
        weights: Sequence[float] | None = None,
        samples_per_epoch: int | str = "first_exhausted",
        batch_size: int = 1,
        sample_dim: str | int = 0,
        window: int = 1,
        stride: int = 1,
        lead_time: int | Sequence[int] = (),
        patch: Mapping[str | int, int] | None = None,
        halo: int | Mapping[str | int, int] = 0,
        padding: str | Mapping[str | int, str] = "zero",
        select: Mapping[str | int, Any] | None = None,
        exclude: Any = None,
        shuffle: str | bool | None = "block",
        block_chunks: int = 64,
        lanes: int = 8,
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        device: str | None = None,
        dtype: Any = None,
        normalize: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        fill_nan: float | Mapping[str, float] | None = None,
        layout: str | None = None,
        stack: Mapping[str, Iterable[str]] | None = None,
        drop_last: bool = True,
        prefetch: int = 2,
        memory_budget: int | str = "4GiB",
        on_bad_chunk: str = "raise",
    ) -> None:
        rank, world_size = _options.ranks(rank, world_size)
        _options.check_numbers(
            batch_size=batch_size,
            window=window,
            stride=stride,
            block_chunks=block_chunks,
            lanes=lanes,
            seed=seed,
            epoch=epoch,
            prefetch=prefetch,
        )
        _check.flag("drop_last", drop_last)
        if not isinstance(sample_dim, str):
            _check.integer("sample_dim", sample_dim, "the name or number of a dimension")
            sample_dim = int(sample_dim)
        _core.check_device(device)
        stores = _arrays.named_arrays(arrays, sample_dim)
        self._names_sources = _arrays.names_stores(arrays)
        self._sources = _options.sources(
            stores, self._names_sources, sample_dim, dtype, normalize, fill_nan, exclude
        )
        self._options: dict[str, Any] = {
            "weights": _options.weights(weights),
            "samples_per_epoch": samples_per_epoch,
            "batch_size": batch_size,
            "sample_dim": sample_dim,
            "window": window,
            "stride": stride,
            "lead_time": _options.lead_times(lead_time),
            "patches": _options.patches(patch, halo, padding),
            "select": _options.selections(select, self._sources[0]["variables"]),
            "shuffle": {True: "block", False: None}.get(shuffle, shuffle)
            if isinstance(shuffle, bool)
            else shuffle,
            "block_chunks": block_chunks,
            "lanes": lanes,
            "seed": seed,
            "epoch": epoch,
            "rank": rank,
            "world_size": world_size,
            "device": device,
            "layout": layout,
            "stack": _options.stacks(stack),
            "drop_last": drop_last,
            "prefetch": prefetch,
            "memory_budget": _nbytes("memory_budget", memory_budget),
            "on_bad_chunk": on_bad_chunk,
        }
        self._open()
        if len(self) == 0:
            warnings.warn(
                f"an epoch has no batch: {counted(self.samples, 'sample')}, "
                f"batch_size={batch_size}, world_size={world_size}, drop_last={drop_last}",
                stacklevel=3,
            )

    def _open(self) -> None:
        self._core = _core.Loader(self._sources, self._options)
        self._place: Place | None = None  # of workers of torch
        arrays = [item["array"] for source in self._sources for item in source["variables"]]
        stores = [array.store._python_store for array in arrays]
        self._stores = [store for store in stores if store is not None]  # of Python
        _alive.add(self)

    @classmethod
    def _of(cls, attributes: dict[str, Any], state: dict[str, Any]) -> Loader:
        loader = cls.__new__(cls)
        loader.__dict__.update(attributes)
        loader._open()
        loader.load_state_dict(state)
        return loader

    def _attributes(self, **options: Any) -> dict[str, Any]:
        """What a loader with some other options is made of."""
        return {
            "_sources": self._sources,
            "_options": {**self._options, **options},
            "_names_sources": self._names_sources,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Loader._of, (self._attributes(), self.state_dict())

    def share(self, number: int, count: int) -> Loader:
        """A loader of one of ``count`` parts of this rank's samples, from where this one is."""
        _options.check_numbers(number=number, count=count)
        if not 0 <= number < count:
            raise ValueError(f"number: expected 0 to {count - 1}, got {number}")
        rank = self._options["rank"] * count + number
        world_size = self._options["world_size"] * count
        return Loader._of(self._attributes(rank=rank, world_size=world_size), self.state_dict())

    def _rows(self) -> list[tuple[str, str]]:
        """What it makes, for those who look at it."""
        options = self._options
        stores = f" of {len(self._sources)} stores" if len(self._sources) > 1 else ""
        rows = [
            ("arrays", ", ".join(self.names)),
            ("samples", f"{self.samples}{stores}"),
            ("batches", f"{len(self)} of {options['batch_size']}"),
            ("window", f"{options['window']} steps"),
            ("shuffle", str(options["shuffle"])),
            ("device", options["device"] or str(config.get("device"))),
            ("epoch", str(self.epoch)),
        ]
        if options["world_size"] not in (None, 1):
            rows.append(("rank", f"{options['rank']} of {options['world_size']}"))
        return rows

    def __repr__(self) -> str:
        return f"<headrace.loader.Loader {_core.printable(_one_line(self._rows()))}>"

    def _repr_html_(self) -> str:
        from .._html import loader_card

        variables = self._sources[0]["variables"]
        arrays = [(item["name"], item["array"]) for item in variables]
        return loader_card(self._rows(), "headrace.loader.Loader", arrays)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        for store in self._stores:
            store.check_caller()
        batch = self._core.next()
        if batch is None:
            raise StopIteration
        return batch

    def __getitem__(self, index: Any) -> NoReturn:
        """Raises: what takes samples by number is told what to use."""
        raise TypeError(
            "a Loader gives batches in its own order, none by number: pass loader.torch() to "
            "torch's DataLoader, with batch_size=None"
        )

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return int(self._core.batches)

    @property
    def names(self) -> tuple[str, ...]:
        """Of what a batch holds, in its order: the stacks, then the arrays that are in none."""
        return tuple(self._core.names)

    @property
    def samples(self) -> int:
        """Samples of a whole epoch, of all ranks."""
        return int(self._core.samples)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch is of."""
        return int(self._core.position[0])

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; nothing when it is this one already, so that a resumed one goes on."""
        _options.check_numbers(epoch=epoch)
        if epoch != self.epoch:
            self._core.seek(epoch, 0)
        self._tell_workers()

    def state_dict(self) -> dict[str, Any]:
        """How far the epoch has been delivered, by all ranks: a small dict that JSON takes.

        Equal on all ranks after the same number of batches. `load_state_dict` takes it in a loader
        with another world size, batch size, device or ``prefetch`` too.
        """
        epoch, samples = self._core.position
        return {"version": 1, "epoch": epoch, "samples": samples, "order": self._core.order_id}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the batch after those that were delivered.

        Raises
        ------
        ValueError
            The state is none of `state_dict`, or of a loader with another order: other samples,
            seed, shuffle or lanes.
        """
        self._seek(*_options.position(state, self._core.order_id))

    def _seek(self, epoch: int, samples: int) -> None:
        """Go on behind so many samples of an epoch, of all ranks."""
        self._core.seek(epoch, samples)
        self._tell_workers()

    def _tell_workers(self) -> None:
        if self._place is not None:
            self._place.tell(*self._core.position)

    def origins(self, begin: int = 0, end: int | None = None, epoch: int | None = None) -> Any:
        """Where the samples of an epoch come from, in its order.

        Returns
        -------
        numpy.ndarray
            int64, a row a sample: its first step, then where its patch begins in each patched
            dimension. Before these, of a loader of a list of stores, the number of its store. Rank
            r of w gets every w-th of a global batch, from the r-th on.
        """
        end = self.samples if end is None else end
        epoch = self.epoch if epoch is None else epoch
        _options.check_numbers(begin=begin, end=end, epoch=epoch)
        rows = self._core.origins(epoch, begin, end)
        origins = np.array(rows, np.int64).reshape(-1, 2 + len(self._options["patches"]))
        return origins if self._names_sources else origins[:, 1:]

    def stats(self) -> dict[str, Any]:
        """What was done so far.

        ``stall_s``: seconds that iterations waited for batches; ``plan_s``, ``read_s`` (with
        decoding) and ``gather_s``: what the stages took. ``queue_depth``: batches that are ready.
        ``decoded_bytes`` of chunks, and ``compressed_bytes``, what they are in the store; missing
        chunks have none. ``read_amplification``: bytes decoded by those of the chunks needed, each
        once an epoch.
        ``bad_chunks``: what was wrong with them; ``replaced_samples``: by ``on_bad_chunk="skip"``.
        ``failed_ahead``: what the errors of reads ahead of the batches said, each once. The batches
        read those chunks again, and raise what fails then.
        """
        return self._core.stats()

    def ideal(self) -> Iterator[Batch]:
        """The first batch of the epoch as often as there are batches: what no loading would be."""
        single = Loader._of(self._attributes(prefetch=0), self.state_dict())
        single._core.seek(self.epoch, 0)
        batch = next(single)
        single.close()
        for _ in range(len(self)):
            yield batch

    def torch(self) -> TorchBatches:
        """The batches as torch tensors, without a copy; also for a `DataLoader`.

        In a worker of ``DataLoader(loader.torch(), batch_size=None, num_workers=4)`` batches are
        of that worker's share. `state_dict` counts what is delivered in this process only. With
        ``persistent_workers=True`` each iteration is the next epoch, also behind a ``break``, or
        what `set_epoch` or `load_state_dict` named since the one before.
        """
        from ._torch import Place, TorchBatches

        if self._place is None:
            self._place = Place()
        return TorchBatches(self, self._place)

    def jax(self) -> Iterator[dict[str, Any]]:
        """The batches as JAX arrays: those of a GPU without a copy."""
        import jax

        for batch in self:
            yield {
                name: jax.dlpack.from_dlpack(value)
                if isinstance(value, _core.DeviceArray)
                else jax.numpy.asarray(value)
                for name, value in batch.items()
            }

    def dali(self, prefetch_queue_depth: int = 2) -> DaliBatches:
        """A source for DALI's ``fn.external_source``: tuples of the batches of `names`.

        Pass ``num_outputs=len(loader.names)``, ``device="gpu"`` for a loader on a GPU,
        ``no_copy=True`` for pipelines that read the batches where they lie, and ``cycle="raise"``
        for the next epoch after a reset. Memory is shared with what the pipeline has.

        Parameters
        ----------
        prefetch_queue_depth
            That of the pipeline (the product of ``cpu_size`` and ``gpu_size``): so many batches
            and one stay alive beside those of ``memory_budget``. `state_dict` counts what the
            pipeline has taken, as many batches ahead of what it has given.

        Raises
        ------
        TypeError
            By the iteration: a type that DALI does not have, as bfloat16.
        """
        from ._dali import DaliBatches

        return DaliBatches(self, prefetch_queue_depth)

    def close(self) -> None:
        """End the thread and let go of memory; iterating starts anew."""
        self._core.close()


def _one_line(rows: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in rows)


def shuffle_quality(loader: Loader, epoch: int = 0) -> dict[str, float]:
    """How well the order of an epoch mixes; 1 is a random order of all samples, 0 none.

    Returns
    -------
    dict
        Mean distances along the sample dimension, by those of a random order: ``successive``, of a
        sample and the next; ``nearest``, of a sample and the nearest of the next 255, which is
        small where samples of few chunks are mixed.

    Examples
    --------
    >>> shuffle_quality(loader)["nearest"]  # larger with more `block_chunks`
    0.93
    """
    if not isinstance(loader, Loader):
        raise _check.wrong_type("loader", "a Loader", loader)
    _options.check_numbers(epoch=epoch)
    successive, nearest = loader._core.shuffle_quality(epoch)
    return {"successive": successive, "nearest": nearest}


# Threads that read stores of Python must be gone before the interpreter is, and before the event
# loops that serve these stores are: zarr-python ends its own by atexit.
_alive: weakref.WeakSet[Loader] = weakref.WeakSet()


def _close_all() -> None:
    for loader in list(_alive):
        with contextlib.suppress(ValueError):  # a thread that the interpreter does not wait for
            loader.close()


def _close_at_exit() -> None:
    # Before all functions of atexit, whoever registered them first, and before the hook of
    # concurrent.futures for its own threads, which stores may use: so that is registered first.
    importlib.import_module("concurrent.futures.thread")
    with contextlib.suppress(AttributeError, RuntimeError):  # no public name; or it is too late
        threading._register_atexit(_close_all)  # type: ignore[attr-defined]
    atexit.register(_close_all)  # what threads that Python waits for left


_close_at_exit()
