#!/bin/sh
# Makes the golden data anew: run.sh FOLDER_FOR_ENVIRONMENTS. The data in git changes only this way.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
envs=${1:?folder for the environments}
grep -v '^#' "$here/environments.txt" | while IFS='|' read -r name python packages; do
  name=$(echo $name)
  if [ ! -x "$envs/$name/bin/python" ]; then
    "python$(echo $python)" -m venv "$envs/$name"
    # shellcheck disable=SC2086
    "$envs/$name/bin/pip" install --quiet $packages
  fi
done
export PYTHONDONTWRITEBYTECODE=1
"$envs/zarr2/bin/python" "$here/write_zarr2.py"
"$envs/zarr2/bin/python" "$here/write_vlen.py" zarr2
"$envs/zarr31/bin/python" "$here/write_zarr3.py" zarr31
"$envs/zarr31/bin/python" "$here/write_vlen.py" zarr31
"$envs/zarr31/bin/python" "$here/write_zarr3.py" zarrs
"$envs/zarr34/bin/python" "$here/write_zarr3.py" zarr34
"$envs/zarr34/bin/python" "$here/write_codecs.py" codecs34
"$envs/zarr31/bin/python" "$here/write_codecs.py" codecs_zarrs
"$envs/zarr34/bin/python" "$here/write_rectilinear.py"
"$envs/tensorstore/bin/python" "$here/write_tensorstore.py"
"$envs/zarr31/bin/python" "$here/write_blosc.py"
"$envs/zarr31/bin/python" "$here/write_crafted.py"
"$envs/foreign/bin/python" "$here/write_foreign.py"
