/* Sorting by score and non-maximum suppression. */
#include <string.h>

#include "head.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Ascending keys of descending floats of any sign. */
static uint32_t descending_key(float score) {
    uint32_t bits;
    memcpy(&bits, &score, 4);
    return bits & 0x80000000u ? bits : 0x7fffffffu - bits;
}

/* Stable radix sort: 3 passes of 11 bits, those in which all digits are equal left out. */
static int32_t *sort_by_score(const ea_boxes *found, ea_work *w) {
    const int32_t n = found->count;
    uint32_t *key = w->key, *key_to = w->key_swap;
    int32_t *order = w->order, *order_to = w->order_swap;
    for (int32_t i = 0; i < n; i++) {
        key[i] = descending_key(found->score[i]);
        order[i] = i;
    }
    for (int shift = 0; shift < 32; shift += DIGIT_BITS) {
        int32_t start[DIGITS] = {0}, sum = 0;
        for (int32_t i = 0; i < n; i++) start[key[i] >> shift & (DIGITS - 1)]++;
        if (n > 0 && start[key[0] >> shift & (DIGITS - 1)] == n) continue;
        for (int d = 0; d < DIGITS; d++) {
            int32_t count = start[d];
            start[d] = sum;
            sum += count;
        }
        for (int32_t i = 0; i < n; i++) {
            int32_t to = start[key[i] >> shift & (DIGITS - 1)]++;
            key_to[to] = key[i];
            order_to[to] = order[i];
        }
        uint32_t *k = key; key = key_to; key_to = k;
        int32_t *o = order; order = order_to; order_to = o;
    }
    return order;
}

/* Ranks (places in the sorted order) grouped by class, best first within each. */
static void group_by_class(const ea_head *head, const ea_boxes *found, const int32_t *order, ea_work *w) {
    const int32_t n = found->count, groups = head->agnostic ? 1 : head->classes;
    int32_t *start = w->class_start;
    memset(start, 0, ((size_t)groups + 1) * sizeof *start);
    for (int32_t i = 0; i < n; i++) start[(head->agnostic ? 0 : found->label[i]) + 1]++;
    for (int32_t g = 0; g < groups; g++) start[g + 1] += start[g];
    for (int32_t rank = 0; rank < n; rank++) w->by_class[start[head->agnostic ? 0 : found->label[order[rank]]]++] = rank;
    for (int32_t g = groups; g > 0; g--) start[g] = start[g - 1];
    start[0] = 0;
}

static int overlaps(const ea_boxes *kept, const float *area, float x0, float y0, float x1, float y1, float own, float iou) {
    int hit = 0;
    for (int32_t k = 0; k < kept->count && !hit; k++) {
        float left = x0 > kept->x0[k] ? x0 : kept->x0[k], top = y0 > kept->y0[k] ? y0 : kept->y0[k];
        float right = x1 < kept->x1[k] ? x1 : kept->x1[k], bottom = y1 < kept->y1[k] ? y1 : kept->y1[k];
        float w = right - left > 0.0f ? right - left : 0.0f, h = bottom - top > 0.0f ? bottom - top : 0.0f;
        float inside = w * h;
        hit = inside / (area[k] + own - inside) > iou;
    }
    return hit;
}

/* Marks in keep[] the ranks of one group that no better box of the group covers. */
static void suppress_group(const ea_head *head, const ea_boxes *found, const int32_t *order, const int32_t *ranks,
                           int32_t count, ea_work *w) {
    ea_boxes *kept = &w->kept;
    kept->count = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t at = order[ranks[i]], k = kept->count;
        float x0 = found->x0[at], y0 = found->y0[at], x1 = found->x1[at], y1 = found->y1[at];
        float area = (x1 - x0) * (y1 - y0);
        if (overlaps(kept, w->area, x0, y0, x1, y1, area, head->iou)) continue;
        kept->x0[k] = x0;
        kept->y0[k] = y0;
        kept->x1[k] = x1;
        kept->y1[k] = y1;
        w->area[k] = area;
        kept->count++;
        w->keep[ranks[i]] = 1;
    }
}

void ea_suppress(const ea_head *head, ea_work *w, ea_boxes *out, int32_t *total) {
    const ea_boxes *found = &w->found;
    const int32_t *order = sort_by_score(found, w);
    const int suppressed_before = head->kind == EA_END2END;
    memset(w->keep, suppressed_before, (size_t)found->count);
    if (!suppressed_before) {
        group_by_class(head, found, order, w);
        for (int32_t g = 0; g < (head->agnostic ? 1 : head->classes); g++)
            suppress_group(head, found, order, w->by_class + w->class_start[g], w->class_start[g + 1] - w->class_start[g], w);
    }
    out->count = *total = 0;
    for (int32_t rank = 0; rank < found->count; rank++) {
        if (!w->keep[rank] || (*total)++ >= head->max_detections) continue;
        int32_t i = out->count++, at = order[rank];
        out->x0[i] = found->x0[at];
        out->y0[i] = found->y0[at];
        out->x1[i] = found->x1[at];
        out->y1[i] = found->y1[at];
        out->score[i] = found->score[at];
        out->label[i] = found->label[at];
    }
}
