"""Installs this checkout into the running Python: install_dev.py BUILD_FOLDER.

A path file points at python/, where the build puts the module beside its sources; the command is a
link to the built one; the metadata (version, entry points) is scikit-build-core's. A rebuild is
then visible at once, without pip and without an import hook.
"""

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from scikit_build_core.build import prepare_metadata_for_build_wheel

ROOT = Path(__file__).resolve().parent.parent


def main(build_folder):
    os.chdir(ROOT)
    subprocess.run(
        [sys.executable, "-m", "pip", "uninstall", "-q", "-y", "headrace"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    site = Path(sysconfig.get_path("purelib"))
    for old in site.glob("headrace-*.dist-info"):
        shutil.rmtree(old)
    dist_info = site / prepare_metadata_for_build_wheel(str(site))
    path_file = site / "headrace.pth"
    path_file.write_text(f"{ROOT / 'python'}\n")
    command = Path(sysconfig.get_path("scripts")) / "headrace"
    command.unlink(missing_ok=True)
    command.symlink_to(Path(build_folder).resolve() / "bin" / "headrace")
    (dist_info / "INSTALLER").write_text("headrace\n")

    # pip uninstalls what RECORD lists.
    record = dist_info / "RECORD"
    files = [path_file, command, record, *(f for f in dist_info.iterdir() if f != record)]
    with record.open("w", newline="") as out:
        csv.writer(out).writerows([os.path.relpath(f, site), "", ""] for f in files)


if __name__ == "__main__":
    main(sys.argv[1])
