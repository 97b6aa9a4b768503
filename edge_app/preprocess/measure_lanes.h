/* What measure_frame.h needs, in SIMD. Included after kernel_lanes.h. */
#include "measure.h"
#include "pixel.h"
#include "scratch.h"

/* Words of ea_sample_luma at tap 0 (even bytes) or tap 1 of each column, from pairs. */
EA_INLINE ea_v sample_luma(const ea_v *c, int tap, int family) {
    if (family == EA_MONO) return tap ? odd_bytes(c[0]) : even_bytes(c[0]);
    const int one = tap ? 256 : 1;
    const ea_v red = v_mul_pairs8(c[0], v_set16(EA_LUMA_RED * one)), green = v_mul_pairs8(c[1], v_set16(EA_LUMA_GREEN * one));
    const ea_v blue = v_mul_pairs8(c[2], v_set16(EA_LUMA_BLUE * one));
    return v_right16(v_add16(v_add16(red, green), v_add16(blue, v_set16(64))), 7);
}

/* The same at tap 0 of one source row; not for Bayer. */
EA_INLINE ea_v first_luma(const ea_plan *p, const colour_factors *f, source_row r, int32_t g, int family, int narrow) {
    ea_v c[3], picked[3];
    const int channels = raw_taps(p, r, g, family, narrow, c);
    if (!is_yuv(family)) return sample_luma(c, 0, family);
    for (int i = 0; i < channels; i++) c[i] = even_bytes(c[i]);
    colour_picked(f, c[0], c[1], c[2], picked);
    for (int i = 0; i < channels; i++) c[i] = paired(picked[i], picked[i]);
    return sample_luma(c, 0, family);
}

/* One row of sample points: no weights, the taps themselves. */
EA_INLINE void sample_row(const ea_plan *shared, const uint8_t *frame, int32_t j, const samples *out, int family, int narrow) {
    const ea_plan own = *shared, *p = &own; /* as in make_row */
    const samples own_out = *out, *to = &own_out;
    const ea_tap *y = &p->y[j], *next = &p->y[j + AHEAD < p->spec.inner_h ? j + AHEAD : j];
    const source_row r0 = source_row_at(p, frame, y->p0), r1 = source_row_at(p, frame, y->p1);
    const source_row n0 = source_row_at(p, frame, next->p0), n1 = source_row_at(p, frame, next->p1);
    const colour_factors f = factors_of(p);
    for (int32_t g = 0; g < p->groups; g++) {
        const int32_t x = p->group[g].x;
        ea_v upper[3], lower[3], below;
        if (family == EA_FAMILY_BAYER) {
            bayer_touch_next(p, &p->group[g], frame, next->p0);
            bayer_taps(p, frame, y, g, narrow, upper, lower);
            below = sample_luma(lower, 0, family);
        } else {
            touch_next(p, &p->group[g], n0, n1, 2);
            row_taps(p, &f, r0, g, family, narrow, 0, upper);
            below = first_luma(p, &f, r1, g, family, narrow);
        }
        const ea_v here = sample_luma(upper, 0, family), right = sample_luma(upper, 1, family);
        v_store_bytes16(to->luma + x, here);
        v_store_bytes16(to->across + x, v_step8(here, right));
        v_store_bytes16(to->down + x, v_step8(here, below));
    }
}

/* Functions of their own, so that each family has the registers for itself. */
#define EA_SAMPLER(name, family)                                                                                         \
    static __attribute__((noinline)) void name(const ea_plan *p, const uint8_t *frame, int32_t j, const samples *to) { \
        if (p->narrow) sample_row(p, frame, j, to, family, 1);                                                         \
        else sample_row(p, frame, j, to, family, 0);                                                                   \
    }
EA_SAMPLER(sample_packed, EA_PACKED3)
EA_SAMPLER(sample_mono, EA_MONO)
EA_SAMPLER(sample_nv12, EA_FAMILY_NV12)
EA_SAMPLER(sample_yuyv, EA_FAMILY_YUYV)
EA_SAMPLER(sample_bayer, EA_FAMILY_BAYER)

static void sample(const ea_plan *p, const uint8_t *frame, int32_t j, const samples *to) {
    switch (p->family) {
        case EA_PACKED3: sample_packed(p, frame, j, to); break;
        case EA_MONO: sample_mono(p, frame, j, to); break;
        case EA_FAMILY_NV12: sample_nv12(p, frame, j, to); break;
        case EA_FAMILY_YUYV: sample_yuyv(p, frame, j, to); break;
        default: sample_bayer(p, frame, j, to);
    }
}

EA_INLINE int64_t total32(ea_v v) {
    uint32_t lanes[8];
    int64_t total = 0;
    memcpy(lanes, &v, sizeof lanes);
    for (int i = 0; i < 8; i++) total += lanes[i];
    return total;
}

static int64_t sum_of(const uint8_t *v, int32_t n) {
    ea_v sums = v_set8(0);
    for (int32_t i = 0; i < n; i += MEASURE_STEP) sums = v_add32(sums, v_sums8(v_load(v + i)));
    return total32(sums);
}

static void add_to_words(uint16_t *sums, const uint8_t *v, int32_t n) {
    for (int32_t i = 0; i < n; i += EA_GROUP) v_store_words16((int16_t *)sums + i, v_add16(v_load(sums + i), v_widen16(v + i)));
}

static int64_t count_at_least(const uint8_t *v, int32_t n, int limit, int32_t step) {
    const ea_v least = v_set8(limit);
    ea_v counts = v_set8(0);
    for (int32_t i = 0; i < n;) {
        const int32_t most = i + 255 * step, end = most < n ? most : n; /* so far a byte counts */
        ea_v some = v_set8(0);
        for (; i < end; i += step) some = v_sub8(some, v_at_least8(v_load(v + i), least));
        counts = v_add32(counts, v_sums8(some));
    }
    return total32(counts);
}

/* Lanes of squares hold four of each MEASURE_STEP: of the largest grid, all steps 255, 1.7e9. */
static ea_edges edges_of(const uint8_t *steps, int32_t n, int limit) {
    const ea_v least = v_set8(limit), one = v_set8(1);
    ea_v counts = v_set8(0), sums = counts, squares = counts;
    for (int32_t i = 0; i < n; i += MEASURE_STEP) {
        const ea_v v = v_load(steps + i), is_edge = v_at_least8(v, least), edges = v_and(v, is_edge);
        const ea_v even = even_bytes(edges), odd = odd_bytes(edges);
        counts = v_add32(counts, v_sums8(v_and(is_edge, one)));
        sums = v_add32(sums, v_sums8(edges));
        squares = v_add32(squares, v_add32(v_mul_pairs16(even, even), v_mul_pairs16(odd, odd)));
    }
    return (ea_edges){total32(counts), total32(sums), total32(squares)};
}
