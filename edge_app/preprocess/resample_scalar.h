/* Weighted windows, the plain way. resample_lanes.h does the same in SIMD; both give the same bits.
 *
 * across_bytes, down_bytes: antialias, bytes to bytes. down_sums, across_sums: area, bytes to means times 128, to bytes.
 * axis: windows and weights of the columns (across) or rows (down). n: positions of a row that are made.
 */
#include "pixel.h"
#include "rows.h"

static void across_bytes(const ea_axis *axis, int32_t n, const uint8_t *in, uint8_t *out) {
    for (int32_t i = 0; i < n; i++) {
        const int16_t *w = axis->weight + (size_t)i * (size_t)axis->padded;
        int32_t sum = 1 << (axis->bits - 1);
        for (int32_t k = 0; k < axis->window[i].count; k++) sum += w[k] * in[axis->window[i].first + k];
        out[i] = ea_clip8(sum >> axis->bits);
    }
}

/* The plain path has no short cut from the frame. */
static int across_packed(const ea_plan *p, const uint8_t *frame, int32_t y, uint8_t *const out[3]) {
    (void)p, (void)frame, (void)y, (void)out;
    return 0;
}

static void down_bytes(const ea_axis *axis, int32_t j, const ea_rows *rows, int32_t n, uint8_t *out) {
    const ea_window *window = &axis->window[j];
    const int16_t *w = axis->weight + (size_t)j * (size_t)axis->padded;
    for (int32_t i = 0; i < n; i++) {
        int32_t sum = 1 << (axis->bits - 1);
        for (int32_t k = 0; k < window->count; k++) sum += w[k] * ea_row(rows, window->first + k)[i];
        out[i] = ea_clip8(sum >> axis->bits);
    }
}

static void down_sums(const ea_axis *axis, int32_t j, const ea_rows *rows, int32_t n, int16_t *sums) {
    const ea_window *window = &axis->window[j];
    const int16_t *w = axis->weight + (size_t)j * (size_t)axis->padded;
    for (int32_t i = 0; i < n; i++) {
        int32_t sum = 1 << (axis->bits - 8);
        for (int32_t k = 0; k < window->count; k++) sum += w[k] * ea_row(rows, window->first + k)[i];
        sums[i] = (int16_t)(sum >> (axis->bits - 7));
    }
}

static void across_sums(const ea_axis *axis, int32_t n, const int16_t *sums, uint8_t *out) {
    for (int32_t i = 0; i < n; i++) {
        const int16_t *w = axis->weight + (size_t)i * (size_t)axis->padded;
        int32_t sum = 1 << (axis->bits + 6);
        for (int32_t k = 0; k < axis->window[i].count; k++) sum += w[k] * sums[axis->window[i].first + k];
        out[i] = ea_clip8(sum >> (axis->bits + 7));
    }
}
