/* Colour in SIMD: Y'CbCr, luma, Bayer. The arithmetic of pixel.h; see kernel_lanes.h for pairs, words and the v_ operations. */

EA_INLINE ea_v word_pair(int even, int odd) { return v_set32((int)((uint32_t)(uint16_t)even | (uint32_t)odd << 16)); }

/* The lanes headers also define wide, 16 values of 32 bits (columns 0..3 and 8..11, then 4..7 and 12..15), and exact products
 * of words of at most 8 bits and a sign with factors of 22 bits: v_times(v_factorable(words), v_factor(f)). */
EA_INLINE wide wide_sum(wide a, wide b) { return (wide){v_add32(a.low, b.low), v_add32(a.high, b.high)}; }

/* A plan's Y'CbCr table. Channel 0 depends on chroma x, channel 2 on chroma z: x is V for an RGB tensor, U for a BGR one. */
typedef struct {
    ea_v y_min, y, x0, x1, z1, z2;
} colour_factors;

EA_INLINE colour_factors factors_of(const ea_plan *p) {
    const ea_yuv *t = &p->yuv;
    const int bgr = p->spec.color == EA_BGR;
    return (colour_factors){
        v_set8(t->y_min), v_factor(t->y_gain),
        v_factor(bgr ? t->u_to_b : t->v_to_r), v_factor(bgr ? t->u_to_g : t->v_to_g),
        v_factor(bgr ? t->v_to_g : t->u_to_g), v_factor(bgr ? t->v_to_r : t->u_to_b),
    };
}

/* What chroma words x and z add to each channel. */
EA_INLINE void chroma_terms(const colour_factors *f, ea_v x, ea_v z, wide *out) {
    const ea_v half = v_set16(128);
    const wide fx = v_factorable(v_sub16(x, half)), fz = v_factorable(v_sub16(z, half));
    out[0] = v_times(fx, f->x0);
    out[1] = wide_sum(v_times(fx, f->x1), v_times(fz, f->z1));
    out[2] = v_times(fz, f->z2);
}

/* Sums of the channels, 20 bits too long, from luma words that begin at 0 and chroma terms. */
EA_INLINE void colour_sums(const colour_factors *f, ea_v y, const wide *chroma, wide *out) {
    const ea_v rounding = v_set32(1 << 19);
    const wide luma = v_times(v_factorable(y), f->y);
    const wide rounded = {v_add32(luma.low, rounding), v_add32(luma.high, rounding)};
    for (int c = 0; c < 3; c++) out[c] = wide_sum(rounded, chroma[c]);
}

EA_INLINE ea_v even_bytes(ea_v pairs) { return v_and(pairs, v_set16(255)); }
EA_INLINE ea_v odd_bytes(ea_v pairs) { return v_right16(pairs, 8); }

/* Words of tap 0 and of tap 1, clipped, as pairs. */
EA_INLINE ea_v paired(ea_v even, ea_v odd) { return v_alternate(v_narrow16(even, odd)); }

/* Pairs of the channels, from luma pairs and the chroma terms of tap 0 and of tap 1. */
EA_INLINE void colour_pairs(const colour_factors *f, ea_v y, const wide *chroma0, const wide *chroma1, ea_v *out) {
    const ea_v luma = v_sub_to_zero8(y, f->y_min);
    wide even[3], odd[3];
    colour_sums(f, even_bytes(luma), chroma0, even);
    colour_sums(f, odd_bytes(luma), chroma1, odd);
    for (int c = 0; c < 3; c++) out[c] = v_pairs_right20(even[c], odd[c]);
}

EA_INLINE void colour_of_pairs(const colour_factors *f, ea_v y, ea_v x, ea_v z, ea_v *out) {
    wide chroma[2][3];
    chroma_terms(f, even_bytes(x), even_bytes(z), chroma[0]);
    chroma_terms(f, odd_bytes(x), odd_bytes(z), chroma[1]);
    colour_pairs(f, y, chroma[0], chroma[1], out);
}

EA_INLINE void colour_picked(const colour_factors *f, ea_v y, ea_v x, ea_v z, ea_v *out) {
    wide chroma[3], sums[3];
    chroma_terms(f, x, z, chroma);
    colour_sums(f, v_sub_to_zero8(y, f->y_min), chroma, sums);
    for (int c = 0; c < 3; c++) out[c] = v_narrow32(v_right32(sums[c].low, 20), v_right32(sums[c].high, 20));
}

/* Words of red, green, blue to words of luma: (9798 r + 19235 g + 3735 b + 2^14) >> 15. */
EA_INLINE ea_v luma_words(ea_v r, ea_v g, ea_v b) {
    const ea_v red_green = word_pair(9798, 19235), blue_one = word_pair(3735, 1 << 14), one = v_set16(1);
    ea_v low = v_add32(v_mul_pairs16(v_zip_low16(r, g), red_green), v_mul_pairs16(v_zip_low16(b, one), blue_one));
    ea_v high = v_add32(v_mul_pairs16(v_zip_high16(r, g), red_green), v_mul_pairs16(v_zip_high16(b, one), blue_one));
    return v_narrow32(v_right32(low, 15), v_right32(high, 15));
}

/* Words of luma of tap 0 and of tap 1, from pairs. */
EA_INLINE ea_v even_luma(const ea_v *c, int family) {
    if (family == EA_MONO) return even_bytes(c[0]);
    return luma_words(even_bytes(c[0]), even_bytes(c[1]), even_bytes(c[2]));
}
EA_INLINE ea_v odd_luma(const ea_v *c, int family) {
    if (family == EA_MONO) return odd_bytes(c[0]);
    return luma_words(odd_bytes(c[0]), odd_bytes(c[1]), odd_bytes(c[2]));
}
EA_INLINE ea_v luma_pairs(const ea_v *c) { return paired(even_luma(c, EA_PACKED3), odd_luma(c, EA_PACKED3)); }

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
