#include "difference.h"

/* floor(x / n + 1/2), so that halves go up on both sides of zero. */
static int32_t rounded_mean(int32_t x, int32_t n) {
    const int32_t doubled = 2 * x + n;
    const int32_t whole = doubled / (2 * n);
    return whole - (doubled % (2 * n) < 0);
}

ea_difference ea_compare(const uint8_t *a, const uint8_t *b, int32_t n, int32_t threshold) {
    int32_t more = 0;
    for (int32_t i = 0; i < n; i++) more += a[i] - b[i];
    ea_difference result = {.shift = rounded_mean(more, n)};
    uint32_t sum = 0, changed = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t step = a[i] - b[i] - result.shift;
        const int32_t size = step < 0 ? -step : step;
        sum += (uint32_t)size;
        changed += size > threshold;
    }
    result.sum = sum;
    result.changed = changed;
    return result;
}
