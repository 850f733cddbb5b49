"""The table of a result of strings.py, in Markdown."""

import pages

WAYS = {
    "to_arrow": "`to_arrow()`",
    "pa.array(headrace)": "`pa.array(a[:])`",
    "pa.array(zarr-python)": "`pa.array(z[:])` of zarr-python",
}


def table(report: dict) -> str:
    machine, settings = report["machine"], report["settings"]
    body = []
    for row in report["rows"]:
        first = row["ways"]["to_arrow"]["median_ms"]
        cells = []
        for way in WAYS:
            ms = row["ways"][way]["median_ms"]
            more = "" if way == "to_arrow" else f" ({ms / first:.1f}x)"
            cells.append(f"{ms:.0f} ms{more}")
        body.append([row["codec"], *cells])
    versions = ", ".join(f"{name} {v}" for name, v in report["versions"].items())
    return (
        pages.table("", ["codec", *WAYS.values()], body, right=range(1, len(WAYS) + 1))
        + f"\n\n{settings['strings']:,} strings, {report['nbytes'] / 1e6:.0f} MB in Arrow, in "
        f"chunks of {settings['chunk']:,}, warm page cache, {machine['cores']} cores, median of "
        f"{settings['runs']} in turns, {report['date'][:10]}. {versions}. From "
        "`bench/results/strings.json`."
    )
