/* The room of one run: a row of each channel, and for windows the latest source rows; or all samples of a frame. */
#ifndef EA_SCRATCH_H
#define EA_SCRATCH_H

#include "plan.h"

typedef struct {
    int made; /* channels that are made; a gray frame has one, whatever the tensor has */
    uint8_t *row[3], *mixed, *source_row[3], *ring[3];
    size_t ring_stride, end;
    int16_t *sums;
} ea_scratch;

/* Rows of samples are padded to whole steps of SIMD. */
enum { MEASURE_STEP = 32 };
static inline int32_t ea_measure_stride(const ea_plan *p) {
    return (p->spec.inner_w + MEASURE_STEP - 1) / MEASURE_STEP * MEASURE_STEP;
}

/* scratch: ea_scratch_bytes(plan), aligned to 64; or NULL, only to learn `end`. */
static inline ea_scratch ea_scratch_of(const ea_plan *p, void *scratch) {
    const ea_spec *s = &p->spec;
    const size_t line = 64, row = ((size_t)s->inner_w + line) / line * line;
    ea_scratch t = {.made = s->format == EA_GRAY8 ? 1 : ea_channels(s)};
    uintptr_t at = (uintptr_t)scratch;
    for (int c = 0; c < 3; c++, at += row) t.row[c] = (uint8_t *)at;
    t.mixed = (uint8_t *)at;
    at += 3 * row;
    if (s->method == EA_AREA || s->method == EA_ANTIALIAS) {
        const size_t source = ((size_t)p->columns + line) / line * line;
        for (int c = 0; c < 3; c++, at += source) t.source_row[c] = (uint8_t *)at;
        t.sums = (int16_t *)at;
        at += 2 * source;
        t.ring_stride = s->method == EA_AREA ? source : row;
        for (int c = 0; c < t.made; c++, at += t.ring_stride * (size_t)p->down.most) t.ring[c] = (uint8_t *)at;
    }
    t.end = (size_t)(at - (uintptr_t)scratch);
    return t;
}

#endif
