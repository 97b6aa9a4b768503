#include "scan.h"

#include <string.h>

/* SIMD: the floats of a column in turn, or bit patterns as unsigned integers. */
#if defined(__x86_64__)
#include <immintrin.h>
#define EA_SIMD __attribute__((target("avx2,fma")))
typedef __m256i vector;
typedef __m256 floats;
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define MAX_U16 _mm256_max_epu16
#define MAX_U8 _mm256_max_epu8
#define SELECT(mask, a, b) _mm256_blendv_epi8(b, a, mask)
#define SET_S32 _mm256_set1_epi32
#define LOAD_F32 _mm256_loadu_ps
#define STORE_F32 _mm256_storeu_ps
#define SET_F32 _mm256_set1_ps
#define MAX_F32 _mm256_max_ps
#define ABOVE_F32(a, b) _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ))
#define FMA_F32(a, b, sum) _mm256_fmadd_ps(a, b, sum)
static int has_simd(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#elif defined(__aarch64__)
#include <arm_neon.h>
#define EA_SIMD
typedef uint8x16_t vector;
typedef float32x4_t floats;
#define LOAD(p) vld1q_u8((const uint8_t *)(p))
#define STORE(p, v) vst1q_u8((uint8_t *)(p), v)
#define MAX_U16(a, b) vreinterpretq_u8_u16(vmaxq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)))
#define MAX_U8(a, b) vmaxq_u8(a, b)
#define SELECT(mask, a, b) vbslq_u8(mask, a, b)
#define SET_S32(v) vreinterpretq_u8_s32(vdupq_n_s32(v))
#define LOAD_F32 vld1q_f32
#define STORE_F32 vst1q_f32
#define SET_F32 vdupq_n_f32
#define MAX_F32 vmaxq_f32
#define ABOVE_F32(a, b) vreinterpretq_u8_u32(vcgtq_f32(a, b))
#define FMA_F32(a, b, sum) vfmaq_f32(sum, a, b)
static int has_simd(void) { return 1; }
#endif

#ifdef EA_SIMD
/* A whole block at once, its maxima kept in registers. The next block of each row is fetched meanwhile. */
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
BLOCK_MAX(whole_block_u16, uint16_t, MAX_U16)
BLOCK_MAX(whole_block_u8, uint8_t, MAX_U8)

/* Rows first .. first + rows - 1, all columns: at least as many as a vector has. `invalid` stays 0 for finite values. */
EA_SIMD static inline __attribute__((always_inline)) void take_rows(const float *t, size_t stride, size_t first, size_t rows,
                                                                    size_t count, float *best, int32_t *row, float *invalid) {
    enum { EACH = sizeof(floats) / sizeof(float) };
    const floats zero = SET_F32(0.0f);
    for (size_t x = 0; x < count; x += EACH) {
        const size_t i = x < count - EACH ? x : count - EACH; /* the last ones overlap those before */
        const float *at = t + first * stride + i;
        floats top = LOAD_F32(best + i), product = zero;
        vector found = LOAD(row + i);
        for (size_t r = 0; r < rows; r++) {
            const floats here = LOAD_F32(at + r * stride);
            found = SELECT(ABOVE_F32(here, top), SET_S32((int32_t)(first + r)), found);
            top = MAX_F32(here, top);
            product = FMA_F32(here, zero, product);
        }
        STORE_F32(best + i, top);
        STORE(row + i, found);
        STORE_F32(invalid, FMA_F32(product, zero, LOAD_F32(invalid)));
    }
}

/* Eight rows at a time, from end to end: as many streams as a CPU fetches ahead by itself. */
EA_SIMD static int best_rows(const float *t, size_t stride, size_t rows, size_t count, float *best, int32_t *row) {
    enum { AT_ONCE = 8 };
    float invalid[sizeof(floats) / sizeof(float)] = {0};
    size_t first = 0;
    for (; first + AT_ONCE <= rows; first += AT_ONCE) take_rows(t, stride, first, AT_ONCE, count, best, row, invalid);
    if (first < rows) take_rows(t, stride, first, rows - first, count, best, row, invalid);
    for (size_t k = 0; k < sizeof invalid / sizeof *invalid; k++)
        if (invalid[k] != 0.0f) return 0;
    return 1;
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

int ea_best_rows(const float *t, size_t stride, size_t rows, size_t count, float *best, int32_t *row) {
    int32_t signs = 0;
    memcpy(best, t, count * sizeof *best);
    memset(row, 0, count * sizeof *row);
#ifdef EA_SIMD
    if (count * sizeof *best >= sizeof(floats) && has_simd()) return best_rows(t, stride, rows, count, best, row);
#endif
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < count; i++) {
            const float v = t[r * stride + i];
            row[i] = v > best[i] ? (int32_t)r : row[i];
            best[i] = v > best[i] ? v : best[i];
            signs |= finite_sign(&v);
        }
    return signs >= 0;
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
