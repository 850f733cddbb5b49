"""The device benchmark's results as a Markdown table.

table.py DECODE.json NVCOMP.json [--readme FILE]: --readme replaces the table between the file's
device markers.
"""

import argparse
import json
from pathlib import Path

BEGIN, END = "<!-- device:begin -->", "<!-- device:end -->"


def shape_of(row: dict) -> tuple[int, int]:
    return row["chunks"], row["chunk_nbytes"] >> 10


def shape_name(shape: tuple[int, int]) -> str:
    chunks, kib = shape
    return f"{chunks} x {kib} KiB" if kib < 1024 else f"{chunks} x {kib >> 10} MiB"


def table(ours: dict, peer: dict) -> str:
    shapes = list(dict.fromkeys(map(shape_of, ours["rows"])))
    speeds = {(r["codec"], r["data"], shape_of(r)): r["gigabytes_per_second"] for r in ours["rows"]}
    peers = {
        (r["codec"], r["data"], shape_of(r)): r["gigabytes_per_second"]
        for r in peer["rows"]
        if "error" not in r
    }
    lines = [
        f"GB/s decoded, one {ours['device']}; below it nvCOMP {peer['nvcomp']} where it was run",
        "",
        "| codec, data | " + " | ".join(map(shape_name, shapes)) + " |",
        "|---" * (len(shapes) + 1) + "|",
    ]
    for codec, data in dict.fromkeys((r["codec"], r["data"]) for r in ours["rows"]):
        for name, found in ((f"{codec} {data}", speeds), ("nvCOMP", peers)):
            cells = [found.get((codec, data, shape)) for shape in shapes]
            if any(cells):
                text = " | ".join("-" if c is None else f"{c:.3g}" for c in cells)
                lines.append(f"| {name} | {text} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("decode", type=Path)
    parser.add_argument("nvcomp", type=Path)
    parser.add_argument("--readme", type=Path)
    args = parser.parse_args()
    text = table(json.loads(args.decode.read_text()), json.loads(args.nvcomp.read_text()))
    if not args.readme:
        print(text)
        return
    head, rest = args.readme.read_text().split(BEGIN)
    args.readme.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
