"""The list of benchmarks: what each tells, where its result lies, and how it was made."""

from dataclasses import dataclass
from pathlib import Path

import pages

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True)
class Benchmark:
    tells: str
    results: tuple[str, ...]  # in bench/results; * is a version
    commands: tuple[str, ...]
    shown: str  # where, as Markdown


HERE = "[below](#results)"
OTHERS = "[below](#in-other-libraries)"
DEVICE = "[below](#on-the-device)"
STRESS = "[survives](../docs/survives.md)"
DEVICE_BENCH = "build/bench/bench/device/headrace_device_bench"

BENCHMARKS = {
    "micro": Benchmark(
        "single parts of headrace, in C++ (google-benchmark)",
        (),
        ("build/bench/bench/micro/headrace_bench",),
        "printed",
    ),
    "e2e": Benchmark(
        "Zarr arrays read and written on the CPU, beside peers; every row, half an hour",
        ("e2e-cpu.json",),
        ("python bench/e2e/run.py --out bench/results/e2e-cpu.json",),
        HERE,
    ),
    "small-calls": Benchmark(
        "one small chunk a call, and `import`",
        ("small-calls.json",),
        ("python bench/e2e/small_calls.py --out bench/results/small-calls.json",),
        "",
    ),
    "file-io": Benchmark(
        "pread and io_uring, warm and cold",
        ("file-io.json",),
        ("python bench/e2e/file_io.py --out bench/results/file-io.json",),
        "",
    ),
    "references": Benchmark(
        "10^6 and 10^7 references: to open them, one chunk, memory",
        ("references.json",),
        ("python bench/e2e/references.py --out bench/results/references.json",),
        "[references](../docs/stores.md)",
    ),
    "fsync": Benchmark(
        "what `fsync=` costs in $FOLDER",
        ("fsync.json",),
        ("python bench/e2e/fsync.py --folder $FOLDER --out bench/results/fsync.json",),
        STRESS,
    ),
    "write-limits": Benchmark(
        "writes beside the codec's own library",
        ("write-limits.json",),
        (
            "python bench/e2e/write_limits.py --write-to /dev/shm/bench"
            " --out bench/results/write-limits.json",
        ),
        "[below](#limits)",
    ),
    "shm": Benchmark(
        "arrays between processes",
        ("shm.json",),
        ("python bench/e2e/shm.py --out bench/results/shm.json",),
        OTHERS,
    ),
    "shm-device": Benchmark(
        "and from there to a GPU",
        ("shm-device.json",),
        ("python bench/device/shm.py bench/results/shm-device.json",),
        OTHERS,
    ),
    "rechunk": Benchmark(
        "into other chunks; $DATA: a folder, $ZARR2: an interpreter with zarr 2 and rechunker",
        ("rechunk.json",),
        (
            "python bench/e2e/rechunk.py --data $DATA --zarr2 $ZARR2"
            " --out bench/results/rechunk.json",
        ),
        OTHERS,
    ),
    "loader": Benchmark(
        "batches for training, on the CPU; see the script",
        ("loader-cpu.json",),
        ("python bench/e2e/loader.py --rounds 3 --json bench/results/loader-cpu.json",),
        OTHERS,
    ),
    "loader-device": Benchmark(
        "and on GPUs, one and two, and beside DALI",
        ("loader-cuda.json", "loader-2-cuda.json", "loader-dali-cuda.json"),
        (
            "python bench/device/loader.py bench/results/loader-cuda.json --codecs blosc"
            " --seconds 4",
            "python bench/device/loader.py bench/results/loader-2-cuda.json --gpus 2"
            " --peers headrace",
            "python bench/device/loader.py bench/results/loader-dali-cuda.json"
            " --peers dali-zarr headrace --codecs blosc --chunk-steps 8 --seconds 4",
        ),
        OTHERS,
    ),
    "unet": Benchmark(
        "a U-Net trained on ERA5, `examples/era5_unet.py`",
        ("era5-unet-cuda.json",),
        (),
        "[loader](../docs/loader.md)",
    ),
    "zarr-pipeline": Benchmark(
        "inside zarr-python, pipelines in turns",
        ("zarr-pipeline-*.json",),
        ("python bench/ecosystem/zarr_pipeline.py --steps 64",),
        OTHERS,
    ),
    "zarr-latency": Benchmark(
        "zarr-python's pipelines on a slow store",
        (),
        ("python bench/ecosystem/zarr_latency.py",),
        "printed",
    ),
    "zarr-suite": Benchmark(
        "zarr-python's own tests; $ZARR: its unpacked source, see the script",
        ("zarr-suite-*.json",),
        ("python bench/ecosystem/zarr_suite.py $ZARR",),
        OTHERS,
    ),
    "xarray-open": Benchmark(
        "xarray's engines, on the CPU",
        ("xarray-open-cpu.json",),
        (
            "python bench/ecosystem/xarray_open.py --real auto"
            " --json bench/results/xarray-open-cpu.json",
        ),
        OTHERS,
    ),
    "xarray-open-device": Benchmark(
        "and to a GPU",
        ("xarray-open-cuda.json",),
        (
            "python bench/ecosystem/xarray_open.py --device cuda:0"
            " --json bench/results/xarray-open-cuda.json",
        ),
        OTHERS,
    ),
    "xarray-suite": Benchmark(
        "xarray's own tests of its engine",
        ("xarray-suite.json",),
        ("python bench/ecosystem/xarray_suite.py --json bench/results/xarray-suite.json",),
        "",
    ),
    "state-dict": Benchmark(
        "weights of a network, on the CPU",
        ("state-dict-cpu.json",),
        (
            "python bench/ecosystem/state_dict.py bench/results/state-dict-cpu.json"
            " --gib 1 --runs 3",
        ),
        OTHERS,
    ),
    "state-dict-device": Benchmark(
        "and on a GPU",
        ("state-dict-cuda.json",),
        (
            "python bench/ecosystem/state_dict.py bench/results/state-dict-cuda.json"
            " --device cuda:0 --gib 2",
        ),
        OTHERS,
    ),
    "device-decode": Benchmark(
        "the decoders and encoders of `src/kernels`, nvCOMP on the same frames; $DUMP: a folder",
        ("device-decode.json", "device-encode.json", "device-nvcomp.json"),
        (
            "python bench/device/field.py $DUMP/field.f32",
            f"{DEVICE_BENCH} $DUMP/field.f32 --json bench/results/device-decode.json --dump $DUMP",
            f"{DEVICE_BENCH} $DUMP/field.f32 --json bench/results/device-encode.json encode-",
            "python bench/device/nvcomp_peer.py $DUMP bench/results/device-nvcomp.json",
        ),
        DEVICE,
    ),
    "device-stages": Benchmark(
        "each kernel of a decode; $DUMP as above",
        ("device-stages.json",),
        (
            "python bench/device/field.py $DUMP/field.f32",
            f"{DEVICE_BENCH} $DUMP/field.f32 --stages --json bench/results/device-stages.json",
        ),
        "[kernels](../src/kernels/README.md#kernels)",
    ),
    "before-after": Benchmark(
        "checkouts of headrace in turns, on the host and a GPU; $BEFORE, $NOW: their PYTHONPATH",
        ("before-after.json",),
        (
            "python bench/device/checkouts.py bench/results/before-after.json"
            " before=$BEFORE now=$NOW",
        ),
        "",
    ),
    "device-batch": Benchmark(
        "`hr.codecs.decode_batch` and nvCOMP in turns",
        ("device-batch.json",),
        ("python bench/device/batch.py bench/results/device-batch.json",),
        "",
    ),
    "device-read": Benchmark(
        "whole arrays into GPU memory, beside peers",
        ("device-read.json",),
        ("python bench/device/read.py bench/results/device-read.json",),
        HERE,
    ),
    "device-choice": Benchmark(
        "decoding by the host's threads or by the GPU: the rates of"
        " `src/engine/device/decode_cost.cpp`",
        ("device-choice.json",),
        ("python bench/device/choice.py bench/results/device-choice.json",),
        "[devices](../docs/devices.md)",
    ),
    "kernel-trials": Benchmark(
        "what was tried before the kernels were written",
        ("kernel-trials.json",),
        (),
        "[kernels](../src/kernels/README.md#tried-and-lost)",
    ),
    "interop": Benchmark(
        "arrays between libraries and versions",
        ("interop.json",),
        ("python tests/interop --json bench/results/interop.json",),
        "[interop](../docs/interop.md)",
    ),
    "loader-processes": Benchmark(
        "loaders that are forked and killed",
        ("loader-processes.json",),
        (
            "python tests/python/loader_stress.py --forks 1000 --worker-forks 1000 --starts 50"
            " --json bench/results/loader-processes.json",
        ),
        STRESS,
    ),
    "faults": Benchmark(
        "failing system calls and allocations, at full length",
        ("faults.json",),
        (
            "python tests/python/long_runs.py --json bench/results/faults.json faults"
            " build/dev/tests/headrace_tests",
        ),
        STRESS,
    ),
    "linearizability": Benchmark(
        "histories of readers and writers, at full length",
        ("linearizability.json",),
        (
            "python tests/python/long_runs.py --json bench/results/linearizability.json"
            " linearizable",
        ),
        STRESS,
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
