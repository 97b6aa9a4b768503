/* The binding: checks buffers, gives up the GIL, calls the decode. It owns the head's room to work in. */
#include "../native.h"

#include <stdlib.h>
#include <string.h>

#include "head.h"

static const char HEAD[] = "edge_app.decode.head";

typedef struct {
    ea_head head;
    ea_work work;
    ea_boxes out;
    void *block, *thresholds, *out_block;
    int busy;
} held_head;

static void release(held_head *held) {
    free(held->block);
    free(held->thresholds);
    free(held->out_block);
    free(held);
}

static void free_head(PyObject *capsule) { release(PyCapsule_GetPointer(capsule, HEAD)); }

static int read_level(PyObject *item, ea_level *v) {
    PyObject *tuple = PySequence_Tuple(item);
    if (tuple == NULL) return -1;
    int good = PyArg_ParseTuple(tuple, "iiiiifiif", &v->columns, &v->rows, &v->stride, &v->box.type, &v->box.zero,
                                &v->box.scale, &v->scores.type, &v->scores.zero, &v->scores.scale);
    Py_DECREF(tuple);
    return good ? 0 : -1;
}

static int read_levels(PyObject *levels, ea_head *head) {
    Py_ssize_t count = PySequence_Size(levels);
    if (count < 0) return -1;
    if (count > EA_MAX_LEVELS) {
        PyErr_Format(PyExc_ValueError, "wanted at most %d levels, got %zd", EA_MAX_LEVELS, count);
        return -1;
    }
    head->levels = (int32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(levels, i);
        int failed = item == NULL || read_level(item, &head->level[i]) < 0;
        Py_XDECREF(item);
        if (failed) return -1;
    }
    return 0;
}

static int read_thresholds(PyObject *sequence, held_head *held) {
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0) return -1;
    if (count != held->head.classes || count < 1 || count > EA_MAX_CLASSES) {
        PyErr_Format(PyExc_ValueError, "wanted one threshold for each of %d classes, got %zd", held->head.classes, count);
        return -1;
    }
    float *values = held->thresholds = malloc((size_t)count * sizeof(float));
    if (values == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (ea_read_floats(sequence, values, count) < 0) return -1;
    held->head.thresholds = values;
    held->head.lowest = values[0];
    for (Py_ssize_t i = 1; i < count; i++)
        if (values[i] < held->head.lowest) held->head.lowest = values[i];
    return 0;
}

static int reserve(held_head *held) {
    size_t room = (size_t)held->head.max_detections * 4, work = ea_work_bytes(&held->head);
    held->block = malloc(work + 63);
    held->out_block = malloc(6 * room);
    if (held->block == NULL || held->out_block == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    ea_work_init(&held->work, ea_aligned64(held->block), &held->head);
    float *f = held->out_block;
    size_t n = (size_t)held->head.max_detections;
    held->out = (ea_boxes){f, f + n, f + 2 * n, f + 3 * n, f + 4 * n, (int32_t *)(f + 5 * n), 0};
    return 0;
}

static PyObject *py_head(PyObject *self, PyObject *args) {
    PyObject *thresholds, *levels;
    (void)self;
    held_head *held = calloc(1, sizeof *held);
    if (held == NULL) return PyErr_NoMemory();
    ea_head *h = &held->head;
    int good = PyArg_ParseTuple(args, "iiipifOO", &h->kind, &h->classes, &h->anchors, &h->agnostic, &h->max_detections,
                                &h->iou, &thresholds, &levels) &&
               read_thresholds(thresholds, held) == 0 && read_levels(levels, h) == 0;
    if (good) {
        const char *error = ea_head_error(h);
        if (error != NULL) PyErr_SetString(PyExc_ValueError, error);
        good = error == NULL && reserve(held) == 0;
    }
    PyObject *capsule = good ? PyCapsule_New(held, HEAD, free_head) : NULL;
    if (capsule == NULL) release(held);
    return capsule;
}

typedef struct {
    Py_buffer view[2 * EA_MAX_LEVELS];
    const void *data[2 * EA_MAX_LEVELS];
    int count;
} open_tensors;

static void close_tensors(open_tensors *t) {
    while (t->count > 0) PyBuffer_Release(&t->view[--t->count]);
}

static int check_tensor(const Py_buffer *view, int index, int type, size_t elements) {
    static const char *const names[] = {"f", "B", "H"};
    const char *got = ea_element_type(view);
    if (strcmp(got, names[type]) != 0) {
        PyErr_Format(PyExc_TypeError, "output %d: wanted elements of type '%s', got '%s'", index, names[type], got);
        return -1;
    }
    if ((uintptr_t)view->buf % (uintptr_t)view->itemsize != 0) {
        PyErr_Format(PyExc_ValueError, "output %d: its elements are not aligned in memory", index);
        return -1;
    }
    if ((size_t)view->len != elements * (size_t)view->itemsize) {
        PyErr_Format(PyExc_ValueError, "output %d: wanted %zu elements, got %zd", index, elements, view->len / view->itemsize);
        return -1;
    }
    return 0;
}

static size_t elements_of(const ea_head *h, int index, int *type) {
    size_t n = (size_t)h->anchors, c = (size_t)h->classes;
    *type = EA_F32;
    if (h->kind == EA_YOLOV8) return (4 + c) * n;
    if (h->kind == EA_YOLOV5 || h->kind == EA_YOLOX) return (5 + c) * n;
    if (h->kind == EA_END2END) return 6 * n;
    const ea_level *level = &h->level[index / 2];
    *type = index % 2 ? level->scores.type : level->box.type;
    return (size_t)level->columns * (size_t)level->rows * (index % 2 ? c : 4 * EA_BINS);
}

static int open_all(PyObject *tensors, const ea_head *h, open_tensors *t) {
    const int wanted = h->kind == EA_YOLOV8_CUT ? 2 * h->levels : 1;
    Py_ssize_t got = PySequence_Size(tensors);
    t->count = 0;
    if (got != wanted) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "wanted %d outputs, got %zd", wanted, got);
        return -1;
    }
    for (int i = 0; i < wanted; i++) {
        PyObject *item = PySequence_GetItem(tensors, i);
        int type, failed = item == NULL || PyObject_GetBuffer(item, &t->view[i], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0;
        Py_XDECREF(item);
        if (failed) return -1;
        t->count++;
        t->data[i] = t->view[i].buf;
        size_t elements = elements_of(h, i, &type);
        if (check_tensor(&t->view[i], i, type, elements) < 0) return -1;
    }
    return 0;
}

static PyObject *result(const ea_boxes *out, int32_t total) {
    const Py_ssize_t n = out->count;
    PyObject *boxes = PyByteArray_FromStringAndSize(NULL, 16 * n);
    PyObject *scores = PyByteArray_FromStringAndSize((const char *)out->score, 4 * n);
    PyObject *labels = PyByteArray_FromStringAndSize((const char *)out->label, 4 * n);
    if (boxes != NULL && scores != NULL && labels != NULL) {
        float *b = (float *)PyByteArray_AsString(boxes);
        for (Py_ssize_t i = 0; i < n; i++) {
            b[4 * i] = out->x0[i];
            b[4 * i + 1] = out->y0[i];
            b[4 * i + 2] = out->x1[i];
            b[4 * i + 3] = out->y1[i];
        }
        return Py_BuildValue("(NNNi)", boxes, scores, labels, (int)total);
    }
    Py_XDECREF(boxes);
    Py_XDECREF(scores);
    Py_XDECREF(labels);
    return NULL;
}

static PyObject *finish(held_head *held, int status, int32_t total) {
    if (status == EA_NOT_FINITE) PyErr_SetString(PyExc_ArithmeticError, "a value is NaN or infinite");
    else if (status == EA_BAD_CLASS) PyErr_SetString(PyExc_ArithmeticError, "a class number is none of the model's");
    else return result(&held->out, total);
    return NULL;
}

static PyObject *py_decode(PyObject *self, PyObject *args) {
    PyObject *capsule, *tensors;
    open_tensors open;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &tensors)) return NULL;
    held_head *held = PyCapsule_GetPointer(capsule, HEAD);
    if (held == NULL) return NULL;
    if (held->busy) {
        PyErr_SetString(PyExc_RuntimeError, "this decoder is at work in another thread; make one per thread");
        return NULL;
    }
    if (open_all(tensors, &held->head, &open) < 0) {
        close_tensors(&open);
        return NULL;
    }
    int status;
    int32_t total = 0;
    held->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    status = ea_decode(&held->head, open.data, &held->work, &held->out, &total);
    Py_END_ALLOW_THREADS
    PyObject *found = finish(held, status, total);
    held->busy = 0;
    close_tensors(&open);
    return found;
}

static PyMethodDef methods[] = {
    {"head", py_head, METH_VARARGS, "head(kind, classes, anchors, agnostic, max_detections, iou, thresholds, levels)"},
    {"decode", py_decode, METH_VARARGS, "decode(head, tensors) -> (boxes, scores, labels, total)"},
    {NULL, NULL, 0, NULL},
};

EA_MODULE("edge_app.decode._native", methods)
