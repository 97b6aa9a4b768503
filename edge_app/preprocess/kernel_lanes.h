/* The bilinear kernels, written once for AVX2 and NEON. Included by one file each, after its lanes header.
 *
 * Values of 16 columns travel as "pairs", 32 bytes: taps 0 and 1 of each column in turn, columns 0..7 in the low lane;
 * or as "words", 16 values of 16 bits in the same order. The lanes headers define ea_v, 32 bytes in two lanes, and on it:
 *   v_load, v_load_two (16 bytes a lane), v_load_four (8 bytes each half lane), v_shuffle (0x80 gives 0), v_zip_*
 *   v_mul_pairs8: unsigned bytes by signed weights, neighbours summed to words; v_mul_pairs16: words to 32 bits
 *   v_mul_high16: upper half of the signed product; v_right16 logical, v_right32 arithmetic shifts
 *   v_add_pairs32: neighbours of a, then of b, added lane by lane; v_widen_two: 8 bytes a lane as words
 *   v_mean8: (a + b + 1) >> 1; v_clip16 to 0..255; v_narrow32: two of 32 bits to words; v_store_bytes16: words as bytes
 */
#include "kernels.h"
#include "measure.h"

#define EA_INLINE static inline __attribute__((always_inline))

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

/* Factors of a plan's Y'CbCr table, split as 128 * high + low for 16-bit products; see colour_words. */
typedef struct {
    ea_v y_min, first_high, first_low, second_high, second_low, last_high, last_low, other_high, other_low;
} colour_factors;

EA_INLINE ea_v word_pair(int even, int odd) { return v_set32((int)((uint32_t)(uint16_t)even | (uint32_t)odd << 16)); }

EA_INLINE int high_part(int32_t factor) { return factor >> 7; }
EA_INLINE int low_part(int32_t factor) { return factor & 127; }

/* Channel 0 depends on chroma x, channel 2 on chroma z: x = V for an RGB tensor, x = U for a BGR one. */
EA_INLINE colour_factors factors_of(const ea_plan *p) {
    const ea_yuv *t = &p->yuv;
    const int bgr = p->spec.color == EA_BGR;
    const int32_t x0 = bgr ? t->u_to_b : t->v_to_r, z2 = bgr ? t->v_to_r : t->u_to_b;
    const int32_t x1 = bgr ? t->u_to_g : t->v_to_g, z1 = bgr ? t->v_to_g : t->u_to_g;
    return (colour_factors){
        v_set16(t->y_min),
        word_pair(high_part(t->y_gain), high_part(x0)), word_pair(low_part(t->y_gain), low_part(x0)),
        word_pair(high_part(t->y_gain), high_part(x1)), word_pair(low_part(t->y_gain), low_part(x1)),
        word_pair(high_part(t->y_gain), high_part(z2)), word_pair(low_part(t->y_gain), low_part(z2)),
        word_pair(high_part(z1), 4096), word_pair(low_part(z1), 0), /* 4096 * 128 = 2^19, the rounding */
    };
}

/* (128 * high + low) >> 20, exactly: the low part's last 7 bits can't carry. */
EA_INLINE ea_v scaled(ea_v high, ea_v low) { return v_right32(v_add32(high, v_right32(low, 7)), 13); }

/* Words of luma y, chroma x and z, to words of the three channels. */
EA_INLINE void colour_words(const colour_factors *f, ea_v y, ea_v x, ea_v z, ea_v *out) {
    const ea_v half = v_set16(128), one = v_set16(1), rounding = v_set32(4096);
    y = v_sub_to_zero16(y, f->y_min);
    x = v_sub16(x, half);
    z = v_sub16(z, half);
    ea_v sums[3][2];
    for (int side = 0; side < 2; side++) {
        ea_v yx = side ? v_zip_high16(y, x) : v_zip_low16(y, x), yz = side ? v_zip_high16(y, z) : v_zip_low16(y, z);
        ea_v z1 = side ? v_zip_high16(z, one) : v_zip_low16(z, one);
        sums[0][side] = scaled(v_add32(v_mul_pairs16(yx, f->first_high), rounding), v_mul_pairs16(yx, f->first_low));
        sums[1][side] = scaled(v_add32(v_mul_pairs16(yx, f->second_high), v_mul_pairs16(z1, f->other_high)),
                               v_add32(v_mul_pairs16(yx, f->second_low), v_mul_pairs16(z1, f->other_low)));
        sums[2][side] = scaled(v_add32(v_mul_pairs16(yz, f->last_high), rounding), v_mul_pairs16(yz, f->last_low));
    }
    for (int c = 0; c < 3; c++) out[c] = v_clip16(v_narrow32(sums[c][0], sums[c][1]));
}

EA_INLINE ea_v even_bytes(ea_v pairs) { return v_and(pairs, v_set16(255)); }
EA_INLINE ea_v odd_bytes(ea_v pairs) { return v_right16(pairs, 8); }

EA_INLINE void colour_pairs(const colour_factors *f, ea_v y, ea_v x, ea_v z, ea_v *out) {
    ea_v even[3], odd[3];
    colour_words(f, even_bytes(y), even_bytes(x), even_bytes(z), even);
    colour_words(f, odd_bytes(y), odd_bytes(x), odd_bytes(z), odd);
    for (int c = 0; c < 3; c++) out[c] = v_or(even[c], v_left16(odd[c], 8));
}

/* Words of red, green, blue to words of luma: (9798 r + 19235 g + 3735 b + 2^14) >> 15. */
EA_INLINE ea_v luma_words(ea_v r, ea_v g, ea_v b) {
    const ea_v red_green = word_pair(9798, 19235), blue_one = word_pair(3735, 1 << 14), one = v_set16(1);
    ea_v low = v_add32(v_mul_pairs16(v_zip_low16(r, g), red_green), v_mul_pairs16(v_zip_low16(b, one), blue_one));
    ea_v high = v_add32(v_mul_pairs16(v_zip_high16(r, g), red_green), v_mul_pairs16(v_zip_high16(b, one), blue_one));
    return v_narrow32(v_right32(low, 15), v_right32(high, 15));
}

EA_INLINE ea_v luma_pairs(const ea_v *c) {
    ea_v even = luma_words(even_bytes(c[0]), even_bytes(c[1]), even_bytes(c[2]));
    ea_v odd = luma_words(odd_bytes(c[0]), odd_bytes(c[1]), odd_bytes(c[2]));
    return v_or(even, v_left16(odd, 8));
}

/* (a + b + c + d + 2) >> 2 on bytes: the mean of means, less its excess of rounding. */
EA_INLINE ea_v mean_of_four(ea_v a, ea_v b, ea_v c, ea_v d) {
    ea_v first = v_mean8(a, b), second = v_mean8(c, d);
    ea_v excess = v_and(v_and(v_or(v_xor(a, b), v_xor(c, d)), v_xor(first, second)), v_set8(1));
    return v_sub8(v_mean8(first, second), excess);
}

/* Demosaics the pairs of one row. above, own, below: left, own and right columns of each. red: 255 in columns of red sites. */
EA_INLINE void demosaic(const ea_v *above, const ea_v *own, const ea_v *below, ea_v red, int red_row, ea_v *out) {
    ea_v sides = v_mean8(own[0], own[2]), poles = v_mean8(above[1], below[1]);
    ea_v cross = mean_of_four(above[1], below[1], own[0], own[2]);
    ea_v corners = mean_of_four(above[0], above[2], below[0], below[2]);
    ea_v on_site = red_row ? red : v_xor(red, v_set8(255)); /* columns where this row has its own colour, not green */
    ea_v rows_colour = v_select(on_site, own[1], sides), other = v_select(on_site, corners, poles);
    out[0] = red_row ? rows_colour : other;
    out[1] = v_select(on_site, cross, own[1]);
    out[2] = red_row ? other : rows_colour;
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

/* Pairs (for a pick: words) of the tensor's channels of one source row; not for Bayer. Returns how many channels. */
EA_INLINE int row_taps(const ea_plan *p, const colour_factors *f, source_row r, int32_t g, int family, int narrow, int pick, ea_v *c) {
    if (family == EA_MONO) {
        fetch(r.row, &p->fetch[g], 1, narrow, c);
        return 1;
    }
    ea_v raw[3];
    if (family == EA_FAMILY_NV12) {
        fetch(r.row, &p->fetch[g], 1, narrow, raw);
        fetch(r.chroma, &p->chroma[g], 2, narrow, raw + 1);
    } else {
        fetch(r.row, &p->fetch[g], 3, narrow, raw);
    }
    if (family == EA_PACKED3) for (int i = 0; i < 3; i++) c[i] = raw[i];
    else if (pick) colour_words(f, raw[0], raw[1], raw[2], c);
    else colour_pairs(f, raw[0], raw[1], raw[2], c);
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
    for (int32_t at = from; at < to; at += 64) v_prefetch(row + at);
}

/* While one output row is made, the source rows of the next are fetched from memory, just behind the same columns. */
EA_INLINE void touch_next(const ea_plan *p, const ea_group *group, source_row upper, source_row lower, int rows) {
    touch(upper.row, group->touch, group->touch_end);
    if (rows > 1) touch(lower.row, group->touch, group->touch_end);
    if (p->chroma == NULL) return;
    touch(upper.chroma, group->chroma_touch, group->chroma_touch_end);
    if (rows > 1 && lower.chroma != upper.chroma) touch(lower.chroma, group->chroma_touch, group->chroma_touch_end);
}

EA_INLINE void bayer_touch_next(const ea_plan *p, const ea_group *group, const uint8_t *frame, int32_t y0) {
    const ea_spec *s = &p->spec;
    const int32_t first = y0 < 1 ? 0 : y0 - 1, end = y0 + 3 > s->height ? s->height : y0 + 3;
    for (int32_t y = first; y < end; y++) touch(frame + y * s->stride, group->touch, group->touch_end);
}

/* One output row as bytes, channel by channel, into out[c] of inner_w bytes. */
EA_INLINE void make_row(const ea_plan *p, const uint8_t *frame, int32_t j, uint8_t *const out[3], int family, int blend,
                        int narrow, int gray) {
    const ea_tap *y = &p->y[j], *next = &p->y[j + 1 < p->spec.inner_h ? j + 1 : j];
    const source_row r0 = source_row_at(p, frame, y->p0), r1 = source_row_at(p, frame, y->p1);
    const source_row n0 = source_row_at(p, frame, next->p0), n1 = source_row_at(p, frame, next->p1);
    const ea_v w0 = v_set16(y->w0), w1 = v_set16(y->w1);
    const colour_factors f = factors_of(p);
    for (int32_t g = 0; g < p->groups; g++) {
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
            v_store_bytes16(out[c] + group->x, blend == EA_PICK ? upper[c] : blended(upper[c], lower[c], group, w0, w1, blend));
    }
}

#define EA_ROW(name, family, blend, gray)                                                                                \
    static void name##_wide(const ea_plan *p, const uint8_t *frame, int32_t j, uint8_t *const out[3]) {                 \
        make_row(p, frame, j, out, family, blend, 0, gray);                                                             \
    }                                                                                                                    \
    static void name##_narrow(const ea_plan *p, const uint8_t *frame, int32_t j, uint8_t *const out[3]) {               \
        make_row(p, frame, j, out, family, blend, 1, gray);                                                             \
    }

EA_ROW(packed_pick, EA_PACKED3, EA_PICK, 0)
EA_ROW(packed_box2, EA_PACKED3, EA_BOX2, 0)
EA_ROW(packed_general, EA_PACKED3, EA_GENERAL, 0)
EA_ROW(packed_gray, EA_PACKED3, EA_GENERAL, 1)
EA_ROW(mono_pick, EA_MONO, EA_PICK, 0)
EA_ROW(mono_box2, EA_MONO, EA_BOX2, 0)
EA_ROW(mono_general, EA_MONO, EA_GENERAL, 0)
EA_ROW(nv12_pick, EA_FAMILY_NV12, EA_PICK, 0)
EA_ROW(nv12_box2, EA_FAMILY_NV12, EA_BOX2, 0)
EA_ROW(nv12_general, EA_FAMILY_NV12, EA_GENERAL, 0)
EA_ROW(nv12_gray, EA_FAMILY_NV12, EA_GENERAL, 1)
EA_ROW(yuyv_pick, EA_FAMILY_YUYV, EA_PICK, 0)
EA_ROW(yuyv_general, EA_FAMILY_YUYV, EA_GENERAL, 0)
EA_ROW(yuyv_gray, EA_FAMILY_YUYV, EA_GENERAL, 1)
EA_ROW(bayer_general, EA_FAMILY_BAYER, EA_GENERAL, 0)
EA_ROW(bayer_gray, EA_FAMILY_BAYER, EA_GENERAL, 1)

/* One row of sample points: no weights, the taps themselves. */
EA_INLINE void sample_row(const ea_plan *p, const uint8_t *frame, int32_t j, ea_samples *s, int family, int narrow) {
    const ea_tap *y = &p->y[j];
    const source_row r0 = source_row_at(p, frame, y->p0), r1 = source_row_at(p, frame, y->p1);
    const colour_factors f = factors_of(p);
    for (int32_t g = 0; g < p->groups; g++) {
        ea_v upper[3], lower[3];
        int channels = 3;
        if (family == EA_FAMILY_BAYER) {
            bayer_taps(p, frame, y, g, narrow, upper, lower);
        } else {
            channels = row_taps(p, &f, r0, g, family, narrow, 0, upper);
            row_taps(p, &f, r1, g, family, narrow, 0, lower);
        }
        ea_v here = channels == 1 ? upper[0] : luma_pairs(upper), below = channels == 1 ? lower[0] : luma_pairs(lower);
        v_store_bytes16(s->at + p->group[g].x, even_bytes(here));
        v_store_bytes16(s->right + p->group[g].x, odd_bytes(here));
        v_store_bytes16(s->below + p->group[g].x, even_bytes(below));
    }
}

/* Frames are sampled once each, so one function for all formats costs nothing. */
static void sample(const ea_plan *p, const uint8_t *frame, int32_t j, ea_samples *s) {
    const int narrow = p->narrow;
    switch (p->family) {
        case EA_PACKED3: sample_row(p, frame, j, s, EA_PACKED3, narrow); break;
        case EA_MONO: sample_row(p, frame, j, s, EA_MONO, narrow); break;
        case EA_FAMILY_NV12: sample_row(p, frame, j, s, EA_FAMILY_NV12, narrow); break;
        case EA_FAMILY_YUYV: sample_row(p, frame, j, s, EA_FAMILY_YUYV, narrow); break;
        default: sample_row(p, frame, j, s, EA_FAMILY_BAYER, narrow);
    }
}

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
            return blend == EA_PICK ? EA_CHOICE(nv12_pick) : blend == EA_BOX2 ? EA_CHOICE(nv12_box2) : EA_CHOICE(nv12_general);
        case EA_FAMILY_YUYV:
            if (gray) return EA_CHOICE(yuyv_gray);
            return blend == EA_PICK ? EA_CHOICE(yuyv_pick) : EA_CHOICE(yuyv_general);
        default: return gray ? EA_CHOICE(bayer_gray) : EA_CHOICE(bayer_general);
    }
}
