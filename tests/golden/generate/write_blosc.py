"""Raw c-blosc frames by numcodecs.blosc, with the bytes they hold given by formula."""

import hashlib
import json
import os
import struct
import tempfile
from pathlib import Path

import numcodecs
import numpy as np
from formula import random_bytes, smooth
from golden import HERE, pack
from numcodecs import blosc

SHUFFLES = {"noshuffle": blosc.NOSHUFFLE, "shuffle": blosc.SHUFFLE, "bitshuffle": blosc.BITSHUFFLE}
TYPESIZES = (1, 2, 3, 4, 8, 16)
CNAMES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd", "snappy")
UNSPLIT, MEMCPYED = 0x10, 0x02


def plain(n, typesize, kind="smooth"):
    if kind == "random":
        return random_bytes(n, typesize)
    item = {1: "<u1", 2: "<u2", 4: "<f4", 8: "<f8"}.get(typesize, "<u4")
    x = smooth("f8", (-(-n // np.dtype(item).itemsize),))
    return x.astype(item).tobytes()[:n]


def frames():
    numcodecs.blosc.set_nthreads(1)
    numcodecs.blosc.use_threads = True  # the path of c-blosc that reads BLOSC_SPLITMODE
    built = blosc.list_compressors()
    clevels = (1, 5, 9)
    for ci, cname in enumerate(c for c in CNAMES if c in built):
        for si, shuffle in enumerate(SHUFFLES):
            for ti, typesize in enumerate(TYPESIZES):
                turn = ci + si + ti
                for k, (n, blocksize) in enumerate([(0, 0), (1, 0), (7, 0), (300, 0), (2005, 512)]):
                    yield (
                        cname,
                        shuffle,
                        typesize,
                        n,
                        clevels[(turn + k) % 3],
                        blocksize,
                        "FORWARD_COMPAT",
                        "smooth",
                    )
                yield (
                    cname,
                    shuffle,
                    typesize,
                    333,
                    clevels[turn % 3],
                    0,
                    "FORWARD_COMPAT",
                    "random",
                )
                if turn % 3 == 0:
                    yield cname, shuffle, typesize, 333, 0, 0, "FORWARD_COMPAT", "smooth"
                for mode in ("ALWAYS", "NEVER") if typesize in (2, 4, 8, 16) else ():
                    yield cname, shuffle, typesize, 5003, clevels[turn % 3], 2048, mode, "smooth"


if __name__ == "__main__":
    out, arrays = Path(tempfile.mkdtemp()), []
    seen = set()
    for cname, shuffle, typesize, n, clevel, blocksize, mode, kind in frames():
        os.environ["BLOSC_SPLITMODE"] = mode
        data = plain(n, typesize, kind)
        frame = blosc.compress(
            data, cname.encode(), clevel, SHUFFLES[shuffle], blocksize, typesize=typesize
        )
        flags = frame[2]
        nbytes, block, cbytes = struct.unpack("<III", frame[4:16])
        assert (nbytes, cbytes) == (n, len(frame)) and frame[3] == typesize
        seen.add((cname, bool(flags & UNSPLIT), bool(flags & MEMCPYED), nbytes > block))
        key = f"{len(arrays):04}"
        (out / key).write_bytes(frame)
        arrays.append(
            {
                "frame": key,
                "cname": cname,
                "shuffle": shuffle,
                "typesize": typesize,
                "nbytes": n,
                "clevel": clevel,
                "flags": flags,
                "blocksize": block,
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )
    for cname in {a["cname"] for a in arrays}:
        assert {(cname, True, False, True), (cname, False, False, True)} <= seen, cname
        assert any(name == cname and memcpyed for name, _, memcpyed, _ in seen), cname
    pack(out, HERE / "stores" / "blosc-frames.zip")
    lines = ",\n  ".join(json.dumps(a) for a in arrays)
    head = json.dumps(
        {
            "writer": "blosc",
            "versions": {"numcodecs": numcodecs.__version__, "c-blosc": blosc.VERSION_STRING},
        }
    )
    (HERE / "manifest" / "blosc.json").write_text(
        head[:-1] + ',\n "frames": [\n  ' + lines + "\n ]\n}\n"
    )
    print(len(arrays), "frames")
