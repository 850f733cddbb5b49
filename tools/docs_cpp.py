"""The pages of C++'s reference: one a public header, from what stands in it.

The headers are the manual: each opens with a story of its use, and comments stand before what they
are about. A page has the story as text, then a heading for each declaration, the comment before it
as text, and the declaration as it is in the header, with the comments inside; what is private, and
`namespace detail`, are left out. The headers are formatted by clang-format, and that is all that
this reader knows of C++: what stands at the left margin of a namespace begins a declaration, and a
blank line outside of braces ends it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "headrace"
LEFT_OUT = {"dlpack.h"}  # a standard of others
FIRST = ["headrace.h", "array.h", "selection.h", "store.h", "tensor.h"]


@dataclass
class Block:
    """A declaration, or several without a blank line between, and the comment before it."""

    comment: list[str]
    code: list[str]


def headers() -> list[Path]:
    order = {name: at for at, name in enumerate(FIRST)}
    found = [path for path in HEADERS.glob("*.h") if path.name not in LEFT_OUT]
    return sorted(found, key=lambda path: (order.get(path.name, len(order)), path.name))


def prose(comment: list[str]) -> str:
    """Markdown of a comment: paragraphs, lists as the house writes them, and what is set further in
    than those as it is."""
    paragraphs: list[list[str]] = [[]]
    kinds = ["text"]
    for line in comment:
        text = line.strip().removeprefix("//")
        text = text.removeprefix(" ")
        item = re.match(r"\s?(\d+\.|-) ", text)
        if not text.strip():
            paragraphs.append([])
            kinds.append("text")
        elif item:
            if kinds[-1] != "list" and paragraphs[-1]:
                paragraphs.append([])
            if len(kinds) < len(paragraphs):
                kinds.append("list")
            kinds[-1] = "list"
            mark = item[1]
            paragraphs[-1].append(f"{mark:<4}{_escaped(text[item.end() :])}")
        elif kinds[-1] == "list" and text.startswith("  "):
            paragraphs[-1].append("    " + _escaped(text.strip()))
        elif text.startswith("  "):
            if kinds[-1] != "code":
                if paragraphs[-1]:
                    paragraphs.append([])
                    kinds.append("code")
                kinds[-1] = "code"
            paragraphs[-1].append(text)
        else:
            if kinds[-1] != "text":
                paragraphs.append([])
                kinds.append("text")
            paragraphs[-1].append(_escaped(text))
    parts = []
    for kind, lines in zip(kinds, paragraphs, strict=True):
        if not lines:
            continue
        text = "\n".join(lines)
        parts.append(f"```text\n{text}\n```" if kind == "code" else text)
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", text)
    for at in range(0, len(parts), 2):
        plain = re.sub(r"([*_<\[\]])", r"\\\1", parts[at])
        parts[at] = re.sub(r"\bdocs/(\w+)\.md\b", r"[docs/\1.md](../../\1.md)", plain)
    return "".join(parts)


def story(lines: list[str]) -> list[str]:
    """The comment that a header opens with, before its includes."""
    found = []
    for line in lines:
        if line.startswith("//"):
            found.append(line)
        elif found or line.startswith(("#include", "namespace")):
            break
    return found


def blocks(lines: list[str]) -> list[Block]:
    """What the header declares in its namespaces."""
    found = []
    current = Block([], [])
    depth = 0  # of braces within a declaration
    names: list[str] = []  # of the namespaces around
    for line in lines:
        if depth == 0:
            opened = re.match(r"(?:inline )?namespace ([\w:]+) \{$", line)
            if opened:
                names.append(opened[1])
                continue
            if names and re.match(r"\}(\s*// namespace.*)?$", line):
                names.pop()
                continue
            if not line.strip():
                if current.code or current.comment:
                    found.append(current)
                current = Block([], [])
                continue
        if not names or "detail" in names:
            continue
        if depth == 0 and not current.code and line.startswith("//"):
            current.comment.append(line)
            continue
        code = line.partition("//")[0]
        depth += code.count("{") - code.count("}")
        current.code.append(line)
    return [block for block in found if not block.code or not _only_names(block.code)]


def _only_names(code: list[str]) -> bool:
    """Whether types are only named here, and declared elsewhere."""
    return all(re.match(r"(class|struct) \w+;", line) for line in code)


def public(code: list[str]) -> list[str]:
    """Without the private part of a class."""
    kept: list[str] = []
    skips = False
    for line in code:
        if re.match(r" (private|protected):", line):
            skips = True
        elif re.match(r" public:|\}", line):
            skips = False
        if not skips:
            kept.append(line)
    while len(kept) > 1 and kept[-1].startswith("}") and not kept[-2].strip():
        del kept[-2]
    return kept


def names(code: list[str]) -> list[str]:
    """What a block declares, for its heading."""
    found = []
    depth = 0
    for line in code:
        text = line.partition("//")[0]
        if depth == 0 and not line.startswith((" ", "}")):
            kind = re.match(r"(?:template <.*> )?(?:class|struct|enum class|enum) (\w+)", text)
            other = re.match(r"using (\w+) =|(?:inline )?constexpr .*?(\w+)\s*(?:=|\{)", text)
            function = re.match(r"[^(=]*?([\w~]+|operator\S+)\(", text)
            match = kind or other or function
            if match and not text.startswith("template"):
                found.append(next(group for group in match.groups() if group))
        depth += text.count("{") + text.count("(") - text.count("}") - text.count(")")
    return list(dict.fromkeys(found))


def declared(path: Path) -> list[str]:
    """The names that a header declares in `headrace` and the namespaces below it, found in another
    way than `blocks` finds them: by what stands at the left margin."""
    found = []
    names: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        opened = re.match(r"(?:inline )?namespace ([\w:]+) \{", line)
        if opened:
            names.append(opened[1])
        elif line.startswith("}") and not line.startswith("};") and names:
            if "namespace" in line or names[-1] == "detail":
                names.pop()
        elif names and "detail" not in names and re.match(r"[A-Za-z\[]", line):
            text = line.partition("//")[0]
            match = re.match(r"(?:class|struct|enum class|enum) (\w+)(?! *;)\b", text)
            match = match or re.match(r"(?:\[\[nodiscard\]\] )?[\w:<>,*& ]+? \*?(\w+)\(", text)
            match = match or re.match(r"using (\w+) =", text)
            if match and not re.match(r"(class|struct) \w+;", text):
                found.append(match[1])
    return list(dict.fromkeys(found))


def page(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    parts = [f"# headrace/{path.name}", f"```cpp\n#include <headrace/{path.name}>\n```"]
    opening = story(lines)
    if opening:
        parts.append(prose(opening))
    included = re.findall(r'#include "headrace/(\w+)\.h"', "\n".join(lines))
    if path.name == "headrace.h":
        listed = "\n".join(f"- [headrace/{name}.h]({name}.md)" for name in included)
        return "\n\n".join([*parts, listed]) + "\n"
    for block in blocks(lines):
        title = ", ".join(f"`{name}`" for name in names(block.code))
        if title:
            parts.append(f"## {title}")
        if block.comment:
            parts.append(prose(block.comment))
        if block.code:
            code = "\n".join(public(block.code))
            parts.append(f"```cpp\n{code}\n```")
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """Address and Markdown of each page, in the order of the navigation."""
    return {f"reference/cpp/{path.stem}.md": page(path) for path in headers()}


def index() -> str:
    """The page in front of them: every header with what it declares."""
    lines = [
        "# C++",
        "",
        "C++20, namespace `headrace`. `#include <headrace/headrace.h>` has all but the loader, the",
        "arena, cells, caches and codecs of one's own, whose headers are included by name. How to",
        "build and link: [install](../../install.md#c). Every failure is a",
        "[`headrace::Error`](error.md); each page is made from its header.",
        "",
        "| header | declares |",
        "|---|---|",
    ]
    for path in headers():
        text = path.read_text(encoding="utf-8").splitlines()
        declared = [name for block in blocks(text) for name in names(block.code)]
        shown = ", ".join(f"`{name}`" for name in dict.fromkeys(declared)) or "all of the interface"
        lines.append(f"| [{path.name}]({path.stem}.md) | {shown} |")
    return "\n".join(lines) + "\n"
