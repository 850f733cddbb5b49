"""headrace.torch: datasets, in and out of the workers of a DataLoader."""

import headrace as hr
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headrace.torch import ArrayDataset, IterableArrayDataset, collate  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

COUNT = 37
METHODS = [None, "fork", "spawn", "forkserver"]

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


@pytest.fixture
def arrays(store):
    group = hr.create_group(store)
    image = np.arange(COUNT * 6, dtype="float32").reshape(COUNT, 2, 3)
    hr.create_array(group, "image", shape=image.shape, dtype="float32", chunks=(5, 2, 3))[:] = image
    hr.create_array(group, "label", shape=(COUNT,), dtype="int64", chunks=(8,))[:] = range(COUNT)
    return dict(hr.open_group(store).arrays())


def labels_of(batches):
    """The labels in order; checks that images belong to them."""
    found = []
    for batch in batches:
        assert torch.equal(batch["image"][:, 0, 0], batch["label"] * 6.0)
        assert batch["image"].shape[1:] == (2, 3) and batch["image"].dtype == torch.float32
        found += batch["label"].tolist()
    return found


def loader_of(dataset, method, **options):
    options["num_workers"] = {None: 0, "fork": 2}.get(method, 1)
    return DataLoader(
        dataset, multiprocessing_context=method, timeout=100 * (method is not None), **options
    )


@pytest.mark.parametrize("method", METHODS)
def test_loader_over_items(arrays, method):
    arrays["image"][0]  # threads of the library run before the fork
    dataset = ArrayDataset(arrays)
    loader = loader_of(dataset, method, batch_size=8, collate_fn=collate)
    assert labels_of(loader) == list(range(COUNT))


@pytest.mark.parametrize("method", [None, "fork"])
def test_loader_over_blocks(arrays, method):
    dataset = IterableArrayDataset(arrays, batch_size=6)
    batches = list(loader_of(dataset, method, batch_size=None))
    assert sorted(labels_of(batches)) == list(range(COUNT))
    if method is None:
        assert [len(batch["label"]) for batch in batches] == [6] * 6 + [1]
        assert labels_of(batches) == list(range(COUNT))


def test_items(arrays):
    dataset = ArrayDataset(arrays)
    assert len(dataset) == COUNT
    assert dataset[3]["label"] == 3 and dataset[3]["image"].shape == (2, 3)
    assert dataset[-1]["label"] == COUNT - 1
    with pytest.raises(IndexError):
        dataset[COUNT]
    assert [item["label"] for item in dataset.__getitems__([5, 1, 5])] == [5, 1, 5]


def test_forms(arrays):
    image, label = arrays["image"], arrays["label"]
    assert torch.equal(ArrayDataset(label)[2], torch.tensor(2))
    pair = ArrayDataset((image, label))[2]
    assert isinstance(pair, tuple) and pair[1] == 2
    assert collate(ArrayDataset(label).__getitems__([1, 2])).tolist() == [1, 2]
    with pytest.raises(ValueError, match="equal lengths"):
        ArrayDataset((image, hr.create_array(hr.memory_store(), shape=(3,), dtype="i4")))


def test_default_collate_and_shuffle(arrays):
    loader = DataLoader(ArrayDataset(arrays), batch_size=8, shuffle=True)
    found = labels_of(loader)
    assert sorted(found) == list(range(COUNT)) and found != list(range(COUNT))


def test_transform(arrays):
    dataset = ArrayDataset(arrays["label"], transform=lambda x: x * 2)
    assert dataset[4] == 8
    (batch,) = DataLoader(dataset, batch_size=COUNT, collate_fn=collate)
    assert batch.tolist() == [2 * i for i in range(COUNT)]


def test_a_batch_is_not_copied_again(arrays):
    items = ArrayDataset(arrays).__getitems__([1, 2, 3])
    batch = collate(items)
    assert batch["image"][1].data_ptr() == items[1]["image"].data_ptr()


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "uint16", "complex64", "float8_e5m2"])
def test_dtypes(dtype):
    pytest.importorskip("ml_dtypes")
    array = hr.create_array(hr.memory_store(), shape=(4,), dtype=dtype)
    assert ArrayDataset(array)[0].dtype == getattr(torch, dtype)


def test_dtype_that_torch_lacks():
    array = hr.create_array(hr.memory_store(), shape=(4,), dtype="M8[s]")
    with pytest.raises(TypeError, match=r"torch has no data type datetime64\[s\]"):
        ArrayDataset(array)[0]


def test_order_of_blocks(arrays):
    def order(epoch, **options):
        dataset = IterableArrayDataset(arrays, batch_size=4, shuffle=True, **options)
        dataset.set_epoch(epoch)
        return labels_of(dataset)

    assert sorted(order(0)) == list(range(COUNT))
    assert order(0) == order(0) != order(1)
    assert order(0, seed=1) != order(0)


def test_ranks_share_the_blocks(arrays):
    parts = [
        labels_of(IterableArrayDataset(arrays, batch_size=4, shuffle=True, rank=rank, world_size=3))
        for rank in range(3)
    ]
    assert all(parts)
    assert sorted(label for part in parts for label in part) == list(range(COUNT))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": 5, "world_size": 2}, "rank: expected 0 to 1, got 5"),
        ({"rank": -1, "world_size": 2}, "rank: expected 0 to 1, got -1"),
        ({"world_size": 0}, "world_size: expected 1 or more, got 0"),
        ({"batch_size": 0}, "batch_size: expected 1 or more, got 0"),
        ({"block_size": -5}, "block_size: expected 1 or more, got -5"),
    ],
)
def test_numbers_out_of_range_are_named(arrays, given, message):
    with pytest.raises(ValueError, match=message):
        IterableArrayDataset(arrays, **given)


def test_epoch_reaches_workers_that_live_on(arrays):
    dataset = IterableArrayDataset(arrays, batch_size=None, shuffle=True)
    loader = DataLoader(
        dataset,
        batch_size=8,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    first = labels_of(loader)
    dataset.set_epoch(1)
    assert first != labels_of(loader)
