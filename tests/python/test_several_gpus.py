"""What needs two GPUs: reads to either, to both at once, and memory of one used by the other."""

import subprocess
import sys
import threading

import headrace as hr
import numpy as np
import pytest

GPUS = ("cuda:0", "cuda:1")
AVAILABLE = {d["device"] for d in hr.doctor()["devices"] if d["available"]}
CODECS = {
    "none": None,
    "zstd": hr.codecs.Zstd(),
    "blosc": hr.codecs.Blosc(cname="lz4", shuffle="shuffle"),
    "gzip": hr.codecs.Gzip(),
}

pytestmark = pytest.mark.skipif(not AVAILABLE.issuperset(GPUS), reason="no two GPUs")


@pytest.fixture(params=list(CODECS))
def stored(request, tmp_path):
    data = np.random.default_rng(0).integers(0, 1000, (64, 100, 130)).astype("f4")
    hr.create_array(
        tmp_path / "a",
        shape=data.shape,
        dtype="f4",
        chunks=(4, 50, 130),
        compressors=CODECS[request.param],
    )[...] = data
    return tmp_path / "a", data


@pytest.mark.parametrize("gpu", GPUS)
def test_reads_and_writes_go_to_each(stored, tmp_path, gpu):
    path, data = stored
    array = hr.open_array(path, device=gpu)
    found = array[...]
    assert found.device == gpu
    np.testing.assert_array_equal(found.to_numpy(), data)
    copy = hr.create_array(tmp_path / "copy", shape=data.shape, dtype="f4", chunks=(8, 100, 130))
    copy[...] = found
    np.testing.assert_array_equal(hr.open_array(tmp_path / "copy")[...], data)


def test_threads_read_to_each_at_once(stored):
    path, data = stored
    failures = []

    def read(gpu, first):
        array = hr.open_array(path, device=gpu)
        try:
            for i in range(20):
                rows = slice((first + i) % 60, (first + i) % 60 + 4)
                np.testing.assert_array_equal(array[rows].to_numpy(), data[rows])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(GPUS[i % 2], i)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(("own", "current"), [(0, 1), (1, 0)])
def test_cupy_uses_memory_of_a_device_that_is_not_current(stored, own, current):
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.runtime.deviceCanAccessPeer(current, own):
        pytest.skip("these devices cannot reach each other")
    path, data = stored
    with cupy.cuda.Device(current):
        found = cupy.from_dlpack(hr.open_array(path, device=f"cuda:{own}")[...])
        np.testing.assert_array_equal((found + 1).get(), data + 1)


def test_torch_copies_from_one_to_the_other(stored):
    torch = pytest.importorskip("torch")
    path, data = stored
    found = torch.from_dlpack(hr.open_array(path, device=GPUS[1])[...])
    assert found.device.index == 1
    np.testing.assert_array_equal(found.to("cuda:0").cpu().numpy(), data)


def test_a_read_uses_no_other_device(stored):
    code = (
        "import sys, ctypes, headrace as hr\n"
        "hr.open_array(sys.argv[1], device='cuda:0')[...]\n"
        "driver = ctypes.CDLL('libcuda.so.1')\n"
        "flags, active = ctypes.c_uint(), ctypes.c_int()\n"
        "told = ctypes.byref(flags), ctypes.byref(active)\n"
        "assert driver.cuDevicePrimaryCtxGetState(1, *told) == 0\n"
        "print(active.value)\n"
    )
    command = [sys.executable, "-c", code, str(stored[0])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)
    assert ran.stdout == "0\n"
