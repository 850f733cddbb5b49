"""Tables in Markdown, and the places that hold them: between <!-- NAME:begin --> and
<!-- NAME:end --> of a page."""

from collections.abc import Iterable


def table(title: str, header: list[str], body: list[list[str]], right: Iterable[int] = ()) -> str:
    """`right`: the columns that are set to the right."""
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, rule, *body)]
    return (f"{title}\n\n" if title else "") + "\n".join(lines)


def put(text: str, name: str, content: str) -> str:
    """`text` with `content` in the place of that name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"expected one {begin} followed by one {end}")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end)[1]}"
