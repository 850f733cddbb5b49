"""Processes end: with reads under way in threads, with loaders that nobody closed."""

import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import headrace as hr
import numpy as np
import pytest

SECONDS = 60

SLOW_STORE = """
import asyncio
class Slow(WrapperStore):
    async def get(self, key, *args, **kwargs):
        if "c/" in key:
            reading.set()
            await asyncio.sleep(0.05)
        return await self._store.get(key, *args, **kwargs)
"""


def run(tmp_path, code, *arguments, quiet=True):
    """A script, which must end by itself and well."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "x.zarr"), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert quiet is False or done.stderr == ""
    return done.stdout


@pytest.fixture
def array(tmp_path):
    array = hr.create_array(tmp_path / "x.zarr", shape=(64, 256), dtype="f4", chunks=(1, 256))
    array[:] = np.arange(64 * 256, dtype="f4").reshape(64, 256)
    return array


CALLS = {
    "getitem": "a[:]",
    "read": "a.read(out=out)",
    "strings": "s[:]",
    "write": "w.write(None, out)",
    "write_strings": "w_s[:] = texts",
    "read_many": "hr.read_many([(a, None), (a, None)])",
    "result": "a.read_async().result()",
    "verify": "a.verify()",
    "open": "hr.open(path)",
    "group": "hr.open_group(path + '_g').keys()",
    "list": "a.nchunks_initialized",
    "create": "hr.create_array(path + own(), shape=4, dtype='f4', overwrite=True)",
    "attributes": "w.attrs['k'] = 1",
    "copy": "hr.copy(path, 'memory://' + own(), overwrite=True)",
    "codecs": "codecs.decode_batch('zstd', encoded, out_nbytes=[1 << 16])",
    "loader": "list(Loader({'a': a}, batch_size=4))",
    "dlpack": "np.from_dlpack(a)",
    "key": "a.store._get('zarr.json')",
    "foreign": "f[:]",
    "foreign_future": "f.read_async().result()",
    "foreign_error": "failed.read_async().exception()",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_daemon_thread_in_a_call_at_the_end(array, tmp_path, call):
    """It is left where it is, as CPython leaves its own: nothing aborts, nothing waits for it."""
    out = run(
        tmp_path,
        f"""
        import sys, threading
        import headrace as hr
        import numpy as np
        from headrace import codecs
        from headrace.loader import Loader
        path = sys.argv[1]
        a = hr.open_array(path)
        w = hr.create_array(path + "_w", shape=a.shape, dtype="f4", chunks=(1, 256), overwrite=True)
        texts = np.array([["text"] * 16] * 64, dtype="T")
        s = hr.create_array(path + "_s", shape=(64, 16), dtype=str, chunks=(1, 16), overwrite=True)
        s[:] = texts
        w_s = hr.create_array(path + "_v", shape=(64, 16), dtype=str, chunks=(1, 16))
        hr.create_group(path + "_g", overwrite=True).create_array("m", shape=4, dtype="f4")
        out = np.empty(a.shape, "f4")
        encoded = codecs.encode_batch('zstd', [bytes(1 << 16)])
        def own():
            return str(threading.get_ident())
        if {call.startswith("f")}:
            from zarr.storage import LocalStore, WrapperStore
            class Failing(WrapperStore):
                async def get(self, key, *args, **kwargs):
                    if "c/" in key:
                        raise OSError(key)
                    return await self._store.get(key, *args, **kwargs)
            f = hr.open_array(WrapperStore(LocalStore(path)))
            failed = hr.open_array(Failing(LocalStore(path)))
        runs = threading.Event()
        def work():
            while True:
                {call}
                runs.set()
        for _ in range(2):
            threading.Thread(target=work, daemon=True).start()
        assert runs.wait(50)
        print("end", flush=True)
        """,
        quiet=False,  # a thread whose store is gone may say so
    )
    assert out == "end\n"


@pytest.mark.parametrize("kind", ["wrapper", "cached"])
@pytest.mark.parametrize("first", ["zarr", "headrace.loader"])
def test_a_loader_that_nobody_closed(array, tmp_path, first, kind):
    out = run(
        tmp_path,
        f"""
        import sys, threading
        import {first}
        import headrace as hr
        from headrace.loader import Loader
        from zarr.storage import LocalStore, WrapperStore
        reading = threading.Event()
        """
        + textwrap.indent(SLOW_STORE, " " * 8)
        + f"""
        store = Slow(LocalStore(sys.argv[1]))
        if {kind!r} == "cached":
            store = hr.cached(store)
        loader = Loader({{"a": hr.open_array(store)}}, batch_size=2, shuffle=None, prefetch=4)
        print(next(loader)["a"].shape, flush=True)
        """,
    )
    assert out == "(2, 1, 256)\n"


@pytest.mark.parametrize("first", ["zarr", "headrace.loader"])
def test_a_loader_over_http(array, tmp_path, first):
    pytest.importorskip("aiohttp")
    out = run(
        tmp_path,
        f"""
        import functools, http.server, pathlib, sys, threading
        import {first}
        import headrace as hr
        from headrace.loader import Loader

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *args):
                pass  # a request of the last moment, when no thread starts any more

        folder = pathlib.Path(sys.argv[1])
        handler = functools.partial(Quiet, directory=str(folder.parent))
        server = Server(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{{server.server_port}}/{{folder.name}}"
        loader = Loader({{"a": hr.open_array(url)}}, batch_size=2, shuffle=None, prefetch=4)
        print(next(loader)["a"].shape, flush=True)
        """,
    )
    assert out == "(2, 1, 256)\n"


def test_requests_under_way_over_a_python_store(array, tmp_path):
    """Their threads wait for an event loop that is stopped before the process ends."""
    out = run(
        tmp_path,
        """
        import sys, threading
        import headrace as hr
        from zarr.storage import LocalStore, WrapperStore
        reading = threading.Event()
        """
        + textwrap.indent(SLOW_STORE, " " * 8)
        + """
        a = hr.open_array(Slow(LocalStore(sys.argv[1])))
        futures = [a.read_async() for _ in range(4)]
        assert reading.wait(50)
        print("end", flush=True)
        """,
    )
    assert out == "end\n"


def test_a_store_whose_loop_was_closed_raises(array, tmp_path):
    out = run(
        tmp_path,
        """
        import asyncio, sys, threading
        import headrace as hr
        import zarr.core.sync
        from headrace._zarr_stores.foreign import foreign_store
        from zarr.storage import LocalStore, WrapperStore
        reading = threading.Event()
        """
        + textwrap.indent(SLOW_STORE.replace("0.05", "1000"), " " * 8)
        + """
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        store = foreign_store(Slow(LocalStore(sys.argv[1])), loop)
        future = hr.open_array(store).read_async()
        assert reading.wait(50)
        stopped = threading.Event()
        loop.call_soon_threadsafe(lambda: (loop.stop(), stopped.set()))
        assert stopped.wait(50)
        while loop.is_running():
            pass
        loop.close()
        print(future.exception(50))
        """,
    )
    assert out == "the event loop of the store was closed before it answered\n"


# What of CPython the module calls that never lets go of the GIL: it reads a field, makes an object
# that the collector does not know, or runs while the module is imported only.
HARMLESS = """
    PyBuffer_FillInfo PyBytes_FromStringAndSize PyCallable_Check PyCapsule_GetContext
    PyCapsule_GetName PyCapsule_GetPointer PyCapsule_IsValid PyCapsule_SetContext PyDict_Next
    PyErr_ExceptionMatches PyErr_Fetch PyErr_GivenExceptionMatches PyErr_Occurred
    PyEval_SaveThread PyException_GetTraceback PyFloat_FromDouble PyFrame_GetBack
    PyFrame_GetCode PyFrame_GetLineNumber PyGILState_Check PyIndex_Check PyInterpreterState_Get
    PyInterpreterState_GetDict PyList_Append PyLong_FromLong PyLong_FromLongLong
    PyLong_FromUnsignedLong PyMem_Calloc PyMem_Free PyMem_Malloc PyObject_CheckBuffer
    PyObject_Free PyObject_GC_Del PyObject_GC_Track PyObject_GC_UnTrack PyObject_Init
    PyObject_Malloc PyObject_Realloc PySequence_Check PySlice_AdjustIndices PyType_GetName
    PyType_GetSlot PyType_IsSubtype PyType_Modified PyUnicode_AsUTF8AndSize PyUnicode_FromFormat
    PyUnicode_FromString PyUnicode_FromStringAndSize PyUnicode_InternFromString
    PyUnicode_InternInPlace Py_IsInitialized _PyObject_New _PyType_Lookup _Py_IsFinalizing
    PyErr_GetRaisedException PyThread_get_thread_ident Py_IsFinalizing _PyThreadState_UncheckedGet
    PyThreadState_GetUnchecked PyType_GetModuleName _PyType_LookupRef PyNumber_Check

    PyErr_WarnFormat PyModuleDef_Init PyModule_GetDef PyModule_GetDict PyModule_GetState
    PyModule_NewObject Py_AtExit Py_CompileStringExFlags
"""


def test_every_function_that_may_let_go_of_the_gil_is_guarded():
    """A new call of CPython's is either in python_api.cpp or here."""
    source = pathlib.Path(__file__).parents[2] / "python" / "src" / "python_api.cpp"
    if shutil.which("nm") is None or not source.exists():
        pytest.skip("needs nm and the sources")
    guarded = set(re.findall(r"_?Py[A-Za-z]*_\w+", source.read_text().replace("__wrap_", "")))
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", hr._core.__file__],
        capture_output=True,
        text=True,
        check=True,
    )
    called = set(re.findall(r" U (_?Py[A-Za-z]*_\w+)", listing.stdout))
    data = {name for name in called if re.search(r"^PyExc_|Type$|^_Py_.*(Struct|Object)$", name)}
    assert called - data - guarded - set(HARMLESS.split()) == set()
