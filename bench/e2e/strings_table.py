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
    digits = 1 if "device" in report else 0
    body = []
    for row in report["rows"]:
        first = row["ways"][next(iter(ways))]["median_ms"]
        cells = []
        for number, way in enumerate(ways):
            ms = row["ways"][way]["median_ms"]
            more = f" ({ms / first:.1f}x)" if number else ""
            cells.append(f"{ms:.{digits}f} ms{more}")
        body.append([row["codec"], *cells])
    versions = ", ".join(f"{name} {v}" for name, v in report["versions"].items())
    device = f"{report['device']}, " if "device" in report else ""
    return (
        pages.table("", ["codec", *ways.values()], body, right=range(1, len(ways) + 1))
        + f"\n\n{settings['strings']:,} strings, {report['nbytes'] / 1e6:.0f} MB in Arrow, in "
        f"chunks of {settings['chunk']:,}, warm page cache, {device}{machine['cores']} cores, "
        f"median of {settings['runs']} in turns, {report['date'][:10]}. {versions}. From "
        f"`bench/results/{what}.json`."
    )
