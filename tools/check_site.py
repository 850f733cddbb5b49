"""Checks that every link of a built site leads somewhere: check_site.py FOLDER.

MkDocs checks the links of Markdown pages; this one reads what a browser gets, so that what themes
and hooks write counts too.
"""

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


def main(argv):
    site = Path(argv[1]).resolve()
    if not (site / "index.html").is_file():
        sys.exit(f"{argv[1]}: no site")
    dead = list(dead_links(site))
    for line in dead:
        print(line, file=sys.stderr)
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
