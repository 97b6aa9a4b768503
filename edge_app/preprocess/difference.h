/* How far one small picture has changed from another. */
#ifndef EA_DIFFERENCE_H
#define EA_DIFFERENCE_H

#include <stdint.h>

enum { EA_DIFFERENCE_MOST = 1 << 20 }; /* points; sums then fit 32 bits */

typedef struct {
    int32_t shift;    /* mean of a less mean of b, rounded: the light that changed everywhere */
    uint32_t sum;     /* of |a - b - shift| over all points */
    uint32_t changed; /* points where that is above the threshold */
} ea_difference;

/* a, b: n bytes each, 1 <= n <= EA_DIFFERENCE_MOST. */
ea_difference ea_compare(const uint8_t *a, const uint8_t *b, int32_t n, int32_t threshold);

#endif
