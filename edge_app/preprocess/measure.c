#include "measure.h"

#include <string.h>

#include "dispatch.h"
#include "pixel.h"

/* Eight histograms side by side, so that equal neighbours do not wait for each other's count. */
enum { SIDE_BY_SIDE = 8 };
_Static_assert(EA_MEASURE_COLUMNS * EA_MEASURE_ROWS / SIDE_BY_SIDE + (SIDE_BY_SIDE - 1) * EA_MEASURE_ROWS <= UINT16_MAX, "a count fits 16 bits");
typedef struct {
    uint16_t luma[SIDE_BY_SIDE][256], across[SIDE_BY_SIDE][256], down[SIDE_BY_SIDE][256];
} counts;

static uint8_t step(uint8_t a, uint8_t b) { return (uint8_t)(a > b ? a - b : b - a); }

static void count(uint16_t histogram[SIDE_BY_SIDE][256], const uint8_t *v, int32_t n) {
    int32_t i = 0;
    for (; i + SIDE_BY_SIDE <= n; i += SIDE_BY_SIDE) {
        uint64_t eight;
        memcpy(&eight, v + i, sizeof eight);
        for (int k = 0; k < SIDE_BY_SIDE; k++) histogram[k][eight >> 8 * k & 255]++;
    }
    for (; i < n; i++) histogram[0][v[i]]++;
}

static void count_row(counts *h, const ea_samples *s, int32_t n, uint8_t *across, uint8_t *down) {
    for (int32_t i = 0; i < n; i++) across[i] = step(s->at[i], s->right[i]);
    for (int32_t i = 0; i < n; i++) down[i] = step(s->at[i], s->below[i]);
    count(h->luma, s->at, n);
    count(h->across, across, n);
    count(h->down, down, n);
}

static uint32_t add_to_columns(uint32_t *column, const uint8_t *v, int32_t n) {
    for (int32_t i = 0; i < n; i++) column[i] += v[i];
    uint32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += v[i];
    return sum;
}

static uint32_t sum_of(const uint8_t *v, int32_t n) {
    uint32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += v[i];
    return sum;
}

static ea_sample_function sample_function(const ea_plan *plan, int path) {
    if (path == EA_PATH_SIMD && plan->groups > 0) {
#if defined(__x86_64__)
        if (ea_has_avx2()) return ea_sample_avx2;
#elif defined(__aarch64__)
        return ea_sample_neon;
#endif
    }
    return ea_sample_scalar;
}

void ea_measure(const ea_plan *plan, const uint8_t *frame, ea_measures *m, int path) {
    const ea_spec *s = &plan->spec;
    const ea_sample_function sample = sample_function(plan, path);
    counts h;
    ea_samples row;
    uint8_t across[EA_MEASURE_COLUMNS], down[EA_MEASURE_COLUMNS];
    memset(&h, 0, sizeof h);
    memset(m, 0, sizeof *m);
    for (int32_t j = 0; j < s->inner_h; j++) {
        sample(plan, frame, j, &row);
        count_row(&h, &row, s->inner_w, across, down);
        m->luma_row[j] = add_to_columns(m->luma_column, row.at, s->inner_w);
        add_to_columns(m->across_column, across, s->inner_w);
        m->down_row[j] = sum_of(down, s->inner_w);
    }
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        for (int v = 0; v < 256; v++) {
            m->luma[v] += h.luma[k][v];
            m->across[v] += h.across[k][v];
            m->down[v] += h.down[k][v];
        }
}

void ea_sample_scalar(const ea_plan *plan, const uint8_t *frame, int32_t j, ea_samples *samples) {
    const ea_tap *y = &plan->y[j];
    for (int32_t i = 0; i < plan->spec.inner_w; i++) {
        const ea_tap *x = &plan->x[i];
        uint8_t c[3];
        ea_pixel_channels(plan, frame, x->p0, y->p0, c);
        samples->at[i] = c[0];
        ea_pixel_channels(plan, frame, x->p1, y->p0, c);
        samples->right[i] = c[0];
        ea_pixel_channels(plan, frame, x->p0, y->p1, c);
        samples->below[i] = c[0];
    }
}
