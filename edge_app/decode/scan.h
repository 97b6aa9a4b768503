/* The parts of a decode that touch every element. They only compare, so SIMD and plain loops give the same bits. */
#ifndef EA_SCAN_H
#define EA_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum { EA_BLOCK = 64 };

int ea_all_finite(const float *v, size_t count);

/* best[i] = maximum over rows r < rows of t[r * stride + i], i < count; row[i] = the first row where it is. Returns 0 if
 * any element is NaN or infinite. */
int ea_best_rows(const float *t, size_t stride, size_t rows, size_t count, float *best, int32_t *row);

/* best[i] = maximum over rows r < rows of t[r * stride + i], i < count <= EA_BLOCK. */
void ea_block_max_u8(const uint8_t *t, size_t stride, size_t rows, size_t count, uint16_t *best);
void ea_block_max_u16(const uint16_t *t, size_t stride, size_t rows, size_t count, uint16_t *best);

#endif
