/* What the frame guard looks at, taken on a grid of sample points of the frame.
 *
 * At each sample point: the luma there, one px to the right, and one px down. See measure.py for what each measure means.
 * All counts and sums are exact integers; each float is the rounded quotient of two. */
#ifndef EA_MEASURE_H
#define EA_MEASURE_H

#include "plan.h"

enum { EA_MEASURE_COLUMNS = 640, EA_MEASURE_ROWS = 157 };

typedef struct {
    double mean_luma, contrast, dark_fraction, bright_fraction, noise, sharpness, sharpness_x, sharpness_y, edge_fraction;
    float luma_columns[EA_MEASURE_COLUMNS], edge_columns[EA_MEASURE_COLUMNS]; /* means; 0 beyond the grid */
    float luma_rows[EA_MEASURE_ROWS], edge_rows[EA_MEASURE_ROWS];
} ea_measures;

/* What ea_run makes with a plan of method EA_SAMPLE, to a gray tensor of at most EA_MEASURE_COLUMNS x EA_MEASURE_ROWS; here
 * by the scalar path. */
void ea_measure_scalar(const ea_plan *plan, const uint8_t *frame, ea_measures *result, void *scratch);

/* Where the samples of one row go: luma, step to the right, step down. */
typedef struct {
    uint8_t *luma, *across, *down;
} samples;

/* Of the steps of one direction, those from a size on. */
typedef struct {
    int64_t count, sum, squares;
} ea_edges;

#endif
