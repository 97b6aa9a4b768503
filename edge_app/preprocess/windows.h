/* Weighted windows along one axis, for the methods that look at all source pixels: area and antialias. */
#ifndef EA_WINDOWS_H
#define EA_WINDOWS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int32_t first, count; /* source positions, from the axis' origin */
} ea_window;

/* Weights of a window sum to 2^bits, or nearly (antialias, as torchvision's do not either). */
typedef struct {
    int32_t bits, most, padded; /* longest window; length of a row of weights */
    const ea_window *window;
    const int16_t *weight; /* [positions][padded], zero behind a window's own */
} ea_axis;

/* Columns come in eights, for SIMD: windows are widened by zero weights, to the left where the source ends. */
enum { EA_COLUMN_STEP = 8, EA_ROW_STEP = 2, EA_MOST_SIMD_ROWS = 128 };

/* No window is longer. */
int32_t ea_area_most(int32_t n, int32_t m);
int32_t ea_antialias_most(int32_t n, int32_t m);
int32_t ea_padded(int32_t most, int32_t step);

/* Each fills window[count] and weight[count][padded] for positions first .. first + count - 1 of n resized to m, and
 * returns the axis. */
ea_axis ea_area_axis(ea_window *window, int16_t *weight, int32_t n, int32_t m, int32_t first, int32_t count, int32_t step);
ea_axis ea_antialias_axis(ea_window *window, int16_t *weight, int32_t n, int32_t m, int32_t first, int32_t count, int32_t step);

/* Weights for pixels of three bytes: each four w0 w1 w2 w3 as w0 w1 w0 w1 w0 w1 0 0, w2 w3 w2 w3 w2 w3 0 0. */
/* Those four, and the words that they become; longest window that is spread; pixels behind a window that its 16-byte loads
 * touch. */
enum { EA_SPREAD_STEP = 4, EA_SPREAD = 16, EA_MOST_SPREAD = 16, EA_SPREAD_OVER = 2 };
void ea_spread_weights(const ea_axis *axis, int32_t count, int16_t *spread);

/* Makes all windows as long as the padding, inside 0 .. n - 1. Only if n is at least that long. */
void ea_widen_windows(ea_axis *axis, ea_window *window, int16_t *weight, int32_t count, int32_t n);

#endif
