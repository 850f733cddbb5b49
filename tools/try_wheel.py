"""A wheel in a userland that has Python and no library of headrace's: try_wheel.py WHEEL ROOT

ROOT is a folder whose Python is the wheel's, made by, for example,

    debootstrap --variant=minbase --include=python3,ca-certificates bookworm ROOT

or, with an older C library, bullseye and a newer Python, built there from source into /usr/local.
There the wheel is installed with NumPy's alone and no network, and the README's quick start runs;
then a bucket (rclone) and web servers with and without TLS on the loopback device are written and
read, by the libcurl that the wheel brings. As root, for chroot. To be run by a Python of the
wheel's version, whose pip fetches the wheels of pip and NumPy; the servers are those of the tests.
"""

import contextlib
import json
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests" / "python"))

import cloud_servers  # noqa: E402

# Runs within ROOT, where the README's quick start has left an array.
TRIED = r"""
import json, os, subprocess, sys
import headrace as hr
import numpy as np

asked = json.loads(sys.argv[1])
wind = hr.open("wind.zarr")[:]


def say(*words):
    print("  ", *words, flush=True)


bucket = {"storage_options": asked["options"]}
values = np.random.default_rng(1).normal(size=(40, 50, 60)).astype("f4")
kind = {"shape": values.shape, "dtype": "f4", "chunks": (5, 50, 30)}
array = hr.create_array(asked["bucket"], **kind, **bucket)
array[:] = values
array[::3, 7] = values[::3, 7] = 1
assert np.array_equal(hr.open(asked["bucket"], **bucket)[:], values)
say("bucket: written, changed in part, read")
assert np.array_equal(hr.open(asked["http"])[:], wind)
say("http: read")
try:
    hr.open(asked["https"])
except OSError as error:
    assert "certificate" in str(error), error
    say("https, a certificate of nobody who is known:", error)
else:
    sys.exit("a certificate of nobody who is known was taken")
assert np.array_equal(hr.open(asked["https"], storage_options={"ca_bundle": asked["pem"]})[:], wind)
say("https, its certificate by ca_bundle: read")
command = ["venv/bin/headrace", "read", asked["https"], "--format", "stats"]
known = os.environ | {"SSL_CERT_FILE": asked["pem"]}
said = subprocess.run(command, env=known, capture_output=True, text=True)
assert said.returncode == 0, said
say("https by the command, its certificate by SSL_CERT_FILE: read")
maps = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
curl = [name for name in maps if "curl" in name]
assert len(curl) == 1 and curl[0].endswith("/headrace/libheadrace_curl.so"), curl
say("libcurl:", *curl)
"""


class Files(cloud_servers.ObjectHandler):
    """Of the server's folder."""

    def do_GET(self):
        path = self.server.folder / self.path.strip("/")
        if not path.is_file():
            return self.fail(404, "NoSuchKey")
        self.answer_object(path.read_bytes(), {"ETag": '"1"'}, self.headers.get("Range"), True)

    do_HEAD = do_GET


@contextlib.contextmanager
def web(folder: Path, context: ssl.SSLContext | None = None):
    """The URL of a server of files."""
    with cloud_servers.fake_server(Files) as (server, url):
        server.folder = folder
        if context is not None:
            server.handle_error = lambda *args: None  # who refuses a certificate hangs up
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
            url = url.replace("http:", "https:")
        yield url


def certificate(pem: Path, key: Path) -> ssl.SSLContext:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=try", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", pem], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    return context


def quick_start() -> str:
    readme = (TOP / "README.md").read_text()
    return re.search(r"<!-- quickstart:begin -->\n```python\n(.*?)```", readme, re.S)[1]


def main(wheel: Path, root: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir=root / "tmp"))
    inside = Path("/") / folder.relative_to(root)
    python = "venv/bin/python"

    def run(*command: str) -> None:
        """In ROOT's userland, in the folder."""
        shell = 'mount -t proc proc "$0/proc" && exec chroot "$0" env -C "$@"'
        clean = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        within = ["unshare", "-m", "sh", "-c", shell, root, inside, *command]
        subprocess.run(within, check=True, env=clean)

    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "-d", folder, "pip", "numpy"], check=True)
        shutil.copy(wheel, folder)
        (pip_wheel,) = (p.name for p in folder.glob("pip-*.whl"))
        install = ["-m", "pip", "install", "-q", "--no-index", "--find-links", ".", "headrace"]
        run("python3", "-m", "venv", "--without-pip", "venv")
        run(f"PYTHONPATH={pip_wheel}", python, *install)
        print(wheel.name, "in", root, flush=True)
        (folder / "quickstart.py").write_text(quick_start())
        run(python, "quickstart.py")
        (folder / "tried.py").write_text(TRIED)
        context = certificate(folder / "pem", folder / "key")
        (folder / "buckets").mkdir()
        cloud = stack.enter_context(cloud_servers.rclone(folder / "buckets"))
        http, https = (stack.enter_context(web(folder, c)) for c in (None, context))
        asked = {
            "bucket": cloud.url("a"),
            "options": cloud.options,
            "http": f"{http}/wind.zarr",
            "https": f"{https}/wind.zarr",
            "pem": str(inside / "pem"),
        }
        run(python, "tried.py", json.dumps(asked))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
