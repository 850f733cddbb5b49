"""The makers of the documentation's pages, in tools/: what they find, and what they refuse."""

import importlib
import re
import sys
from pathlib import Path

import headrace as hr
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    """A module of tools/, which import one another by name."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "tools"))


def test_every_public_name_is_on_a_page(tool):
    docs_python = tool("docs_python")
    shown = "\n".join(docs_python.pages().values())
    named = set(re.findall(r"^::: ([\w.]+)$", shown, re.M))
    assert set(docs_python.everything()) <= named
    modules = {f"headrace.{name}" for name in docs_python.sources()} - {
        f"headrace.{name}" for name in docs_python.AGAIN
    }
    assert modules <= named
    for name in hr.__all__:
        assert f"headrace.{name}" in named, name


def test_public_names_are_those_of_the_package(tool):
    """What is read from the sources is there to be imported, where its library is."""
    found = 0
    for name in tool("docs_python").everything():
        module, _, attribute = name.rpartition(".")
        try:
            loaded = importlib.import_module(module)
        except ImportError:
            continue
        assert hasattr(loaded, attribute), name
        found += 1
    assert found > 60


def test_every_public_name_says_what_it_is(tool):
    """With a docstring, and functions and classes that are much used with an example."""
    griffe = pytest.importorskip("griffe")
    package = griffe.load(
        "headrace", search_paths=[ROOT / "python"], allow_inspection=False, docstring_parser="numpy"
    )
    bare = []
    for name in tool("docs_python").everything():
        found = package[name.removeprefix("headrace.")]
        found = found.final_target if found.is_alias else found
        if found.is_attribute:  # a value of another library, under a name of ours
            continue
        if not found.has_docstring:
            bare.append(name)
        elif found.is_function and "." not in name.removeprefix("headrace."):
            kinds = {section.kind.value for section in found.docstring.parsed}
            if "examples" not in kinds and name != "headrace.memory_store":
                bare.append(f"{name}: no example")
    assert not bare

    def astray(found):
        """Examples that are in no section of their own, which would be shown as quotations."""
        for section in found.docstring.parsed if found.docstring else ():
            if section.kind.value == "text" and ">>>" in section.value:
                yield found.path
        for member in found.members.values():
            if not member.is_alias:
                yield from astray(member)

    assert not list(astray(package))


def test_a_name_without_a_subject_gets_a_page(tool, monkeypatch):
    docs_python = tool("docs_python")
    known = docs_python.top_names()
    monkeypatch.setattr(docs_python, "top_names", lambda: [*known, "brand_new"])
    pages = docs_python.pages()
    assert "::: headrace.brand_new" in pages["reference/python/more.md"]
    assert "brand_new" in docs_python.index()


def test_a_name_that_is_gone_is_an_error(tool, monkeypatch):
    docs_python = tool("docs_python")
    known = docs_python.top_names()
    monkeypatch.setattr(docs_python, "top_names", lambda: [n for n in known if n != "advise"])
    with pytest.raises(ValueError, match="no public advise"):
        docs_python.pages()


def test_every_declaration_of_the_headers_is_on_a_page(tool):
    docs_cpp = tool("docs_cpp")
    pages = docs_cpp.pages()
    assert len(pages) == len(docs_cpp.headers()) >= 19
    for header in docs_cpp.headers():
        page = pages[f"reference/cpp/{header.stem}.md"]
        names = docs_cpp.declared(header)
        assert names or header.name == "headrace.h"
        for name in names:
            assert re.search(rf"\b{name}\b", page), f"{header.name}: {name}"
        assert not re.search(r"^ private:", page, re.M)
        assert "namespace detail" not in page


def test_comments_of_headers_become_text(tool):
    docs_cpp = tool("docs_cpp")
    comment = [
        "// How to use it, by <T> and a_b:", "//  1. first,", "//     which goes on;",
        "//  2. `a_b`.", "//", '//   "none"  as it is', "// After docs/zarr.md:",
        "//  - one", "//  - two",
    ]  # fmt: skip
    assert docs_cpp.prose(comment) == (
        "How to use it, by \\<T> and a\\_b:\n\n1.  first,\n    which goes on;\n2.  `a_b`.\n\n"
        '```text\n  "none"  as it is\n```\n\nAfter [docs/zarr.md](../../zarr.md):\n\n'
        "-   one\n-   two"
    )


def test_all_settings_are_in_the_table(tool):
    table = tool("docs_tables").configuration()
    rows = {
        row.split("|")[1].strip().strip("`"): [cell.strip() for cell in row.split("|")[2:-1]]
        for row in table.splitlines()[2:]
    }
    settings = hr.config.get()
    assert set(rows) == set(settings)
    assert rows["threads"][:3] == ["int", "`0`", "`HEADRACE_THREADS`"]
    assert rows["io_nbytes"][:2] == ["bytes", "256 MiB"]
    assert rows["fallback"][1] == '`"silent"`'
    assert all(len(cells[3]) > 10 for cells in rows.values())


def test_variables_of_the_environment_are_on_the_page(tool):
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    page += tool("docs_tables").configuration()
    used = set()
    for folder in ("src", "cli", "python"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cpp", ".h", ".py"):
                text = path.read_text(errors="replace")
                used |= set(re.findall(r'(?:getenv|environ\.get)\(\s*"(HEADRACE_\w+)"', text))
    assert len(used) > 5
    assert {name for name in used if f"`{name}`" not in page} == set()


def test_all_errors_are_in_the_table(tool):
    table = tool("docs_tables").errors()
    for code in ("invalid_argument", "corrupt", "unsupported", "conflict", "io"):
        assert f"`{code}`" in table
    for name in ("CorruptError", "DeviceError", "CancelledError", "ConflictError"):
        assert f"[headrace.{name}]" in table and hasattr(hr, name)


def test_commands_are_those_of_the_help(tool):
    command = Path(sys.executable).with_name("headrace")
    if not command.exists():
        pytest.skip("no command beside this Python")
    page = tool("docs_tables").command_line(command)
    for name in ("info", "read", "verify", "rechunk", "advise", "doctor"):
        assert f"## headrace {name} {{ #{name} }}" in page


def test_charts_are_made_from_results(tool):
    charts = tool("docs_charts")
    for name in charts.CHARTS:
        figure = charts.made(name)
        assert "<svg" in figure and "\n" not in figure, name  # a line that Markdown leaves alone
        for file in re.findall(r"bench/results/([\w.-]+)", figure):
            assert (ROOT / "bench" / "results" / file).is_file()
    for name in charts.TABLES:
        assert charts.made(name).startswith("| ")
    with pytest.raises(ValueError, match="no 'nothing'"):
        charts.made("nothing")


def test_pages_ask_for_what_is_made(tool):
    charts = tool("docs_charts")
    known = {*charts.CHARTS, *charts.TABLES, "configuration", "errors"}
    asked = set()
    for path in (ROOT / "docs").rglob("*.md"):
        asked |= set(re.findall(r"^<!-- made: ([\w-]+) -->$", path.read_text(), re.M))
    assert asked == known


def test_drawings_are_current(tool):
    for name, drawing in tool("docs_drawings").DRAWINGS.items():
        path = ROOT / "docs" / "assets" / f"{name}.svg"
        assert path.read_text() == drawing, "run: python tools/docs_drawings.py"


def test_a_site_that_lacks_a_name_is_refused(tool, tmp_path, capsys):
    """With a page of all names but one, and a mark that was left."""
    check_site, docs_python = tool("check_site"), tool("docs_python")
    names = docs_python.everything()
    page = tmp_path / "reference" / "python" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("".join(f'<h2 id="{name}"></h2>' for name in names[1:]))
    (tmp_path / "index.html").write_text("<p><!-- made: errors --></p>")
    for header in tool("docs_cpp").headers():
        other = tmp_path / "reference" / "cpp" / header.stem / "index.html"
        other.parent.mkdir(parents=True)
        other.write_text(" ".join(tool("docs_cpp").declared(header)))
    assert check_site.main(["", str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"reference/python: {names[0]} is public and not there: has it a docstring?",
        "index.html: errors was not made",
    ]
    other.unlink()
    assert check_site.main(["", str(tmp_path)]) == 1
    assert f"reference/cpp: no page of {header.name}" in capsys.readouterr().err
