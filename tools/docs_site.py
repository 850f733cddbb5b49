"""MkDocs hook: pages that lie beside docs/, pages that are made, figures, and links that work in
the repository and on the site.

The links of a page are those of the repository: in ARCHITECTURE.md `docs/zarr.md` is the page
`zarr.md` of the site. What a page links to and is no page (an example's source) is copied to the
site under its own path, and a folder means its README. A link to what does not exist stays as it
is, and `mkdocs build --strict` refuses it.

Made at each build: the reference of Python (docs_python.py), of C++ (docs_cpp.py), of the command,
the tables of settings and errors (docs_tables.py), and the charts of docs/performance.md
(docs_charts.py). A line `<!-- made: NAME -->` of a page is where a table or chart goes.
"""

import os
import posixpath
import re
from pathlib import Path

import docs_charts
import docs_cpp
import docs_python
import docs_tables
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "bench.md",
    "examples/README.md": "examples.md",
    "src/codec/README.md": "inside/codecs.md",
    "src/device/README.md": "inside/devices.md",
    "src/kernels/README.md": "inside/kernels.md",
    "src/loader/README.md": "inside/loader.md",
    "src/shm/README.md": "inside/shm.md",
    "src/store/README.md": "inside/stores.md",
    "src/store/http/README.md": "inside/http.md",
}
# Links to them lead elsewhere: the site's landing page is its own.
ELSEWHERE = {"README.md": "index.md"}
# Their tables and listings want the room of the contents at the right.
WIDE = {"architecture.md", "bench.md", "inside/http.md", "interop.md", "trips.md"}
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_MADE = re.compile(r"^<!-- made: ([\w-]+) -->$", re.M)
_FIGURE = re.compile(r'<img alt="([^"]*)" src="([^"]*?assets/[\w-]+\.svg)"[^>]*>')


def command():
    """The command whose help is shown: that of the environment of the checkout."""
    found = Path(os.environ.get("HEADRACE_DOCS_COMMAND", ROOT / ".venv" / "bin" / "headrace"))
    if not found.is_file():
        raise PluginError(f"docs_site.py: no {found}: `make package` builds it")
    return found


def _section(nav, title):
    """The list of that name somewhere in the navigation."""
    for item in nav:
        for name, value in item.items() if isinstance(item, dict) else ():
            if name == title and isinstance(value, list):
                return value
            if isinstance(value, list) and (found := _section(value, title)) is not None:
                return found
    return None


def on_config(config):
    """Every made page is in the navigation."""
    python, cpp = _section(config.nav, "Python"), _section(config.nav, "C++")
    for subject in docs_python.subjects():
        python.append({subject.title: f"reference/python/{subject.page}.md"})
    cpp += [{path.name: f"reference/cpp/{path.stem}.md"} for path in docs_cpp.headers()]
    return config


def on_files(files, config):
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    made = {
        "reference/python/index.md": docs_python.index(),
        **docs_python.pages(),
        "reference/cpp/index.md": docs_cpp.index(),
        **docs_cpp.pages(),
        "reference/cli.md": docs_tables.command_line(command()),
    }
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def _made(match):
    name = match[1]
    if name == "configuration":
        return docs_tables.configuration()
    if name == "errors":
        return docs_tables.errors()
    return docs_charts.made(name)


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri.startswith("reference/") and page.file.abs_src_path is None:
        return markdown  # its links are the site's
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    origin = {page: path for path, page in PAGES.items()}
    path = origin.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def rewritten(link):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        if (ROOT / target).is_dir():
            target += "/README.md"
        uri = PAGES.get(target) or ELSEWHERE.get(target) or target.removeprefix("docs/")
        if files.get_file_from_path(uri) is None and (ROOT / target).is_file():
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
        here = posixpath.dirname(page.file.src_uri)
        return f"]({posixpath.relpath(uri, here or '.')}{link[2] or ''})"

    return _MADE.sub(_made, _LINK.sub(rewritten, markdown))


def on_page_content(html, page, config, files):
    """Drawings of docs/assets become part of the page: their colours are those of its palette."""

    def inlined(match):
        path = ROOT / "docs" / "assets" / posixpath.basename(match[2])
        drawing = path.read_text(encoding="utf-8")
        return f'<figure class="drawing" role="img" aria-label="{match[1]}">{drawing}</figure>'

    return _FIGURE.sub(inlined, html)
