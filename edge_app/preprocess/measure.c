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

/* The same, summed, and what is summed by column and row. */
typedef struct {
    int64_t luma[256], across[256], down[256];
    uint32_t luma_column[EA_MEASURE_COLUMNS], across_column[EA_MEASURE_COLUMNS], luma_row[EA_MEASURE_ROWS], down_row[EA_MEASURE_ROWS];
} totals;

/* A luma at or below DARK, or at or above BRIGHT, counts as clipped. */
enum { DARK = 4, BRIGHT = 251 };
/* A step is an edge above 4 sigma of the noise (1.4826 times the median step), or above 0.4 of the contrast. */
static const double LEAST_EDGE = 8.0, EDGE_OF_NOISE = 4 * 1.4826, EDGE_OF_CONTRAST = 0.4;

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

static void count_frame(const ea_plan *plan, const uint8_t *frame, totals *t, int path) {
    const ea_spec *s = &plan->spec;
    const ea_sample_function sample = sample_function(plan, path);
    counts h;
    ea_samples row;
    uint8_t across[EA_MEASURE_COLUMNS], down[EA_MEASURE_COLUMNS];
    memset(&h, 0, sizeof h);
    memset(t, 0, sizeof *t);
    for (int32_t j = 0; j < s->inner_h; j++) {
        sample(plan, frame, j, &row);
        count_row(&h, &row, s->inner_w, across, down);
        t->luma_row[j] = add_to_columns(t->luma_column, row.at, s->inner_w);
        add_to_columns(t->across_column, across, s->inner_w);
        t->down_row[j] = sum_of(down, s->inner_w);
    }
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        for (int v = 0; v < 256; v++) {
            t->luma[v] += h.luma[k][v];
            t->across[v] += h.across[k][v];
            t->down[v] += h.down[k][v];
        }
}

/* The least value that a count of at least `wanted` does not exceed. */
static int least_with(const int64_t histogram[256], double wanted) {
    int64_t below = 0;
    for (int v = 0; v < 255; v++)
        if ((double)(below += histogram[v]) >= wanted) return v;
    return 255;
}

static int64_t count_of(const int64_t histogram[256], int first, int last) {
    int64_t sum = 0;
    for (int v = first; v <= last; v++) sum += histogram[v];
    return sum;
}

/* Steps of one direction from the size of an edge on. */
typedef struct {
    int64_t count, sum, squares;
} edges;

static edges edges_of(const int64_t steps[256], int edge) {
    edges e = {0, 0, 0};
    for (int v = edge; v < 256; v++) {
        e.count += steps[v];
        e.sum += steps[v] * v;
        e.squares += steps[v] * v * v;
    }
    return e;
}

/* Mean of the steps, weighted by the step itself, as a share of the contrast; 0 without steps. */
static double slope(edges e, double contrast) {
    return e.sum != 0 && contrast != 0 ? (double)e.squares / (double)e.sum / contrast : 0.0;
}

static void means(float *to, const uint32_t *sums, int32_t n, int32_t summed) {
    for (int32_t i = 0; i < n; i++) to[i] = (float)((double)sums[i] / summed);
}

void ea_measure(const ea_plan *plan, const uint8_t *frame, ea_measures *m, int path) {
    const int32_t columns = plan->spec.inner_w, rows = plan->spec.inner_h;
    const double points = columns * rows;
    totals t;
    int64_t steps[256], luma = 0;
    count_frame(plan, frame, &t, path);
    memset(m, 0, sizeof *m);
    for (int v = 0; v < 256; v++) steps[v] = t.across[v] + t.down[v];
    m->contrast = least_with(t.luma, 0.99 * points) - least_with(t.luma, 0.01 * points);
    m->noise = least_with(steps, points);
    m->dark_fraction = (double)count_of(t.luma, 0, DARK) / points;
    m->bright_fraction = (double)count_of(t.luma, BRIGHT, 255) / points;
    for (int32_t j = 0; j < rows; j++) luma += t.luma_row[j];
    m->mean_luma = (double)luma / points;
    double least_edge = EDGE_OF_NOISE * m->noise;
    if (least_edge > EDGE_OF_CONTRAST * m->contrast) least_edge = EDGE_OF_CONTRAST * m->contrast;
    const int edge = (int)(least_edge > LEAST_EDGE ? least_edge : LEAST_EDGE) + 1;
    const edges x = edges_of(t.across, edge), y = edges_of(t.down, edge);
    const edges both = {x.count + y.count, x.sum + y.sum, x.squares + y.squares};
    m->sharpness = slope(both, m->contrast);
    m->sharpness_x = slope(x, m->contrast);
    m->sharpness_y = slope(y, m->contrast);
    m->edge_fraction = (double)both.count / (2 * points);
    means(m->luma_columns, t.luma_column, columns, rows);
    means(m->edge_columns, t.across_column, columns, rows);
    means(m->luma_rows, t.luma_row, rows, columns);
    means(m->edge_rows, t.down_row, rows, columns);
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
