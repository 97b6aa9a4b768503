#include "scan.h"

#include <string.h>

#if defined(__x86_64__)
#define EA_HAVE_AVX2 1
#define EA_AVX2 __attribute__((target("avx2")))
#endif
#define EA_INLINE static inline __attribute__((always_inline))

/* Negative for NaN and infinity: their magnitude bits lie above those of the largest float. */
EA_INLINE int32_t finite_sign(const float *v) {
    int32_t bits;
    memcpy(&bits, v, 4);
    return 0x7f7fffff - (bits & 0x7fffffff);
}

EA_INLINE int all_finite(const float *v, size_t count) {
    int32_t signs = 0;
    for (size_t i = 0; i < count; i++) signs |= finite_sign(v + i);
    return signs >= 0;
}

EA_INLINE int max_f32(const float *t, size_t stride, size_t rows, size_t count, float *best) {
    int32_t signs = 0;
    for (size_t i = 0; i < count; i++) {
        best[i] = t[i];
        signs |= finite_sign(t + i);
    }
    for (size_t r = 1; r < rows; r++) {
        const float *row = t + r * stride;
        for (size_t i = 0; i < count; i++) {
            best[i] = row[i] > best[i] ? row[i] : best[i];
            signs |= finite_sign(row + i);
        }
    }
    return signs >= 0;
}

EA_INLINE void max_u8(const uint8_t *t, size_t stride, size_t rows, size_t count, uint16_t *best) {
    uint8_t top[EA_BLOCK];
    memcpy(top, t, count);
    for (size_t r = 1; r < rows; r++)
        for (size_t i = 0; i < count; i++) top[i] = t[r * stride + i] > top[i] ? t[r * stride + i] : top[i];
    for (size_t i = 0; i < count; i++) best[i] = top[i];
}

EA_INLINE void max_u16(const uint16_t *t, size_t stride, size_t rows, size_t count, uint16_t *best) {
    memcpy(best, t, 2 * count);
    for (size_t r = 1; r < rows; r++)
        for (size_t i = 0; i < count; i++) best[i] = t[r * stride + i] > best[i] ? t[r * stride + i] : best[i];
}

#ifdef EA_HAVE_AVX2
static int has_avx2(void) { return __builtin_cpu_supports("avx2"); }

/* A whole block has a constant length, which lets the compiler keep it in registers. */
EA_AVX2 static int all_finite_avx2(const float *v, size_t count) { return all_finite(v, count); }
EA_AVX2 static int max_f32_avx2(const float *t, size_t stride, size_t rows, size_t count, float *best) {
    return count == EA_BLOCK ? max_f32(t, stride, rows, EA_BLOCK, best) : max_f32(t, stride, rows, count, best);
}
EA_AVX2 static void max_u8_avx2(const uint8_t *t, size_t stride, size_t rows, size_t count, uint16_t *best) {
    if (count == EA_BLOCK) max_u8(t, stride, rows, EA_BLOCK, best);
    else max_u8(t, stride, rows, count, best);
}
EA_AVX2 static void max_u16_avx2(const uint16_t *t, size_t stride, size_t rows, size_t count, uint16_t *best) {
    if (count == EA_BLOCK) max_u16(t, stride, rows, EA_BLOCK, best);
    else max_u16(t, stride, rows, count, best);
}
#endif

int ea_all_finite(const float *v, size_t count) {
#ifdef EA_HAVE_AVX2
    if (has_avx2()) return all_finite_avx2(v, count);
#endif
    return all_finite(v, count);
}

int ea_block_max_f32(const float *t, size_t stride, size_t rows, size_t count, float *best) {
#ifdef EA_HAVE_AVX2
    if (has_avx2()) return max_f32_avx2(t, stride, rows, count, best);
#endif
    return max_f32(t, stride, rows, count, best);
}

void ea_block_max_u8(const uint8_t *t, size_t stride, size_t rows, size_t count, uint16_t *best) {
#ifdef EA_HAVE_AVX2
    if (has_avx2()) { max_u8_avx2(t, stride, rows, count, best); return; }
#endif
    max_u8(t, stride, rows, count, best);
}

void ea_block_max_u16(const uint16_t *t, size_t stride, size_t rows, size_t count, uint16_t *best) {
#ifdef EA_HAVE_AVX2
    if (has_avx2()) { max_u16_avx2(t, stride, rows, count, best); return; }
#endif
    max_u16(t, stride, rows, count, best);
}
