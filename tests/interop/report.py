"""What the outcomes of the matrix mean: counts, and for each failure whose limit it is and why."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

UNEXPLAINED = "unexplained"

# Rules of a library, the first that fits: (what it does, what "case: message" contains) -> why. A
# reason that begins with a library's name says that the limit is that one's.
_ZARR_3 = [
    (
        "any",
        r"(bfloat16|float8_|int4)\S*: (ValueError: No Zarr data type|MetadataValidation)",
        "zarr-python has no such data type",
    ),
    ("any", "rectilinear: ", "zarr-python has rectilinear grids from 3.2 on"),
    ("any", "unhashable type: 'writeable void-scalar'", "zarr-python 3.1 cannot shard raw bytes"),
    ("read", "^gdal/.*LZMA.__init__", "gdal writes options that numcodecs' lzma does not know"),
    (
        "read",
        "^gdal/v3/.*Invalid type: None",
        "gdal writes fill_value null, which v3 does not have",
    ),
    ("read", "^gdal/v2/complex.*Invalid type: ", "gdal writes complex fill values as one number"),
    (
        "read",
        r"numcodecs.delta/big-endian: differs",
        "zarr-python 3.1 hands big-endian elements unswapped to filters of numcodecs",
    ),
]
# What arrays were written as, whoever reads them.
_WRITERS = [
    (
        "read",
        r"^zarr3/v3/int16/numcodecs.delta/column-order: differs",
        "zarr3 writes the elements in the order of memory, a fault of 3.1 mended in 3.4",
    ),
    (
        "read",
        r"^zarr3.4/v3/int16/numcodecs.delta/big-endian: differs",
        "zarr3.4 writes wrong what a filter of numcodecs made of big-endian elements",
    ),
    (
        "read",
        r"^zarr3/v3/(string|bytes)/\S*/column-order: differs",
        "zarr3 writes the elements in the order of memory, a fault of 3.1 mended in 3.4",
    ),
    ("read", "^gdal/.*complex.*/missing-chunks: differs", "gdal writes another fill value"),
    (
        "read",
        "^zarr2/v2/bytes/.*: differs",
        "zarr2 keeps no fill value of bytes",
    ),
]
REASONS: dict[str, list[tuple[str, str, str]]] = {
    "zarr2": [
        ("any", "v3/", "zarr-python 2 has no Zarr v3"),
        ("write", "/scalar: stored otherwise", "zarr-python 2 does not compress scalars"),
        ("any", "v2/bytes/", "zarr-python 2 keeps no fill value of bytes: JSON has none"),
        ("read", "^gdal/.*LZMA.__init__", "gdal writes options that numcodecs' lzma does not know"),
        ("read", "^gdal/v2/complex", "gdal writes complex fill values as one number"),
        *_WRITERS,
    ],
    "zarr3": [*_WRITERS, *_ZARR_3],
    "zarr3.4": [*_WRITERS, *_ZARR_3],
    "zarrs": [
        *_ZARR_3,
        *_WRITERS,
        ("any", "Unsupported(Metadata|DataType)Error", "zarrs' pipeline has no such codec or type"),
        ("read", "column-order: .*C contiguous", "zarrs' pipeline reads no arrays in column order"),
        ("read", "big-endian: .*Non-native", "zarrs' pipeline reads no big-endian arrays"),
        (
            "read",
            "complex64/.*/big-endian: differs",
            "zarrs swaps the bytes of both parts of a complex number as one",
        ),
    ],
    "tensorstore": [
        ("write", r"(raw|fixed_bytes)/", "tensorstore takes fixed bytes as one more dimension"),
        ("read", "v[23]/raw/.*: differs", "tensorstore takes fixed bytes as one more dimension"),
        ("any", 'member "compress', "tensorstore has no such compressor or option"),
        ("any", 'member "filters', "tensorstore has no filters in v2"),
        ("any", '"codecs"', "tensorstore has none of the codecs outside of the specification"),
        ("any", 'member "(dtype|data_type)"', "tensorstore has no such data type"),
        ("any", '"chunk_grid"', "tensorstore has no rectilinear grids"),
        ("read", "fixed_bytes/.*fill_val", "tensorstore takes fill values of full length only"),
        ("read", "^gdal/v3/.*fill_val", "gdal writes fill_value null, which v3 does not have"),
        ("read", "^gdal/v2/complex.*fill_val", "gdal writes complex fill values as one number"),
        *_WRITERS,
    ],
    "gdal": [
        ("any", "a raster has two dimensions", "rasterio reads and writes two dimensions"),
        ("any", "/empty: ", "gdal has no arrays without elements"),
        ("write", "no creation option", "gdal has no option to create that"),
        ("write", "invalid dtype", "rasterio has no such data type"),
        ("any", "Compressor/decompressor|Decompressor", "GDAL of rasterio's wheel lacks the codec"),
        ("read", "Unsupported codec", "gdal has no such codec"),
        ("read", "format for (data_type|dtype)", "gdal has no such data type"),
        ("read", "Only arrays with numeric", "rasterio reads numbers"),
        ("read", "Invalid fill_value", "gdal does not know this form of the fill value"),
        ("read", "chunk_grid", "gdal has no rectilinear grids"),
        ("read", "delta/plain: .*Read failed", "gdal has no delta of single bytes"),
        ("read", "float16/.*delta", "gdal has no delta of float16"),
        *_WRITERS,
    ],
    "headrace": [
        *_WRITERS,
    ],
}


def reason(library: str, action: str, text: str) -> str:
    """Why a library failed; `text` is "writer/case: message"."""
    for does, pattern, why in REASONS[library]:
        if does in ("any", action) and re.search(pattern, text):
            return why
    return UNEXPLAINED


def report(versions: dict, writes: dict, reads: dict) -> dict:
    """`writes` and `reads`: by library, the outcome of each case (of reads: of each writer's)."""
    matrix: dict = defaultdict(dict)
    failures = []
    for writer, outcomes in writes.items():
        for id_, outcome in outcomes.items():
            if "error" in outcome:
                failures.append((writer, "write", id_, outcome["error"]))
    for reader, outcomes in reads.items():
        counts: dict = defaultdict(Counter)
        for where, outcome in outcomes.items():
            writer = where.partition("/")[0]
            failed = outcome.get("error") or outcome.get("differs")
            kind = "refused" if "error" in outcome else "differs" if failed else "same"
            counts[writer][kind] += 1
            if failed:
                failures.append((reader, "read", where, failed))
        for writer, counted in counts.items():
            matrix[writer][reader] = dict(counted)
    return {
        "command": "python tests/interop",
        "versions": versions,
        "arrays": len(next(iter(writes.values()))),
        "written": {
            w: sum("error" not in o for o in found.values()) for w, found in writes.items()
        },
        "read": matrix,
        "limits": _limits(failures),
    }


def _limits(failures: list[tuple[str, str, str, str]]) -> list[dict]:
    """Failures by library, what it did, and reason, with an example of each."""
    groups: dict = defaultdict(list)
    for library, action, where, message in failures:
        differs = message.startswith("differs")
        why = reason(library, action, f"{where}: {message}")
        groups[library, action, differs, why].append((where, message))
    return [
        {
            "library": library,
            "action": action,
            "differs": differs,
            "arrays": len(found),
            "reason": why,
            "example": found[0][0],
            "message": found[0][1],
        }
        for (library, action, differs, why), found in sorted(groups.items())
    ]


def to_markdown(result: dict) -> str:
    return "\n".join([HEAD, *_matrix(result), "", LIMITS, *_limit_rows(result), "", *_foot(result)])


HEAD = """# Who reads what who wrote

`tests/interop` lets each library write the same arrays and every other one read them, each in a
process and an environment of its own, and compares bit for bit. The arrays: each data type with
each codec, each of both in every layout (sharded, column order, big endian, separators, missing
chunks under a fill value, edge chunks, scalars, no elements, rectilinear), in Zarr v2 and v3.

Arrays that came back as they were written, of those that the writer could write:
"""
LIMITS = """What is missing from full counts, and whose limit it is:
"""


def _matrix(result: dict) -> list[str]:
    libraries = list(result["written"])
    lines = [f"| writer | wrote | {' | '.join(f'{name} reads' for name in libraries)} |"]
    lines.append("|---|---:|" + "---:|" * len(libraries))
    for writer in libraries:
        read = result["read"][writer]
        cells = [str(read[reader].get("same", 0)) for reader in libraries]
        lines.append(f"| {writer} | {result['written'][writer]} | {' | '.join(cells)} |")
    return lines


def _limit_rows(result: dict) -> list[str]:
    lines = ["| library | does not | arrays | why | example |", "|---|---|---:|---|---|"]
    for row in result["limits"]:
        does = "read the same" if row["differs"] else row["action"]
        why = row["reason"]
        lines.append(
            f"| {row['library']} | {does} | {row['arrays']} | {why} | `{row['example']}` |"
        )
    return lines


def _foot(result: dict) -> list[str]:
    versions = "; ".join(
        f"{library}: " + ", ".join(f"{name} {number}" for name, number in found.items())
        for library, found in result["versions"].items()
    )
    return [
        f"{result['arrays']} arrays. From `bench/results/interop.json` by `{result['command']}`; "
        f'versions: {versions}. "zarrs" is its codec pipeline inside of zarr-python, "gdal" is '
        "GDAL's raster interface by rasterio.",
        "",
    ]
