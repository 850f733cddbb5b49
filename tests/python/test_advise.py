"""hr.advise and `headrace advise`: costs counted place by place, and proposals that cost less."""

import itertools

import headrace as hr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import run, run_json


def array_of(shape, chunks, store=None, **create):
    return hr.create_array(
        store or hr.memory_store(), shape=shape, dtype="f4", chunks=chunks, **create
    )


def counted(sizes, itemsize, sample):
    """Mean number and bytes of the chunks that a sample touches, over all its places."""
    shape = [sum(row) for row in sizes]
    places = [range(n - w + 1) for n, w in zip(shape, sample, strict=True)]
    chunks = nbytes = 0
    for place in itertools.product(*places):
        touched, elements = 1, itemsize
        for row, start, extent in zip(sizes, place, sample, strict=True):
            owner = np.repeat(np.arange(len(row)), row)[start : start + extent]
            touched *= len(set(owner))
            elements *= sum(row[i] for i in set(owner))
        chunks += touched
        nbytes += elements
    n = np.prod([len(along) for along in places])
    return chunks / n, nbytes / n


@given(st.data())
def test_costs_are_those_counted_place_by_place(data):
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    chunks = [data.draw(st.integers(1, n)) for n in shape]
    sample = [data.draw(st.integers(1, n)) for n in shape]
    array = array_of(shape, chunks)
    patch = dict(enumerate(sample[1:], 1))
    advice = hr.advise(array, window=sample[0], patch=patch, batch=2)
    proposed = array_of(shape, advice["chunks"])
    for made, cost in ((array, advice["present"]), (proposed, advice["proposed"])):
        mean_chunks, mean_nbytes = counted(made.read_chunk_sizes, 4, sample)
        assert cost["chunks"] == pytest.approx(mean_chunks)
        assert cost["nbytes"] == pytest.approx(mean_nbytes)
        assert cost["amplification"] == pytest.approx(mean_nbytes / (4 * np.prod(sample)))


def test_proposes_less_than_whole_maps_for_patches():
    array = array_of((1000, 721, 1440), (1, 721, 1440), dimension_names=["time", "lat", "lon"])
    advice = hr.advise(array, window=2, patch={"lat": 256, "lon": 256}, batch=8)
    assert advice["present"]["amplification"] == pytest.approx(721 * 1440 / 256**2)
    assert advice["proposed"]["amplification"] < advice["present"]["amplification"] / 3
    assert np.prod(advice["chunks"]) * 4 <= 16 << 20
    assert all(s % c == 0 for s, c in zip(advice["shards"], advice["chunks"], strict=True))


@pytest.mark.parametrize("extent", [10**9, 2**58])
@pytest.mark.parametrize("window", [1, 1000, 10**7])
def test_an_extent_costs_nothing(extent, window):
    array = array_of((extent, 4), (1, 4))
    advice = hr.advise(array, window=window)
    nbytes = 4 * np.prod(advice["chunks"])
    assert 4096 <= nbytes <= 16 << 20
    assert advice["present"]["chunks"] == pytest.approx(window)
    touched = 1 + (window - 1) / advice["chunks"][0]
    assert advice["proposed"]["chunks"] == pytest.approx(touched, 0.02)
    index_nbytes = 16 * np.prod(np.array(advice["shards"]) // advice["chunks"])
    assert index_nbytes <= 8 * nbytes


def test_chunks_are_not_below_4_kib_but_for_arrays_that_are():
    assert hr.advise(array_of((8, 9), (1, 1)), window=1, patch={1: 1})["chunks"] == (8, 9)
    assert np.prod(hr.advise(array_of((50, 60, 70), (1, 1, 1)), window=1)["chunks"]) >= 1024
    chunks = hr.advise(array_of((50, 60, 70), (1, 1, 1)), window=1, patch={1: 1, 2: 1})["chunks"]
    assert np.prod(chunks) >= 1024


@given(st.data())
def test_costs_of_a_rectilinear_grid(data):
    sizes = data.draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=7), min_size=1, max_size=2)
    )
    shape = [sum(row) - data.draw(st.integers(0, row[-1] - 1)) for row in sizes]
    sample = [data.draw(st.integers(1, n)) for n in shape]
    array = array_of(shape, sizes)
    cost = hr.advise(array, window=sample[0], patch=dict(enumerate(sample[1:], 1)))["present"]
    mean_chunks, mean_nbytes = counted(array.read_chunk_sizes, 4, sample)
    assert cost["chunks"] == pytest.approx(mean_chunks)
    assert cost["nbytes"] == pytest.approx(mean_nbytes)


def test_refuses_what_it_cannot_place():
    array = array_of((4, 4), (2, 2))
    with pytest.raises(ValueError, match="no dimension 'lat'"):
        hr.advise(array, patch={"lat": 2})
    with pytest.raises(ValueError, match="expected 1 to 4 along axis 0"):
        hr.advise(array, window=5)
    with pytest.raises(ValueError, match="group"):
        hr.advise(hr.create_group(hr.memory_store()).store)


def test_command(store):
    array = array_of((20, 30, 40), (20, 5, 5), store, dimension_names=["t", "y", "x"])
    arguments = ("advise", store, "--window", 2, "--patch", "y=10,2=20", "--batch", 4)
    facts = run_json(*arguments)
    advice = hr.advise(array, window=2, patch={"y": 10, "x": 20}, batch=4)
    assert tuple(facts["chunks"]) == advice["chunks"]
    assert facts["present"]["amplification"] == pytest.approx(advice["present"]["amplification"])
    assert b"proposed" in run(*arguments)
    assert b" 1 chunk a sample" in run("advise", store, "--patch", "y=1,x=1")
    for twice in (["y=1,y=2"], ["y=1", "--patch", "y=2"]):
        run("advise", store, "--patch", *twice, status=2)
    apart, together = ["--patch", "y=1", "--patch", "x=1"], ["--patch", "y=1,x=1"]
    assert run("advise", store, *apart) == run("advise", store, *together)
    run("advise", store, "--patch", "z=10", status=2)
    run("advise", store, "--patch", "y", status=2)
