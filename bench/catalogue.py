"""The list of benchmarks: what each tells, where it is shown, and what makes each result."""

from dataclasses import dataclass
from pathlib import Path

import pages

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True)
class Benchmark:
    tells: str
    shown: str  # where, as Markdown
    # The command of each result in bench/results, by its name, in which * is the version of zarr;
    # "" stands for what has none. A module of bench/ is told --out, others have {out} in the text.
    commands: dict[str, str]

    @property
    def results(self) -> list[str]:
        return [name for name in self.commands if name]


HERE = "[below](#results)"
OTHERS = "[below](#in-other-libraries)"
DEVICE = "[below](#on-the-device)"
SUITES = "[suites](../docs/suites.md)"
STRESS = "[survives](../docs/survives.md)"
FIELD = "device.field --out $DUMP/field.f32"
DEVICE_BENCH = "build/bench/bench/device/headrace_device_bench $DUMP/field.f32 --json {out}"

BENCHMARKS = {
    "micro": Benchmark(
        "single parts of headrace, in C++ (google-benchmark)",
        "printed",
        {"": "build/bench/bench/micro/headrace_bench"},
    ),
    "e2e": Benchmark(
        "Zarr arrays read and written on the CPU, beside peers; every row, half an hour",
        HERE,
        {"e2e-cpu.json": "e2e.run"},
    ),
    "small-calls": Benchmark(
        "one small chunk a call, and `import`", "", {"small-calls.json": "e2e.small_calls"}
    ),
    "strings": Benchmark(
        "10^6 strings to Arrow, beside pyarrow's conversion of what zarr-python reads",
        "[strings](../docs/strings.md#arrow)",
        {"strings.json": "e2e.strings"},
    ),
    "device-strings": Benchmark(
        "strings to Arrow's layout in a GPU's memory: decoded there, or on the host and copied",
        "[strings](../docs/strings.md#on-a-gpu)",
        {
            "device-strings.json": "device.strings",
            "device-strings-before.json": "",  # elements found one after the other, of 5479e406
        },
    ),
    "file-io": Benchmark("pread and io_uring, warm and cold", "", {"file-io.json": "e2e.file_io"}),
    "cold": Benchmark(
        "arrays from a disk, nothing of them in the page cache, beside peers",
        "[below](#from-a-disk)",
        {
            "cold.json": "e2e.cold",
            "cold-before.json": "",  # --peers headrace --before, of 1a23a26
        },
    ),
    "network": Benchmark(
        "arrays over HTTP from a server that waits 0, 20 and 100 ms, beside peers",
        "[below](#across-a-network)",
        {"network.json": "e2e.network"},
    ),
    "network-writes": Benchmark(
        "arrays written to a bucket that waits 0, 20 and 100 ms, beside peers",
        "[below](#across-a-network)",
        {"network-writes.json": "e2e.network_writes"},
    ),
    "loader-network": Benchmark(
        "the loader over HTTP from a server that waits 0, 20 and 100 ms",
        "",
        {"loader-network.json": "e2e.loader_network"},
    ),
    "references": Benchmark(
        "10^6 and 10^7 references: to open them, one chunk, memory",
        "[references](../docs/stores.md)",
        {"references.json": "e2e.references"},
    ),
    "many-chunks": Benchmark(
        "10^6 chunks in a bucket and by references: to open, to list, one step, memory",
        "[object stores](../docs/object_stores.md)",
        {"many-chunks.json": "e2e.many_chunks"},
    ),
    "fsync": Benchmark(
        "what `fsync=` costs in $FOLDER", STRESS, {"fsync.json": "e2e.fsync --folder $FOLDER"}
    ),
    "write-limits": Benchmark(
        "writes beside the codec's own library",
        "[below](#limits)",
        {"write-limits.json": "e2e.write_limits --write-to /dev/shm/bench"},
    ),
    "shm": Benchmark("arrays between processes", OTHERS, {"shm.json": "e2e.shm"}),
    "shm-device": Benchmark("and from there to a GPU", OTHERS, {"shm-device.json": "device.shm"}),
    "rechunk": Benchmark(
        "into other chunks; $DATA: a folder, $ZARR2: an interpreter with zarr 2 and rechunker",
        OTHERS,
        {"rechunk.json": "e2e.rechunk --data $DATA --zarr2 $ZARR2"},
    ),
    "loader": Benchmark(
        "batches for training, on the CPU; see the script",
        OTHERS,
        {"loader-cpu.json": "e2e.loader --rounds 3"},
    ),
    "loader-device": Benchmark(
        "and on GPUs, one and two, and beside DALI",
        OTHERS,
        {
            "loader-cuda.json": "device.loader --codecs blosc --seconds 4",
            # On a slower host; its time was up before the last six rows.
            "loader-cuda-2.json": "",
            "loader-2-cuda.json": "device.loader --gpus 2 --peers headrace",
            "loader-dali-cuda.json": "device.loader --peers dali-zarr,headrace --codecs blosc"
            " --chunk-steps 8 --seconds 4",
        },
    ),
    "unet": Benchmark(
        "a U-Net trained on ERA5, `examples/era5_unet.py`",
        "[loader](../docs/loader.md)",
        {"era5-unet-cuda.json": ""},
    ),
    "zarr-pipeline": Benchmark(
        "inside zarr-python, pipelines in turns",
        OTHERS,
        {"zarr-pipeline-*.json": "ecosystem.zarr_pipeline"},
    ),
    "zarr-latency": Benchmark(
        "zarr-python's pipelines on a slow store", "printed", {"": "ecosystem.zarr_latency"}
    ),
    "annbatch": Benchmark(
        "annbatch's loader over zarr-python's pipelines, in turns; wants annbatch",
        "-",
        {"annbatch-cpu.json": "e2e.annbatch_loader"},
    ),
    "cells": Benchmark(
        "`CellLoader` beside annbatch's loader, scDataset and AnnLoader, cells of 1,460 elements; "
        "wants annbatch; $TORCH_PYTHON: a Python with the others, see the script",
        "[cells](../docs/cells.md)",
        {"cells-cpu.json": "ecosystem.cells --torch-python $TORCH_PYTHON"},
    ),
    "cells-larger": Benchmark(
        "the same of data that is 5 and 20 times larger than memory; $CGROUP: a group of the "
        "memory controller, see the script",
        "[cells](../docs/cells.md#larger-than-memory)",
        {
            "cells-larger.json": "ecosystem.cells_larger --cgroup $CGROUP --data $DATA --times 5",
            "cells-larger-20.json": "ecosystem.cells_larger --cgroup $CGROUP --data $DATA "
            "--times 20 --runs 3",
            "cells-larger-before.json": "",  # as the first, of 9077d1f
        },
    ),
    "cells-device": Benchmark(
        "the same on a GPU, beside annbatch's `preload_to_gpu` where it is installed",
        "[cells](../docs/cells.md#how-fast)",
        {
            "cells-cuda.json": "device.cells",
            "cells-cuda-4-cores.json": "device.cells",
            "cells-cuda-h100*.json": "",  # as these, of 9be959d
        },
    ),
    "zarr-suite": Benchmark(
        "zarr-python's own tests; $ZARR: its unpacked source, see the script",
        SUITES,
        {"zarr-suite-*.json": "ecosystem.zarr_suite --source $ZARR"},
    ),
    "xarray-open": Benchmark(
        "xarray's engines, on the CPU",
        OTHERS,
        {"xarray-open-cpu.json": "ecosystem.xarray_open --real auto"},
    ),
    "xarray-open-device": Benchmark(
        "and to a GPU", OTHERS, {"xarray-open-cuda.json": "ecosystem.xarray_open --device cuda:0"}
    ),
    "xarray-suite": Benchmark(
        "xarray's own tests of its engine; wants the extra `suites`",
        SUITES,
        {"xarray-suite.json": "ecosystem.xarray_suite"},
    ),
    "conformance-suite": Benchmark(
        "zarr-conformance-tests, by bats; $CONFORMANCE: its checkout",
        SUITES,
        {"conformance-suite.json": "ecosystem.conformance_suite --source $CONFORMANCE"},
    ),
    "annbatch-suite": Benchmark(
        "annbatch's own tests; $ANNBATCH: its unpacked source, see the script",
        SUITES,
        {"annbatch-suite.json": "ecosystem.downstream_suite annbatch --source $ANNBATCH"},
    ),
    "zarrs-suite": Benchmark(
        "zarrs-python's own tests; $ZARRS: its unpacked source; wants zarrs",
        SUITES,
        {"zarrs-suite.json": "ecosystem.downstream_suite zarrs --source $ZARRS"},
    ),
    "ome-zarr-suite": Benchmark(
        "ome-zarr's own tests; $OME_ZARR: its unpacked source",
        SUITES,
        {"ome-zarr-suite.json": "ecosystem.downstream_suite ome-zarr --source $OME_ZARR"},
    ),
    "virtualizarr-suite": Benchmark(
        "VirtualiZarr's own tests; $VIRTUALIZARR: its unpacked source",
        SUITES,
        {
            "virtualizarr-suite.json": "ecosystem.downstream_suite virtualizarr"
            " --source $VIRTUALIZARR"
        },
    ),
    "anndata-suite": Benchmark(
        "anndata's own tests; $ANNDATA: its unpacked source",
        SUITES,
        {"anndata-suite.json": "ecosystem.downstream_suite anndata --source $ANNDATA"},
    ),
    "state-dict": Benchmark(
        "weights of a network, on the CPU",
        OTHERS,
        {"state-dict-cpu.json": "ecosystem.state_dict --gib 1 --runs 3"},
    ),
    "state-dict-device": Benchmark(
        "and on a GPU", OTHERS, {"state-dict-cuda.json": "ecosystem.state_dict --device cuda:0"}
    ),
    "device-decode": Benchmark(
        "the decoders and encoders of `src/kernels`, nvCOMP on the same frames; $DUMP: a folder",
        DEVICE,
        {
            "": FIELD,
            "device-decode.json": f"{DEVICE_BENCH} --dump $DUMP",
            "device-encode.json": f"{DEVICE_BENCH} encode-",
            "device-nvcomp.json": "device.nvcomp_peer --dump $DUMP",
        },
    ),
    "device-stages": Benchmark(
        "each kernel of a decode, and of an encode; $DUMP as above",
        "[kernels](../src/kernels/README.md#kernels)",
        {
            "": FIELD,
            "device-stages.json": f"{DEVICE_BENCH} --stages",
            "device-stages-encode.json": f"{DEVICE_BENCH} --stages encode-",
        },
    ),
    "before-after": Benchmark(
        "checkouts of headrace in turns, on the host and a GPU; $BEFORE, $NOW: their PYTHONPATH",
        "",
        {
            "before-after.json": "e2e.checkouts before=$BEFORE now=$NOW",
            "before-after-headers.json": "e2e.checkouts before=$BEFORE now=$NOW --only cuda "
            "--steps 384 --rows 4MiB-zstd-whole,4MiB-blosc-whole,shard-*-whole,4MiB-none-whole",
            "before-after-slabs.json": "e2e.checkouts before=$BEFORE now=$NOW --only cuda "
            "--steps 384 --rows 4MiB-zstd-whole,4MiB-blosc-whole,shard-*-whole,4MiB-none-whole",
        },
    ),
    "device-read": Benchmark(
        "whole arrays into GPU memory, beside peers", HERE, {"device-read.json": "device.read"}
    ),
    "device-write": Benchmark(
        "whole arrays from GPU memory to files, beside what the system stores of the same bytes",
        "[below](#to-a-gpu)",
        {
            "device-write.json": "device.write",
            "device-write-before.json": "",  # of 530b70bf, shards put together in memory
        },
    ),
    "device-small": Benchmark(
        "one chunk, one step and 64 chunks to a GPU, beside a copy of their bytes; decode_batch",
        "",
        {"device-small.json": "device.small"},
    ),
    "device-mapped": Benchmark(
        "files in memory to a GPU: copied by threads, or from where they lie",
        "[devices](../docs/devices.md#files-in-memory)",
        {
            "device-mapped.json": "device.mapped",
            "device-mapped-cores.json": "device.mapped --cores 6,12,4,16 --steps 1024",
            # On a host whose processors read a third less a second.
            "device-mapped-cores-2.json": "device.mapped --cores 6,12,8 --steps 1024",
        },
    ),
    "device-several": Benchmark(
        "arrays, and halves of one, to two GPUs at once",
        "[devices](../docs/devices.md#several-gpus)",
        {
            "device-several.json": "device.several --steps 384",
            # Each by itself: --steps 1536 --only 4MiB-zstd, and 4MiB-blosc.
            "device-several-large.json": "",
            "device-several-h100.json": "",  # two H100, 32 cores
        },
    ),
    "device-trials": Benchmark(
        "calls of a small read, slices and slabs that were tried, cold files, rates of other"
        " samples",
        "",
        {"device-trials.json": ""},
    ),
    "device-choice": Benchmark(
        "decoding by the host's threads or by the GPU: the rates of"
        " `src/engine/device/decode_cost.cpp`",
        "[devices](../docs/devices.md)",
        {"device-choice.json": "device.choice"},
    ),
    "kernel-trials": Benchmark(
        "what was tried before the kernels were written, and in the encoders",
        "[kernels](../src/kernels/README.md#tried-and-lost)",
        {
            "kernel-trials.json": "",
            "encoder-trials.json": "",
            "encoder-tables.json": "",
            "deflate-trials.json": "",
            "snappy-trials.json": "",
        },
    ),
    "interop": Benchmark(
        "arrays between libraries and versions",
        "[interop](../docs/interop.md)",
        {"interop.json": "tests/interop --json {out}"},
    ),
    "loader-processes": Benchmark(
        "loaders that are forked and killed",
        STRESS,
        {
            "loader-processes.json": "tests/python/loader_stress.py --forks 1000"
            " --worker-forks 1000 --starts 50 --json {out}"
        },
    ),
    "faults": Benchmark(
        "failing system calls and allocations, at full length",
        STRESS,
        {
            "faults.json": "tests/python/long_runs.py --json {out} faults"
            " build/dev/tests/headrace_tests"
        },
    ),
    "faults-network": Benchmark(
        "1,000 random schedules of faults of a server each for reads, writes and arrays",
        STRESS,
        {
            "faults-network.json": "tests/python/long_runs.py --json {out} network"
            " build/dev/tests/headrace_tests"
        },
    ),
    "netcdf-references": Benchmark(
        "real NetCDF files by references, beside netCDF4; $DATA: as the script prepares it",
        "[references](../docs/stores.md)",
        {
            name: f"tests/python/netcdf_references.py compare $DATA {devices} --json {{out}}"
            for name, devices in (
                ("netcdf-references.json", "--device cpu --device simt"),
                ("netcdf-references-cuda.json", "--device cpu --device cuda"),
            )
        },
    ),
    "linearizability": Benchmark(
        "histories of readers and writers, at full length",
        STRESS,
        {"linearizability.json": "tests/python/long_runs.py --json {out} linearizable"},
    ),
}


def listed() -> str:
    return pages.table(
        "",
        ["name", "what it tells", "result, in `bench/results`", "shown"],
        [
            [f"`{name}`", b.tells, ", ".join(f"`{r}`" for r in b.results) or "-", b.shown or "-"]
            for name, b in BENCHMARKS.items()
        ],
    )
