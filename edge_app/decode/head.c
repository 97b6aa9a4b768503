#include "head.h"

#include <math.h>

static int encoding_is_good(const ea_encoding *e) {
    if (e->type == EA_F32) return 1;
    int32_t top = e->type == EA_U8 ? 255 : 65535;
    return e->type > EA_F32 && e->type < EA_TYPES && e->zero >= 0 && e->zero <= top && isfinite(e->scale) && e->scale > 0.0f;
}

static const char *levels_error(const ea_head *h) {
    int64_t cells = 0;
    if (h->levels < 1 || h->levels > EA_MAX_LEVELS) return "wanted 1..8 levels";
    for (int32_t l = 0; l < h->levels; l++) {
        const ea_level *v = &h->level[l];
        if (v->columns < 1 || v->rows < 1 || v->stride < 1 || v->columns > 32767 || v->rows > 32767)
            return "a level needs columns, rows and a stride of at least 1";
        if (!encoding_is_good(&v->box) || !encoding_is_good(&v->scores)) return "an encoding is wrong";
        cells += (int64_t)v->columns * v->rows;
    }
    return cells == h->anchors ? NULL : "the levels' cells are not as many as the head's anchors";
}

const char *ea_head_error(const ea_head *h) {
    if (h->kind < 0 || h->kind >= EA_KINDS) return "unknown kind of head";
    if (h->classes < 1 || h->classes > EA_MAX_CLASSES) return "wanted 1..65536 classes";
    if (h->anchors < 1 || h->anchors > EA_MAX_ANCHORS) return "wanted 1..4194304 anchors";
    if (h->max_detections < 1) return "wanted max_detections of at least 1";
    if (!(h->iou >= 0.0f && h->iou <= 1.0f)) return "wanted an IoU threshold of 0..1";
    for (int32_t c = 0; c < h->classes; c++)
        if (!(h->thresholds[c] >= h->lowest && h->thresholds[c] >= 0.0f && h->thresholds[c] <= 1.0f))
            return "wanted score thresholds of 0..1";
    return h->kind == EA_YOLOX || h->kind == EA_YOLOV8_CUT ? levels_error(h) : NULL;
}

/* Hands out 64-byte aligned pieces of a block; with a NULL block it only counts. */
typedef struct {
    char *block;
    size_t used;
} shelf;

static void *take(shelf *s, size_t bytes) {
    size_t at = s->used;
    s->used += (bytes + 63) / 64 * 64;
    return s->block == NULL ? NULL : s->block + at;
}

static void lay_out(ea_work *w, shelf *s, const ea_head *head) {
    const size_t n = (size_t)head->anchors * 4;
    ea_boxes *both[2] = {&w->found, &w->kept};
    for (int i = 0; i < 2; i++) {
        both[i]->x0 = take(s, n);
        both[i]->y0 = take(s, n);
        both[i]->x1 = take(s, n);
        both[i]->y1 = take(s, n);
        both[i]->score = take(s, n);
        both[i]->label = take(s, n);
        both[i]->count = 0;
    }
    w->area = take(s, n);
    w->entry = take(s, 2 * n);
    w->entry_swap = take(s, 2 * n);
    w->passing = take(s, n);
    w->by_class = take(s, n);
    w->class_start = take(s, ((size_t)head->classes + 1) * 4);
    w->keep = take(s, (size_t)head->anchors);
}

size_t ea_work_bytes(const ea_head *head) {
    ea_work w;
    shelf s = {NULL, 0};
    lay_out(&w, &s, head);
    return s.used;
}

void ea_work_init(ea_work *work, void *block, const ea_head *head) {
    shelf s = {block, 0};
    lay_out(work, &s, head);
}

int ea_decode(const ea_head *head, const void *const *tensors, ea_work *work, ea_boxes *out, int32_t *total) {
    int status = ea_find(head, tensors, work);
    if (status == EA_OK) ea_suppress(head, work, out, total);
    return status;
}
