"""headrace.torch: state dicts."""

import json
import math
import os
import shutil
import warnings
from collections import namedtuple
from pathlib import Path
from types import MappingProxyType

import headrace as hr
import numpy as np
import pytest
import zarr
from helpers import HAS_CUDA, edit_json, python

torch = pytest.importorskip("torch")

from headrace.torch import load_metadata, load_state_dict, save_state_dict  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

EXAMPLE = Path(__file__).parents[2] / "examples" / "state_dict.py"
FLOATS = ["float16", "bfloat16", "float32", "float64"]
FLOATS8 = [
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
OTHERS = ["bool", "complex32", "complex64", "complex128", "float4_e2m1fn_x2"]


def bits(tensor):
    """The bytes of a tensor, NaN payloads and the sign of zero included."""
    flat = tensor.detach().resolve_conj().cpu().resolve_neg().flatten()
    content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return tensor.dtype, tuple(tensor.shape), content


def random_tensor(name, shape):
    dtype = getattr(torch, name)
    raw = np.random.default_rng(7).bytes(math.prod(shape) * dtype.itemsize)
    flat = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    if dtype == torch.bool:
        flat = flat % 2
    return flat.view(dtype).reshape(shape)


def network(seed=0, **kwargs):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(30, 40, **kwargs),
        torch.nn.BatchNorm1d(40, **kwargs),
        torch.nn.Linear(40, 5, **kwargs),
    )


def assert_same_state(got, wanted):
    assert list(got) == list(wanted)
    for name, tensor in wanted.items():
        assert bits(got[name]) == bits(tensor), name


@pytest.fixture
def saved(store):
    model = network()
    save_state_dict(model.state_dict(), store, metadata={"step": 1000, "loss": [1.5, None]})
    return store, model


def test_module_comes_back(saved):
    store, model = saved
    state = load_state_dict(store)
    assert_same_state(state, model.state_dict())
    assert state._metadata == model.state_dict()._metadata
    fresh = network(seed=1)
    fresh.load_state_dict(state)
    assert_same_state(fresh.state_dict(), model.state_dict())


def test_metadata(saved):
    assert load_metadata(saved[0]) == {"step": 1000, "loss": [1.5, None]}


def test_other_readers_see_arrays_by_name(saved):
    store, model = saved
    group = zarr.open_group(store, mode="r")
    assert sorted(group.array_keys()) == sorted(model.state_dict())
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(group[name][...], tensor.numpy())


@pytest.mark.parametrize("name", FLOATS + FLOATS8 + INTEGERS + OTHERS)
def test_every_dtype_keeps_its_bits(store, name):
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    state = {"x": random_tensor(name, (5, 6)), "scalar": random_tensor(name, (1,)).reshape(())}
    save_state_dict(state, store)
    assert_same_state(load_state_dict(store), state)
    target = {key: torch.empty_like(value) for key, value in state.items()}
    load_state_dict(store, into=target)
    assert_same_state(target, state)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (7,)])
def test_shapes(store, shape):
    state = {"x": torch.full(shape, 2.5)}
    save_state_dict(state, store)
    assert_same_state(load_state_dict(store), state)


def test_zeros_and_their_sign(store):
    state = {"zero": torch.zeros(4), "minus": torch.full((4,), -0.0)}
    save_state_dict(state, store)
    assert_same_state(load_state_dict(store), state)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2, 1:],
        lambda x: x[:1].expand(6, -1),
        lambda x: torch.complex(x, x).conj(),
        lambda x: torch.complex(x, x).conj().imag,
    ],
)
def test_views(store, view):
    state = {"x": view(torch.arange(24.0).reshape(4, 6))}
    save_state_dict(state, store)
    assert torch.equal(load_state_dict(store)["x"], state["x"])
    target = {"x": view(torch.zeros(4, 6))}
    if 0 in target["x"].stride():
        with pytest.raises(RuntimeError, match="more than one element"):  # as copy_ says
            load_state_dict(store, into=target)
        return
    load_state_dict(store, into=target)
    assert torch.equal(target["x"], state["x"])


def test_large_tensors_are_cut_and_sharded(store):
    state = {
        "tall": torch.randn(1000, 40),
        "wide": torch.randn(2, 30_000),
        "flat": torch.randn(50_001),
        "three": torch.randn(3, 3, 9000),
    }
    save_state_dict(state, store, chunk_nbytes=16 << 10, shard_nbytes=64 << 10)
    group = hr.open_group(store)
    for name, array in group.arrays():
        assert math.prod(array.chunks) * 4 <= 16 << 10, name
        assert array.shards and math.prod(array.shards) * 4 <= 64 << 10, name
    assert group["tall"].chunks == (102, 40) and group["wide"].chunks == (1, 4096)
    assert_same_state(load_state_dict(store), state)


def test_compressed(store):
    state = {"x": torch.arange(100_000)}
    save_state_dict(state, store, filters=hr.codecs.Shuffle(8), compressors=[hr.codecs.Zstd(1)])
    assert sum(f.stat().st_size for f in Path(store).rglob("*")) < 100_000
    assert_same_state(load_state_dict(store), state)


def test_tied_tensors_are_stored_once_and_stay_tied(store):
    shared = torch.randn(10, 4)
    state = {"embed": shared, "part": shared[:5], "head": shared}
    save_state_dict(state, store)
    assert hr.open_group(store).array_keys() == ["embed", "part"]
    loaded = load_state_dict(store)
    assert_same_state(loaded, state)
    assert loaded["embed"] is loaded["head"]
    untied = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    load_state_dict(store, into=untied)
    assert_same_state(untied, state)


def test_optimizer_state_dict(store):
    model = network()
    moments = {"step": torch.tensor(2.0), "exp_avg": torch.randn(40, 30), "max": None}
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "foreach": None, "params": [0, 1]}
    optimizer = {"state": {0: moments, 1: {"step": 7}}, "param_groups": [group]}
    save_state_dict({"model": model.state_dict(), "optimizer": optimizer, "epoch": 3}, store)
    loaded = load_state_dict(store)
    assert loaded["optimizer"]["param_groups"] == [group]
    assert list(loaded["optimizer"]["state"]) == [0, 1]  # integers
    assert bits(loaded["optimizer"]["state"][0]["exp_avg"]) == bits(moments["exp_avg"])
    assert loaded["optimizer"]["state"][1] == {"step": 7}
    assert_same_state(loaded["model"], model.state_dict())
    assert loaded["model"]._metadata == model.state_dict()._metadata
    assert loaded["epoch"] == 3


def test_plain_values(store):
    state = {
        "numbers": [1, -(2**70), 0.1, math.inf, -math.inf, True, None, 1 - 2j],
        "nested": ({"a": (1, [2, ()])}, {}),
        "text": "\u00fc\n\x00",
        "bytes": bytes(range(256)),
        "dtype": torch.bfloat16,
        "keys": {1: "int", 2.5: "float", None: "none", False: "bool", "": "empty"},
    }
    save_state_dict(state, store)
    loaded = load_state_dict(store)
    assert loaded == state
    assert [type(x) for x in loaded["numbers"]] == [type(x) for x in state["numbers"]]
    assert [type(x) for x in loaded["keys"]] == [type(x) for x in state["keys"]]
    save_state_dict({"nan": math.nan}, store, overwrite=True)
    assert math.isnan(load_state_dict(store)["nan"])


NAMES = ["a/b", ".", "..", "", "__init__", "zarr.json", "a b", "%41", "\u00fc", "c", "*?\\:|"]


def test_names_that_are_no_node_names(store):
    state = {name: torch.full((2,), float(i)) for i, name in enumerate(NAMES)}
    state["nested"] = {"..": torch.ones(2), "": torch.zeros(3)}
    save_state_dict(state, store)
    loaded = load_state_dict(store)
    assert_same_state(loaded.pop("nested"), state.pop("nested"))
    assert_same_state(loaded, state)
    assert [p.name for p in Path(store).parent.iterdir()] == [Path(store).name]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({1: {}, "1": 0}, ValueError, "read alike"),
        ({"a/b": 0, "a": {"b": 1}}, ValueError, "two values are called 'a/b'"),
        ({(1, 2): 0}, TypeError, "key of type tuple"),
        ({"x": {3}}, TypeError, "x: expected a tensor.*got set"),
        ({"x": [np.float32(1)]}, TypeError, "x/0: expected a tensor.*got float32"),
        ({"x": torch.eye(3).to_sparse()}, TypeError, "dense tensor, got torch.sparse_coo"),
        ({"x": torch.empty(2, device="meta")}, ValueError, "meta device"),
    ],
)
def test_what_cannot_be_stored(store, value, error, message):
    with pytest.raises(error, match=message):
        save_state_dict(value, store)
    assert not os.path.exists(store)


def test_quantized_tensors_are_called_so(store):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to have no more of them
        tensor = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match=r"a/x: expected a dense .* quantized one of torch\.qint8"):
        save_state_dict({"a": {"x": tensor}}, store)


@pytest.mark.parametrize("dtype", ["uint1", "int4", "uint4", "bits8"])
def test_types_that_zarr_lacks(store, dtype):
    tensor = torch.empty(5, dtype=getattr(torch, dtype, None) or pytest.skip("of a newer torch"))
    with pytest.raises(ValueError, match=rf"a/x: Zarr has no type .* torch\.{dtype}"):
        save_state_dict({"a": {"x": tensor}}, store)
    assert not os.path.exists(store)


def test_containers_come_back_plain(store):
    pair = namedtuple("pair", "x y")
    save_state_dict({"a": pair(1, torch.Size([2])), "b": bytearray(b"x")}, store)
    loaded = load_state_dict(store)
    assert loaded == {"a": (1, (2,)), "b": b"x"}
    assert [type(x) for x in (loaded["a"], loaded["a"][1], loaded["b"])] == [tuple, tuple, bytes]


def test_into_fills_the_memory_that_is_there(saved):
    store, model = saved
    target = network(seed=1).requires_grad_()
    before = {name: tensor.data_ptr() for name, tensor in target.state_dict().items()}
    assert str(load_state_dict(store, into=target)) == "<All keys matched successfully>"
    assert {name: tensor.data_ptr() for name, tensor in target.state_dict().items()} == before
    assert_same_state(target.state_dict(), model.state_dict())
    assert target[0].weight.requires_grad


def test_into_converts(saved):
    store, model = saved
    target = network(seed=1).to(torch.bfloat16)
    load_state_dict(store, into=target)
    assert_same_state(target.state_dict(), model.to(torch.bfloat16).state_dict())


def test_meta_module_gets_new_parameters(saved):
    store, model = saved
    target = network(device="meta")
    with pytest.raises(ValueError, match="needs device="):
        load_state_dict(store, into=target)
    load_state_dict(store, into=target, device="cpu", dtype=torch.bfloat16)
    assert isinstance(target[0].weight, torch.nn.Parameter)
    assert_same_state(target.state_dict(), model.to(torch.bfloat16).state_dict())


def test_into_a_state_dict(store):
    state = {"x": torch.randn(3), "deep": [{"y": torch.ones(2)}, 5], "rate": 0.1}
    save_state_dict(state, store)
    target = {"x": torch.zeros(3), "deep": [{"y": torch.zeros(2)}, 0], "rate": 0.5}
    inner = target["deep"][0]["y"]
    load_state_dict(store, into=target)
    assert torch.equal(target["x"], state["x"]) and torch.equal(inner, torch.ones(2))
    assert target["deep"][1] == 5 and target["rate"] == 0.1


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_into_the_state_dict_of_an_optimizer(store, kind):
    def trained(rate):
        model = torch.nn.Linear(2, 2)
        # Tuples of two groups are one object.
        groups = [{"params": [model.weight]}, {"params": [model.bias]}]
        options = {"momentum": rate} if kind is torch.optim.SGD else {"betas": (rate, rate / 2)}
        optimizer = kind(groups, lr=rate, **options)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    state, target = trained(0.25), trained(0.5)
    save_state_dict(state, store)
    weight = target["model"]["weight"]
    assert str(load_state_dict(store, into=target)) == "<All keys matched successfully>"
    assert target["model"]["weight"] is weight
    assert_same_state(target["model"], state["model"])
    assert target["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
    for i, moments in state["optimizer"]["state"].items():
        assert_same_state(target["optimizer"]["state"][i], moments)


Pair = namedtuple("Pair", "x y")


def test_into_tuples(store):
    def tree(value, tensor):
        inner = [value, (value, {"deep": (tensor(1.0), value)})]
        return {
            "plain": (value, (value, "same"), tensor(2.0)),
            "named": Pair(value, [Pair(value, tensor(3.0))]),
            "size": torch.Size([value, 4]),
            "kept": (tensor(4.0), (tensor(5.0),)),
            "list": (inner, inner),
        }

    state = tree(7, torch.tensor)
    save_state_dict(state, store)
    target = tree(0, lambda _: torch.zeros(()))
    kept, size, inner = target["kept"], target["plain"][2], target["list"][0]
    load_state_dict(store, into=target)
    assert target == state
    assert [type(target[name]) for name in state] == [type(state[name]) for name in state]
    assert type(target["named"].y[0]) is Pair
    assert target["kept"] is kept and target["plain"][2] is size and target["list"][0] is inner
    # New tensors have their places there, too.
    target = tree(0, lambda _: torch.zeros((), device="meta"))
    load_state_dict(store, into=target, device="cpu")
    assert target == state and type(target["named"].y[0]) is Pair


class OfTwo(tuple):
    def __new__(cls, x, y):
        return super().__new__(cls, (x, y))


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda x: MappingProxyType({"a": x}), "fixed: mappingproxy takes no new values"),
        (lambda x: OfTwo(x, x), "fixed: OfTwo takes no new values: .*argument"),
        (lambda x: [MappingProxyType({"a": (x, [x])})], "fixed/0: mappingproxy takes no new"),
    ],
)
def test_into_what_cannot_be_changed_changes_nothing(store, wrap, message):
    save_state_dict({"w": torch.ones(2), "step": 7, "fixed": wrap(2), "z": (3,)}, store)
    target = {"w": torch.zeros(2), "step": 0, "fixed": wrap(0), "z": (0,)}
    with pytest.raises(TypeError, match=message):
        load_state_dict(store, into=target)
    assert (target["w"] == 0).all() and target["step"] == 0 and target["z"] == (0,)
    # Tensors are filled where they are.
    tensor = torch.zeros(2)
    save_state_dict({"fixed": wrap(torch.ones(2))}, store, overwrite=True)
    load_state_dict(store, into={"fixed": wrap(tensor)})
    assert (tensor == 1).all()


class Counting(torch.nn.Linear):
    """A module with state of its own."""

    def __init__(self, count, form):
        super().__init__(2, 2)
        self.count, self.form = count, form

    def get_extra_state(self):
        return self.form(self.count)

    def set_extra_state(self, state):
        self.count = state["count"] if isinstance(state, dict) else int(state)


@pytest.mark.parametrize("form", [int, torch.tensor, lambda count: {"count": count}])
def test_extra_state_of_modules(store, form):
    save_state_dict(torch.nn.Sequential(Counting(7, form)).state_dict(), store)
    given = torch.nn.Sequential(Counting(0, form))
    given.load_state_dict(load_state_dict(store))
    assert given[0].count == 7
    filled = torch.nn.Sequential(Counting(0, form))
    load_state_dict(store, into=filled)
    assert filled[0].count == 7


def test_conversion_goes_batch_by_batch(store, monkeypatch):
    from headrace.torch import _read

    monkeypatch.setattr(_read, "_STAGED_NBYTES", 100)
    state = {str(i): torch.randn(10 + i) for i in range(6)}
    save_state_dict(state, store)
    wanted = {name: tensor.half() for name, tensor in state.items()}
    assert_same_state(load_state_dict(store, dtype=torch.float16), wanted)
    target = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    load_state_dict(store, into=target)
    assert_same_state(target, wanted)


def test_strict_report_is_torchs(saved):
    store, model = saved
    target = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 5))
    with pytest.raises(RuntimeError) as torchs:
        target.load_state_dict(model.state_dict())
    target.load_state_dict(
        {name: torch.zeros_like(tensor) for name, tensor in target.state_dict().items()}
    )
    with pytest.raises(RuntimeError) as ours:
        load_state_dict(store, into=target)

    def said(error):  # torch names the keys in the order of modules
        return [sorted(line.rstrip(". ").replace(",", "").split()) for line in error.splitlines()]

    assert sorted(said(str(ours.value))) == sorted(said(str(torchs.value)))
    assert all(not tensor.any() for tensor in target.state_dict().values())  # nothing was read


def test_lenient_loading_reports_what_torch_reports(saved):
    store, model = saved
    target = torch.nn.ModuleDict({"0": torch.nn.Linear(30, 40), "new": torch.nn.Linear(2, 2)})
    keys = load_state_dict(store, into=target, strict=False)
    assert keys == target.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(target["0"].weight, model[0].weight)


def test_partial_loading(saved):
    store, model = saved
    wanted = {k: v for k, v in model.state_dict().items() if k.startswith("2.")}
    assert_same_state(load_state_dict(store, names=lambda name: name.startswith("2.")), wanted)
    assert_same_state(load_state_dict(store, names=["2.weight", "2.bias"]), wanted)
    target = network(seed=1)
    first = bits(target[0].weight)
    load_state_dict(store, into=target, names=["2.weight", "2.bias"])
    assert bits(target[2].weight) == bits(model[2].weight)
    assert bits(target[0].weight) == first
    with pytest.raises(KeyError, match="'new'"):
        load_state_dict(store, names=["new"])
    with pytest.raises(TypeError, match="collection of names"):
        load_state_dict(store, names="2.weight")


def test_partial_loading_reads_only_that(saved):
    store, _ = saved
    shutil.rmtree(Path(store) / "0.weight")
    assert list(load_state_dict(store, names=["2.weight"])) == ["2.weight"]


def test_partial_loading_of_nested_values(store):
    save_state_dict({"a": [torch.ones(1), 2], "b": {"c": 3, "d": torch.ones(1)}}, store)
    assert load_state_dict(store, names=["a/1"]) == {"a": [None, 2], "b": {}}
    assert load_state_dict(store, names=["b/d"])["b"] == {"d": torch.ones(1)}


def test_device_by_name(saved):
    store, _ = saved
    state = load_state_dict(store, device=lambda name: "cpu" if name[0] == "0" else "meta")
    assert state["0.weight"].device.type == "cpu" and state["2.weight"].device.type == "meta"


@pytest.mark.skipif(not (HAS_CUDA and torch.cuda.is_available()), reason="no GPU")
@pytest.mark.parametrize("codecs", [{}, {"compressors": hr.codecs.Zstd(1)}])
def test_from_and_to_a_gpu(store, codecs):
    state = {name: random_tensor(name, (300, 40)).cuda() for name in (*FLOATS, *FLOATS8, *INTEGERS)}
    state |= {"turned": state["float32"].T, "scalar": torch.tensor(3.0).cuda()}
    save_state_dict(state, store, chunk_nbytes=4096, shard_nbytes=16384, **codecs)
    assert_same_state(load_state_dict(store), state)
    loaded = load_state_dict(store, device="cuda")
    assert {tensor.device for tensor in loaded.values()} == {torch.device("cuda", 0)}
    assert_same_state(loaded, state)
    target = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        load_state_dict(store, into=target)
    assert_same_state(target, state)
    halves = load_state_dict(store, names=["float32"], device="cuda", dtype=torch.bfloat16)
    assert bits(halves["float32"]) == bits(state["float32"].bfloat16())


def test_zip_is_one_file(tmp_path):
    path = tmp_path / "model.zip"
    save_state_dict(network().state_dict(), path)
    assert path.is_file()
    assert_same_state(load_state_dict(path), network().state_dict())
    save_state_dict({"x": torch.ones(2)}, path, overwrite=True)
    assert_same_state(load_state_dict(path), {"x": torch.ones(2)})


def test_memory_store_and_groups():
    store = hr.memory_store()
    group = hr.create_group(store).create_group("runs")
    save_state_dict({"x": torch.ones(2)}, group, "first")
    assert_same_state(load_state_dict(store, "runs/first"), {"x": torch.ones(2)})


def test_metadata_that_is_no_json(store):
    with pytest.raises(TypeError, match="not a JSON value"):
        save_state_dict({"x": torch.ones(2)}, store, metadata={"x": {1, 2}})
    assert not os.path.exists(store)


def test_empty_tensors_are_not_tied(store):
    state = {"a": torch.empty(0), "b": torch.empty(0, 2, dtype=torch.int8), "c": torch.empty(3, 0)}
    save_state_dict(state, store)
    assert_same_state(load_state_dict(store), state)


def test_overwrite(saved):
    store, _ = saved
    with pytest.raises(ValueError, match="already"):
        save_state_dict({"x": torch.ones(2)}, store)
    assert load_metadata(store)["step"] == 1000
    save_state_dict({"x": torch.ones(2)}, store, overwrite=True)
    assert_same_state(load_state_dict(store), {"x": torch.ones(2)})
    assert load_metadata(store) == {}


@pytest.mark.parametrize("existing", [False, True])
def test_failed_save_leaves_no_state_dict(store, monkeypatch, existing):
    from headrace.torch import _save

    if existing:
        save_state_dict({"x": torch.ones(2)}, store)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(_save._Target, "_start", fail)
    with pytest.raises(OSError, match="disk full"):
        save_state_dict(network().state_dict(), store, overwrite=True)
    with pytest.raises(ValueError, match="no state dict"):
        load_state_dict(store)
    archive = store + ".zip"
    with pytest.raises(OSError, match="disk full"):
        save_state_dict(network().state_dict(), archive)
    with pytest.raises((ValueError, FileNotFoundError)):
        load_state_dict(archive)


def test_group_of_arrays_is_no_state_dict(store):
    hr.save(store, x=np.ones(3))
    with pytest.raises(ValueError, match="no state dict"):
        load_state_dict(store)
    with pytest.raises(FileNotFoundError):
        load_state_dict(store + "-not-there")


def damage(store, change):
    def edit(document):
        change(document["attributes"]["headrace_state_dict"])

    edit_json(Path(store) / "zarr.json", edit)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {},
        {"unknown": 1},
        {"dict": 5},
        {"dict": [[1]]},
        {"dict": [[["list"], 1]]},
        {"dict": [["x", {"array": 7}]]},
        {"dict": [["x", {"array": "x", "dtype": "no such"}]]},
        {"dict": [["x", {"array": "x", "dtype": "complex32"}]]},
        {"dict": [["x", {"array": "../x"}]]},
        {"dict": [["x", {"array": ""}]]},
        {"bytes": "!"},
        {"torch.dtype": "load"},
        {"float": "one"},
    ],
)
def test_damaged_tree(store, tree):
    save_state_dict({"x": torch.ones(2)}, store)
    damage(store, lambda document: document.update(tree=tree))
    if tree is None:
        assert load_state_dict(store) is None
        return
    with pytest.raises((ValueError, KeyError)):
        load_state_dict(store)


def test_newer_version_is_refused(saved):
    damage(saved[0], lambda document: document.update(version=2))
    with pytest.raises(NotImplementedError, match="version 2"):
        load_state_dict(saved[0])


def test_truncated_tensor_raises(saved):
    store, _ = saved
    chunk = Path(store) / "0.weight" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(hr.CorruptError, match=r"0\.weight"):
        load_state_dict(store)


def test_document_is_json_without_pickles(saved):
    document = json.loads((Path(saved[0]) / "zarr.json").read_text())
    state = document["attributes"]["headrace_state_dict"]
    assert state["version"] == 1
    assert ["2.weight", {"array": "2.weight"}] in state["tree"]["module"][0]


def test_example_runs():
    assert "2.weight (10, 256) bfloat16" in python(EXAMPLE.read_text())
