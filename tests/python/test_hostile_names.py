"""Names and texts of a hostile store never reach a terminal as they are."""

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import headrace as hr
import pytest

COMMAND = Path(sys.executable).parent / "headrace"

# What steers a terminal, hides or turns round text. Bytes, since names need not be UTF-8.
HOSTILE = {
    "esc": b"a\x1b]0;owned\x07b",
    "cr": b"good\rbad",
    "bel": b"\x07\x08",
    "newline": b"a\nheadrace: all is well",
    "del": b"a\x7fb",
    "c1": "a\u009b31mb\u0085".encode(),
    "rtl": "abc\u202egpj.exe".encode(),
    "isolate": "a\u2066b\u2069\u200f".encode(),
    "separator": "a\u2028b\u2029".encode(),
    "tags": "a\U000e0041b".encode(),
    "invalid": b"a\xff\xfeb",
    "lone-c1": b"a\x9b31mb",
    "truncated": b"a\xe2\x80",
}
NAMES = {
    "umlaut": "Gr\u00f6\u00dfe \u6e29\u5ea6".encode(),
    "joined": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645".encode(),
}
ALL = HOSTILE | NAMES


def is_safe(text):
    """Of printed text: lines of what a terminal shows."""
    for c in text:
        if c == "\n" or c == "\u200c":
            continue
        if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs"):
            return False
    return True


def check_output(data):
    assert is_safe(data.decode("utf-8", "strict")), data
    assert b"\nheadrace: all is well" not in data  # no line that a name made


def put_group(folder):
    os.makedirs(folder)
    Path(os.fsdecode(folder), "zarr.json").write_text('{"zarr_format":3,"node_type":"group"}')


def put_array(folder, **other):
    os.makedirs(folder)
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    } | other
    Path(os.fsdecode(folder), "zarr.json").write_text(json.dumps(metadata))
    chunk = Path(os.fsdecode(folder), "c/0")
    chunk.parent.mkdir()
    chunk.write_bytes(b"bad")


@pytest.fixture(params=ALL)
def hostile(request, tmp_path):
    """A store with a group, arrays and broken ones of that name, and a text of it everywhere."""
    name = ALL[request.param]
    text = name.decode("utf-8", "replace")
    root = os.fsencode(tmp_path / "s.zarr")
    put_group(root)
    put_group(root + b"/" + name)
    put_array(root + b"/" + name + b"/" + name)
    put_array(root + b"/fill", data_type="string", fill_value=text, codecs=[{"name": text}])
    put_array(root + b"/names", attributes={text: text}, dimension_names=[text])
    put_array(root + b"/dtype", data_type=text)
    put_array(root + b"/codec", codecs=[{"name": text, "configuration": {text: text}}])
    put_array(root + b"/key", **{text: {"must_understand": True}})
    os.makedirs(root + b"/broken")
    Path(os.fsdecode(root), "broken/zarr.json").write_text(text)
    return os.fsdecode(root), os.fsdecode(name)


def run(*arguments):
    done = subprocess.run([COMMAND, *arguments], capture_output=True, timeout=60)
    assert done.returncode in (0, 1, 2), done
    return done


def targets(store, name):
    yield store
    for below in (name, f"{name}/{name}", "fill", "names", "dtype", "codec", "key", "broken", "no"):
        yield f"{store}/{below}"


def test_command_shows_nothing_raw(hostile, tmp_path):
    store, name = hostile
    for target in targets(store, name):
        for command in ("info", "tree", "verify", "read", "advise"):
            done = run(command, target)
            check_output(done.stdout)
            check_output(done.stderr)
            done = run(command, target, "--json")
            check_output(done.stdout)
            check_output(done.stderr)
            if done.stdout:
                json.loads(done.stdout)


def test_copies_and_files_show_nothing_raw(hostile, tmp_path):
    store, name = hostile
    for arguments in (
        ("rechunk", store, f"{tmp_path}/copy{name.replace('/', '')}", "--chunks", "2"),
        ("rechunk", f"{store}/{name}", f"{tmp_path}/c.zarr", "--chunks", "2", "--plan"),
        ("convert", f"{store}/{name}/{name}", f"{tmp_path}/{name}"),
        ("bench", f"{store}/{name}/{name}", "-n", "1"),
        ("read", f"{store}/{name}/{name}", "-o", f"{tmp_path}/{name}"),
        ("read", f"{store}/names", "-o", f"{tmp_path}/{name}/x.npy"),
        (name, store),
        ("info", store, name),
        ("info", f"{store}/names", "--device", name),
        ("info", f"{store}/names", "--storage-option", f"{name}=1"),
        ("read", f"{store}/names", "--selection", name),
    ):
        done = run(*arguments)
        check_output(done.stdout)
        check_output(done.stderr)


def test_json_tells_names_as_they_are(hostile):
    store, name = hostile
    found = {node["name"] for node in json.loads(run("tree", store, "--json").stdout)["members"]}
    assert os.fsencode(name).decode("utf-8", "replace") in found


def test_names_of_the_world_stay_readable(tmp_path):
    store = tmp_path / "s"
    put_group(os.fsencode(store))
    for name in NAMES.values():
        put_group(os.fsencode(store) + b"/" + name)
    text = run("tree", str(store)).stdout.decode()
    for name in NAMES.values():
        assert name.decode() in text
        assert name.decode() in str(hr.open_group(store).tree())


def test_python_shows_nothing_raw(hostile):
    store, name = hostile
    group = hr.open_group(store)
    assert is_safe(str(group.tree())) and is_safe(repr(group.tree()))
    assert is_safe(group.tree()._repr_html_())
    assert name in list(group)
    inner = group[name]
    assert is_safe(repr(inner)) and is_safe(repr(inner[name]))
    assert is_safe(repr(inner.store))
    assert is_safe(repr(group["names"].attrs))
    shown = 0
    for target in targets(store, name):
        try:
            hr.open(target)[...]
        except (Exception, hr.CancelledError) as error:
            shown += 1
            assert is_safe(str(error)), repr(str(error))
            assert is_safe(repr(error))
    assert shown >= 5
    with pytest.raises(hr.CorruptError) as caught:
        inner[name][:]
    assert is_safe(str(caught.value))


def test_printable_leaves_what_is_printable():
    printable = hr._core.printable
    assert printable("") == ""
    assert (
        printable("a b, Gr\u00f6\u00dfe \u6e29\u5ea6 \u2500 \U0001f321")
        == "a b, Gr\u00f6\u00dfe \u6e29\u5ea6 \u2500 \U0001f321"
    )
    assert printable("a\x1b[1m\r\n\t\x7f\x00") == "a\\x1b[1m\\r\\n\\t\\x7f\\x00"
    assert printable("\u009b\u202e\u2066\ufeff") == "\\u009b\\u202e\\u2066\\ufeff"
    assert printable("\U000e0041") == "\\U000e0041"
    assert printable("\udcff") == "\\xff"
    for text in HOSTILE.values():
        once = printable(os.fsdecode(text))
        assert is_safe(once) and printable(once) == once
