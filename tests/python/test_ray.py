"""headrace.ray: Ray Data sets from Zarr arrays."""

import itertools
import subprocess
import sys
from pathlib import Path

import headrace as hr
import numpy as np
import pytest
from helpers import assert_same, smooth
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of every kind

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

import headrace.ray as hray  # noqa: E402

ROWS = 53
T2M = smooth("f4", (ROWS, 7, 11))
U10 = smooth("f8", (7, ROWS))
TIME = np.arange(ROWS, dtype="i8") * 3
NAMES = [f"row {i}" for i in range(ROWS)]


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("ray") / "x.zarr"
    group = hr.create_group(path)
    time = ["time"]
    add(group, "t2m", T2M, ["time", "lat", "lon"], chunks=(4, 7, 6), shards=(8, 7, 12))
    add(group, "u10", U10, ["lat", "time"], chunks=(3, 10))
    add(group, "time", TIME, time, chunks=(20,))
    add(group, "lat", np.arange(7.0), ["lat"], chunks=(7,))
    add(group, "name", np.array(NAMES, np.dtypes.StringDType()), time, chunks=(20,))
    add(group, "scalar", np.array(3.0), [], chunks=())
    return path


def add(group, name, data, dimension_names, **options):
    array = hr.create_array(
        group, name, shape=data.shape, dtype=data.dtype, dimension_names=dimension_names, **options
    )
    array[...] = data


def rows_of(blocks, column):
    from ray.data.block import BlockAccessor

    return np.concatenate([BlockAccessor.for_block(b).to_numpy(column) for b in blocks])


def tasks_of(source, parallelism, **options):
    return [(task, list(task())) for task in source.get_read_tasks(parallelism, **options)]


def test_all_arrays_along_the_dimension(cluster, store):
    ds = hray.read_zarr(store)
    assert ds.count() == ROWS
    schema = dict(zip(ds.schema().names, map(str, ds.schema().types), strict=True))
    assert set(schema) == {"t2m", "u10", "time", "name"}
    assert "(7, 11)" in schema["t2m"]
    assert schema["name"] == "string"
    rows = sorted(ds.take_all(), key=lambda row: row["time"])
    assert_same(np.stack([row["t2m"] for row in rows]), T2M)
    assert_same(np.stack([row["u10"] for row in rows]), U10.T)
    assert_same(np.array([row["time"] for row in rows]), TIME)
    assert [row["name"] for row in rows] == NAMES


def test_columns_and_their_coordinate(cluster, store):
    ds = hray.read_zarr(store, columns=["u10"], dim="time", override_num_blocks=3)
    assert set(ds.schema().names) == {"u10", "time"}
    assert ds.materialize().num_blocks() == 3
    total = sum(batch["u10"].sum() for batch in ds.iter_batches(batch_size=7))
    assert total == pytest.approx(U10.sum())
    assert hray.read_zarr(store, "t2m").schema().names == ["t2m", "time"]
    by_lat = hray.read_zarr(store, "t2m", dim="lat")
    assert by_lat.count() == 7
    assert by_lat.schema().names == ["t2m", "lat"]
    assert set(hray.read_zarr(store, columns=["lat"]).take_all()[2]) == {"lat"}


def test_tasks_are_whole_shards_of_about_equal_bytes(store):
    source = hray.ZarrDatasource(store)
    assert source.estimate_inmemory_data_size() == T2M.nbytes + U10.nbytes + TIME.nbytes + ROWS * 16
    tasks = tasks_of(source, 3)
    assert [task.metadata.num_rows for task, _ in tasks] == [24, 16, 13]
    assert_same(rows_of(itertools.chain(*(b for _, b in tasks)), "t2m"), T2M)
    assert [task.metadata.num_rows for task, _ in tasks_of(source, 100)] == [8] * 6 + [5]
    (whole,) = tasks_of(source, 1)
    assert whole[0].metadata.size_bytes == source.estimate_inmemory_data_size()
    assert whole[0].schema == whole[1][0].schema


def test_blocks_are_as_large_as_ray_wants_them(store):
    context = ray.data.DataContext.get_current().copy()
    row = T2M[0].nbytes + U10[:, 0].nbytes + 8 + 16
    for wanted, sizes in ((row * 17, [16, 16, 16, 5]), (row, [8] * 6 + [5]), (row * 99, [ROWS])):
        context.target_max_block_size = wanted
        ((task, blocks),) = tasks_of(hray.ZarrDatasource(store), 1, data_context=context)
        assert [block.num_rows for block in blocks] == sizes
        assert task.metadata.num_rows == ROWS


def test_a_limit_of_rows(cluster, store):
    source = hray.ZarrDatasource(store)
    for task, blocks in tasks_of(source, 3, per_task_row_limit=5):
        assert task.metadata.num_rows == 5
        assert sum(block.num_rows for block in blocks) == 5
    assert len(ray.data.read_datasource(source).limit(9).take_all()) == 9


@given(
    rows=st.integers(0, 60),
    chunk=st.integers(1, 20),
    parallelism=st.integers(1, 70),
    block=st.integers(1, 70),
)
def test_every_row_once(rows, chunk, parallelism, block):
    ends = [*range(chunk, rows, chunk), rows] if rows else []
    runs = list(hray._runs(ends, parallelism))
    assert len(runs) == min(parallelism, len(ends))
    assert [end for _, run in runs for end in run] == ends
    assert [start for start, _ in runs] == [0, *(run[-1] for _, run in runs)][: len(runs)]
    for start, run in runs:
        merged = list(hray._merged(run, start, run[-1], block))
        assert merged[-1] == run[-1]
        assert merged == sorted(set(merged))
        assert set(merged) <= set(run)
        for previous, end in itertools.pairwise([start, *merged]):
            assert end - previous <= max(block, chunk)


def test_without_names(tmp_path):
    group = hr.create_group(tmp_path / "x")
    for name, shape in {"a": (10, 3), "b": (10,), "c": (4,)}.items():
        hr.create_array(group, name, shape=shape, chunks=shape, dtype="i2")[...] = 1
    for columns, wanted in ((None, {"a", "b"}), (["b"], {"b"}), (["c"], {"c"})):
        source = hray.ZarrDatasource(tmp_path / "x", columns=columns)
        ((_, (block,)),) = tasks_of(source, 1)
        assert set(block.schema.names) == wanted
    with pytest.raises(ValueError, match="c: no dimension 0 of extent 10"):
        hray.ZarrDatasource(tmp_path / "x", columns=["a", "c"])


def test_wrong_calls(store):
    with pytest.raises(KeyError, match="no_such"):
        hray.ZarrDatasource(store, columns=["no_such"])
    with pytest.raises(ValueError, match="no dimension 'depth'"):
        hray.ZarrDatasource(store, dim="depth")
    with pytest.raises(ValueError, match="lat: no dimension 'time'"):
        hray.ZarrDatasource(store, columns=["t2m", "lat"])
    with pytest.raises(ValueError, match="one array"):
        hray.ZarrDatasource(store, "t2m", columns=["t2m"])
    with pytest.raises(ValueError, match="no array with a dimension"):
        hray.ZarrDatasource(hr.open(store), columns=[])
    memory = hr.create_array(hr.memory_store(), shape=4, dtype="i4")
    with pytest.raises(TypeError, match="cannot be pickled"):
        hray.ZarrDatasource(memory)


def test_the_example(store):
    example = Path(__file__).parents[2] / "examples" / "ray_batches.py"
    done = subprocess.run(
        [sys.executable, example, store, "--columns", "t2m", "u10", "--batch-size", "10"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert f"t2m: mean {T2M.mean(dtype='f8'):.6g} of {ROWS} rows" in done.stdout
