"""MkDocs hook: pages that lie beside docs/, and links that work in the repository and on the site.

README.md is the landing page and its links are those of the repository: `docs/zarr.md` is the page
`zarr.md` of the site. What a page links to and is no page (an example's source) is copied to the
site under its own path, and a folder means its README. A link to what does not exist stays as it
is, and `mkdocs build --strict` refuses it.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
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
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files, config):
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    origin = {page: path for path, page in PAGES.items()}
    path = origin.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def rewritten(link):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        if (ROOT / target).is_dir():
            target += "/README.md"
        uri = PAGES.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(uri) is None and (ROOT / target).is_file():
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
        here = posixpath.dirname(page.file.src_uri)
        return f"]({posixpath.relpath(uri, here or '.')}{link[2] or ''})"

    return _LINK.sub(rewritten, markdown)
