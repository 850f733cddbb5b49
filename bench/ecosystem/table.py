"""The ecosystem benchmarks' results as Markdown tables.

table.py FOLDER [--readme FILE]: of all results in the folder; --readme replaces the tables between
the file's markers.
"""

import argparse
import json
from pathlib import Path

MARKERS = "<!-- ecosystem:begin -->", "<!-- ecosystem:end -->"
ACCESSES = ("whole", "step", "chunk", "series", "box", "write")


def markdown(title: str, columns: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (columns, ["---"] * len(columns), *rows)]
    return title + "\n\n" + "\n".join(lines)


def place(machine: dict) -> str:
    return f"{machine['cores']} cores of {machine['cpu']}"


def pipeline_table(result: dict) -> str:
    speeds = {}
    for name, row in result["rows"].items():
        layout, access = name.rsplit("-", 1)
        speeds.setdefault(layout, {})[access] = row["headrace_over_zarrs"]
    return markdown(
        f"Inside zarr-python {result['versions']['zarr']}: the speed over that of the zarrs "
        f"pipeline {result['versions']['zarrs']}, {place(result['machine'])}",
        ["chunks, codec", *ACCESSES],
        [
            [layout, *(f"{found[a]:.2f}" if a in found else "-" for a in ACCESSES)]
            for layout, found in speeds.items()
        ],
    )


def xarray_table(result: dict) -> str:
    columns = ("open", "mean", "region")
    return markdown(
        f"xarray {result['versions']['xarray']}, {result['device']}: ms with engine headrace "
        f"(engine zarr {result['versions']['zarr']}), {place(result['machine'])}",
        ["data set", *columns],
        [
            [
                name,
                *(
                    f"{row[c]['headrace']['median_ms']} ({row[c]['zarr']['median_ms']})"
                    for c in columns
                ),
            ]
            for name, row in result["rows"].items()
        ],
    )


def state_dict_table(result: dict) -> str:
    columns = ("save", "load", "into")
    return markdown(
        f"{result['nbytes'] / 1e9:.1f} GB of weights, {result['device']}: GB/s, saved, loaded as "
        f"new tensors, and into a network that is there; {place(result['machine'])}",
        ["library", *columns],
        [
            [row["library"], *(str(row[column]["gb_s"]) for column in columns)]
            for row in result["rows"]
        ],
    )


def suite_table(result: dict) -> str:
    columns = ("passed", "skipped", "failed")
    return markdown(
        f"zarr-python {result['versions']['zarr']}'s own tests",
        ["pipeline", *columns],
        [
            [name, *(str(result[name].get(column, 0)) for column in columns)]
            for name in ("default", "headrace")
        ],
    )


TABLES = {
    "zarr-suite-*.json": suite_table,
    "zarr-pipeline-*.json": pipeline_table,
    "xarray-open*.json": xarray_table,
    "state-dict*.json": state_dict_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--readme", type=Path)
    arguments = parser.parse_args()
    tables = [
        make(json.loads(path.read_text()))
        for pattern, make in TABLES.items()
        for path in sorted(arguments.folder.glob(pattern))
    ]
    text = "\n\n".join(tables)
    if arguments.readme is None:
        print(text)
        return
    begin, end = MARKERS
    before, rest = arguments.readme.read_text().split(begin)
    arguments.readme.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
