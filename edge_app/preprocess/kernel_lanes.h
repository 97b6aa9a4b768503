/* The bilinear kernels, written once for AVX2 and NEON. Included by one file each, after its lanes header.
 *
 * Values of 16 columns travel as "pairs", 32 bytes: taps 0 and 1 of each column in turn, columns 0..7 in the low lane;
 * or as "words", 16 values of 16 bits in the same order. The lanes headers define ea_v, 32 bytes in two lanes, and on it:
 *   v_load, v_load_two (16 bytes a lane), v_load_four (8 bytes each half lane), v_shuffle (0x80 gives 0), v_zip_*
 *   v_mul_pairs8: unsigned bytes by signed weights, neighbours summed to words; v_mul_pairs16: words to 32 bits
 *   v_mul_high16: upper half of the signed product; v_right16 logical, v_right32 arithmetic shifts
 *   v_add_pairs32: neighbours of a, then of b, added lane by lane; v_widen_two: 8 bytes a lane as words, v_widen16: 16 bytes
 *   v_mean8: (a + b + 1) >> 1; v_narrow32: two of 32 bits to words; v_narrow16: two of words to bytes, clipped; v_alternate:
 *   bytes 0 and 8, 1 and 9, ... of each lane in turn; v_store_bytes16: words, clipped, as 16 bytes
 *   v_step8: |a - b|; v_at_least8: 255 where a >= b; v_sums8: bytes to 32-bit lanes (AVX2: every other is 0) of the same sum
 */
#include "emit_factors.h"
#include "kernels.h"

#define EA_INLINE static inline __attribute__((always_inline))

#include "colour_lanes.h"

/* One row's pairs of 1, 2 or 3 channels. */
EA_INLINE void fetch(const uint8_t *row, const ea_fetch *f, int channels, int narrow, ea_v *c) {
    ea_v q[4];
    for (int k = 0; k < 4; k++) {
        const int32_t *at = f->at;
        ea_v loaded = narrow ? v_load_four(row + at[2 * k], row + at[2 * k + 1], row + at[2 * k + 8], row + at[2 * k + 9])
                             : v_load_two(row + at[k], row + at[k + 4]);
        q[k] = v_shuffle(loaded, v_load(f->shuffle[k]));
    }
    ea_v low01 = v_zip_low32(q[0], q[1]), low23 = v_zip_low32(q[2], q[3]);
    c[0] = v_zip_low64(low01, low23);
    if (channels > 1) c[1] = v_zip_high64(low01, low23);
    if (channels > 2) c[2] = v_zip_low64(v_zip_high32(q[0], q[1]), v_zip_high32(q[2], q[3]));
}

/* Where one row of taps is read. */
typedef struct {
    const uint8_t *row, *chroma;
} source_row;

EA_INLINE source_row source_row_at(const ea_plan *p, const uint8_t *frame, int32_t y) {
    const ea_spec *s = &p->spec;
    source_row r = {frame + y * s->stride, NULL};
    if (s->format == EA_NV12) r.chroma = frame + s->uv_offset + y / 2 * s->uv_stride;
    return r;
}

/* Pairs (for a pick: words) of one source row as the format has them: gray; two colours and green; Y' and two of chroma. Not
 * for Bayer. Returns how many. */
EA_INLINE int raw_taps(const ea_plan *p, source_row r, int32_t g, int family, int narrow, ea_v *raw) {
    if (family == EA_FAMILY_NV12) {
        fetch(r.row, &p->fetch[g], 1, narrow, raw);
        fetch(r.chroma, &p->chroma[g], 2, narrow, raw + 1);
        return 3;
    }
    const int channels = family == EA_MONO ? 1 : 3;
    fetch(r.row, &p->fetch[g], channels, narrow, raw);
    return channels;
}

EA_INLINE int is_yuv(int family) { return family == EA_FAMILY_NV12 || family == EA_FAMILY_YUYV; }

/* The same as the tensor's channels. */
EA_INLINE int row_taps(const ea_plan *p, const colour_factors *f, source_row r, int32_t g, int family, int narrow, int pick, ea_v *c) {
    if (!is_yuv(family)) return raw_taps(p, r, g, family, narrow, c);
    ea_v raw[3];
    raw_taps(p, r, g, family, narrow, raw);
    if (pick) colour_picked(f, raw[0], raw[1], raw[2], c);
    else colour_of_pairs(f, raw[0], raw[1], raw[2], c);
    return 3;
}

EA_INLINE int32_t clamp_row(int32_t y, int32_t height) { return y < 1 ? 1 : y > height - 2 ? height - 2 : y; }

EA_INLINE int is_red_row(const ea_spec *s, int32_t y) {
    const int red_y = (s->format == EA_BAYER_GB8 || s->format == EA_BAYER_BG8) != (s->color == EA_BGR);
    return (y & 1) == red_y;
}

/* Both rows of taps of a Bayer frame: four raw rows where they are neighbours, else the same three twice. */
EA_INLINE void bayer_taps(const ea_plan *p, const uint8_t *frame, const ea_tap *y, int32_t g, int narrow, ea_v *upper, ea_v *lower) {
    const ea_spec *s = &p->spec;
    const int32_t y0 = clamp_row(y->p0, s->height), y1 = clamp_row(y->p1, s->height);
    const uint8_t *row = frame + (y0 - 1) * s->stride;
    const ea_v red = v_load(p->group[g].red);
    ea_v raw[4][3];
    for (int i = 0; i < 3; i++) fetch(row + i * s->stride, &p->fetch[g], 3, narrow, raw[i]);
    demosaic(raw[0], raw[1], raw[2], red, is_red_row(s, y0), upper);
    if (y1 == y0) {
        for (int i = 0; i < 3; i++) lower[i] = upper[i];
        return;
    }
    fetch(row + 3 * s->stride, &p->fetch[g], 3, narrow, raw[3]);
    demosaic(raw[1], raw[2], raw[3], red, is_red_row(s, y1), lower);
}

EA_INLINE ea_v weighted_across(ea_v pairs, const ea_group *group) {
    return v_add16(v_mul_pairs8(pairs, v_load(group->high)), v_right16(v_mul_pairs8(pairs, v_load(group->low)), 4));
}

/* Words of the output from the pairs of two rows; the arithmetic of kernel_scalar.c in 16 bits. */
EA_INLINE ea_v blended(ea_v upper, ea_v lower, const ea_group *group, ea_v w0, ea_v w1, int blend) {
    const ea_v two = v_set16(2);
    if (blend == EA_BOX2) {
        const ea_v one = v_set8(1);
        return v_right16(v_add16(v_add16(v_mul_pairs8(upper, one), v_mul_pairs8(lower, one)), two), 2);
    }
    ea_v above = v_mul_high16(weighted_across(upper, group), w0), below = v_mul_high16(weighted_across(lower, group), w1);
    return v_right16(v_add16(v_add16(above, below), two), 2);
}

EA_INLINE void touch(const uint8_t *row, int32_t from, int32_t to) {
    for (const uint8_t *at = row + from, *end = row + to; at < end; at += 64) v_prefetch(at);
}

/* While one output row is made, the source rows of the next but one are fetched from memory, at the same columns: in step
 * with the work, not in a burst. Twice as fast on cold frames as leaving it to the CPU, which loses its stream with every
 * row that is left out. */
enum { AHEAD = 2 };

EA_INLINE void touch_two(const uint8_t *upper, const uint8_t *lower, int32_t from, int32_t to) {
    const ptrdiff_t apart = lower - upper;
    for (const uint8_t *at = upper + from, *end = upper + to; at < end; at += 64) {
        v_prefetch(at);
        v_prefetch(at + apart);
    }
}

EA_INLINE void touch_next(const ea_plan *p, const ea_group *group, source_row upper, source_row lower, int rows) {
    if (rows > 1) touch_two(upper.row, lower.row, group->touch, group->touch_end);
    else touch(upper.row, group->touch, group->touch_end);
    if (p->chroma == NULL) return;
    touch(upper.chroma, group->chroma_touch, group->chroma_touch_end);
    if (rows > 1 && lower.chroma != upper.chroma) touch(lower.chroma, group->chroma_touch, group->chroma_touch_end);
}

EA_INLINE void bayer_touch_next(const ea_plan *p, const ea_group *group, const uint8_t *frame, int32_t y0) {
    const ea_spec *s = &p->spec;
    const int32_t first = y0 < 1 ? 0 : y0 - 1, end = y0 + 3 > s->height ? s->height : y0 + 3;
    for (int32_t y = first; y < end; y++) touch(frame + y * s->stride, group->touch, group->touch_end);
}

/* An ea_row_function. */
EA_INLINE void make_row(const ea_plan *shared, const uint8_t *frame, int32_t j, ea_columns columns, uint8_t *const out[3], int family,
                        int blend, int narrow, int gray) {
    /* Copies: whatever is stored as bytes might lie in the plan, as far as the compiler knows, and it would read that anew. */
    const ea_plan own = *shared, *p = &own;
    uint8_t *const to[3] = {out[0], out[1], out[2]};
    const ea_tap *y = &p->y[j], *next = &p->y[j + AHEAD < p->spec.inner_h ? j + AHEAD : j];
    const source_row r0 = source_row_at(p, frame, y->p0), r1 = source_row_at(p, frame, y->p1);
    const source_row n0 = source_row_at(p, frame, next->p0), n1 = source_row_at(p, frame, next->p1);
    const ea_v w0 = v_set16(y->w0), w1 = v_set16(y->w1);
    const colour_factors f = factors_of(p);
    for (int32_t g = columns.first / EA_GROUP; g * EA_GROUP < columns.end; g++) {
        const ea_group *group = &p->group[g];
        ea_v upper[3], lower[3];
        int channels = 3;
        if (family == EA_FAMILY_BAYER) {
            bayer_touch_next(p, group, frame, next->p0);
            bayer_taps(p, frame, y, g, narrow, upper, lower);
        } else {
            touch_next(p, group, n0, n1, blend == EA_PICK ? 1 : 2);
            channels = row_taps(p, &f, r0, g, family, narrow, blend == EA_PICK, upper);
            if (blend != EA_PICK) row_taps(p, &f, r1, g, family, narrow, 0, lower);
        }
        if (gray) {
            upper[0] = luma_pairs(upper);
            lower[0] = luma_pairs(lower);
            channels = 1;
        }
        for (int c = 0; c < channels; c++)
            v_store_bytes16(to[c] + group->x, blend == EA_PICK ? upper[c] : blended(upper[c], lower[c], group, w0, w1, blend));
    }
}

/* Words of 16 columns of a halved NV12 frame: their pairs are 32 bytes as they lie there, and the four pixels of each output
 * pixel have one chroma. One row after the other, so that nothing leaves the registers. */
EA_INLINE void halved_words(const colour_factors *f, const uint8_t *const luma[2], const uint8_t *chroma, int bgr, ea_v *out) {
    const ea_v uv = v_load(chroma), u = even_bytes(uv), v = odd_bytes(uv);
    wide terms[3];
    chroma_terms(f, bgr ? u : v, bgr ? v : u, terms);
    for (int c = 0; c < 3; c++) out[c] = v_set16(2);
    for (int row = 0; row < 2; row++) {
        ea_v pairs[3];
        colour_pairs(f, v_load(luma[row]), terms, terms, pairs);
        for (int c = 0; c < 3; c++) out[c] = v_add16(out[c], v_mul_pairs8(pairs[c], v_set8(1)));
    }
    for (int c = 0; c < 3; c++) out[c] = v_right16(out[c], 2);
}

/* An ea_row_function: two bytes of each row and of its chroma row are one column. */
EA_INLINE void halved_row(const ea_plan *p, const uint8_t *frame, int32_t j, ea_columns columns, uint8_t *const out[3], int bgr) {
    const int32_t ahead = j + AHEAD < p->spec.inner_h ? j + AHEAD : j, last = p->spec.inner_w - EA_GROUP;
    const int32_t left = p->x[0].p0;
    const source_row upper = source_row_at(p, frame, p->y[j].p0), lower = source_row_at(p, frame, p->y[j].p1);
    const source_row next = source_row_at(p, frame, p->y[ahead].p0), next_lower = source_row_at(p, frame, p->y[ahead].p1);
    const colour_factors f = factors_of(p);
    uint8_t *const to[3] = {out[0], out[1], out[2]};
    for (int32_t x = columns.first; x < columns.end; x += EA_GROUP) {
        const int32_t i = x < last ? x : last, at = left + 2 * i;
        const uint8_t *const luma[2] = {upper.row + at, lower.row + at};
        ea_v words[3];
        v_prefetch(next.row + at);
        v_prefetch(next_lower.row + at);
        v_prefetch(next.chroma + at);
        halved_words(&f, luma, upper.chroma + at, bgr, words);
        for (int c = 0; c < 3; c++) v_store_bytes16(to[c] + i, words[c]);
    }
}

static void nv12_halved(const ea_plan *p, const uint8_t *frame, int32_t j, ea_columns columns, uint8_t *const out[3]) {
    if (p->spec.color == EA_BGR) halved_row(p, frame, j, columns, out, 1);
    else halved_row(p, frame, j, columns, out, 0);
}

/* See emit.h. The last ones of a stretch overlap those before. */
static void interleave(const uint8_t *const in[3], uint8_t *out, ea_columns columns) {
    for (int32_t x = columns.first; x < columns.end; x += EA_GROUP) {
        const int32_t i = x + EA_GROUP <= columns.end ? x : columns.end - EA_GROUP;
        v_store_triples(out + 3 * i, in[0] + i, in[1] + i, in[2] + i);
    }
}

#define EA_EMIT(name, type, store)                                                                                          \
    static int32_t name(const emit_factors *f, const uint8_t *in, type *out, int32_t first, int32_t end) {                  \
        v_factors8 factors[EMIT_STEP / 8];                                                                                  \
        if (end < EMIT_STEP) return first;                                                                                  \
        for (int k = 0; k < EMIT_STEP / 8; k++) factors[k] = v_load_factors8(f->high + 8 * k, f->low + 8 * k, f->b + 8 * k); \
        for (int32_t x = first; x < end; x += EMIT_STEP) {                                                                  \
            const int32_t i = x + EMIT_STEP <= end ? x : end - EMIT_STEP;                                                   \
            for (int k = 0; k < EMIT_STEP / 8; k++) store(out + i + 8 * k, in + i + 8 * k, &factors[k]);                    \
        }                                                                                                                   \
        return end;                                                                                                         \
    }
EA_EMIT(emit_floats_simd, float, v_store_floats8)
EA_EMIT(emit_u16s_simd, uint16_t, v_store_words8)
EA_EMIT(emit_u8s_simd, uint8_t, v_store_bytes8)

#define EA_ROW(name, family, blend, gray)                                                                                \
    static void name##_wide(const ea_plan *p, const uint8_t *frame, int32_t j, ea_columns columns, uint8_t *const out[3]) { \
        make_row(p, frame, j, columns, out, family, blend, 0, gray);                                                    \
    }                                                                                                                    \
    static void name##_narrow(const ea_plan *p, const uint8_t *frame, int32_t j, ea_columns columns, uint8_t *const out[3]) { \
        make_row(p, frame, j, columns, out, family, blend, 1, gray);                                                    \
    }

EA_ROW(packed_pick, EA_PACKED3, EA_PICK, 0)
EA_ROW(packed_box2, EA_PACKED3, EA_BOX2, 0)
EA_ROW(packed_general, EA_PACKED3, EA_GENERAL, 0)
EA_ROW(packed_gray, EA_PACKED3, EA_GENERAL, 1)
EA_ROW(mono_pick, EA_MONO, EA_PICK, 0)
EA_ROW(mono_box2, EA_MONO, EA_BOX2, 0)
EA_ROW(mono_general, EA_MONO, EA_GENERAL, 0)
EA_ROW(nv12_pick, EA_FAMILY_NV12, EA_PICK, 0)
EA_ROW(nv12_general, EA_FAMILY_NV12, EA_GENERAL, 0)
EA_ROW(nv12_gray, EA_FAMILY_NV12, EA_GENERAL, 1)
EA_ROW(yuyv_pick, EA_FAMILY_YUYV, EA_PICK, 0)
EA_ROW(yuyv_general, EA_FAMILY_YUYV, EA_GENERAL, 0)
EA_ROW(yuyv_gray, EA_FAMILY_YUYV, EA_GENERAL, 1)
EA_ROW(bayer_general, EA_FAMILY_BAYER, EA_GENERAL, 0)
EA_ROW(bayer_gray, EA_FAMILY_BAYER, EA_GENERAL, 1)

#define EA_CHOICE(name) (p->narrow ? name##_narrow : name##_wide)

static ea_row_function choose_row(const ea_plan *p) {
    const int gray = p->spec.color == EA_GRAY, blend = p->blend;
    switch (p->family) {
        case EA_PACKED3:
            if (gray) return EA_CHOICE(packed_gray);
            return blend == EA_PICK ? EA_CHOICE(packed_pick) : blend == EA_BOX2 ? EA_CHOICE(packed_box2) : EA_CHOICE(packed_general);
        case EA_MONO:
            return blend == EA_PICK ? EA_CHOICE(mono_pick) : blend == EA_BOX2 ? EA_CHOICE(mono_box2) : EA_CHOICE(mono_general);
        case EA_FAMILY_NV12:
            if (gray) return EA_CHOICE(nv12_gray);
            return blend == EA_PICK ? EA_CHOICE(nv12_pick) : blend == EA_BOX2 ? nv12_halved : EA_CHOICE(nv12_general);
        case EA_FAMILY_YUYV:
            if (gray) return EA_CHOICE(yuyv_gray);
            return blend == EA_PICK ? EA_CHOICE(yuyv_pick) : EA_CHOICE(yuyv_general);
        default: return gray ? EA_CHOICE(bayer_gray) : EA_CHOICE(bayer_general);
    }
}
