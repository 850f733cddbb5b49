"""The ecosystem benchmarks' results as Markdown tables."""

from pages import table as markdown

ACCESSES = ("whole", "step", "chunk", "series", "box", "write")


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


def _suite_of(result: dict) -> str:
    return f"{result['suite']} {result['versions'][result['suite']]}"


def suites_table(results: list[dict]) -> str:
    """A row a suite: when, with what, and what came of it."""
    rows = []
    for result in results:
        versions, ours = result["versions"], result["headrace"]
        commit = (result.get("commit") or "").partition("+")[0][:9]
        rows.append(
            [
                _suite_of(result),
                versions["zarr"],
                versions["headrace"] + (f" ({commit})" if commit else ""),
                result["date"][:10],
                *(
                    " / ".join(f"{of.get(column, 0):,}" for of in (result["default"], ours))
                    for column in ("passed", "skipped", "failed")
                ),
                str(len(result["failed_with_headrace_only"])),
                str(sum(result["fallbacks"].values())) if "fallbacks" in result else "-",
            ]
        )
    columns = ["tests of", "zarr", "headrace", "day", "passed", "skipped", "failed"]
    return markdown("", [*columns, "with headrace only", "batches left"], rows)


def suites_reasons(results: list[dict], which: str) -> str:
    """Why tests fail: `which` is the key of the reasons."""
    return markdown(
        "",
        ["tests of", "tests", "why"],
        [
            [_suite_of(result), str(count), reason]
            for result in results
            for reason, count in sorted(result[which].items(), key=lambda found: -found[1])
        ],
    )


def shm_tables(result: dict) -> str:
    arrays, dataset = (result["throughput"][payload] for payload in ("arrays", "dataset"))
    settings = result["settings"]
    throughput = markdown(
        f"{settings['nbytes'] / 1e6:.0f} MB of float32 from one process to another: ms until the "
        f"other has it, {place(result['machine'])}",
        ["way", f"as {settings['arrays']} arrays", "as one Dataset"],
        [[way, *(f"{row[way]['median_ms']:.1f}" for row in (arrays, dataset))] for way in arrays],
    )
    latency = markdown(
        "A message of 64 bytes there and back, us",
        ["way", "median", "of ten the slowest"],
        [
            [way, f"{row['median_us']:.0f}", f"{row['p90_us']:.0f}"]
            for way, row in result["latency"].items()
        ],
    )
    loader = markdown(
        "torch's DataLoader, samples of 3.9 MB a second",
        ["workers", "plain", "after install()", "ratio"],
        [
            [
                str(row["workers"]),
                f"{row['plain_samples_s']:.0f}",
                f"{row['installed_samples_s']:.0f}",
                f"{row['ratio']:.1f}",
            ]
            for row in result["loader"]
        ],
    )
    return "\n\n".join([throughput, latency, loader])


def shm_device_table(result: dict) -> str:
    return markdown(
        f"{result['nbytes'] / 1e6:.0f} MB that another process sent, copied to one "
        f"{result['device']}",
        ["from", "GB/s"],
        [[row["source"], f"{row['gb_per_s']:.1f}"] for row in result["rows"]],
    )


def rechunk_table(result: dict) -> str:
    return markdown(
        f"{result['nbytes'] / 1e9:.1f} GB of float32 into other chunks within "
        f"{result['max_memory'] >> 20} MiB: seconds (MiB at the peak), "
        f"{place(result['machine'])}; one pass: with memory for all of it",
        ["to", *(peers := list(next(iter(result["rows"].values()))))],
        [
            [name, *(f"{row[p]['median_seconds']} ({row[p]['peak_mib']})" for p in peers)]
            for name, row in result["rows"].items()
        ],
    )


def loader_device_table(result: dict) -> str:
    settings = result["settings"]

    def decoded(row: dict) -> str:
        """GB/s a GPU without what was still there from the epoch before."""
        rates = [r["decoded_bytes"] / r["seconds"] for r in row["ranks"] if "decoded_bytes" in r]
        return f"{sum(rates) / len(rates) / 1e9:.1f}" if rates else "-"

    ways = {"fast": "as fast as it goes", "train": f"steps of {settings['step_s']} s"}
    rows = [
        [
            str(row["chunk_steps"]),
            row["codec"],
            ways[row["way"]],
            row["peer"],
            f"{row['gb_per_s_per_gpu']:.2f}",
            decoded(row),
            "-" if row["cores_per_gpu"] is None else f"{row['cores_per_gpu']:.1f}",
            f"{100 * row['stall']:.0f} %" if row["way"] == "train" else "-",
            f"{max(rank['first_batch_s'] for rank in row['ranks']):.2f}",
        ]
        for row in result["rows"]
    ]
    columns = ["samples a chunk", "codec", "consumed", "loader", "GB/s a GPU", "decoded"]
    columns += ["cores a GPU", "stall", "first, s"]
    return markdown(
        f"Batches of {settings['batch']} samples, {settings['variables']} variables of 721 x 1440, "
        f"shuffled, normalised, bfloat16, in {settings['gpus']} x {result['device']}; "
        f"{settings['cores_per_gpu']} cores a GPU",
        columns,
        rows,
    )


def loader_tables(result: dict) -> str:
    settings = result["settings"]
    peers = list(result["rows"][0]["peers"])

    def table(title: str, figure: str, form: str, numcodecs: bool = False) -> str:
        rows = []
        for row in result["rows"]:
            cells = [f"{row['peers'][peer][figure]:{form}}" for peer in peers]
            if numcodecs:
                cells.append(f"{row['numcodecs_samples_s']:{form}}")
            rows.append([str(row["chunk_steps"]), row["codec"], *cells])
        columns = ["samples a chunk", "codec", *peers, *(["numcodecs alone"] if numcodecs else [])]
        return markdown(title, columns, rows)

    return "\n\n".join(
        [
            table(
                f"Shuffled batches of {settings['batch']} samples of {settings['variables']} "
                f"variables of {settings['field'][0]} x {settings['field'][1]} float32, one epoch "
                f"of {settings['steps']}, {place(result['machine'])}; samples a second",
                "samples_s",
                ".0f",
                numcodecs=True,
            ),
            table("CPU seconds a decoded GB", "cpu_s_per_gb", ".1f"),
            table("Peak memory of the process tree, MiB", "peak_mib", ".0f"),
            table("Seconds to the first batch", "first_batch_s", ".3f"),
            table("Wait for a batch, p99, ms", "wait_p99_ms", ".1f"),
            table("Bytes read by those of the samples", "read_amplification", ".1f"),
        ]
    )


CELL_LOADERS = {
    "annloader": "anndata's AnnLoader, .h5ad, cell by cell",
    "scdataset": "scDataset, .h5ad",
    "annbatch-default": "annbatch, zarr-python's default pipeline",
    "annbatch-fused": "annbatch, zarr-python's fused pipeline",
    "annbatch-zarrs": "annbatch, zarrs",
    "annbatch-headrace": "annbatch, headrace's pipeline",
    "headrace": "`CellLoader`, the same sampler",
    "headrace-own": "`CellLoader`, its own order",
    "headrace-normalized": "`CellLoader`, normalised, log1p",
}


def cells_table(result: dict) -> str:
    """Of the loaders that were there."""
    rows, runs = result["window"]
    return markdown(
        f"Cells a second, {result['elements_per_cell']} elements a cell, batches of "
        f"{result['batch_size']}, windows of {runs} runs of {rows} cells; blosc-LZ4 in shards as "
        f"annbatch writes them, a warm page cache, {place(result['machine'])}",
        ["loader", "cells/s", "CPU us a cell"],
        [
            [
                label,
                f"{result['cells_per_second'][name]:,}",
                f"{result['epochs'][name]['cpu_s'] / result['cells'] * 1e6:.1f}",
            ]
            for name, label in CELL_LOADERS.items()
            if name in result["epochs"]
        ],
        right=(1, 2),
    )


def cells_larger_table(reports: list[dict]) -> str:
    """One by one of the memories."""
    first = reports[0]
    rows, runs = first["window"]
    sizes = " and ".join(
        f"{report['stored_nbytes'] / 2**30:.1f} GiB with {report['memory_mib'] >> 10} GiB of memory"
        for report in reports
    )

    def columns(found: dict) -> list[str]:
        if "failed" in found:
            return ["killed: out of memory", "", ""]
        rate = f"{found['cells_per_second']:,} ({found['min']:,} to {found['max']:,})"
        return [rate, f"{found['longest_wait_s']:.2f}", str(found["peak_rss_mib"])]

    return markdown(
        f"{sizes}, page cache counted; cells a second, median (least to most) of "
        f"{' and '.join(str(report['runs']) for report in reports)} runs of {first['batches']} "
        f"batches of {first['batch_size']}, windows of {runs} runs of {rows} cells, "
        f"{place(first['machine'])}",
        ["loader", *["cells/s", "longest wait, s", "MiB"] * len(reports)],
        [
            [label, *(text for report in reports for text in columns(report["loaders"][name]))]
            for name, label in CELL_LOADERS.items()
            if name in first["loaders"]
        ],
        right=range(1, 3 * len(reports) + 1),
    )
