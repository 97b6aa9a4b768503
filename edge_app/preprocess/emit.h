/* From one finished row of bytes, channel by channel, to the tensor. Plain loops that the compiler vectorises; included by
 * each path's file, so that they are built for its CPU. */
#ifndef EA_EMIT_H
#define EA_EMIT_H

#include "store.h"

/* out[i * step] for i < n, values of channel c. */
static inline void emit_float(const ea_spec *s, int c, const uint8_t *in, float *out, int32_t n, int32_t step) {
    const float high = s->a_hi[c], low = s->a_lo[c], b = s->b[c];
    for (int32_t i = 0; i < n; i++) {
        float p = (float)in[i];
        out[i * step] = p * high + (p * low + b);
    }
}

static inline void emit_u16(const ea_spec *s, int c, const uint8_t *in, uint16_t *out, int32_t n, int32_t step) {
    for (int32_t i = 0; i < n; i++) out[i * step] = (uint16_t)ea_quantised(s, c, in[i], 65535.0f);
}

static inline void emit_u8(const ea_spec *s, int c, const uint8_t *in, uint8_t *out, int32_t n, int32_t step) {
    for (int32_t i = 0; i < n; i++) out[i * step] = (uint8_t)ea_quantised(s, c, in[i], 255.0f);
}

static inline void interleave(const uint8_t *const in[3], uint8_t *out, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        out[3 * i] = in[0][i];
        out[3 * i + 1] = in[1][i];
        out[3 * i + 2] = in[2][i];
    }
}

/* row[c]: inner_w bytes of channel c of output row j. Raw planes are not emitted: they were made in place. */
static inline void emit_row(const ea_spec *s, const uint8_t *const row[3], int32_t j, void *out) {
    const int channels = ea_channels(s);
    const int32_t step = s->layout == EA_NHWC ? channels : 1, n = s->inner_w;
    if (s->raw) {
        interleave(row, (uint8_t *)out + ea_element(s, 0, s->pad_x, s->pad_y + j), n);
        return;
    }
    for (int c = 0; c < channels; c++) {
        size_t at = ea_element(s, c, s->pad_x, s->pad_y + j);
        if (s->dtype == EA_FLOAT32) {
            if (step == 1) emit_float(s, c, row[c], (float *)out + at, n, 1);
            else emit_float(s, c, row[c], (float *)out + at, n, 3);
        } else if (s->dtype == EA_UINT16) {
            if (step == 1) emit_u16(s, c, row[c], (uint16_t *)out + at, n, 1);
            else emit_u16(s, c, row[c], (uint16_t *)out + at, n, 3);
        } else {
            if (step == 1) emit_u8(s, c, row[c], (uint8_t *)out + at, n, 1);
            else emit_u8(s, c, row[c], (uint8_t *)out + at, n, 3);
        }
    }
}

#endif
