"""The tables of network.json and network-writes.json."""

import pages

# headrace in other ways: no peers of its own.
OWN = ("headrace", "headrace_cached", "headrace_cached_cold", "headrace_obstore")
NAMES = {"zarr_obstore": "zarr-python + obstore", "zarr_fsspec": "zarr-python + fsspec"}


def _best(row: dict) -> tuple[str, dict]:
    peers = {n: p for n, p in row["peers"].items() if n not in OWN and "error" not in p}
    name = min(peers, key=lambda n: peers[n]["median_s"])
    return NAMES.get(name, name), peers[name]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _cell(peer: dict | None) -> str:
    return _seconds(None if peer is None or "error" in peer else peer["median_s"])


def _body(report: dict, what: str, floor: bool):
    for row in report["rows"]:
        own = row["peers"]["headrace"]
        name, best = _best(row)
        yield [
            f"{row['layout']}, {row[what]}",
            f"{row['delay_ms']:g}",
            *([f"{row['floor_s']:.3f}", _seconds(row.get("local_s"))] if floor else []),
            f"{own['median_s']:.3f} **{best['median_s'] / own['median_s']:.1f}x**",
            *([_cell(row["peers"].get("headrace_cached_cold"))] if floor else []),
            f"{best['median_s']:.3f} {name}",
            f"{own['requests']:.0f} / {best['requests']:.0f}",
            f"{own['cpu_s']:.2f} / {best['cpu_s']:.2f}",
        ]


def _note(report: dict, name: str) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    machine = report["machine"]
    earlier = report["settings"].get("earlier")
    kept = f" Of earlier runs: {earlier}." if earlier else ""
    return (
        f"Seconds a call, median of {report['settings']['runs']} in turns, on {machine['cores']} "
        f"cores ({machine['cpu']}), {report['date'][:10]}; in bold the speed-up over the best "
        f"other library. {versions}.{kept} From `bench/results/{name}`."
    )


def reads(report: dict, name: str = "network.json") -> str:
    header = [
        "read",
        "delay, ms",
        "floor",
        "from files",
        "headrace",
        "through an empty `hr.cached`",
        "best other",
    ]
    header += ["requests, it / best", "CPU s, it / best"]
    rows = list(_body(report, "read", True))
    return pages.table("", header, rows, range(1, len(header))) + "\n\n" + _note(report, name)


def writes(report: dict, name: str = "network-writes.json") -> str:
    header = ["write", "delay, ms", "headrace", "best other", "requests, it / best"]
    header += ["CPU s, it / best"]
    rows = list(_body(report, "write", False))
    return pages.table("", header, rows, range(1, len(header))) + "\n\n" + _note(report, name)
