/* The plain path: the meaning of the others, and what runs where there is neither AVX2 nor NEON. */
#include "emit_factors.h"
#include "kernels.h"
#include "measure.h"

static void interleave(const uint8_t *const in[3], uint8_t *out, ea_columns columns) {
    for (int32_t i = columns.first; i < columns.end; i++)
        for (int c = 0; c < 3; c++) out[3 * i + c] = in[c][i];
}

static int32_t emit_floats_simd(const emit_factors *f, const uint8_t *in, float *out, int32_t first, int32_t end) {
    (void)f, (void)in, (void)out, (void)end;
    return first;
}

static int32_t emit_u16s_simd(const emit_factors *f, const uint8_t *in, uint16_t *out, int32_t first, int32_t end) {
    (void)f, (void)in, (void)out, (void)end;
    return first;
}

static int32_t emit_u8s_simd(const emit_factors *f, const uint8_t *in, uint8_t *out, int32_t first, int32_t end) {
    (void)f, (void)in, (void)out, (void)end;
    return first;
}

#include "emit.h"

#include "resample_scalar.h"

#include "run_rows.h"

/* OpenCV's fixed point: 11-bit weights, 4 bits dropped between the passes, two bits kept to the last rounding. */
static uint8_t blend(const uint8_t *upper, const uint8_t *lower, int c, const ea_tap *x, const ea_tap *y) {
    int32_t s0 = upper[c] * x->w0 + upper[3 + c] * x->w1;
    int32_t s1 = lower[c] * x->w0 + lower[3 + c] * x->w1;
    return (uint8_t)((((y->w0 * (s0 >> 4)) >> 16) + ((y->w1 * (s1 >> 4)) >> 16) + 2) >> 2);
}

static void bilinear_row(const ea_plan *plan, const uint8_t *frame, int32_t j, ea_columns columns, uint8_t *const out[3]) {
    const ea_spec *s = &plan->spec;
    const ea_tap *y = &plan->y[j];
    const int channels = s->format == EA_GRAY8 ? 1 : ea_channels(s);
    for (int32_t i = columns.first; i < columns.end; i++) {
        const ea_tap *x = &plan->x[i];
        uint8_t upper[6], lower[6];
        ea_pixel_channels(plan, frame, x->p0, y->p0, upper);
        ea_pixel_channels(plan, frame, x->p1, y->p0, upper + 3);
        ea_pixel_channels(plan, frame, x->p0, y->p1, lower);
        ea_pixel_channels(plan, frame, x->p1, y->p1, lower + 3);
        for (int c = 0; c < channels; c++) out[c][i] = blend(upper, lower, c, x, y);
    }
}

void ea_run_scalar(const ea_plan *plan, const uint8_t *frame, void *out, void *scratch) {
    if (plan->spec.method == EA_SAMPLE) ea_measure_scalar(plan, frame, out, scratch);
    else run_rows(plan, frame, out, scratch, bilinear_row, bilinear_row);
}

size_t ea_scratch_bytes(const ea_plan *plan) {
    if (plan->spec.method == EA_SAMPLE) return 3 * (size_t)plan->spec.inner_h * (size_t)ea_measure_stride(plan);
    return ea_scratch_of(plan, NULL).end;
}

void ea_fill_padding(const ea_plan *plan, void *out) {
    const ea_spec *s = &plan->spec;
    for (int c = 0; c < ea_channels(s); c++)
        for (int32_t y = 0; y < s->tensor_h; y++) {
            int inside = y >= s->pad_y && y < s->pad_y + s->inner_h;
            for (int32_t x = 0; x < s->tensor_w; x++) {
                if (inside && x == s->pad_x) x += s->inner_w;
                if (x < s->tensor_w) ea_store(s, out, c, x, y, (uint8_t)s->pad_value);
            }
        }
}
