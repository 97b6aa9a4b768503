#include "scan.h"

#include <string.h>

/* A whole block at once, for CPUs that have SIMD: maxima of bit patterns as unsigned integers, kept in registers. The next
 * block of each row is fetched meanwhile. */
#if defined(__x86_64__)
#include <immintrin.h>
#define EA_SIMD __attribute__((target("avx2")))
typedef __m256i vector;
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define MAX_U32 _mm256_max_epu32
#define MAX_U16 _mm256_max_epu16
#define MAX_U8 _mm256_max_epu8
#define SAME_F32(a, b) _mm256_castps_si256(_mm256_cmp_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _CMP_EQ_OQ))
#define SELECT(mask, a, b) _mm256_blendv_epi8(b, a, mask)
#define SET_S32 _mm256_set1_epi32
static int has_simd(void) { return __builtin_cpu_supports("avx2"); }
#elif defined(__aarch64__)
#include <arm_neon.h>
#define EA_SIMD
typedef uint8x16_t vector;
#define LOAD(p) vld1q_u8((const uint8_t *)(p))
#define STORE(p, v) vst1q_u8((uint8_t *)(p), v)
#define MAX_U32(a, b) vreinterpretq_u8_u32(vmaxq_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)))
#define MAX_U16(a, b) vreinterpretq_u8_u16(vmaxq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
#define MAX_U8(a, b) vmaxq_u8(a, b)
#define SAME_F32(a, b) vreinterpretq_u8_u32(vceqq_f32(vreinterpretq_f32_u8(a), vreinterpretq_f32_u8(b)))
#define SELECT(mask, a, b) vbslq_u8(mask, a, b)
#define SET_S32(v) vreinterpretq_u8_s32(vdupq_n_s32(v))
static int has_simd(void) { return 1; }
#endif

#ifdef EA_SIMD
#define BLOCK_MAX(name, type, max)                                                                          \
    EA_SIMD static void name(const type *t, size_t stride, size_t rows, type *best) {                       \
        enum { VECTORS = EA_BLOCK * sizeof(type) / sizeof(vector) };                                        \
        vector top[VECTORS];                                                                                \
        for (size_t k = 0; k < VECTORS; k++) top[k] = LOAD((const char *)t + k * sizeof(vector));           \
        for (size_t r = 1; r < rows; r++) {                                                                 \
            const char *row = (const char *)(t + r * stride);                                               \
            for (size_t k = 0; k < VECTORS * sizeof(vector); k += 64) __builtin_prefetch(row + EA_BLOCK * sizeof(type) + k, 0, 2); \
            for (size_t k = 0; k < VECTORS; k++) top[k] = max(top[k], LOAD(row + k * sizeof(vector)));      \
        }                                                                                                   \
        for (size_t k = 0; k < VECTORS; k++) STORE((char *)best + k * sizeof(vector), top[k]);              \
    }
BLOCK_MAX(whole_block_u32, uint32_t, MAX_U32)
BLOCK_MAX(whole_block_u16, uint16_t, MAX_U16)
BLOCK_MAX(whole_block_u8, uint8_t, MAX_U8)

/* From the last row to the first, so that the first one stays. */
EA_SIMD static void whole_stretch_first(const float *t, size_t stride, size_t rows, const float *best, int32_t *row) {
    enum { VECTORS = EA_STRETCH * sizeof(float) / sizeof(vector), EACH = sizeof(vector) / sizeof(float) };
    vector top[VECTORS], found[VECTORS];
    for (size_t k = 0; k < VECTORS; k++) {
        top[k] = LOAD(best + k * EACH);
        found[k] = SET_S32(-1);
    }
    for (size_t r = rows; r-- > 0;) {
        const vector here = SET_S32((int32_t)r);
        for (size_t k = 0; k < VECTORS; k++) found[k] = SELECT(SAME_F32(LOAD(t + r * stride + k * EACH), top[k]), here, found[k]);
    }
    for (size_t k = 0; k < VECTORS; k++) STORE(row + k * EACH, found[k]);
}
#endif

/* Negative for NaN and infinity: their magnitude bits lie above those of the largest float. */
static int32_t finite_sign(const float *v) {
    int32_t bits;
    memcpy(&bits, v, 4);
    return 0x7f7fffff - (bits & 0x7fffffff);
}

static inline __attribute__((always_inline)) int all_finite(const float *v, size_t count) {
    int32_t signs = 0;
    for (size_t i = 0; i < count; i++) signs |= finite_sign(v + i);
    return signs >= 0;
}

#if defined(__x86_64__)
EA_SIMD static int all_finite_simd(const float *v, size_t count) { return all_finite(v, count); }
#endif

int ea_all_finite(const float *v, size_t count) {
#if defined(__x86_64__)
    if (has_simd()) return all_finite_simd(v, count);
#endif
    return all_finite(v, count);
}

static int plain_max_f32(const float *t, size_t stride, size_t rows, size_t count, float *best) {
    int32_t signs = 0;
    memcpy(best, t, count * sizeof *best);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < count; i++) {
            const float v = t[r * stride + i];
            best[i] = v > best[i] ? v : best[i];
            signs |= finite_sign(&v);
        }
    return signs >= 0;
}

/* As unsigned integers, finite floats that are not negative come in their order, below infinity, NaN and all negative ones.
 * So a maximum below infinity is the true one and vouches for its whole column; else the plain loop has a closer look. */
int ea_block_max_f32(const float *t, size_t stride, size_t rows, size_t count, float *best) {
#ifdef EA_SIMD
    if (count == EA_BLOCK && has_simd()) {
        uint32_t bits[EA_BLOCK], largest = 0;
        whole_block_u32((const uint32_t *)(const void *)t, stride, rows, bits);
        for (size_t i = 0; i < EA_BLOCK; i++) largest = bits[i] > largest ? bits[i] : largest;
        memcpy(best, bits, sizeof bits);
        if (largest < 0x7f800000u) return 1;
    }
#endif
    return plain_max_f32(t, stride, rows, count, best);
}

void ea_block_max_u8(const uint8_t *t, size_t stride, size_t rows, size_t count, uint16_t *best) {
    uint8_t top[EA_BLOCK];
#ifdef EA_SIMD
    if (count == EA_BLOCK && has_simd()) whole_block_u8(t, stride, rows, top);
    else
#endif
    {
        memcpy(top, t, count);
        for (size_t r = 1; r < rows; r++)
            for (size_t i = 0; i < count; i++) top[i] = t[r * stride + i] > top[i] ? t[r * stride + i] : top[i];
    }
    for (size_t i = 0; i < count; i++) best[i] = top[i];
}

void ea_block_max_u16(const uint16_t *t, size_t stride, size_t rows, size_t count, uint16_t *best) {
#ifdef EA_SIMD
    if (count == EA_BLOCK && has_simd()) {
        whole_block_u16(t, stride, rows, best);
        return;
    }
#endif
    memcpy(best, t, 2 * count);
    for (size_t r = 1; r < rows; r++)
        for (size_t i = 0; i < count; i++) best[i] = t[r * stride + i] > best[i] ? t[r * stride + i] : best[i];
}

void ea_first_rows_f32(const float *t, size_t stride, size_t rows, size_t count, const float *best, int32_t *row) {
#ifdef EA_SIMD
    if (count == EA_STRETCH && has_simd()) {
        whole_stretch_first(t, stride, rows, best, row);
        return;
    }
#endif
    for (size_t i = 0; i < count; i++) {
        row[i] = -1;
        for (size_t r = 0; r < rows && row[i] < 0; r++)
            if (t[r * stride + i] == best[i]) row[i] = (int32_t)r;
    }
}
