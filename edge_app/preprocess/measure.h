/* What the frame guard looks at, counted on a grid of sample points of the frame.
 *
 * At each sample point: the luma there, one px to the right, and one px down. All results are integers. */
#ifndef EA_MEASURE_H
#define EA_MEASURE_H

#include "plan.h"

enum { EA_MEASURE_COLUMNS = 640, EA_MEASURE_ROWS = 320 };

typedef struct {
    uint32_t luma[256];   /* sample points by luma, */
    uint32_t across[256]; /* by the size of the step to the pixel on the right, */
    uint32_t down[256];   /* and by that to the pixel below */
    uint32_t luma_column[EA_MEASURE_COLUMNS], across_column[EA_MEASURE_COLUMNS]; /* sums of each column of sample points */
    uint32_t luma_row[EA_MEASURE_ROWS], down_row[EA_MEASURE_ROWS];               /* and of each row */
} ea_measures;

/* plan: of method EA_SAMPLE, to a gray tensor of at most EA_MEASURE_COLUMNS x EA_MEASURE_ROWS. */
void ea_measure(const ea_plan *plan, const uint8_t *frame, ea_measures *result, int path);

/* Makes one row of sample points, inner_w bytes each: the point, the pixel on its right, the pixel below. */
typedef struct {
    uint8_t at[EA_MEASURE_COLUMNS], right[EA_MEASURE_COLUMNS], below[EA_MEASURE_COLUMNS];
} ea_samples;
typedef void (*ea_sample_function)(const ea_plan *plan, const uint8_t *frame, int32_t j, ea_samples *samples);

void ea_sample_scalar(const ea_plan *plan, const uint8_t *frame, int32_t j, ea_samples *samples);
void ea_sample_avx2(const ea_plan *plan, const uint8_t *frame, int32_t j, ea_samples *samples);
void ea_sample_neon(const ea_plan *plan, const uint8_t *frame, int32_t j, ea_samples *samples);

#endif
