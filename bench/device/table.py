"""The device benchmarks' results as Markdown tables.

table.py DECODE.json [NEWER.json ...] NVCOMP.json [--readme FILE]: rows of newer files replace those
of older ones, of the same device. table.py --read READ.json [--readme FILE]. --readme replaces the
table between the file's markers.
"""

import argparse
import json
from pathlib import Path

DECODE_MARKERS = "<!-- device:begin -->", "<!-- device:end -->"
READ_MARKERS = "<!-- device-read:begin -->", "<!-- device-read:end -->"


def shape_of(row: dict) -> tuple[int, int]:
    return row["chunks"], row["chunk_nbytes"] >> 10


def shape_name(shape: tuple[int, int]) -> str:
    chunks, kib = shape
    return f"{chunks} x {kib} KiB" if kib < 1024 else f"{chunks} x {kib >> 10} MiB"


def table(*results: dict) -> str:
    *ours, peer = results
    if len({result["device"] for result in ours}) != 1:
        raise ValueError("the results are of different devices")
    rows = [row for result in ours for row in result["rows"] if "library_ratio" not in row]
    shapes = list(dict.fromkeys(map(shape_of, rows)))
    speeds = {(r["codec"], r["data"], shape_of(r)): r["gigabytes_per_second"] for r in rows}
    peers = {
        (r["codec"], r["data"], shape_of(r)): r["gigabytes_per_second"]
        for r in peer["rows"]
        if "error" not in r
    }
    lines = [
        f"GB/s decoded, one {ours[0]['device']}; below it nvCOMP {peer['nvcomp']} where it was run",
        "",
        "| codec, data | " + " | ".join(map(shape_name, shapes)) + " |",
        "|---" * (len(shapes) + 1) + "|",
    ]
    for codec, data in dict.fromkeys((r["codec"], r["data"]) for r in rows):
        for name, found in ((f"{codec} {data}", speeds), ("nvCOMP", peers)):
            cells = [found.get((codec, data, shape)) for shape in shapes]
            if any(cells):
                text = " | ".join("-" if c is None else f"{c:.3g}" for c in cells)
                lines.append(f"| {name} | {text} |")
    return "\n".join(lines)


def read_table(result: dict) -> str:
    peers = [key for key in result["rows"][0] if key not in ("name", "ratio", "limit")]
    columns = list(peers)
    about = f"{result['nbytes'] / 1e9:.1f} GB of float32 in memory, 16 cores"
    limited = all("limit" in row for row in result["rows"])
    if limited:
        columns += ["limit", "headrace / limit"]
        about += ". Limit: copying the encoded bytes from pinned memory to the device."
    lines = [
        f"GB/s decoded into the memory of one {result['device']} (cores used), {about}",
        "",
        "| chunks, codec | " + " | ".join(columns) + " |",
        "|---" + "|---:" * len(columns) + "|",
    ]
    for row in result["rows"]:
        cells = [
            f"{row[peer]['gb_s']:.1f} ({row[peer]['cores']:.0f})" if "gb_s" in row[peer] else "-"
            for peer in peers
        ]
        if limited:
            limit = row["limit"]["copy_gb_s"] * row["ratio"]
            cells += [f"{limit:.0f}", f"{row['headrace']['gb_s'] / limit:.0%}"]
        lines.append(f"| {row['name'].replace('-', ', ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--readme", type=Path)
    args = parser.parse_args()
    results = [json.loads(path.read_text()) for path in args.results]
    text = read_table(*results) if args.read else table(*results)
    if not args.readme:
        print(text)
        return
    begin, end = READ_MARKERS if args.read else DECODE_MARKERS
    head, rest = args.readme.read_text().split(begin)
    args.readme.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
