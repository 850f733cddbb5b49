"""The order of cells: whole, the same for all ranks, and exactly resumed."""

import itertools
import json

import headrace as hr
import numpy as np
import pytest
from headrace.loader import CellLoader
from headrace.loader._cell_order import WindowOrder, window_of
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy")
pytest.importorskip("zarr")

from cells_store import counts, write


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    types = ["rare" if i % 20 == 0 else None if i % 7 == 0 else "common" for i in range(100)]
    matrix = counts(np.random.default_rng(1), 100, 3)
    return hr.cells(write(folder / "a.zarr", matrix, obs={"type": types}), obs=["type"])


def order(n_obs, batch_size=8, window=(4, 4), *, weights=None, samples=None, **options):
    defaults = {"lanes": 4, "shuffle": True, "seed": 0, "drop_last": False}
    samples = n_obs if samples is None else samples
    return WindowOrder(
        n_obs, batch_size, window, weights=weights, samples=samples, **{**defaults, **options}
    )


def rows_of(batches):
    parts = [rows for batch in batches for _, rows in batch.pieces]
    return np.concatenate([np.empty(0, np.int64), *parts])


def stream(which, epoch=0, position=0):
    return rows_of(which.batches(epoch, position, 0, 1))


shapes = st.tuples(st.integers(0, 300), st.integers(1, 9), st.integers(1, 6))


@given(shapes, st.integers(1, 40), st.integers(1, 5), st.data())
def test_ranks_have_all_cells_once_whatever_their_number(shape, batch_size, world_size, data):
    n_obs, rows, runs = shape
    lanes = data.draw(st.sampled_from([n for n in range(1, runs + 1) if runs % n == 0]))
    whole = order(n_obs, batch_size, (rows, runs), lanes=lanes)
    single = stream(whole)
    assert sorted(single.tolist()) == list(range(n_obs))
    ranks = [list(whole.batches(0, 0, rank, world_size)) for rank in range(world_size)]
    assert {len(batches) for batches in ranks} == {whole.count(world_size)}
    merged = []
    for step in zip(*ranks, strict=True):
        own = [rows_of([batch]).tolist() for batch in step]
        merged += [row for turn in itertools.zip_longest(*own) for row in turn if row is not None]
    assert merged == single.tolist()


@given(shapes, st.integers(1, 20), st.data())
def test_batches_go_on_from_any_position(shape, batch_size, data):
    n_obs, rows, runs = shape
    weights = data.draw(st.sampled_from([None, np.arange(1.0, n_obs + 1)])) if n_obs else None
    whole = order(n_obs, batch_size, (rows, runs), lanes=1, weights=weights)
    position = data.draw(st.integers(0, n_obs))
    world_size = data.draw(st.integers(1, 3))
    rest = [list(whole.batches(2, position, rank, world_size)) for rank in range(world_size)]
    found = sorted(row for batches in rest for row in rows_of(batches).tolist())
    assert found == sorted(stream(whole, 2)[position:].tolist())


@given(shapes, st.integers(1, 4))
def test_windows_hold_what_their_batches_take(shape, world_size):
    n_obs, rows, runs = shape
    for rank in range(world_size):
        for batch in order(n_obs, 7, (rows, runs), lanes=1).batches(0, 0, rank, world_size):
            for window, wanted in batch.pieces:
                held = np.concatenate(
                    [np.arange(a, b) for a, b in zip(window.starts, window.stops, strict=True)]
                )
                assert (np.diff(held) > 0).all()
                assert (held[window.positions(wanted)] == wanted).all()


def test_ranks_that_divide_the_lanes_read_different_runs():
    read = []
    for rank in range(4):
        batches = order(160, 8, (4, 8), lanes=4).batches(0, 0, rank, 4)
        windows = {id(window): window for batch in batches for window, _ in batch.pieces}
        read.append(sum((w.stops - w.starts).sum() for w in windows.values()))
    assert read == [40, 40, 40, 40]


def test_order_depends_on_seed_and_epoch():
    assert (stream(order(100)) == stream(order(100))).all()
    assert (stream(order(100)) != stream(order(100), epoch=1)).any()
    assert (stream(order(100)) != stream(order(100, seed=1))).any()
    assert (stream(order(100, shuffle=False)) == np.arange(100)).all()


def test_an_order_stays_what_it_was():
    """What checkpoints mean: another order needs another order_id."""
    assert stream(order(20, window=(2, 4))).tolist()[:8] == [17, 14, 12, 5, 16, 15, 13, 4]
    weighted = order(20, window=(2, 4), weights=np.arange(20.0))
    assert stream(weighted).tolist()[:8] == [18, 15, 16, 18, 19, 15, 16, 18]


def test_runs_that_overlap_are_read_once():
    starts, stops = np.array([8, 0, 4, 20, 30]), np.array([12, 5, 8, 24, 31])
    window = window_of(np.array([1, 9, 21]), starts, stops)
    assert (window.starts.tolist(), window.stops.tolist()) == ([0, 20], [12, 24])
    window = window_of(np.array([9]), starts, stops)
    assert (window.starts.tolist(), window.stops.tolist()) == ([8], [12])


@pytest.mark.parametrize("window", [(1, 64), (4, 16), (50, 2)])
def test_cells_are_drawn_by_their_weights(window):
    weights = np.zeros(100)
    weights[[3, 50, 51, 99]] = [1, 2, 3, 4]
    drawn = stream(order(100, 16, window, lanes=1, weights=weights, samples=20000))
    assert set(drawn.tolist()) <= {3, 50, 51, 99}
    shares = np.bincount(drawn, minlength=100)[[3, 50, 51, 99]] / len(drawn)
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.05)


def test_a_random_order_of_many_cells_takes_no_memory_for_each():
    first = next(order(1 << 40, 64, (1, 8)).batches(0, 0, 0, 1))
    assert len(set(rows_of([first]).tolist())) == 64


def test_classes_come_equally_often(cells):
    loader = CellLoader(cells, 50, window=(2, 8), weights="type", samples_per_epoch=5000)
    assert len(loader) == 100
    codes = np.concatenate([batch["obs"]["type"] for batch in loader])
    names = cells.obs["type"].categories[codes]
    assert (codes >= 0).all()
    assert abs((names == "rare").mean() - 0.5) < 0.05


@pytest.mark.parametrize("weights", [None, "type"])
def test_resumed_at_each_batch(cells, weights):
    def loader(**options):
        return CellLoader(
            cells, window=(3, 4), weights=weights, seed=5, **{"batch_size": 7, **options}
        )

    whole = loader()
    wanted = [next(whole)["index"].tolist() for _ in range(len(whole))]
    states = []
    whole = loader()
    for _ in range(len(whole)):
        states.append(json.loads(json.dumps(whole.state_dict())))
        next(whole)
    for at, state in enumerate(states):
        other = loader()
        other.load_state_dict(state)
        assert [batch["index"].tolist() for batch in other] == wanted[at:]
    other = loader(batch_size=14)  # another batch size goes on at the same cell
    other.load_state_dict(states[3])
    assert next(other)["index"].tolist() == wanted[3] + wanted[4]


def test_resumed_with_other_ranks(cells):
    def loader(rank, world_size):
        return CellLoader(cells, 5, window=(3, 4), rank=rank, world_size=world_size)

    single = np.concatenate([batch["index"] for batch in loader(0, 1)])
    pair = [loader(rank, 2) for rank in range(2)]
    first = [[next(rank)["index"] for rank in pair] for _ in range(3)]
    assert pair[0].state_dict() == pair[1].state_dict()
    found = [np.stack(step, axis=1).ravel() for step in first]
    three = [loader(rank, 3) for rank in range(3)]
    for rank in three:
        rank.load_state_dict(pair[0].state_dict())
    steps = zip(*three, strict=True)
    found += [np.stack([batch["index"] for batch in step], axis=1).ravel() for step in steps]
    found = np.concatenate(found)
    assert found.tolist() == single[: len(found)].tolist()
    assert len(found) == 90


def test_epochs_follow_each_other(cells):
    loader = CellLoader(cells, 10)
    epochs = [np.concatenate([batch["index"] for batch in loader]) for _ in range(2)]
    assert loader.epoch == 2 and (epochs[0] != epochs[1]).any()
    loader.set_epoch(1)
    next(loader)
    loader.set_epoch(1)  # it is this one already
    rest = np.concatenate([batch["index"] for batch in loader])
    assert rest.tolist() == epochs[1][10:].tolist()


def test_states_of_other_loaders_are_refused(cells):
    loader = CellLoader(cells, 10)
    good = loader.state_dict()
    for state, error, message in [
        ({**good, "order": "other"}, ValueError, "expected the order"),
        (CellLoader(cells, 10, seed=1).state_dict(), ValueError, "expected the order"),
        (CellLoader(cells, 10, window=(2, 8)).state_dict(), ValueError, "expected the order"),
        ({**good, "samples": 101}, ValueError, "samples: expected 0 to 100"),
        ({**good, "samples": "1"}, TypeError, "position"),
        ({**good, "epoch": -1}, ValueError, "epoch"),
        ({"version": 1}, ValueError, "without 'epoch'"),
        (3, TypeError, "what state_dict gave"),
    ]:
        with pytest.raises(error, match=message):
            loader.load_state_dict(state)


class Requests:
    """A sampler as annbatch's are, of slices or of indices."""

    def __init__(self, as_slices, batch_size=6, seed=0):
        self.as_slices, self.batch_size = as_slices, batch_size
        self.rng = np.random.default_rng(seed)

    def n_batches(self, n_obs):
        return -(-n_obs // self.batch_size)

    def sample(self, n_obs):
        blocks = self.rng.permutation(n_obs // 4)
        for at in range(0, len(blocks), 6):
            own = blocks[at : at + 6]
            slices = [slice(int(b) * 4, int(b) * 4 + 4) for b in own]
            indices = np.concatenate([np.arange(part.start, part.stop) for part in slices])
            mixed = self.rng.permutation(len(indices))
            splits = [mixed[i : i + 6] for i in range(0, len(mixed), 6)]
            kinds = {True: slices, False: indices, "array": np.array(slices, object)}
            yield {"requests": kinds[self.as_slices], "splits": splits}


def walked(sampler, n_obs):
    """The cells of each batch, as annbatch's loader has them."""
    for request in sampler.sample(n_obs):
        parts = request["requests"]
        rows = (
            parts
            if isinstance(parts, np.ndarray) and parts.dtype != object
            else np.concatenate([np.arange(part.start, part.stop) for part in parts])
        )
        yield from (rows[split].tolist() for split in request["splits"])


@pytest.mark.parametrize("as_slices", [True, False, "array"])
def test_batches_of_a_sampler(cells, as_slices):
    sampler, same = Requests(as_slices), Requests(as_slices)
    loader = CellLoader(cells, sampler=sampler)
    assert len(loader) == 17
    for _ in range(3):  # its random numbers go on from epoch to epoch
        assert [batch["index"].tolist() for batch in loader] == list(walked(same, 100))
    assert sampler.rng.integers(1 << 30) == np.random.default_rng(0).integers(1 << 30)  # a copy


def test_states_are_of_one_sampler(cells):
    loader = CellLoader(cells, sampler=Requests(False))
    next(loader)
    state = loader.state_dict()
    for other in (Requests(False, seed=1), Requests(False, batch_size=5)):
        with pytest.raises(ValueError, match="sampler must be those"):
            CellLoader(cells, sampler=other).load_state_dict(state)
    same = CellLoader(cells, sampler=Requests(False))
    with pytest.raises(ValueError, match="batches: expected 0 to 17, got 18"):
        same.load_state_dict({**state, "batches": 18})
    same.load_state_dict(state)
    assert next(same)["index"].tolist() == next(loader)["index"].tolist()


@pytest.mark.parametrize("as_slices", [True, False, "array"])
def test_a_sampler_is_resumed_at_each_batch(cells, as_slices):
    loader = CellLoader(cells, sampler=Requests(as_slices))
    list(loader)
    states, wanted = [], []
    for _ in range(len(loader)):
        states.append(loader.state_dict())
        wanted.append(next(loader)["index"].tolist())
    for at, state in enumerate(states):
        other = CellLoader(cells, sampler=Requests(as_slices))
        other.load_state_dict(state)
        assert other.epoch == 1
        assert next(other)["index"].tolist() == wanted[at]


def test_ranks_take_turns_of_a_sampler(cells):
    def loader(rank, **options):
        return CellLoader(cells, sampler=Requests(True), rank=rank, world_size=3, **options)

    wanted = list(walked(Requests(True), 100))
    ranks = [[batch["index"].tolist() for batch in loader(rank)] for rank in range(3)]
    assert [len(batches) for batches in ranks] == [5, 5, 5] == [len(loader(0))] * 3
    assert [batch for step in zip(*ranks, strict=True) for batch in step] == wanted[:15]
    whole = [
        [batch["index"].tolist() for batch in loader(rank, drop_last=False)] for rank in range(3)
    ]
    assert [len(batches) for batches in whole] == [6, 6, 6]
    found = [batch for step in zip(*whole, strict=True) for batch in step]
    assert found == [*wanted, []]


def test_a_sampler_that_asks_for_what_is_not_there(cells):
    class Wrong(Requests):
        def sample(self, n_obs):
            yield {"requests": [slice(98, 102)], "splits": [np.arange(4)]}

    with pytest.raises(ValueError, match="cells outside of the 100"):
        next(CellLoader(cells, sampler=Wrong(True)))
