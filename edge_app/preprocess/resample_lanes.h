/* Weighted windows in SIMD, 16 positions at a time; see resample_scalar.h for what each does. Every n is at least 16: the
 * last sixteen overlap those before. Words of 16 positions: 0..7 in the low lane, 8..15 in the high one. */
#include "rows.h"

/* Sums of products of eights of words at low and high, for as many eights as the weights have. */
EA_INLINE ea_v dot_words(const int16_t *low, const int16_t *high, const int16_t *low_weight, const int16_t *high_weight, int32_t padded) {
    ea_v sum = v_set32(0);
    for (int32_t k = 0; k < padded; k += EA_COLUMN_STEP)
        sum = v_add32(sum, v_mul_pairs16(v_load_two((const uint8_t *)(low + k), (const uint8_t *)(high + k)),
                                         v_load_two((const uint8_t *)(low_weight + k), (const uint8_t *)(high_weight + k))));
    return sum;
}

EA_INLINE ea_v dot_bytes(const uint8_t *low, const uint8_t *high, const int16_t *low_weight, const int16_t *high_weight, int32_t padded) {
    ea_v sum = v_set32(0);
    for (int32_t k = 0; k < padded; k += EA_COLUMN_STEP)
        sum = v_add32(sum, v_mul_pairs16(v_widen_two(low + k, high + k),
                                         v_load_two((const uint8_t *)(low_weight + k), (const uint8_t *)(high_weight + k))));
    return sum;
}

/* Sums of positions i .. i + 3 (low lane) and i + 8 .. i + 11 (high lane). */
EA_INLINE ea_v dot_four(const ea_axis *axis, int32_t i, const uint8_t *bytes, const int16_t *words, int32_t padded) {
    ea_v sum[4];
    for (int k = 0; k < 4; k++) {
        const int32_t a = i + k, b = a + 8;
        const int16_t *wa = axis->weight + (size_t)a * (size_t)padded, *wb = axis->weight + (size_t)b * (size_t)padded;
        const int32_t at_a = axis->window[a].first, at_b = axis->window[b].first;
        sum[k] = bytes != NULL ? dot_bytes(bytes + at_a, bytes + at_b, wa, wb, padded)
                               : dot_words(words + at_a, words + at_b, wa, wb, padded);
    }
    return v_add_pairs32(v_add_pairs32(sum[0], sum[1]), v_add_pairs32(sum[2], sum[3]));
}

EA_INLINE void across(const ea_axis *axis, int32_t n, const uint8_t *bytes, const int16_t *words, uint8_t *out, int32_t padded, int shift) {
    const ea_v half = v_set32(1 << (shift - 1));
    for (int32_t x = 0; x < n; x += EA_GROUP) {
        const int32_t i = x < n - EA_GROUP ? x : n - EA_GROUP;
        ea_v first = v_right32_by(v_add32(dot_four(axis, i, bytes, words, padded), half), shift);
        ea_v second = v_right32_by(v_add32(dot_four(axis, i + 4, bytes, words, padded), half), shift);
        v_store_bytes16(out + i, v_narrow32(first, second));
    }
}

/* The usual lengths of windows have loops of their own, unrolled. */
static void across_bytes(const ea_axis *axis, int32_t n, const uint8_t *in, uint8_t *out) {
    if (axis->padded == 8) across(axis, n, in, NULL, out, 8, axis->bits);
    else if (axis->padded == 16) across(axis, n, in, NULL, out, 16, axis->bits);
    else across(axis, n, in, NULL, out, axis->padded, axis->bits);
}

static void across_sums(const ea_axis *axis, int32_t n, const int16_t *sums, uint8_t *out) {
    if (axis->padded == 8) across(axis, n, NULL, sums, out, 8, axis->bits + 7);
    else if (axis->padded == 16) across(axis, n, NULL, sums, out, 16, axis->bits + 7);
    else across(axis, n, NULL, sums, out, axis->padded, axis->bits + 7);
}

/* Sums of a pixel's three channels over its window: taps 0, 1, 4, 5, ... in the low lane, 2, 3, 6, 7, ... in the high one. */
EA_INLINE ea_v dot_pixels(const uint8_t *from, const int16_t *spread, int32_t padded, ea_v order) {
    ea_v sum = v_set32(0);
    for (int32_t k = 0; k < padded; k += EA_SPREAD_STEP)
        sum = v_add32(sum, v_mul_pairs16(v_shuffle(v_load_same(from + 3 * k), order), v_load(spread + k / EA_SPREAD_STEP * EA_SPREAD)));
    return sum;
}

/* The end of a packed row, with room behind it for 16-byte loads. */
typedef struct {
    uint8_t bytes[3 * EA_MOST_SPREAD + 32];
    int32_t from; /* column */
} row_end;

static row_end end_of_row(const uint8_t *row, int32_t columns, int32_t padded) {
    row_end end = {{0}, columns - padded - 8 > 0 ? columns - padded - 8 : 0};
    memcpy(end.bytes, row + 3 * end.from, (size_t)(3 * (columns - end.from)));
    return end;
}

/* Four pixels' windows, which begin at from[0..3], as words of pixels 0, 2 (low lane) and 1, 3. */
EA_INLINE ea_v dot_four_pixels(const uint8_t *const from[4], const int16_t *spread, int32_t padded, ea_v order, ea_v half, int32_t bits) {
    ea_v sum[4];
    for (int k = 0; k < 4; k++) sum[k] = dot_pixels(from[k], spread + k * (padded / EA_SPREAD_STEP * EA_SPREAD), padded, order);
    const ea_v first_two = v_add32(v_add_lanes32(sum[0], sum[1]), half), last_two = v_add32(v_add_lanes32(sum[2], sum[3]), half);
    return v_narrow32(v_right32_by(first_two, bits), v_right32_by(last_two, bits));
}

/* Eight pixels' windows to bytes i .. i + 7 of each channel. */
EA_INLINE void dot_eight_pixels(const uint8_t *const from[8], const int16_t *spread, int32_t padded, ea_v order, ea_v half, int32_t bits,
                                uint8_t *const to[3], int32_t i) {
    const ea_v first = dot_four_pixels(from, spread, padded, order, half, bits);
    const ea_v second = dot_four_pixels(from + 4, spread + padded * EA_SPREAD, padded, order, half, bits);
    v_store_eights(to, i, first, second);
}

/* Windows come in order: the last ones lie too near the end of the row for 16-byte loads and are read from a copy of it. */
EA_INLINE void across_packed_row(const ea_plan *p, const uint8_t *row, const uint8_t *ahead, int32_t padded, uint8_t *const out[3]) {
    static const uint8_t orders[2][32] = {
        {0, 128, 3, 128, 1, 128, 4, 128, 2, 128, 5, 128, 128, 128, 128, 128, 6, 128, 9, 128, 7, 128, 10, 128, 8, 128, 11, 128, 128, 128, 128, 128},
        {2, 128, 5, 128, 1, 128, 4, 128, 0, 128, 3, 128, 128, 128, 128, 128, 8, 128, 11, 128, 7, 128, 10, 128, 6, 128, 9, 128, 128, 128, 128, 128},
    };
    const int32_t *at = p->spread_at;
    const int32_t n = p->spec.inner_w, columns = p->columns, bits = p->across.bits, step = padded / EA_SPREAD_STEP * EA_SPREAD;
    const ea_v order = v_load(orders[(p->spec.color == EA_BGR) != (p->spec.format == EA_BGR8)]);
    const ea_v half = v_set32(1 << (bits - 1));
    const int16_t *spread = p->spread;
    uint8_t *const to[3] = {out[0], out[1], out[2]};
    int32_t x = 0;
    for (; x < p->spread_inside; x += 8) {
        const uint8_t *from[8];
        v_prefetch(ahead + at[x]);
        v_prefetch(ahead + at[x + 4]);
        for (int k = 0; k < 8; k++) from[k] = row + at[x + k];
        dot_eight_pixels(from, spread + x * step, padded, order, half, bits, to, x);
    }
    const row_end end = end_of_row(row, columns, padded);
    for (; x < n; x += 8) {
        const int32_t i = x < n - 8 ? x : n - 8;
        const uint8_t *from[8];
        for (int k = 0; k < 8; k++) {
            const int inside = at[i + k] + 3 * (padded + EA_SPREAD_OVER) <= 3 * columns;
            from[k] = inside ? row + at[i + k] : end.bytes + at[i + k] - 3 * end.from;
        }
        dot_eight_pixels(from, spread + i * step, padded, order, half, bits, to, i);
    }
}

/* Antialias of a packed colour row straight from the frame. Returns 0 for all other plans. */
static int across_packed(const ea_plan *p, const uint8_t *frame, int32_t y, uint8_t *const out[3]) {
    if (p->spread == NULL) return 0;
    const ea_spec *s = &p->spec;
    const uint8_t *row = frame + (s->region_y + y) * s->stride + 3 * (s->region_x + p->first_column);
    const uint8_t *ahead = y + AHEAD < s->region_h ? row + AHEAD * s->stride : row;
    switch (p->across.padded) {
        case 4: across_packed_row(p, row, ahead, 4, out); break;
        case 8: across_packed_row(p, row, ahead, 8, out); break;
        case 12: across_packed_row(p, row, ahead, 12, out); break;
        default: across_packed_row(p, row, ahead, EA_MOST_SPREAD, out);
    }
    return 1;
}

/* The rows of a window, looked up once; behind them, up to the padding, any row: its weight is 0. */
typedef struct {
    const uint8_t *row[EA_MOST_SIMD_ROWS];
    int32_t count;
} window_rows;

static void look_up(window_rows *w, const ea_window *window, const ea_rows *rows, int32_t padded) {
    w->count = window->count;
    for (int32_t k = 0; k < window->count; k++) w->row[k] = ea_row(rows, window->first + k);
    for (int32_t k = window->count; k < padded; k++) w->row[k] = w->row[0];
}

EA_INLINE void down(const ea_axis *axis, int32_t j, const ea_rows *rows, int32_t n, uint8_t *out, int32_t count) {
    const int16_t *w = axis->weight + (size_t)j * (size_t)count;
    const int32_t bits = axis->bits;
    window_rows in;
    ea_v both[EA_MOST_SIMD_ROWS / EA_ROW_STEP];
    look_up(&in, &axis->window[j], rows, count);
    for (int32_t k = 0; k < count; k += EA_ROW_STEP) both[k / EA_ROW_STEP] = word_pair(w[k], w[k + 1]);
    for (int32_t x = 0; x < n; x += EA_GROUP) {
        const int32_t i = x < n - EA_GROUP ? x : n - EA_GROUP;
        ea_v low = v_set32(1 << (bits - 1)), high = low;
        for (int32_t k = 0; k < count; k += EA_ROW_STEP) {
            const ea_v a = v_widen16(in.row[k] + i), b = v_widen16(in.row[k + 1] + i);
            low = v_add32(low, v_mul_pairs16(v_zip_low16(a, b), both[k / EA_ROW_STEP]));
            high = v_add32(high, v_mul_pairs16(v_zip_high16(a, b), both[k / EA_ROW_STEP]));
        }
        v_store_bytes16(out + i, v_narrow32(v_right32_by(low, bits), v_right32_by(high, bits)));
    }
}

static void down_bytes(const ea_axis *axis, int32_t j, const ea_rows *rows, int32_t n, uint8_t *out) {
    if (axis->padded == 8) down(axis, j, rows, n, out, 8);
    else down(axis, j, rows, n, out, axis->padded);
}

/* The rows between the first and the last have one weight: they are added up as they are. 16 columns a sum. */
EA_INLINE void inner_sums(const window_rows *in, int32_t i, int sums, ea_v *sum) {
    for (int s = 0; s < sums; s++) sum[s] = v_set16(0);
    for (int32_t k = 1; k < in->count - 1; k++)
        for (int s = 0; s < sums; s++) sum[s] = v_add16(sum[s], v_widen16(in->row[k] + i + 16 * s));
}

/* No ring. */
EA_INLINE void touch_next_rows(const ea_rows *rows, const ea_window *window, int32_t i) {
    const int32_t from = window->first + window->count, to = from + window->count < rows->end ? from + window->count : rows->end;
    const uint8_t *row = rows->base + (size_t)from * rows->stride + i;
    for (int32_t y = from; y < to; y++, row += rows->stride) v_prefetch(row);
}

static void down_sums(const ea_axis *axis, int32_t j, const ea_rows *rows, int32_t n, int16_t *sums) {
    const ea_window *window = &axis->window[j];
    const int16_t *w = axis->weight + (size_t)j * (size_t)axis->padded;
    const int shift = axis->bits - 7, last_row = window->count - 1;
    const ea_v inner_first = word_pair(window->count > 2 ? w[1] : 0, w[0]);
    const ea_v last_half = word_pair(last_row > 0 ? w[last_row] : 0, 1), half = v_set16(1 << (shift - 1));
    window_rows in;
    look_up(&in, window, rows, window->count);
    const int at_once = n >= 4 * EA_GROUP ? 4 : 1; /* 64 columns are a line of the cache */
    for (int32_t x = 0; x < n; x += at_once * EA_GROUP) {
        const int32_t i = x < n - at_once * EA_GROUP ? x : n - at_once * EA_GROUP;
        ea_v inner[4];
        if (rows->slots == 0) touch_next_rows(rows, window, i);
        if (at_once == 4) inner_sums(&in, i, 4, inner);
        else inner_sums(&in, i, 1, inner);
        for (int s = 0; s < at_once; s++) {
            const int32_t at = i + s * EA_GROUP;
            ea_v first = v_widen16(in.row[0] + at), last = v_widen16(in.row[last_row] + at);
            ea_v low = v_add32(v_mul_pairs16(v_zip_low16(inner[s], first), inner_first), v_mul_pairs16(v_zip_low16(last, half), last_half));
            ea_v high = v_add32(v_mul_pairs16(v_zip_high16(inner[s], first), inner_first), v_mul_pairs16(v_zip_high16(last, half), last_half));
            v_store_words16(sums + at, v_narrow32(v_right32_by(low, shift), v_right32_by(high, shift)));
        }
    }
}
