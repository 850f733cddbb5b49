"""Pages made from the program itself: the command line, the configuration, the errors.

The command's page is what `--help` prints, of the command that was built last. The tables are read
from the sources: settings from include/headrace/config.h, their variables of the environment from
src/engine/request/config.cpp, errors from include/headrace/error.h and python/src/errors.cpp.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


# The command line.


def _help(command: Path, *words: str) -> str:
    done = subprocess.run(
        [str(command), *words, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
    )
    if done.returncode != 0:
        raise RuntimeError(f"headrace {' '.join(words)} --help: {done.stderr}")
    return "\n".join(_wrapped(line.rstrip()) for line in done.stdout.strip().splitlines())


def _wrapped(line: str) -> str:
    """A long line of help as a terminal of 96 columns would best have it: below its own column."""
    if len(line) <= 96:
        return line
    columns = re.match(r"( *\S.*? {2,})(?=\S)", line)
    indent = len(columns[1]) if columns and len(columns[1]) < 48 else 0
    return textwrap.fill(
        line, 96, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def commands(text: str) -> list[str]:
    """The commands that `headrace --help` lists, whatever the headings: options begin otherwise."""
    found = re.findall(r"^ {1,4}([a-z][\w-]*) {2,}\S", text, re.M)
    listed = [name for name in dict.fromkeys(found) if name != "headrace"]
    if not listed:
        raise RuntimeError("headrace --help lists no commands")
    return listed


def command_line(command: Path) -> str:
    """The page of the command: its own help, and that of each of its commands."""
    whole = _help(command)
    parts = [
        "# Command line",
        "`headrace COMMAND ...`: what each prints for `--help`, in this build. `--json` is for\n"
        "other programs; the status is 0 when all is well, 1 when something failed or was found\n"
        "to be bad, and 2 when the command was not understood.",
        f"```text\n{whole}\n```",
    ]
    for name in commands(whole):
        parts.append(f"## headrace {name} {{ #{name} }}\n\n```text\n{_help(command, name)}\n```")
    return "\n\n".join(parts) + "\n"


# Configuration.

_TYPES = {
    "int": "int",
    "std::size_t": "bytes",
    "std::string": "str",
    "Implementations": "dict",
    "std::optional<std::size_t>": "bytes or None",
}
# Counts, among what C++ has the type of sizes for.
_COUNTS = {"io_depth", "lock_timeout"}
# What the header says elsewhere, at the type.
_MEANINGS = {
    "implementations": 'Which implementation serves a codec, by name: `{"zstd": "libzstd"}`; '
    "[devices](../devices.md) and `hr.codecs.table()` list them",
}
_UNITS = [("GiB", 30), ("MiB", 20), ("KiB", 10)]


def _default(kind: str, text: str | None) -> str:
    if text is None:
        return "`{}`" if kind == "Implementations" else "`None`"
    shifted = re.fullmatch(r"std::size_t\{(\d+)\} << (\d+)", text)
    if shifted:
        nbytes = int(shifted[1]) << int(shifted[2])
        unit, bits = next((unit, bits) for unit, bits in _UNITS if nbytes >= 1 << bits)
        return f"{nbytes >> bits} {unit}"
    return f"`{text}`"


def _as_text(comment: str) -> str:
    """A comment as a cell: names of C++ as Python has them, and nothing that Markdown takes."""
    text = " ".join(comment.split())
    text = text.replace("`unsupported`", "`NotImplementedError`")
    text = text.replace("codec_table()", "`hr.codecs.table()`").replace("not set:", "None:")
    text = text.replace("when not set", "when None")
    return text[:1].upper() + text[1:]


def engine_settings() -> list[tuple[str, str, str, str]]:
    """Name, type, default and meaning of each member of `Config`."""
    body = re.search(r"struct Config \{\n(.*?)\n\};", _read("include/headrace/config.h"), re.S)
    if body is None:
        raise ValueError("include/headrace/config.h: no struct Config")
    found: list[tuple[str, str, str, str]] = []
    before: list[str] = []
    shared = ""
    for line in body[1].splitlines():
        member = re.fullmatch(r"  ([\w:<>]+) (\w+)(?: = (.*?))?;(?:\s*// (.*))?", line)
        if member is None:
            before.append(line.strip().removeprefix("//").strip())
            continue
        kind, name, default, after = member.groups()
        # A comment before, or behind; members without one share that of the member above.
        shared = " ".join(before) or after or shared
        says = _MEANINGS.get(name, shared)
        found.append((name, kind, _default(kind, default), says))
        before = []
    # A sentence that goes on behind the next member is of both.
    for at in range(1, len(found)):
        if found[at - 1][3].endswith(" are"):
            sentence = f"{found[at - 1][3]} {found[at][3]}"
            found[at - 1] = (*found[at - 1][:3], sentence)
            found[at] = (*found[at][:3], sentence)
    kinds = {name: "int" if name in _COUNTS else _TYPES[kind] for name, kind, _, _ in found}
    return [(name, kinds[name], default, says) for name, _, default, says in found]


def python_settings() -> list[tuple[str, str, str, str]]:
    """The settings of the Python package alone: `_CHOICES` of config.py and the comments there."""
    source = _read("python/headrace/config.py")
    tree = ast.parse(source)
    lines = source.splitlines()
    found = []
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_CHOICES"):
            continue
        assert isinstance(node.value, ast.Dict)
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            assert key is not None
            above = []
            for line in reversed(lines[: key.lineno - 1]):
                if not line.strip().startswith("#"):
                    break
                above.insert(0, line.strip().removeprefix("#").strip())
            choices = ast.literal_eval(value)
            says = " ".join(above).rstrip(".") + ": " + ", ".join(f'"{each}"' for each in choices)
            found.append((ast.literal_eval(key), "str", f'`"{choices[0]}"`', says))
    return found


def environment() -> dict[str, str]:
    """The variable that gives a setting the value that a process starts with."""
    source = _read("src/engine/request/config.cpp")
    source = source[source.index("Config config_from_environment()") :]
    found = {}
    asked = re.compile(r'getenv\("(\w+)"\)\) (.*?)(?=getenv|check_config)', re.S)
    for variable, body in asked.findall(source):
        member = re.search(r"result\.(\w+)|(implementations)", body)
        if member:
            found[member[1] or member[2]] = variable
    return found


def configuration() -> str:
    variables = environment()
    rows = []
    for name, kind, default, says in [*engine_settings(), *python_settings()]:
        variable = f"`{variables.pop(name)}`" if name in variables else ""
        rows.append([f"`{name}`", kind, default, variable, _as_text(says)])
    if variables:
        raise ValueError(f"no settings: {', '.join(variables)}")
    return _table(["setting", "type", "default", "environment", "meaning"], rows)


# Errors.


def errors() -> str:
    header, bindings = _read("include/headrace/error.h"), _read("python/src/errors.cpp")
    codes = re.findall(r"^  (\w+),\s*// (.*)$", header, re.M)
    classes = dict(re.findall(r"case ErrorCode::(\w+):\s*return (\w+);", bindings))
    own = {"corrupt_error", "device_error", "cancelled_error", "conflict_error"}
    rows = []
    for code, says in codes:
        cls = classes[code]
        if cls in own:
            word = "".join(part.capitalize() for part in cls.split("_"))
            shown = f"[`headrace.{word}`][headrace.{word}]"
        else:
            shown = f"`{cls.removeprefix('PyExc_')}`"
        rows.append([shown, f"`{code}`", says[:1].upper() + says[1:]])
    if set(classes) != {code for code, _ in codes} or not rows:
        raise ValueError("python/src/errors.cpp and include/headrace/error.h have other codes")
    return _table(["in Python", "`ErrorCode` in C++", "when"], rows)
