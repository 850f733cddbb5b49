"""One library's part of the matrix, in its own environment: `worker.py write|read LIBRARY ROOT`.

Reads ids of cases from standard input. Prints a line of JSON with the library's versions, then one
for each id with its outcome, so that what went before a crash is known.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from cases import all_cases, digest
from libraries import LIBRARIES, array_folder


def written(library, root: Path, name: str, case) -> dict:
    if case.zarr_format not in library.formats:
        raise NotImplementedError(f"knows no Zarr v{case.zarr_format}")
    where = root / name / case.id
    where.parent.mkdir(parents=True, exist_ok=True)
    library.write(where, case)
    return {}


def read(library, where: Path) -> dict:
    array = library.read(array_folder(where))
    return {"digest": digest(array), "dtype": array.dtype.name}


def outcome(root: Path, action, *arguments) -> dict:
    try:
        return action(*arguments)
    except Exception as error:
        text = " ".join(str(error).replace(str(root), "").split())
        return {"error": f"{type(error).__name__}: {text}"[:300]}


def main() -> None:
    action, name, root = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    warnings.simplefilter("ignore")
    library = LIBRARIES[name]()
    known = {case.id: case for case in all_cases()}
    print(json.dumps(library.versions()), flush=True)
    for id_ in sys.stdin.read().split():
        if action == "write":
            found = outcome(root, written, library, root, name, known[id_])
        else:
            found = outcome(root, read, library, root / id_)
        print(json.dumps([id_, found]), flush=True)


if __name__ == "__main__":
    main()
