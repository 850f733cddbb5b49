"""What notebooks and shells show: cards, tables, completion, signatures."""

import html.parser
import importlib
import inspect
import json
import xml.etree.ElementTree as ElementTree

import headrace as hr
import numpy as np
import pytest
from cloud_servers import file_server
from headrace.loader import Loader

HOSTILE = "<script>alert('x')</script>&\"\x1b[31m"


class Checker(html.parser.HTMLParser):
    """Tags that are closed in the order they were opened."""

    VOID = ("rect", "line", "br")

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.tags = set()
        self.feed(text)
        assert self.open == [], self.open

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()


def checked(thing):
    text = thing._repr_html_()
    tags = Checker(text).tags
    assert "script" not in tags
    assert "\x1b" not in text
    return text


@pytest.fixture
def group(tmp_path):
    group = hr.create_group(str(tmp_path / "g.zarr"), attributes={"title": HOSTILE})
    group.create_array(
        "t2m",
        data=np.zeros((5, 40, 60), "f4"),
        chunks=(1, 20, 20),
        dimension_names=["time", "lat", "lon"],
        attributes={"units": "K", "note": HOSTILE},
    )
    group.create_array("s", shape=(64, 64), dtype="u1", chunks=(8, 8), shards=(32, 32))
    return group


def test_the_card_of_an_array(group):
    text = checked(group["t2m"])
    for part in ("(5, 40, 60)", "(1, 20, 20)", "Zstd", "time, lat, lon", "float32", "30 chunks"):
        assert part in text, part
    picture = text[text.index("<svg") : text.index("</svg>") + 6]
    root = ElementTree.fromstring(picture)
    lines = [line for line in root.iter() if line.tag == "line"]
    assert len(lines) == 1 + 2  # 2 x 3 chunks in the last two dimensions
    assert "5 x 2 x 3 chunks" in picture
    # The page's own colours, in the light and in the dark.
    assert "currentColor" in picture and "#" not in picture


def test_the_card_of_a_sharded_array(group):
    text = checked(group["s"])
    assert text.count('stroke-opacity="0.9"') == 2
    assert text.count('stroke-opacity="0.35"') == 14


@pytest.mark.parametrize("shape", [(), (0,), (7,), (1, 1), (3, 0, 2), (2, 3, 4, 5)])
def test_cards_of_all_shapes(shape):
    array = hr.zeros(shape, "i2")
    text = checked(array)
    assert str(shape).replace("'", "") in text
    assert ("<svg" in text) == bool(shape and 0 not in shape)


def test_a_card_of_a_grid_that_no_memory_holds():
    array = hr.zeros((1 << 40, 1 << 20), "u1", chunks=(1, 1 << 20))
    text = checked(array)
    assert len(text) < 20_000
    assert f"{1 << 40:,}" in text


def test_sizes_that_64_bits_do_not_hold(tmp_path):
    hr.create_array(tmp_path, shape=(7, 5), dtype="i4", chunks=(1 << 10, 3))
    document = json.loads((tmp_path / "zarr.json").read_text())
    document["shape"] = [1 << 62, 1 << 62]
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    array = hr.open_array(tmp_path)
    assert (array.size, array.nbytes) == (1 << 124, 1 << 126)
    assert array.nchunks == (1 << 52) * -(-(1 << 62) // 3)
    assert f"{array.nchunks:,}" in str(array.info) and f"{array.nchunks:,}" in checked(array)
    assert hr.zeros((0, 3)).nchunks == 0 and hr.zeros(()).nchunks == 1


def test_a_rectilinear_grid():
    array = hr.create_array(hr.memory_store(), shape=(30, 4), dtype="f4", chunks=[[5, 10, 15], 4])
    text = checked(array)
    assert "3 x 1 chunks" in text and text.count("<line") == 2


def test_a_rectilinear_grid_of_shards():
    group = hr.create_group(hr.memory_store())
    array = group.create_array("x", shape=(30, 4), dtype="f4", chunks=(5, 2), shards=[[10, 20], 4])
    for thing in (array, group, Loader(array)):
        text = checked(thing)
        assert "(5, 2): 12 chunks" in text and "stored" in text
    assert "of several extents" in checked(array) and "of several extents" in checked(Loader(array))


def test_the_card_of_a_group(group, monkeypatch):
    text = checked(group)
    for part in ("t2m", "(5, 40, 60)", "(1, 20, 20): 30 chunks, stored: 0 B in 0 chunks"):
        assert part in text, part
    group["t2m"][:] = 1
    group["s"][:] = 1
    text = checked(group)
    assert "in 30 chunks, ratio " in text
    assert "(8, 8): 64 chunks, stored: " in text
    # Nothing is listed beyond a few thousand chunks, of all arrays together.
    monkeypatch.setattr("headrace._html._MOST_LISTED", 31)
    text = checked(group)
    assert text.count("stored: ") == 1


def test_the_card_of_a_loader(group):
    group["t2m"][:] = 1
    text = checked(Loader({"t": group["t2m"], "again": group["t2m"]}, batch_size=2))
    for part in ("batches", "(5, 40, 60) float32", "(1, 20, 20): 30 chunks", "Zstd", "ratio "):
        assert part in text, part
    assert "5 x 2 x 3 chunks</text>" in text
    many = Loader({f"a{n:02}": group["t2m"] for n in range(11)})
    text = checked(many)
    assert text.count("<svg") == 8 and "and 3 arrays more" in text
    assert ">(32, 32)<" in checked(Loader(group["s"]))


def test_other_cards(group):
    assert "units" in checked(group["t2m"].attrs)
    assert "g.zarr" in checked(group.store)
    loader = Loader(group["t2m"], batch_size=2)
    assert "batches" in checked(loader)
    assert repr(loader).startswith("<headrace.loader.Loader arrays: t2m; samples: 5;")
    assert "0x" not in repr(loader)
    assert "batches: 2 of 2" in repr(loader)


def test_a_broken_member_hides_no_neighbour(group, tmp_path):
    (tmp_path / "g.zarr/t2m/zarr.json").write_text("{")
    text = checked(group)
    assert "t2m" in text and "uint8" in text


def test_a_group_whose_members_nobody_lists(group, tmp_path):
    with file_server(tmp_path, lambda request: None) as url:
        there = hr.open_group(f"{url}/g.zarr")
        assert "does not say which objects it has" in checked(there)
        assert "does not say which objects it has" in str(there.info)


def test_a_store_of_others_that_breaks():
    memory = pytest.importorskip("zarr.storage").MemoryStore

    class Broken(memory):
        def list_dir(self, prefix):
            raise RuntimeError("nobody is there")

    group = hr.create_group(Broken())
    assert "nobody is there" in checked(group) and "nobody is there" in str(group.info)


def test_info(group):
    text = str(group["t2m"].info)
    for part in ("shape", "(5, 40, 60)", "codecs", "Zstd", "@units", "'K'", "46.9 KiB"):
        assert part in text, part
    assert "\x1b" not in text
    assert "t2m" in str(group.info) and "(time, lat, lon)" in str(group.info)
    checked(group["t2m"].info)
    checked(group.info)
    one = hr.zeros(3, "f4", chunks=3)
    assert "1 chunk\n" in f"{one.info}\n"


def test_completion_of_keys(group):
    assert group._ipython_key_completions_() == ["s", "t2m"]
    assert sorted(group["t2m"].attrs._ipython_key_completions_()) == ["note", "units"]


MODULES = ["codecs", "config", "errors", "lazy", "loader", "shm", "attributes", "group", "tree"]


@pytest.mark.parametrize("name", MODULES)
def test_modules_list_what_is_theirs(name):
    module = importlib.import_module(f"headrace.{name}")
    assert dir(module) == sorted(module.__all__)
    for public in module.__all__:
        assert getattr(module, public)


def test_the_package_lists_what_is_its_own():
    names = dir(hr)
    assert not {"annotations", "importlib", "Any", "TYPE_CHECKING"} & set(names)
    assert {"open", "loader", "torch", "codecs", "zeros", "__version__"} <= set(names)


def public_functions():
    for cls in (hr.Array, hr.Store, hr.Future, hr.DeviceArray):
        for name in dir(cls):
            member = inspect.getattr_static(cls, name)
            if not name.startswith("_") and callable(getattr(cls, name)):
                yield f"{cls.__name__}.{name}", member
    for name in hr.__all__:
        if inspect.isroutine(getattr(hr, name)):
            yield name, getattr(hr, name)


@pytest.mark.parametrize(("name", "function"), list(public_functions()))
def test_signatures_can_be_read(name, function):
    signature = inspect.signature(function)
    assert all(p.name.isidentifier() for p in signature.parameters.values())


def test_signatures_of_bound_methods(group):
    array = group["t2m"]
    parameters = inspect.signature(array.read).parameters
    assert list(parameters) == ["selection", "out", "device", "stream", "implementations"]
    assert parameters["device"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["device"].default is None
    assert "self" in inspect.signature(hr.Array.read).parameters
    assert list(inspect.signature(array.append).parameters) == ["data", "axis"]
    assert inspect.signature(array.append).parameters["axis"].default == 0
    # Of names that a decorator checks, the function's own.
    assert "compressors" in inspect.signature(hr.create_array).parameters
    assert "batch_size" in inspect.signature(Loader).parameters


def test_completion_in_ipython(group):
    completer = pytest.importorskip("IPython.core.completer")
    complete = completer.IPCompleter(namespace={"a": group["t2m"], "g": group})
    complete.use_jedi = False
    assert any("device=" in name for name in complete.complete("a.read(dev")[1])
    assert any("t2m" in name for name in complete.complete(line_buffer="g['t", cursor_pos=4)[1])


def test_reprs(group):
    future = group["t2m"].read_async()
    future.result(30)
    assert repr(future) == "<headrace.Future done>"
    assert "codecs=bytes+zstd" in repr(group["t2m"])
    threads = hr.config.get("threads")
    assert repr(hr.config.set(threads=threads)).startswith("<headrace.config: threads=")
