/* From one finished row of bytes, channel by channel, to the tensor. Included by each path's file, which has defined before:
 * interleave(in, out, n), and emit_*_simd, which do as many values as they can in steps of EMIT_STEP and return how many. */
#ifndef EA_EMIT_H
#define EA_EMIT_H

#include "emit_factors.h"

enum { EMIT_ROWS_AHEAD = 2 };

#define EMIT_LOOP(first) \
    for (int32_t i = (first), k = 0; i < n; i++, k = k + 1 < EMIT_STEP ? k + 1 : 0)

/* Values first .. n - 1; first is a multiple of EMIT_STEP. */
static inline void emit_floats(const emit_factors *f, const uint8_t *in, float *out, int32_t first, int32_t n) {
    EMIT_LOOP(first) out[i] = ea_affine(in[i], f->high[k], f->low[k], f->b[k]);
}

static inline void emit_u16s(const emit_factors *f, const uint8_t *in, uint16_t *out, int32_t first, int32_t n) {
    EMIT_LOOP(first) out[i] = (uint16_t)ea_quantised(in[i], f->high[k], f->low[k], f->b[k], 65535.0f);
}

static inline void emit_u8s(const emit_factors *f, const uint8_t *in, uint8_t *out, int32_t first, int32_t n) {
    EMIT_LOOP(first) out[i] = (uint8_t)ea_quantised(in[i], f->high[k], f->low[k], f->b[k], 255.0f);
}

/* n values of channels first, first + 1, ... first + period - 1 in turn. */
static inline void emit(const ea_spec *s, int first, int period, const uint8_t *in, void *out, size_t at, int32_t n) {
    const emit_factors f = factors_in_order(s, first, period);
    const int32_t ahead = period == 1 ? EMIT_ROWS_AHEAD * s->tensor_w : 0; /* the CPU follows one stream by itself, not three */
    if (s->dtype == EA_FLOAT32) emit_floats(&f, in, (float *)out + at, emit_floats_simd(&f, in, (float *)out + at, n, ahead), n);
    else if (s->dtype == EA_UINT16) emit_u16s(&f, in, (uint16_t *)out + at, emit_u16s_simd(&f, in, (uint16_t *)out + at, n, ahead), n);
    else emit_u8s(&f, in, (uint8_t *)out + at, emit_u8s_simd(&f, in, (uint8_t *)out + at, n, ahead), n);
}

/* row[c]: inner_w bytes of channel c of output row j. mixed: room for 3 * inner_w bytes. Raw planes are not emitted: they
 * were made in place. */
static inline void emit_row(const ea_spec *s, const uint8_t *const row[3], uint8_t *mixed, int32_t j, void *out) {
    const int channels = ea_channels(s);
    const int32_t n = s->inner_w;
    if (s->layout == EA_NHWC && channels == 3) {
        const size_t at = ea_element(s, 0, s->pad_x, s->pad_y + j);
        interleave(row, s->raw ? (uint8_t *)out + at : mixed, n);
        if (!s->raw) emit(s, 0, 3, mixed, out, at, 3 * n);
        return;
    }
    for (int c = 0; c < channels; c++) emit(s, c, 1, row[c], out, ea_element(s, c, s->pad_x, s->pad_y + j), n);
}

#endif
