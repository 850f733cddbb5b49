"""The device benchmarks' results as Markdown tables."""

import pages


def shape_of(row: dict) -> tuple[int, int]:
    return row["chunks"], row["chunk_nbytes"] >> 10


def shape_name(shape: tuple[int, int]) -> str:
    chunks, kib = shape
    return f"{chunks} x {kib} KiB" if kib < 1024 else f"{chunks} x {kib >> 10} MiB"


def decode_table(*results: dict) -> str:
    """Rows of newer results replace those of older ones; the last is nvCOMP's."""
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
    body = []
    for codec, data in dict.fromkeys((r["codec"], r["data"]) for r in rows):
        for name, found in ((f"{codec} {data}", speeds), ("nvCOMP", peers)):
            cells = [found.get((codec, data, shape)) for shape in shapes]
            if any(cells):
                body.append([name, *("-" if c is None else f"{c:.3g}" for c in cells)])
    return pages.table(
        f"GB/s decoded, one {ours[0]['device']}; below it nvCOMP {peer['nvcomp']} where it was run",
        ["codec, data", *map(shape_name, shapes)],
        body,
    )


def encode_table(result: dict) -> str:
    rows = [row for row in result["rows"] if "library_ratio" in row]
    shapes = list(dict.fromkeys(map(shape_of, rows)))
    found = {(r["codec"], r["data"], shape_of(r)): r for r in rows}
    body = []
    for codec, data in dict.fromkeys((r["codec"], r["data"]) for r in rows):
        cells = [found.get((codec, data, shape)) for shape in shapes]
        ratios = found[codec, data, (64, 4096)]
        body.append(
            [
                f"{codec.removeprefix('encode-')} {data}",
                *("-" if c is None else f"{c['gigabytes_per_second']:.3g}" for c in cells),
                f"{ratios['ratio']:.2f} ({ratios['library_ratio']:.2f})",
            ]
        )
    return pages.table(
        f"GB/s of bytes that are encoded, one {result['device']}",
        ["encoder, data", *map(shape_name, shapes), "ratio at 64 x 4 MiB (library)"],
        body,
    )


def write_table(result: dict) -> str:
    counts = sorted({row["processors"] for row in result["rows"]})
    by_name: dict[str, dict[int, dict]] = {}
    for row in result["rows"]:
        by_name.setdefault(row["name"], {})[row["processors"]] = row
    body = [
        [
            name.replace("-", ", "),
            *(f"{row['gb_s']:.1f} of {row['limit_gb_s']:.1f}" for _, row in sorted(rows.items())),
        ]
        for name, rows in by_name.items()
    ]
    return pages.table(
        f"GB/s from the memory of one {result['device']} to {result['filesystem']}, encoded there, "
        "of what Python's threads store of the same encoded bytes as new files (times the ratio)",
        ["chunks, codec", *(f"{count} cores" for count in counts)],
        body,
        right=range(1, 1 + len(counts)),
    )


def read_table(result: dict) -> str:
    peers = [key for key in result["rows"][0] if key not in ("name", "ratio", "limit")]
    columns = list(peers)
    about = f"{result['nbytes'] / 1e9:.1f} GB of float32 in memory, 16 cores"
    limited = all("limit" in row for row in result["rows"])
    if limited:
        columns += ["limit", "headrace / limit"]
        about += ". Limit: copying the encoded bytes from pinned memory to the device."
    body = []
    for row in result["rows"]:
        cells = [
            f"{row[peer]['gb_s']:.1f} ({row[peer]['cores']:.0f})" if "gb_s" in row[peer] else "-"
            for peer in peers
        ]
        if limited:
            limit = row["limit"]["copy_gb_s"] * row["ratio"]
            cells += [f"{limit:.0f}", f"{row['headrace']['gb_s'] / limit:.0%}"]
        body.append([row["name"].replace("-", ", "), *cells])
    return pages.table(
        f"GB/s decoded into the memory of one {result['device']} (cores used), {about}",
        ["chunks, codec", *columns],
        body,
        right=range(1, 1 + len(columns)),
    )
