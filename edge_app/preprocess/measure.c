/* The plain way to measure a frame. */
#include "measure.h"

#include "pixel.h"
#include "scratch.h"

static uint8_t luma_at(const ea_plan *plan, const uint8_t *frame, int32_t x, int32_t y) {
    uint8_t rgb[3];
    ea_pixel(plan, frame, x, y, rgb);
    return ea_sample_luma(rgb);
}

static int step(int a, int b) { return a > b ? a - b : b - a; }

static void sample(const ea_plan *plan, const uint8_t *frame, int32_t j, const samples *to) {
    const ea_tap *y = &plan->y[j];
    for (int32_t i = 0; i < plan->spec.inner_w; i++) {
        const ea_tap *x = &plan->x[i];
        const uint8_t here = luma_at(plan, frame, x->p0, y->p0);
        to->luma[i] = here;
        to->across[i] = (uint8_t)step(here, luma_at(plan, frame, x->p1, y->p0));
        to->down[i] = (uint8_t)step(here, luma_at(plan, frame, x->p0, y->p1));
    }
}

static int64_t sum_of(const uint8_t *v, int32_t n) {
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += v[i];
    return sum;
}

static void add_to_words(uint16_t *sums, const uint8_t *v, int32_t n) {
    for (int32_t i = 0; i < n; i++) sums[i] = (uint16_t)(sums[i] + v[i]);
}

static int64_t count_at_least(const uint8_t *v, int32_t n, int limit, int32_t step) {
    int64_t count = 0;
    for (int32_t first = 0; first < n; first += step)
        for (int32_t i = first; i < first + MEASURE_STEP; i++) count += v[i] >= limit;
    return count;
}

static ea_edges edges_of(const uint8_t *steps, int32_t n, int limit) {
    ea_edges e = {0, 0, 0};
    for (int32_t i = 0; i < n; i++) {
        if (steps[i] < limit) continue;
        e.count++;
        e.sum += steps[i];
        e.squares += steps[i] * steps[i];
    }
    return e;
}

#include "measure_frame.h"

void ea_measure_scalar(const ea_plan *plan, const uint8_t *frame, ea_measures *m, void *scratch) {
    measure_frame(plan, frame, m, scratch);
}
