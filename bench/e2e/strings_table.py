"""The tables of results of e2e/strings.py and device/strings.py, in Markdown."""

import pages

# Of each benchmark: its ways and how they are shown; the others are compared with the first.
WAYS = {
    "strings": {
        "to_arrow": "`to_arrow()`",
        "pa.array(headrace)": "`pa.array(a[:])`",
        "pa.array(zarr-python)": "`pa.array(z[:])` of zarr-python",
    },
    "device-strings": {
        "auto": '`read_ragged(device="cuda")`',
        "host": "by the host, copied by torch",
    },
}


def table(report: dict) -> str:
    what, machine, settings = report["what"], report["machine"], report["settings"]
    ways = WAYS[what]
    by_length = "mean" in report["rows"][0]
    digits = 1 if "device" in report else 0
    body = []
    for row in report["rows"]:
        first = row["ways"][next(iter(ways))]["median_ms"]
        cells = []
        for number, way in enumerate(ways):
            ms = row["ways"][way]["median_ms"]
            more = f" ({ms / first:.1f}x)" if number else ""
            cells.append(f"{ms:.{digits}f} ms{more}")
        length = [f"{row['mean']:,} x {row['strings']:,}"] if by_length else []
        body.append([row["codec"], *length, *cells])
    columns = ["codec", *(["bytes in the mean x strings"] if by_length else []), *ways.values()]
    versions = ", ".join(f"{name} {v}" for name, v in report["versions"].items())
    device = f"{report['device']}, " if "device" in report else ""
    if by_length:
        sizes = [row["nbytes"] / 1e6 for row in report["rows"]]
        data = f"{min(sizes):.0f} to {max(sizes):.0f} MB in Arrow, in 8 chunks"
    else:
        data = f"{settings['strings']:,} strings, {report['nbytes'] / 1e6:.0f} MB in Arrow, in "
        data += f"chunks of {settings['chunk']:,}"
    return (
        pages.table("", columns, body, right=range(1, len(columns)))
        + f"\n\n{data}, warm page cache, {device}{machine['cores']} cores, "
        f"median of {settings['runs']} in turns, {report['date'][:10]}. {versions}. From "
        f"`bench/results/{what}.json`."
    )
