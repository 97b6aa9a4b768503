/* Sorting by score and non-maximum suppression. */
#include <math.h>
#include <string.h>

#include "head.h"

enum { PASSES = 4, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, KEPT_BLOCK = 8 };

/* Ascending keys of descending floats of any sign. */
static uint32_t descending_key(float score) {
    uint32_t bits;
    memcpy(&bits, &score, 4);
    return bits & 0x80000000u ? bits : 0x7fffffffu - bits;
}

static int32_t digit_of(uint64_t entry, int pass) { return (int32_t)(entry >> (32 + pass * DIGIT_BITS) & (DIGITS - 1)); }

/* Scatters the entries by one digit, those of equal digits in their order. count: how many have each digit. */
static void sort_by_digit(const uint64_t *from, uint64_t *to, int32_t n, int pass, int32_t *count) {
    int32_t start = 0;
    for (int d = 0; d < DIGITS; d++) {
        const int32_t here = count[d];
        count[d] = start;
        start += here;
    }
    for (int32_t i = 0; i < n; i++) to[count[digit_of(from[i], pass)]++] = from[i];
}

/* Stable radix sort, digits that are equal in all left out. Best first; the lower halves are the candidates' numbers. */
static const uint64_t *sort_by_score(const ea_boxes *found, ea_work *w) {
    const int32_t n = found->count;
    uint64_t *from = w->entry, *to = w->entry_swap;
    int32_t count[PASSES][DIGITS] = {{0}};
    for (int32_t i = 0; i < n; i++) {
        from[i] = (uint64_t)descending_key(found->score[i]) << 32 | (uint32_t)i;
        for (int pass = 0; pass < PASSES; pass++) count[pass][digit_of(from[i], pass)]++;
    }
    for (int pass = 0; pass < PASSES && n > 0; pass++) {
        if (count[pass][digit_of(from[0], pass)] == n) continue;
        sort_by_digit(from, to, n, pass, count[pass]);
        uint64_t *swap = from; from = to; to = swap;
    }
    return from;
}

/* Ranks (places in the sorted order) grouped by class, best first within each. */
static void group_by_class(const ea_head *head, const ea_boxes *found, const uint64_t *order, ea_work *w) {
    const int32_t n = found->count, groups = head->agnostic ? 1 : head->classes;
    int32_t *start = w->class_start;
    memset(start, 0, ((size_t)groups + 1) * sizeof *start);
    for (int32_t i = 0; i < n; i++) start[(head->agnostic ? 0 : found->label[i]) + 1]++;
    for (int32_t g = 0; g < groups; g++) start[g + 1] += start[g];
    for (int32_t rank = 0; rank < n; rank++) w->by_class[start[head->agnostic ? 0 : found->label[(int32_t)order[rank]]]++] = rank;
    for (int32_t g = groups; g > 0; g--) start[g] = start[g - 1];
    start[0] = 0;
}

/* Whether a box overlaps one of the kept ones, too much. These come in blocks, which the compiler can do at one go; behind
 * the last one a block is filled with boxes that overlap nothing. */
static int overlaps(const ea_boxes *kept, const float *area, float x0, float y0, float x1, float y1, float own, float iou) {
    for (int32_t block = 0; block < kept->count; block += KEPT_BLOCK) {
        const float *left = kept->x0 + block, *top = kept->y0 + block, *right = kept->x1 + block, *bottom = kept->y1 + block;
        int32_t hit = 0;
        for (int k = 0; k < KEPT_BLOCK; k++) {
            const float w = (x1 < right[k] ? x1 : right[k]) - (x0 > left[k] ? x0 : left[k]);
            const float h = (y1 < bottom[k] ? y1 : bottom[k]) - (y0 > top[k] ? y0 : top[k]);
            const float inside = (w > 0.0f ? w : 0.0f) * (h > 0.0f ? h : 0.0f);
            hit |= inside / (area[block + k] + own - inside) > iou;
        }
        if (hit) return 1;
    }
    return 0;
}

static void clear_block(ea_boxes *kept, float *area, int32_t block) {
    for (int32_t k = block; k < block + KEPT_BLOCK; k++) {
        kept->x0[k] = kept->y0[k] = INFINITY;
        kept->x1[k] = kept->y1[k] = -INFINITY;
        area[k] = 0.0f;
    }
}

/* Marks in keep[] the ranks of one group that no better box of the group covers. */
static void suppress_group(const ea_head *head, const ea_boxes *found, const uint64_t *order, const int32_t *ranks,
                           int32_t count, ea_work *w) {
    ea_boxes *kept = &w->kept;
    kept->count = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t at = (int32_t)order[ranks[i]], k = kept->count;
        float x0 = found->x0[at], y0 = found->y0[at], x1 = found->x1[at], y1 = found->y1[at];
        float area = (x1 - x0) * (y1 - y0);
        if (overlaps(kept, w->area, x0, y0, x1, y1, area, head->iou)) continue;
        if (k % KEPT_BLOCK == 0) clear_block(kept, w->area, k);
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
    const uint64_t *order = sort_by_score(found, w);
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
        int32_t i = out->count++, at = (int32_t)order[rank];
        out->x0[i] = found->x0[at];
        out->y0[i] = found->y0[at];
        out->x1[i] = found->x1[at];
        out->y1[i] = found->y1[at];
        out->score[i] = found->score[at];
        out->label[i] = found->label[at];
    }
}
