/* From a head's tensors to candidates: threshold scan, argmax, box of each survivor. */
#include <math.h>
#include <string.h>

#include "exp.h"
#include "head.h"
#include "scan.h"

static void add(ea_boxes *found, float x0, float y0, float x1, float y1, float score, int32_t label) {
    int32_t i = found->count++;
    found->x0[i] = x0;
    found->y0[i] = y0;
    found->x1[i] = x1;
    found->y1[i] = y1;
    found->score[i] = score;
    found->label[i] = label;
}

static void add_centred(ea_boxes *found, float x, float y, float w, float h, float score, int32_t label) {
    w *= 0.5f;
    h *= 0.5f;
    add(found, x - w, y - h, x + w, y + h, score, label);
}

static int finite_boxes(const ea_boxes *b) {
    return ea_all_finite(b->x0, (size_t)b->count) && ea_all_finite(b->y0, (size_t)b->count) &&
           ea_all_finite(b->x1, (size_t)b->count) && ea_all_finite(b->y1, (size_t)b->count);
}

/* Best class of one anchor, where the best of all is not above its own threshold. */
static int32_t best_above_own(const ea_head *head, const float *scores, size_t n, float *score) {
    int32_t label = -1;
    for (int32_t c = 0; c < head->classes; c++) {
        const float s = scores[(size_t)c * n];
        if (s > head->thresholds[c] && (label < 0 || s > *score)) { *score = s; label = c; }
    }
    return label;
}

/* Numbers of the scores above the floor. Without a branch: the CPU could not foresee it. */
static int32_t numbers_above(const float *score, size_t count, float floor, int32_t *numbers) {
    int32_t above = 0;
    for (size_t i = 0; i < count; i++) {
        numbers[above] = (int32_t)i;
        above += score[i] > floor;
    }
    return above;
}

/* [4+C, N]: x, y, w, h in px, then scores. Best scores and their classes of all anchors are put where those of the found
 * ones will be: of these there are never more. */
static int find_yolov8(const ea_head *head, const float *t, ea_work *work) {
    ea_boxes *found = &work->found;
    const size_t n = (size_t)head->anchors;
    const float *scores = t + 4 * n;
    if (!ea_all_finite(t, 4 * n) || !ea_best_rows(scores, n, (size_t)head->classes, n, found->score, found->label))
        return EA_NOT_FINITE;
    const int32_t passing = numbers_above(found->score, n, head->lowest, work->passing);
    for (int32_t k = 0; k < passing; k++) {
        const size_t i = (size_t)work->passing[k];
        float score = found->score[i];
        int32_t label = found->label[i];
        if (!(score > head->thresholds[label])) label = best_above_own(head, scores + i, n, &score);
        if (label >= 0) add_centred(found, t[i], t[i + n], t[i + 2 * n], t[i + 3 * n], score, label);
    }
    return EA_OK;
}

/* One row of [N, 5+C]: best of objectness * class score above the class' threshold. */
static int32_t best_of_row(const ea_head *head, const float *row, float *score) {
    int32_t label = -1;
    for (int32_t c = 0; c < head->classes; c++) {
        float s = row[4] * row[5 + c];
        if (s > head->thresholds[c] && (label < 0 || s > *score)) { *score = s; label = c; }
    }
    return label;
}

/* [N, 5+C]: x, y, w, h in px, objectness, class scores. */
static int find_yolov5(const ea_head *head, const float *t, ea_boxes *found) {
    const size_t length = 5 + (size_t)head->classes;
    if (!ea_all_finite(t, length * (size_t)head->anchors)) return EA_NOT_FINITE;
    for (int32_t a = 0; a < head->anchors; a++) {
        const float *row = t + (size_t)a * length;
        float score = 0.0f;
        int32_t label = best_of_row(head, row, &score);
        if (label >= 0) add_centred(found, row[0], row[1], row[2], row[3], score, label);
    }
    return EA_OK;
}

/* [N, 5+C]: x, y relative to their grid cell, w, h as logarithms, both in strides; objectness, class scores. */
static int find_yolox(const ea_head *head, const float *t, ea_boxes *found) {
    const size_t length = 5 + (size_t)head->classes;
    if (!ea_all_finite(t, length * (size_t)head->anchors)) return EA_NOT_FINITE;
    const float *row = t;
    for (int32_t l = 0; l < head->levels; l++) {
        const ea_level *level = &head->level[l];
        const float stride = (float)level->stride;
        for (int32_t y = 0; y < level->rows; y++)
            for (int32_t x = 0; x < level->columns; x++, row += length) {
                float score = 0.0f;
                int32_t label = best_of_row(head, row, &score);
                if (label < 0) continue;
                add_centred(found, (row[0] + (float)x) * stride, (row[1] + (float)y) * stride, ea_exp(row[2]) * stride,
                            ea_exp(row[3]) * stride, score, label);
            }
    }
    return EA_OK;
}

/* [N, 6]: x0, y0, x1, y1 in px, score, class; already suppressed. */
static int find_end2end(const ea_head *head, const float *t, ea_boxes *found) {
    if (!ea_all_finite(t, 6 * (size_t)head->anchors)) return EA_NOT_FINITE;
    for (int32_t a = 0; a < head->anchors; a++) {
        const float *row = t + 6 * (size_t)a;
        if (!(row[4] > head->lowest)) continue;
        if (!(row[5] >= 0.0f && row[5] < (float)head->classes) || row[5] != floorf(row[5])) return EA_BAD_CLASS;
        int32_t label = (int32_t)row[5];
        if (row[4] > head->thresholds[label]) add(found, row[0], row[1], row[2], row[3], row[4], label);
    }
    return EA_OK;
}

static float real(const void *t, const ea_encoding *e, size_t i) {
    if (e->type == EA_F32) return ((const float *)t)[i];
    int32_t q = e->type == EA_U8 ? ((const uint8_t *)t)[i] : ((const uint16_t *)t)[i];
    return (float)(q - e->zero) * e->scale;
}

/* Distance in cells from the anchor to one side: the mean of the 16 bins under softmax. */
static float distance(const void *box, const ea_encoding *e, size_t first, size_t cells) {
    float v[EA_BINS], top, sum = 0.0f, weighted = 0.0f;
    for (size_t i = 0; i < EA_BINS; i++) v[i] = real(box, e, first + i * cells);
    top = v[0];
    for (size_t i = 1; i < EA_BINS; i++) top = v[i] > top ? v[i] : top;
    for (size_t i = 0; i < EA_BINS; i++) {
        float w = ea_exp(v[i] - top);
        sum += w;
        weighted += w * (float)i;
    }
    return weighted / sum;
}

/* Logit that any score above the threshold surely exceeds. The exact comparison follows, on the score itself. */
static float logit_below(float threshold) {
    if (threshold <= 0.0f) return -INFINITY;
    if (threshold >= 1.0f) return INFINITY;
    return logf(threshold / (1.0f - threshold)) - 0.01f;
}

/* Best class of one cell by logit, among those whose score is above the class' threshold. */
static int32_t best_of_cell(const ea_head *head, const ea_level *level, const void *t, size_t cell, float *score) {
    const size_t cells = (size_t)level->columns * (size_t)level->rows;
    const float floor = logit_below(head->lowest);
    int32_t label = -1;
    float best = 0.0f;
    for (int32_t c = 0; c < head->classes; c++) {
        float logit = real(t, &level->scores, cell + (size_t)c * cells);
        if (!(logit > floor) || (label >= 0 && !(logit > best))) continue;
        float s = ea_sigmoid(logit);
        if (s > head->thresholds[c]) { best = logit; *score = s; label = c; }
    }
    return label;
}

static void add_cell(const ea_head *head, const ea_level *level, const void *box, const void *t, size_t cell, ea_boxes *found) {
    const size_t cells = (size_t)level->columns * (size_t)level->rows;
    float score = 0.0f, side[4];
    int32_t label = best_of_cell(head, level, t, cell, &score);
    if (label < 0) return;
    for (size_t i = 0; i < 4; i++) side[i] = distance(box, &level->box, cell + i * EA_BINS * cells, cells);
    float x = (float)(cell % (size_t)level->columns) + 0.5f, y = (float)(cell / (size_t)level->columns) + 0.5f;
    const float stride = (float)level->stride;
    add(found, (x - side[0]) * stride, (y - side[1]) * stride, (x + side[2]) * stride, (y + side[3]) * stride, score, label);
}

/* Adds the cells of integer scores: only those of which the best may be above the lowest threshold are looked at closely. */
static void find_cells_of_integers(const ea_head *head, const ea_level *level, const void *box, const void *t, ea_boxes *found) {
    const size_t cells = (size_t)level->columns * (size_t)level->rows, classes = (size_t)head->classes;
    const float floor = logit_below(head->lowest);
    const ea_encoding *e = &level->scores;
    for (size_t first = 0; first < cells; first += EA_BLOCK) {
        const size_t count = cells - first < EA_BLOCK ? cells - first : EA_BLOCK;
        uint16_t best[EA_BLOCK];
        if (e->type == EA_U8) ea_block_max_u8((const uint8_t *)t + first, cells, classes, count, best);
        else ea_block_max_u16((const uint16_t *)t + first, cells, classes, count, best);
        for (size_t i = 0; i < count; i++)
            if ((float)(best[i] - e->zero) * e->scale > floor) add_cell(head, level, box, t, first + i, found);
    }
}

/* The same of float scores. Their best are put behind the found ones, as find_yolov8 does. */
static int find_cells_of_floats(const ea_head *head, const ea_level *level, const void *box, const float *t, ea_work *work) {
    ea_boxes *found = &work->found;
    const size_t cells = (size_t)level->columns * (size_t)level->rows;
    float *best = found->score + found->count;
    if (!ea_best_rows(t, cells, (size_t)head->classes, cells, best, found->label + found->count)) return EA_NOT_FINITE;
    const int32_t passing = numbers_above(best, cells, logit_below(head->lowest), work->passing);
    for (int32_t k = 0; k < passing; k++) add_cell(head, level, box, t, (size_t)work->passing[k], found);
    return EA_OK;
}

/* The last convolutions of a v8 head: [64, rows, columns] box logits and [C, rows, columns] class logits a level. */
static int find_cut(const ea_head *head, const void *const *tensors, ea_work *work) {
    for (int32_t l = 0; l < head->levels; l++) {
        const ea_level *level = &head->level[l];
        const size_t cells = (size_t)level->columns * (size_t)level->rows;
        const void *box = tensors[2 * l], *scores = tensors[2 * l + 1];
        if (level->box.type == EA_F32 && !ea_all_finite(box, 4 * EA_BINS * cells)) return EA_NOT_FINITE;
        int status = EA_OK;
        if (level->scores.type == EA_F32) status = find_cells_of_floats(head, level, box, scores, work);
        else find_cells_of_integers(head, level, box, scores, &work->found);
        if (status != EA_OK) return status;
    }
    return EA_OK;
}

int ea_find(const ea_head *head, const void *const *tensors, ea_work *work) {
    ea_boxes *found = &work->found;
    int status;
    found->count = 0;
    switch (head->kind) {
        case EA_YOLOV8: status = find_yolov8(head, tensors[0], work); break;
        case EA_YOLOV5: status = find_yolov5(head, tensors[0], found); break;
        case EA_YOLOX: status = find_yolox(head, tensors[0], found); break;
        case EA_END2END: status = find_end2end(head, tensors[0], found); break;
        default: status = find_cut(head, tensors, work);
    }
    if (status == EA_OK && !finite_boxes(found)) return EA_NOT_FINITE; /* an exponential may have overflowed */
    return status;
}
