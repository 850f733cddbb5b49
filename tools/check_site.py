"""Checks a built site: check_site.py FOLDER.

Every link leads somewhere. MkDocs checks the links of Markdown pages; this one reads what a browser
gets, so that what themes and hooks write counts too. And the reference is whole: every public name
of the Python package and every declaration of the public headers has a place there.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Links(HTMLParser):
    """The targets and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.targets.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def dead_links(site):
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in sorted(pages.items()):
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for target in page.targets:
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            found = (path.parent / unquote(url.path)).resolve() if url.path else path
            if found.is_dir():
                found = found / "index.html"
            if not found.is_file() or not found.is_relative_to(site):
                yield f"{path.relative_to(site)}: {target}"
            elif url.fragment and found in pages and url.fragment not in pages[found].anchors:
                yield f"{path.relative_to(site)}: {target}: no such anchor"


def missing_names(site):
    """What is public and has no entry in the reference."""
    import docs_cpp
    import docs_python

    def anchors(pages):
        return {name for path in pages for name in Links(path.read_text(encoding="utf-8")).anchors}

    python = anchors((site / "reference" / "python").rglob("*.html"))
    for name in docs_python.everything():
        if name not in python:
            yield f"reference/python: {name} is public and not there: has it a docstring?"
    for header in docs_cpp.headers():
        page = site / "reference" / "cpp" / header.stem / "index.html"
        if not page.is_file():
            yield f"reference/cpp: no page of {header.name}"
            continue
        text = _text(page)
        for name in docs_cpp.declared(header):
            if not re.search(rf"\b{re.escape(name)}\b", text):
                yield f"reference/cpp: {header.name} declares {name}, which is not there"


def _text(page):
    """The words of a page, without its tags."""
    return re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8"))


def left_marks(site):
    """Marks of tables and charts that nobody has put in their place."""
    for path in site.rglob("*.html"):
        for name in re.findall(r"<!-- made: ([\w-]+) -->", path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)}: {name} was not made"


def main(argv):
    site = Path(argv[1]).resolve()
    if not (site / "index.html").is_file():
        sys.exit(f"{argv[1]}: no site")
    wrong = [*dead_links(site), *missing_names(site), *left_marks(site)]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
