/* From finished bytes, channel by channel, to the tensor. Included by each path's file, which has defined before:
 * interleave(in, out, columns), and emit_*_simd, which do values first .. end - 1, or none, and return where they ended. These
 * may begin before `first` if the values lie a multiple of three apart. */
#ifndef EA_EMIT_H
#define EA_EMIT_H

#include "emit_factors.h"
#include "kernels.h"

#define EMIT_REST(first, value) \
    for (int32_t i = (first), k = i % EMIT_STEP; i < end; i++, k = k + 1 < EMIT_STEP ? k + 1 : 0) out[i] = value

static inline void emit_floats(const emit_factors *f, const uint8_t *in, float *out, int32_t first, int32_t end) {
    const int32_t done = emit_floats_simd(f, in, out, first, end);
    if (done < end) EMIT_REST(done, ea_affine(in[i], f->high[k], f->low[k], f->b[k]));
}

static inline void emit_u16s(const emit_factors *f, const uint8_t *in, uint16_t *out, int32_t first, int32_t end) {
    const int32_t done = emit_u16s_simd(f, in, out, first, end);
    if (done < end) EMIT_REST(done, (uint16_t)ea_quantised(in[i], f->high[k], f->low[k], f->b[k], 65535.0f));
}

static inline void emit_u8s(const emit_factors *f, const uint8_t *in, uint8_t *out, int32_t first, int32_t end) {
    const int32_t done = emit_u8s_simd(f, in, out, first, end);
    if (done < end) EMIT_REST(done, (uint8_t)ea_quantised(in[i], f->high[k], f->low[k], f->b[k], 255.0f));
}

/* Values first .. end - 1 of the row that begins at `out`. */
static inline void emit(int dtype, const emit_factors *f, const uint8_t *in, void *out, int32_t first, int32_t end) {
    if (dtype == EA_FLOAT32) emit_floats(f, in, out, first, end);
    else if (dtype == EA_UINT16) emit_u16s(f, in, out, first, end);
    else emit_u8s(f, in, out, first, end);
}

/* row[c]: bytes of channel c of an output row. mixed: room for 3 * inner_w bytes. to[c]: where the row of channel c begins in
 * the tensor. Raw planes are not emitted: they were made in place. */
static inline void emit_columns(const ea_spec *s, const tensor_factors *f, const uint8_t *const row[3], uint8_t *mixed,
                                ea_columns columns, uint8_t *const to[3]) {
    const int channels = ea_channels(s);
    if (s->layout == EA_NHWC && channels == 3) {
        interleave(row, s->raw ? to[0] : mixed, columns);
        if (!s->raw) emit(s->dtype, &f->of[0], mixed, to[0], 3 * columns.first, 3 * columns.end);
        return;
    }
    for (int c = 0; c < channels; c++) emit(s->dtype, &f->of[c], row[c], to[c], columns.first, columns.end);
}

#endif
