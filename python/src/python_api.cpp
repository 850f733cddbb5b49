// CPython's functions as this module calls them, nanobind's calls among them: the linker puts what
// is here in their place (--wrap, for each name that is defined: see CMakeLists.txt). Whatever may
// run Python code, a finalizer by the collector among it, may let go of the GIL and ask for it
// again, and there CPython ends a thread: see gil.h. tests/python/test_exit.py knows the functions
// that never do.

#include <Python.h>

#include <cstdarg>

#include "gil.h"

using headrace::python::never_unwound;

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
#define GUARDED(result, name, parameters, arguments)               \
  extern "C" result __real_##name parameters;                      \
  extern "C" result __wrap_##name parameters {                     \
    return never_unwound([=] { return __real_##name arguments; }); \
  }

#define GUARDED_OF_NONE(result, name) GUARDED(result, name, (), ())
#define GUARDED_OF_ONE(result, name, A) GUARDED(result, name, (A a), (a))
#define GUARDED_OF_TWO(result, name, A, B) GUARDED(result, name, (A a, B b), (a, b))
#define GUARDED_OF_THREE(result, name, A, B, C) GUARDED(result, name, (A a, B b, C c), (a, b, c))
#define GUARDED_OF_FOUR(result, name, A, B, C, D) \
  GUARDED(result, name, (A a, B b, C c, D d), (a, b, c, d))

// The GIL itself.
GUARDED_OF_ONE(void, PyEval_RestoreThread, PyThreadState*)
GUARDED_OF_NONE(PyGILState_STATE, PyGILState_Ensure)
GUARDED_OF_ONE(void, PyGILState_Release, PyGILState_STATE)  // may end what the thread keeps

// Calls.
GUARDED_OF_THREE(PyObject*, PyEval_EvalCode, PyObject*, PyObject*, PyObject*)
GUARDED_OF_ONE(PyObject*, PyImport_ImportModule, const char*)
GUARDED_OF_ONE(PyObject*, PyIter_Next, PyObject*)
GUARDED_OF_TWO(PyObject*, PyObject_CallOneArg, PyObject*, PyObject*)
GUARDED_OF_FOUR(PyObject*, PyObject_Vectorcall, PyObject*, PyObject* const*, size_t, PyObject*)
GUARDED_OF_FOUR(PyObject*, PyObject_VectorcallDict, PyObject*, PyObject* const*, size_t, PyObject*)
GUARDED_OF_FOUR(
    PyObject*, PyObject_VectorcallMethod, PyObject*, PyObject* const*, size_t, PyObject*)
GUARDED_OF_THREE(PyObject*, PyVectorcall_Call, PyObject*, PyObject*, PyObject*)

// Special methods of any object.
GUARDED_OF_ONE(double, PyFloat_AsDouble, PyObject*)
GUARDED_OF_ONE(long, PyLong_AsLong, PyObject*)
GUARDED_OF_ONE(long long, PyLong_AsLongLong, PyObject*)
GUARDED_OF_TWO(long long, PyLong_AsLongLongAndOverflow, PyObject*, int*)
GUARDED_OF_ONE(PyObject*, PyNumber_Index, PyObject*)
GUARDED_OF_ONE(PyObject*, PyNumber_Long, PyObject*)
GUARDED_OF_TWO(PyObject*, PyNumber_Multiply, PyObject*, PyObject*)
GUARDED_OF_ONE(PyObject*, PyMapping_Values, PyObject*)
GUARDED_OF_TWO(PyObject*, PyObject_GetAttr, PyObject*, PyObject*)
GUARDED_OF_TWO(PyObject*, PyObject_GetAttrString, PyObject*, const char*)
GUARDED_OF_TWO(PyObject*, PyObject_GenericGetAttr, PyObject*, PyObject*)
GUARDED_OF_THREE(int, PyObject_GenericSetDict, PyObject*, PyObject*, void*)
GUARDED_OF_TWO(int, PyObject_HasAttr, PyObject*, PyObject*)
GUARDED_OF_THREE(int, PyObject_SetAttr, PyObject*, PyObject*, PyObject*)
GUARDED_OF_TWO(PyObject*, PyObject_GetItem, PyObject*, PyObject*)
GUARDED_OF_THREE(int, PyObject_SetItem, PyObject*, PyObject*, PyObject*)
GUARDED_OF_ONE(PyObject*, PyObject_GetIter, PyObject*)
GUARDED_OF_TWO(int, PyObject_IsSubclass, PyObject*, PyObject*)
GUARDED_OF_ONE(PyObject*, PyObject_Repr, PyObject*)
GUARDED_OF_ONE(PyObject*, PyObject_Str, PyObject*)
GUARDED_OF_ONE(Py_ssize_t, PyObject_Size, PyObject*)
GUARDED_OF_THREE(int, PyObject_RichCompareBool, PyObject*, PyObject*, int)
GUARDED_OF_THREE(int, PyObject_GetBuffer, PyObject*, Py_buffer*, int)
GUARDED_OF_ONE(void, PyBuffer_Release, Py_buffer*)
GUARDED_OF_ONE(PyObject*, PyMemoryView_FromObject, PyObject*)
GUARDED_OF_TWO(PyObject*, PySequence_GetItem, PyObject*, Py_ssize_t)
GUARDED_OF_TWO(PyObject*, PySequence_Fast, PyObject*, const char*)
GUARDED_OF_ONE(PyObject*, PySequence_List, PyObject*)
GUARDED_OF_ONE(PyObject*, PySequence_Tuple, PyObject*)
GUARDED_OF_ONE(Py_ssize_t, PySequence_Size, PyObject*)
GUARDED_OF_FOUR(int, PySlice_Unpack, PyObject*, Py_ssize_t*, Py_ssize_t*, Py_ssize_t*)

// Keys that are hashed and compared; what was there before is let go of.
GUARDED_OF_TWO(int, PyDict_DelItemString, PyObject*, const char*)
GUARDED_OF_TWO(PyObject*, PyDict_GetItemWithError, PyObject*, PyObject*)
GUARDED_OF_THREE(int, PyDict_SetItem, PyObject*, PyObject*, PyObject*)
GUARDED_OF_THREE(int, PyDict_SetItemString, PyObject*, const char*, PyObject*)
GUARDED_OF_TWO(int, PyDict_Update, PyObject*, PyObject*)

// Errors: the one before is let go of; signal handlers and the hook of unraisable ones are called.
GUARDED_OF_NONE(int, PyErr_CheckSignals)
GUARDED_OF_NONE(void, PyErr_Clear)
GUARDED_OF_NONE(PyObject*, PyErr_NoMemory)
GUARDED_OF_TWO(void, PyException_SetCause, PyObject*, PyObject*)
GUARDED_OF_TWO(void, PyException_SetContext, PyObject*, PyObject*)
GUARDED_OF_TWO(int, PyException_SetTraceback, PyObject*, PyObject*)
GUARDED_OF_THREE(PyObject*, PyUnicode_AsEncodedString, PyObject*, const char*, const char*)
GUARDED_OF_THREE(PyObject*, PyUnicode_DecodeUTF8, const char*, Py_ssize_t, const char*)
GUARDED_OF_THREE(void, PyErr_Restore, PyObject*, PyObject*, PyObject*)
GUARDED_OF_TWO(void, PyErr_SetObject, PyObject*, PyObject*)
GUARDED_OF_TWO(void, PyErr_SetString, PyObject*, const char*)
GUARDED_OF_ONE(void, PyErr_WriteUnraisable, PyObject*)
GUARDED_OF_THREE(void, PyErr_NormalizeException, PyObject**, PyObject**, PyObject**)
GUARDED_OF_THREE(int, PyErr_WarnEx, PyObject*, const char*, Py_ssize_t)
GUARDED_OF_THREE(PyObject*, PyErr_FormatV, PyObject*, const char*, va_list)

extern "C" PyObject* __wrap_PyErr_Format(PyObject* type, const char* format, ...) {
  va_list values;
  va_start(values, format);
  PyObject* const nothing = __wrap_PyErr_FormatV(type, format, values);
  va_end(values);
  return nothing;
}

// The end of an object, and of the references to it.
GUARDED_OF_ONE(void, _Py_Dealloc, PyObject*)
GUARDED_OF_ONE(void, PyObject_ClearWeakRefs, PyObject*)

// Objects that the collector knows: to make one may run it.
GUARDED_OF_NONE(PyObject*, PyDict_New)
GUARDED_OF_ONE(PyObject*, PyList_New, Py_ssize_t)
GUARDED_OF_ONE(PyObject*, PyList_AsTuple, PyObject*)
GUARDED_OF_ONE(PyObject*, PyTuple_New, Py_ssize_t)
GUARDED_OF_THREE(PyObject*, PySlice_New, PyObject*, PyObject*, PyObject*)
GUARDED_OF_FOUR(PyObject*, PyCMethod_New, PyMethodDef*, PyObject*, PyObject*, PyTypeObject*)
GUARDED_OF_THREE(PyObject*, PyCapsule_New, void*, const char*, PyCapsule_Destructor)
GUARDED_OF_TWO(PyObject*, PyWeakref_NewRef, PyObject*, PyObject*)
GUARDED_OF_ONE(PyObject*, PyType_FromSpec, PyType_Spec*)
GUARDED_OF_TWO(PyObject*, PyType_GenericAlloc, PyTypeObject*, Py_ssize_t)
GUARDED_OF_THREE(PyObject*, PyType_GenericNew, PyTypeObject*, PyObject*, PyObject*)
GUARDED_OF_ONE(int, PyType_Ready, PyTypeObject*)
GUARDED_OF_ONE(PyObject*, _PyObject_GC_New, PyTypeObject*)
GUARDED_OF_TWO(PyObject*, PyObject_GenericGetDict, PyObject*, void*)
GUARDED_OF_TWO(PyObject*, Py_GenericAlias, PyObject*, PyObject*)

extern "C" PyObject* __wrap_PyTuple_Pack(Py_ssize_t n, ...) {
  PyObject* const tuple = __wrap_PyTuple_New(n);
  if (tuple == nullptr) return nullptr;
  va_list items;
  va_start(items, n);
  for (Py_ssize_t i = 0; i < n; ++i)
    PyTuple_SET_ITEM(tuple, i, Py_NewRef(va_arg(items, PyObject*)));
  va_end(items);
  return tuple;
}

// What versions differ in.
#if PY_VERSION_HEX < 0x030d0000
GUARDED_OF_THREE(int, _PyObject_LookupAttr, PyObject*, PyObject*, PyObject**)
#else
GUARDED_OF_THREE(int, PyObject_GetOptionalAttr, PyObject*, PyObject*, PyObject**)
GUARDED_OF_THREE(int, PyDict_GetItemRef, PyObject*, PyObject*, PyObject**)
GUARDED_OF_FOUR(int, PyDict_SetDefaultRef, PyObject*, PyObject*, PyObject*, PyObject**)
GUARDED_OF_TWO(PyObject*, PyUnicode_FromFormatV, const char*, va_list)

extern "C" void __real_PyErr_FormatUnraisable(const char* format, ...);
extern "C" void __wrap_PyErr_FormatUnraisable(const char* format, ...) {
  va_list values;
  va_start(values, format);
  // What is written is the error that is raised, which stands in the way of a call.
  never_unwound([&] {
    PyObject* const error = PyErr_GetRaisedException();
    PyObject* const text = PyUnicode_FromFormatV(format, values);
    PyErr_SetRaisedException(error);
    __real_PyErr_FormatUnraisable(text ? "%U" : nullptr, text);
    Py_XDECREF(text);
  });
  va_end(values);
}
#endif
#if PY_VERSION_HEX >= 0x030c0000
GUARDED_OF_NONE(PyObject*, PyErr_GetRaisedException)
GUARDED_OF_ONE(void, PyErr_SetRaisedException, PyObject*)
GUARDED_OF_FOUR(PyObject*, PyType_FromMetaclass, PyTypeObject*, PyObject*, PyType_Spec*, PyObject*)
#endif
// NOLINTEND(bugprone-reserved-identifier)
