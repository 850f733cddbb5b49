"""Markdown tables from a result file of run.py.

python bench/e2e/table.py bench/results/e2e-cpu.json             # every row, printed
python bench/e2e/table.py bench/results/e2e-cpu.json --readme bench/README.md  # short, in its place
"""

import argparse
import sys
from pathlib import Path

import results

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
ACCESS_NAMES = {
    "whole": "whole",
    "out": "whole, `out=`",
    "step": "one step",
    "chunk": "one chunk",
    "series": "point series",
    "box": "box",
    "write": "write",
}
IN_TIME = ("chunk", "series")  # told as the time of a call, the others as MB/s


def _time(us: float) -> str:
    return f"{us / 1000:.1f} ms" if us >= 1000 else f"{us:.0f} us"


def _figure(figures: dict | None, access: str) -> str:
    if figures is None:
        return "-"
    return _time(figures["us_per_call"]) if access in IN_TIME else f"{figures['mb_s']:.0f}"


def _markdown(header: list[str], body: list[list[str]]) -> str:
    rule = ["---"] * 1 + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *body])


def full(report: dict) -> str:
    """One line a row: every peer, the best one, the ratio, the limit, CPU seconds and memory."""
    peers = list(dict.fromkeys(p for row in report["rows"] for p in row["peers"]))
    by_key = {(r["layout"], r["codec"], r["access"]): r for r in report["rows"]}
    body = []
    for line in results.lines(report):
        row = by_key[line.layout, line.codec, line.access]
        percent, own = line.percent_of_limit, line.subject
        # A write makes no result; the source was there before.
        one_result = 0 if line.access == "write" else row["nbytes"] / row["calls"]
        cells = [f"{line.layout} {line.codec} {ACCESS_NAMES[line.access]}"]
        for peer in peers:
            figures = row["peers"].get(peer)
            missing = figures is None or "error" in figures
            cells.append("-" if missing else _figure(figures, line.access))
        cells += [
            line.best or "-",
            f"{line.ratio:.2f}" if line.ratio else "-",
            f"{percent:.0f} % of {line.limit_name}" if percent else "-",
            f"{own['peak_over_base_mib'] - one_result / 2**20:.0f}" if own else "-",
        ]
        body.append(cells)
    header = ["MB/s, or time of a call", *peers, "best peer", "ratio", "limit"]
    return _markdown([*header, "MiB over result"], body)


def short(report: dict) -> str:
    """A line an array, a column an access: headrace's figure and its ratio to the best peer."""
    lines = {(x.layout, x.codec, x.access): x for x in results.lines(report)}
    arrays = list(dict.fromkeys(key[:2] for key in lines))
    accesses = [a for a in ACCESS_NAMES if any(key[2] == a for key in lines)]

    def cell(line) -> str:
        if line is None:
            return "-"
        if line.ratio is None:
            return f"- (best {_figure(line.best_figures, line.access)})"
        return f"{_figure(line.subject, line.access)} **{line.ratio:.1f}x**"

    def bound(layout: str, codec: str) -> str:
        line = lines.get((layout, codec, "whole"))
        percent = line and line.percent_of_limit
        return f"{percent:.0f} %" if percent else "-"

    body = [
        [
            f"{layout}, {codec}",
            *(cell(lines.get((layout, codec, access))) for access in accesses),
            bound(layout, codec),
        ]
        for layout, codec in arrays
    ]
    header = ["chunks, codec", *(ACCESS_NAMES[a] for a in accesses), "whole, of limit"]
    return _markdown(header, body)


def _conditions(report: dict, source: Path) -> str:
    machine = report["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in report["versions"].items())
    shape = "x".join(str(n) for n in report["arrays"][0]["shape"])
    return (
        "MB/s decoded, or the time of one call; in bold the speed-up over the best other library. "
        f"{shape} float32, {report['cache_state']}, to {report['write_filesystem']}; "
        f"{machine['cores']} cores ({machine['cpu']}), "
        f"median of {report['settings']['runs']} interleaved rounds, {report['date'][:10]}. "
        f"{versions}. "
        f"From `{source.as_posix()}`; what each column does: below."
    )


def replace_between_markers(text: str, table: str) -> str:
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"expected one {BEGIN} followed by one {END}")
    head, rest = text.split(BEGIN)
    return head + BEGIN + "\n" + table + "\n" + END + rest.split(END)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--readme", type=Path, help="replace the table between its markers here")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    args = parser.parse_args()
    report = results.load(args.result)
    if not args.readme:
        print(full(report))
        return 0
    source = Path("bench/results") / args.result.name
    old = args.readme.read_text()
    new = replace_between_markers(old, f"{short(report)}\n\n{_conditions(report, source)}")
    if args.check:
        if old != new:
            print(f"{args.readme} is not what {args.result} gives", file=sys.stderr)
        return int(old != new)
    args.readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
