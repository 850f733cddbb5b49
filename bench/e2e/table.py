"""Markdown tables from a result file of e2e/run.py."""

import pages
from e2e import results

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


def _table(header: list[str], body: list[list[str]]) -> str:
    return pages.table("", header, body, right=range(1, len(header)))


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
    return _table([*header, "MiB over result"], body)


def short(report: dict, source: str) -> str:
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
    return f"{_table(header, body)}\n\n{_conditions(report, source)}"


def _conditions(report: dict, source: str) -> str:
    machine = report["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in report["versions"].items())
    shape = "x".join(str(n) for n in report["arrays"][0]["shape"])
    return (
        "MB/s decoded, or the time of one call; in bold the speed-up over the best other library. "
        f"{shape} float32, {report['cache_state']}, to {report['write_filesystem']}; "
        f"{machine['cores']} cores ({machine['cpu']}), "
        f"median of {report['settings']['runs']} interleaved rounds, {report['date'][:10]}. "
        f"{versions}. "
        f"From `{source}`; what each column does: below."
    )
