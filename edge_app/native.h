/* What both bindings need: Python's stable API, the types of buffers, numbers out of sequences, a module of functions. */
#ifndef EA_NATIVE_H
#define EA_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

static inline void *ea_aligned64(void *block) { return (void *)(((uintptr_t)block + 63) / 64 * 64); }

/* A buffer's element type without its byte order: native ones and little-endian ones are the same on our CPUs. */
static inline const char *ea_element_type(const Py_buffer *view) {
    const char *f = view->format == NULL ? "B" : view->format;
    return f + (*f == '<' || *f == '=' || *f == '@');
}

/* The first `count` items; -1 with a Python error set if one is no number. */
static inline int ea_read_floats(PyObject *sequence, float *values, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        if (item == NULL) return -1;
        values[i] = (float)PyFloat_AsDouble(item);
        Py_DECREF(item);
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* PyInit__native of the module `name`, with the functions of the table `methods`. */
#define EA_MODULE(name, methods)                                                                              \
    static PyModuleDef_Slot slots[] = {{0, NULL}};                                                            \
    static struct PyModuleDef definition = {                                                                  \
        PyModuleDef_HEAD_INIT, .m_name = name, .m_size = 0, .m_methods = methods, .m_slots = slots,           \
    };                                                                                                        \
    PyMODINIT_FUNC PyInit__native(void);                                                                      \
    PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }

#endif
