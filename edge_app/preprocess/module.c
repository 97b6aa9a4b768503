/* The binding: checks buffers, gives up the GIL, calls the kernels. It owns nothing but the plan it built. */
#include "../native.h"

#include <stdlib.h>
#include <string.h>

#include "difference.h"
#include "dispatch.h"
#include "measure.h"

static const char PLAN[] = "edge_app.preprocess.plan";

typedef struct {
    void *block; /* as malloc gave it */
    ea_plan *plan;
    void *scratch; /* of the last run, for the next; NULL while a run has it */
} held_plan;

static void free_plan(PyObject *capsule) {
    held_plan *held = PyCapsule_GetPointer(capsule, PLAN);
    free(held->block);
    free(held->scratch);
    free(held);
}

/* Reads the spec's integers and floats, in the order of ea_spec, from two sequences. */
static int read_ints(PyObject *sequence, int64_t *values, Py_ssize_t count) {
    if (PySequence_Size(sequence) != count) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "plan wants %zd integers", count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        if (item == NULL) return -1;
        values[i] = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (values[i] == -1 && PyErr_Occurred()) return -1;
        if (values[i] > INT32_MAX || values[i] < INT32_MIN) {
            PyErr_SetString(PyExc_OverflowError, "a length of the plan does not fit 32 bits");
            return -1;
        }
    }
    return 0;
}

static int read_floats(PyObject *sequence, float *values, Py_ssize_t count) {
    if (PySequence_Size(sequence) != count) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "plan wants %zd floats", count);
        return -1;
    }
    return ea_read_floats(sequence, values, count);
}

enum { INTS = 28, FLOATS = 9 };

static int read_spec(PyObject *ints, PyObject *floats, ea_spec *s) {
    int64_t v[INTS];
    float f[FLOATS];
    if (read_ints(ints, v, INTS) < 0 || read_floats(floats, f, FLOATS) < 0) return -1;
    *s = (ea_spec){
        .format = (int32_t)v[0], .width = (int32_t)v[1], .height = (int32_t)v[2], .bt709 = (int32_t)v[3],
        .full_range = (int32_t)v[4], .stride = v[5], .uv_offset = v[6], .uv_stride = v[7],
        .region_x = (int32_t)v[8], .region_y = (int32_t)v[9], .region_w = (int32_t)v[10], .region_h = (int32_t)v[11],
        .resized_w = (int32_t)v[12], .resized_h = (int32_t)v[13], .crop_x = (int32_t)v[14], .crop_y = (int32_t)v[15],
        .tensor_w = (int32_t)v[16], .tensor_h = (int32_t)v[17], .pad_x = (int32_t)v[18], .pad_y = (int32_t)v[19],
        .inner_w = (int32_t)v[20], .inner_h = (int32_t)v[21], .color = (int32_t)v[22], .layout = (int32_t)v[23],
        .dtype = (int32_t)v[24], .method = (int32_t)v[25], .pad_value = (int32_t)v[26], .raw = (int32_t)v[27],
        .a_hi = {f[0], f[1], f[2]}, .a_lo = {f[3], f[4], f[5]}, .b = {f[6], f[7], f[8]},
    };
    return 0;
}

static PyObject *py_build(PyObject *self, PyObject *args) {
    PyObject *ints, *floats;
    ea_spec spec;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &ints, &floats) || read_spec(ints, floats, &spec) < 0) return NULL;
    const char *error = ea_spec_error(&spec);
    if (error != NULL) {
        PyErr_SetString(PyExc_ValueError, error);
        return NULL;
    }
    held_plan *held = calloc(1, sizeof *held);
    if (held != NULL) held->block = calloc(1, ea_plan_bytes(&spec) + 63);
    if (held == NULL || held->block == NULL) {
        free(held);
        return PyErr_NoMemory();
    }
    held->plan = ea_aligned64(held->block);
    ea_plan_build(held->plan, &spec);
    PyObject *capsule = PyCapsule_New(held, PLAN, free_plan);
    if (capsule == NULL) {
        free(held->block);
        free(held);
    }
    return capsule;
}

static const char *element_format(int dtype) { return dtype == EA_FLOAT32 ? "f" : dtype == EA_UINT16 ? "H" : "B"; }

/* A frame may have padded rows, which the plan's stride describes: all of its memory must lie in one piece. */
static int check_frame(const Py_buffer *view, const ea_spec *s) {
    if (strcmp(ea_element_type(view), "B") != 0) {
        PyErr_Format(PyExc_TypeError, "frame: wanted bytes (uint8), got elements of type '%s'", view->format);
        return -1;
    }
    if ((size_t)view->len < ea_frame_bytes(s)) {
        PyErr_Format(PyExc_ValueError, "frame: wanted at least %zu bytes for %dx%d px, got %zd", ea_frame_bytes(s),
                     s->width, s->height, view->len);
        return -1;
    }
    return 0;
}

static int check_tensor(const Py_buffer *view, const ea_spec *s) {
    const char *wanted = element_format(s->dtype);
    if (strcmp(ea_element_type(view), wanted) != 0) {
        PyErr_Format(PyExc_TypeError, "tensor: wanted elements of type '%s', got '%s'", wanted, ea_element_type(view));
        return -1;
    }
    if ((uintptr_t)view->buf % ea_dtype_bytes(s->dtype) != 0) {
        PyErr_SetString(PyExc_ValueError, "tensor: its elements are not aligned in memory");
        return -1;
    }
    if ((size_t)view->len != ea_tensor_bytes(s)) {
        PyErr_Format(PyExc_ValueError, "tensor: wanted %zu bytes, got %zd", ea_tensor_bytes(s), view->len);
        return -1;
    }
    return 0;
}

static int check_apart(const Py_buffer *a, const Py_buffer *b) {
    const char *p = a->buf, *q = b->buf;
    if (p < q + b->len && q < p + a->len) {
        PyErr_SetString(PyExc_ValueError, "frame and tensor overlap in memory");
        return -1;
    }
    return 0;
}

static int open_buffer(PyObject *object, Py_buffer *view, int flags, const char *name) {
    if (PyObject_GetBuffer(object, view, flags) == 0) return 0;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_Format(PyExc_ValueError, "%s: wanted a C-contiguous%s buffer (%S)", name,
                 flags & PyBUF_WRITABLE ? ", writable" : "", value ? value : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return -1;
}

/* Runs without the GIL: into a tensor, or for a plan of samples into ea_measures. Two threads may be here with one plan: the
 * second makes scratch room of its own. */
static int run_unlocked(held_plan *held, const void *frame, void *out, int path) {
    void *scratch = held->scratch;
    held->scratch = NULL;
    if (scratch == NULL) scratch = malloc(ea_scratch_bytes(held->plan) + 63);
    if (scratch == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    ea_run(held->plan, frame, out, ea_aligned64(scratch), path);
    Py_END_ALLOW_THREADS
    if (held->scratch == NULL) held->scratch = scratch;
    else free(scratch);
    return 0;
}

static PyObject *py_run(PyObject *self, PyObject *args) {
    PyObject *capsule, *frame_object, *out_object;
    int path = EA_PATH_SIMD;
    Py_buffer frame, out;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO|i", &capsule, &frame_object, &out_object, &path)) return NULL;
    held_plan *held = PyCapsule_GetPointer(capsule, PLAN);
    if (held == NULL) return NULL;
    if (open_buffer(frame_object, &frame, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT, "frame") < 0) return NULL;
    if (open_buffer(out_object, &out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT, "tensor") < 0) {
        PyBuffer_Release(&frame);
        return NULL;
    }
    const ea_spec *s = &held->plan->spec;
    int good = check_frame(&frame, s) == 0 && check_tensor(&out, s) == 0 && check_apart(&frame, &out) == 0;
    if (good && s->method == EA_SAMPLE) {
        PyErr_SetString(PyExc_ValueError, "this plan is for samples");
        good = 0;
    }
    good = good && run_unlocked(held, frame.buf, out.buf, path) == 0;
    PyBuffer_Release(&frame);
    PyBuffer_Release(&out);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_prepare(PyObject *self, PyObject *args) {
    PyObject *capsule, *out_object;
    Py_buffer out;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &out_object)) return NULL;
    held_plan *held = PyCapsule_GetPointer(capsule, PLAN);
    if (held == NULL) return NULL;
    if (open_buffer(out_object, &out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT, "tensor") < 0) return NULL;
    int good = check_tensor(&out, &held->plan->spec) == 0;
    if (good) ea_fill_padding(held->plan, out.buf);
    PyBuffer_Release(&out);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_measure(PyObject *self, PyObject *args) {
    PyObject *capsule, *frame_object;
    int path = EA_PATH_SIMD;
    Py_buffer frame;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO|i", &capsule, &frame_object, &path)) return NULL;
    held_plan *held = PyCapsule_GetPointer(capsule, PLAN);
    if (held == NULL) return NULL;
    if (held->plan->spec.method != EA_SAMPLE) {
        PyErr_SetString(PyExc_ValueError, "this plan is none for samples");
        return NULL;
    }
    PyObject *result = PyByteArray_FromStringAndSize(NULL, sizeof(ea_measures));
    if (result == NULL) return NULL;
    int good = open_buffer(frame_object, &frame, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT, "frame") == 0;
    if (good) {
        good = check_frame(&frame, &held->plan->spec) == 0;
        good = good && run_unlocked(held, frame.buf, PyByteArray_AsString(result), path) == 0;
        PyBuffer_Release(&frame);
    }
    if (good) return result;
    Py_DECREF(result);
    return NULL;
}

static int check_pair(const Py_buffer *a, const Py_buffer *b) {
    if (strcmp(ea_element_type(a), "B") != 0 || strcmp(ea_element_type(b), "B") != 0) {
        PyErr_SetString(PyExc_TypeError, "difference: wanted two pictures of bytes (uint8)");
        return -1;
    }
    if (a->len != b->len || a->len < 1 || a->len > EA_DIFFERENCE_MOST) {
        PyErr_Format(PyExc_ValueError, "difference: wanted two pictures of one size, 1 to %d px, got %zd and %zd",
                     (int)EA_DIFFERENCE_MOST, a->len, b->len);
        return -1;
    }
    return 0;
}

static PyObject *py_difference(PyObject *self, PyObject *args) {
    PyObject *first, *second;
    int threshold;
    Py_buffer a, b;
    ea_difference found = {0, 0, 0};
    (void)self;
    if (!PyArg_ParseTuple(args, "OOi", &first, &second, &threshold)) return NULL;
    if (open_buffer(first, &a, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT, "first") < 0) return NULL;
    if (open_buffer(second, &b, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT, "second") < 0) {
        PyBuffer_Release(&a);
        return NULL;
    }
    const int good = check_pair(&a, &b) == 0;
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        found = ea_compare(a.buf, b.buf, (int32_t)a.len, threshold);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return good ? Py_BuildValue("(iII)", found.shift, found.sum, found.changed) : NULL;
}

static PyObject *py_frame_bytes(PyObject *self, PyObject *capsule) {
    (void)self;
    held_plan *held = PyCapsule_GetPointer(capsule, PLAN);
    return held == NULL ? NULL : PyLong_FromSize_t(ea_frame_bytes(&held->plan->spec));
}

static PyObject *py_simd(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    return PyUnicode_FromString(ea_simd_name());
}

static PyMethodDef methods[] = {
    {"build", py_build, METH_VARARGS, "build(ints, floats) -> plan"},
    {"run", py_run, METH_VARARGS, "run(plan, frame, out, path=1): path 0 is the scalar one"},
    {"prepare", py_prepare, METH_VARARGS, "prepare(plan, out): writes the padding"},
    {"measure", py_measure, METH_VARARGS, "measure(plan, frame, path=1) -> ea_measures as a bytearray"},
    {"difference", py_difference, METH_VARARGS, "difference(a, b, threshold) -> (shift, sum, changed)"},
    {"frame_bytes", py_frame_bytes, METH_O, "frame_bytes(plan) -> bytes that a frame must have"},
    {"simd", py_simd, METH_NOARGS, "simd() -> 'avx2', 'neon' or 'none'"},
    {NULL, NULL, 0, NULL},
};

EA_MODULE("edge_app.preprocess._native", methods)
