/* 32 bytes as two lanes of 16, lane by lane: AVX2. See lanes.h for what each must do. */
#ifndef EA_LANES_AVX2_H
#define EA_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m256i ea_v;

static inline ea_v v_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline ea_v v_load_two(const uint8_t *low, const uint8_t *high) {
    __m128i a = _mm_loadu_si128((const __m128i *)low), b = _mm_loadu_si128((const __m128i *)high);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}
static inline __m128i load_halves(const uint8_t *first, const uint8_t *second) {
    __m128i a = _mm_loadl_epi64((const __m128i *)first);
    return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(a), (const __m64 *)second));
}
static inline ea_v v_load_four(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_halves(a, b)), load_halves(c, d), 1);
}
/* 8 bytes a lane, as words. */
static inline ea_v v_widen_two(const uint8_t *low, const uint8_t *high) {
    return _mm256_cvtepu8_epi16(load_halves(low, high));
}
static inline ea_v v_widen16(const uint8_t *p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)); }
static inline ea_v v_shuffle(ea_v a, ea_v by) { return _mm256_shuffle_epi8(a, by); }
static inline ea_v v_zip_low16(ea_v a, ea_v b) { return _mm256_unpacklo_epi16(a, b); }
static inline ea_v v_zip_high16(ea_v a, ea_v b) { return _mm256_unpackhi_epi16(a, b); }
static inline ea_v v_zip_low32(ea_v a, ea_v b) { return _mm256_unpacklo_epi32(a, b); }
static inline ea_v v_zip_high32(ea_v a, ea_v b) { return _mm256_unpackhi_epi32(a, b); }
static inline ea_v v_zip_low64(ea_v a, ea_v b) { return _mm256_unpacklo_epi64(a, b); }
static inline ea_v v_zip_high64(ea_v a, ea_v b) { return _mm256_unpackhi_epi64(a, b); }

static inline ea_v v_set8(int v) { return _mm256_set1_epi8((char)v); }
static inline ea_v v_set16(int v) { return _mm256_set1_epi16((short)v); }
static inline ea_v v_set32(int v) { return _mm256_set1_epi32(v); }
static inline ea_v v_and(ea_v a, ea_v b) { return _mm256_and_si256(a, b); }
static inline ea_v v_or(ea_v a, ea_v b) { return _mm256_or_si256(a, b); }
static inline ea_v v_xor(ea_v a, ea_v b) { return _mm256_xor_si256(a, b); }
static inline ea_v v_select(ea_v mask, ea_v a, ea_v b) { return _mm256_blendv_epi8(b, a, mask); }

static inline ea_v v_mean8(ea_v a, ea_v b) { return _mm256_avg_epu8(a, b); }
static inline ea_v v_sub8(ea_v a, ea_v b) { return _mm256_sub_epi8(a, b); }
static inline ea_v v_step8(ea_v a, ea_v b) { return _mm256_or_si256(_mm256_subs_epu8(a, b), _mm256_subs_epu8(b, a)); }
static inline ea_v v_at_least8(ea_v a, ea_v b) { return _mm256_cmpeq_epi8(_mm256_max_epu8(a, b), a); }
static inline ea_v v_sums8(ea_v a) { return _mm256_sad_epu8(a, _mm256_setzero_si256()); }
static inline ea_v v_mul_pairs8(ea_v bytes, ea_v weights) { return _mm256_maddubs_epi16(bytes, weights); }

static inline ea_v v_add16(ea_v a, ea_v b) { return _mm256_add_epi16(a, b); }
static inline ea_v v_sub16(ea_v a, ea_v b) { return _mm256_sub_epi16(a, b); }
static inline ea_v v_sub_to_zero8(ea_v a, ea_v b) { return _mm256_subs_epu8(a, b); }
static inline ea_v v_right16(ea_v a, int bits) { return _mm256_srli_epi16(a, bits); }
static inline ea_v v_left16(ea_v a, int bits) { return _mm256_slli_epi16(a, bits); }
static inline ea_v v_mul_high16(ea_v a, ea_v b) { return _mm256_mulhi_epi16(a, b); }
static inline ea_v v_narrow16(ea_v a, ea_v b) { return _mm256_packus_epi16(a, b); }
static inline ea_v v_alternate(ea_v a) {
    const __m128i order = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(order));
}
static inline ea_v v_mul_pairs16(ea_v a, ea_v b) { return _mm256_madd_epi16(a, b); }

static inline ea_v v_add32(ea_v a, ea_v b) { return _mm256_add_epi32(a, b); }
static inline ea_v v_right32(ea_v a, int bits) { return _mm256_srai_epi32(a, bits); }
static inline ea_v v_right32_by(ea_v a, int bits) { return _mm256_srav_epi32(a, _mm256_set1_epi32(bits)); }
static inline ea_v v_add_pairs32(ea_v a, ea_v b) { return _mm256_hadd_epi32(a, b); }
static inline ea_v v_narrow32(ea_v low, ea_v high) { return _mm256_packs_epi32(low, high); }

static inline void v_store_bytes16(uint8_t *to, ea_v a) {
    __m128i low = _mm256_castsi256_si128(a), high = _mm256_extracti128_si256(a, 1);
    _mm_storeu_si128((__m128i *)to, _mm_packus_epi16(low, high));
}
static inline void v_store_words16(int16_t *to, ea_v a) { _mm256_storeu_si256((__m256i *)to, a); }
static inline ea_v v_load_same(const uint8_t *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)); }
static inline ea_v v_add_lanes32(ea_v a, ea_v b) {
    return _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xf0), _mm256_permute2x128_si256(a, b, 0x21));
}
/* Words of pixels 0, 2 (low lane) and 1, 3 in a, 4, 6 and 5, 7 in b, four each of which the last is not used, as eight bytes
 * of each channel. */
static inline void v_store_eights(uint8_t *const to[3], int32_t at, ea_v a, ea_v b) {
    const __m128i by_channel = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const ea_v bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(a, b), _mm256_broadcastsi128_si256(by_channel));
    const __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
    const __m128i first_two = _mm_unpacklo_epi8(even, odd);
    _mm_storel_epi64((__m128i *)(to[0] + at), first_two);
    const int64_t second = _mm_extract_epi64(first_two, 1);
    memcpy(to[1] + at, &second, 8);
    _mm_storel_epi64((__m128i *)(to[2] + at), _mm_unpackhi_epi8(even, odd));
}

typedef struct {
    ea_v low, high;
} wide;
/* A word w becomes the pair 128 * w, w: one multiply-add with the pair of a factor's upper bits and its lower seven is the
 * whole product. */
static inline wide v_factorable(ea_v words) {
    const ea_v shifted = v_left16(words, 7);
    return (wide){v_zip_low16(shifted, words), v_zip_high16(shifted, words)};
}
static inline ea_v v_factor(int32_t f) { return v_set32((int32_t)((uint32_t)(f & 127) << 16 | (uint16_t)(f >> 7))); }
static inline wide v_times(wide a, ea_v f) { return (wide){v_mul_pairs16(a.low, f), v_mul_pairs16(a.high, f)}; }
/* Values of tap 0 and of tap 1, shifted right by 20 bits and clipped, as pairs: of the upper words, four bits too long. */
static inline __m256i upper_words_right4(__m256i even, __m256i odd) {
    return _mm256_srai_epi16(_mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa), 4);
}
static inline ea_v v_pairs_right20(wide even, wide odd) {
    return _mm256_packus_epi16(upper_words_right4(even.low, odd.low), upper_words_right4(even.high, odd.high));
}

/* The factors of eight values, in registers. */
typedef struct {
    __m256 high, low, b;
} v_factors8;
static inline v_factors8 v_load_factors8(const float *high, const float *low, const float *b) {
    return (v_factors8){_mm256_loadu_ps(high), _mm256_loadu_ps(low), _mm256_loadu_ps(b)};
}
/* Eight bytes to floats p * high + (p * low + b); the _words and _bytes stores round those half to even and saturate.
 * p * high is exact, so that a fused multiply-add gives the same bits. */
static inline __m256 affine8(const uint8_t *in, const v_factors8 *f) {
    const __m256 p = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)in)));
    return _mm256_fmadd_ps(p, f->high, _mm256_add_ps(_mm256_mul_ps(p, f->low), f->b));
}
static inline __m128i quantised8(__m256 value, float top) {
    const __m256 inside = _mm256_min_ps(_mm256_max_ps(value, _mm256_setzero_ps()), _mm256_set1_ps(top));
    const __m256i q = _mm256_cvtps_epi32(inside);
    return _mm_packus_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
}
static inline void v_store_floats8(float *to, const uint8_t *in, const v_factors8 *f) {
    _mm256_storeu_ps(to, affine8(in, f));
}
static inline void v_store_words8(uint16_t *to, const uint8_t *in, const v_factors8 *f) {
    _mm_storeu_si128((__m128i *)to, quantised8(affine8(in, f), 65535.0f));
}
static inline void v_store_bytes8(uint8_t *to, const uint8_t *in, const v_factors8 *f) {
    const __m128i words = quantised8(affine8(in, f), 255.0f);
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(words, words));
}
/* Byte 3 i + c of the three vectors in a row is byte i of channel c, the others 0x80. */
#define EA_TRIPLE(c, at) ((at) % 3 == (c) ? (at) / 3 : -128)
#define EA_TRIPLES8(c, at)                                                                                              \
    EA_TRIPLE(c, at), EA_TRIPLE(c, (at) + 1), EA_TRIPLE(c, (at) + 2), EA_TRIPLE(c, (at) + 3), EA_TRIPLE(c, (at) + 4),   \
        EA_TRIPLE(c, (at) + 5), EA_TRIPLE(c, (at) + 6), EA_TRIPLE(c, (at) + 7)
#define EA_TRIPLES16(c, at) _mm_setr_epi8(EA_TRIPLES8(c, at), EA_TRIPLES8(c, (at) + 8))
static inline __m128i triples(__m128i a, __m128i b, __m128i c, __m128i of_a, __m128i of_b, __m128i of_c) {
    return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, of_a), _mm_shuffle_epi8(b, of_b)), _mm_shuffle_epi8(c, of_c));
}
/* 16 bytes of each channel as 16 triples. */
static inline void v_store_triples(uint8_t *to, const uint8_t *first, const uint8_t *second, const uint8_t *third) {
    const __m128i a = _mm_loadu_si128((const __m128i *)first), b = _mm_loadu_si128((const __m128i *)second);
    const __m128i c = _mm_loadu_si128((const __m128i *)third);
    __m128i *out = (__m128i *)to;
    _mm_storeu_si128(out, triples(a, b, c, EA_TRIPLES16(0, 0), EA_TRIPLES16(1, 0), EA_TRIPLES16(2, 0)));
    _mm_storeu_si128(out + 1, triples(a, b, c, EA_TRIPLES16(0, 16), EA_TRIPLES16(1, 16), EA_TRIPLES16(2, 16)));
    _mm_storeu_si128(out + 2, triples(a, b, c, EA_TRIPLES16(0, 32), EA_TRIPLES16(1, 32), EA_TRIPLES16(2, 32)));
}
/* Into the second level: there wait more loads at a time than in the first. Always inlined, or gcc takes the function,
 * which seems to do nothing, away. */
static inline __attribute__((always_inline)) void v_prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

#endif
