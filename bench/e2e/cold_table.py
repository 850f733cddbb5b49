"""The table of `cold`: reads from a disk."""

import pages

NAMES = {"whole": "whole array", "step": "one step", "series": "series of one point"}


def _row(row: dict) -> list[str]:
    own = row["peers"]["headrace"]
    others = {name: found for name, found in row["peers"].items() if name != "headrace"}
    best = min(others, key=lambda name: others[name]["median_ms"])
    ratio = others[best]["median_ms"] / own["median_ms"]
    return [
        f"{row['layout']} {row['codec']}, {NAMES[row['access']]}",
        f"{own['median_ms']:.1f} **{ratio:.1f}x**",
        f"{others[best]['median_ms']:.1f} ({best})",
        f"{own['read_mib']:.1f} / {others[best]['read_mib']:.1f}",
        f"{own['cpu_ms']:.0f} / {others[best]['cpu_ms']:.0f}",
    ]


def table(report: dict, name: str = "cold.json") -> str:
    header = ["read", "headrace, ms", "best other, ms", "MiB from the disk, it / best"]
    header += ["CPU ms, it / best"]
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    machine = report["machine"]
    note = (
        f"Milliseconds to open and read, median of {report['settings']['runs']} in turns, a "
        f"process each; {report['settings']['steps']} steps of 721x1440 float32 on "
        f"{machine['filesystem']}, {machine['cores']} cores ({machine['cpu']}), "
        f"{report['date'][:10]}; in bold the speed-up over the best other library. {versions}. "
        f"From `bench/results/{name}`."
    )
    rows = [_row(row) for row in report["rows"]]
    return pages.table("", header, rows, range(1, len(header))) + "\n\n" + note
