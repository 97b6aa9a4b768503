/* 32 bytes as two lanes of 16, lane by lane: AVX2. See lanes.h for what each must do. */
#ifndef EA_LANES_AVX2_H
#define EA_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>

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
static inline ea_v v_mul_pairs8(ea_v bytes, ea_v weights) { return _mm256_maddubs_epi16(bytes, weights); }

static inline ea_v v_add16(ea_v a, ea_v b) { return _mm256_add_epi16(a, b); }
static inline ea_v v_sub16(ea_v a, ea_v b) { return _mm256_sub_epi16(a, b); }
static inline ea_v v_sub_to_zero16(ea_v a, ea_v b) { return _mm256_subs_epu16(a, b); }
static inline ea_v v_right16(ea_v a, int bits) { return _mm256_srli_epi16(a, bits); }
static inline ea_v v_left16(ea_v a, int bits) { return _mm256_slli_epi16(a, bits); }
static inline ea_v v_mul_high16(ea_v a, ea_v b) { return _mm256_mulhi_epi16(a, b); }
static inline ea_v v_clip16(ea_v a) {
    return _mm256_max_epi16(_mm256_min_epi16(a, _mm256_set1_epi16(255)), _mm256_setzero_si256());
}
static inline ea_v v_mul_pairs16(ea_v a, ea_v b) { return _mm256_madd_epi16(a, b); }

static inline ea_v v_add32(ea_v a, ea_v b) { return _mm256_add_epi32(a, b); }
static inline ea_v v_right32(ea_v a, int bits) { return _mm256_srai_epi32(a, bits); }
static inline ea_v v_right32_by(ea_v a, int bits) { return _mm256_sra_epi32(a, _mm_cvtsi32_si128(bits)); }
static inline ea_v v_add_pairs32(ea_v a, ea_v b) { return _mm256_hadd_epi32(a, b); }
static inline ea_v v_narrow32(ea_v low, ea_v high) { return _mm256_packs_epi32(low, high); }

static inline void v_store_bytes16(uint8_t *to, ea_v a) {
    __m128i low = _mm256_castsi256_si128(a), high = _mm256_extracti128_si256(a, 1);
    _mm_storeu_si128((__m128i *)to, _mm_packus_epi16(low, high));
}
static inline void v_store_words16(int16_t *to, ea_v a) { _mm256_storeu_si256((__m256i *)to, a); }
static inline void v_prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

#endif
