/* How a frame is measured, for each path. Included after the path's functions:
 *   sample: luma, step to the right and step down of one row of sample points
 *   sum_of: of n bytes; add_to_words: n bytes to n sums
 *   count_at_least: how many bytes are, of MEASURE_STEP bytes in every `step`; edges_of: the steps that are
 * n and step are multiples of MEASURE_STEP; limits are above 0, so that the zeros behind a row's end count nowhere.
 *
 * The samples are kept, and counted when it is known what to count: three times as fast as histograms, and no sample waits for
 * the one before. */
#include <math.h>
#include <string.h>

#include "measure.h"
#include "scratch.h"

/* A luma at or below DARK, or at or above BRIGHT, counts as clipped. */
enum { DARK = 4, BRIGHT = 251 };
/* A step is an edge above 4 sigma of the noise (1.4826 times the median step), or above 0.4 of the contrast. */
static const double LEAST_EDGE = 8.0, EDGE_OF_NOISE = 4 * 1.4826, EDGE_OF_CONTRAST = 0.4;

/* Samples, row after row, and their sums by column and row. */
typedef struct {
    int32_t columns, rows, stride;
    uint8_t *luma, *across, *down;
    uint16_t luma_column[EA_MEASURE_COLUMNS], across_column[EA_MEASURE_COLUMNS]; /* of at most EA_MEASURE_ROWS bytes */
    uint32_t luma_row[EA_MEASURE_ROWS], down_row[EA_MEASURE_ROWS];
} sampled;

static void sample_rows(const ea_plan *plan, const uint8_t *frame, sampled *s) {
    for (int32_t j = 0; j < s->rows; j++) {
        const samples row = {s->luma + j * s->stride, s->across + j * s->stride, s->down + j * s->stride};
        sample(plan, frame, j, &row);
        for (int32_t i = s->columns; i < s->stride; i++) row.luma[i] = row.across[i] = row.down[i] = 0;
        s->luma_row[j] = (uint32_t)sum_of(row.luma, s->stride);
        s->down_row[j] = (uint32_t)sum_of(row.down, s->stride);
        add_to_words(s->luma_column, row.luma, s->stride);
        add_to_words(s->across_column, row.across, s->stride);
    }
}

static void sample_frame(const ea_plan *plan, const uint8_t *frame, void *scratch, sampled *s) {
    memset(s, 0, sizeof *s);
    s->columns = plan->spec.inner_w;
    s->rows = plan->spec.inner_h;
    s->stride = ea_measure_stride(plan);
    s->luma = scratch;
    s->across = s->luma + s->rows * s->stride;
    s->down = s->across + s->rows * s->stride;
    sample_rows(plan, frame, s);
}

/* The least level that at most `most` of n bytes are above, sought from a guess: `reach` to the right side of it, then twice
 * that, at last by halves. step: from one stretch of MEASURE_STEP bytes that is looked at to the next. */
static int search(const uint8_t *v, int32_t n, int64_t most, int32_t step, int guess, int reach) {
    int low = 0, high = 255;
    for (int level = guess; low < high; reach *= 2) {
        const int high_enough = count_at_least(v, n, level + 1, step) * (step / MEASURE_STEP) <= most;
        if (high_enough) high = level;
        else low = level + 1;
        const int middle = (low + high) / 2, near = high_enough ? high - reach : low + reach - 1;
        level = (high_enough ? near > middle : near < middle) ? near : middle;
    }
    return low;
}

/* The same of all bytes: a few of them tell about where it is. 17 is odd, so that they come from all columns. */
static int least_level(const uint8_t *v, int32_t n, int64_t most) {
    const int guess = search(v, n, most, 17 * MEASURE_STEP, 127, 128);
    return search(v, n, most, MEASURE_STEP, guess < 255 ? guess : 254, 1);
}

/* Mean of the steps, weighted by the step itself, as a share of the contrast; 0 without steps. */
static double slope(ea_edges e, double contrast) {
    return e.sum != 0 && contrast != 0 ? (double)e.squares / (double)e.sum / contrast : 0.0;
}

static float mean(uint32_t sum, int32_t summed) { return (float)((double)sum / summed); }

static void measure_frame(const ea_plan *plan, const uint8_t *frame, ea_measures *m, void *scratch) {
    sampled s;
    sample_frame(plan, frame, scratch, &s);
    const int32_t n = s.rows * s.stride;
    const int64_t all = (int64_t)s.columns * s.rows;
    const double points = (double)all;
    memset(m, 0, sizeof *m);
    const int64_t above_one_percent = all - (int64_t)ceil(0.01 * points), above_all_but_one = all - (int64_t)ceil(0.99 * points);
    m->contrast = least_level(s.luma, n, above_all_but_one) - least_level(s.luma, n, above_one_percent);
    m->noise = least_level(s.across, 2 * n, all); /* of both directions: down lies behind across */
    m->dark_fraction = (double)(all - count_at_least(s.luma, n, DARK + 1, MEASURE_STEP)) / points;
    m->bright_fraction = (double)count_at_least(s.luma, n, BRIGHT, MEASURE_STEP) / points;
    m->mean_luma = (double)sum_of(s.luma, n) / points;
    const double least_edge = fmin(EDGE_OF_NOISE * m->noise, EDGE_OF_CONTRAST * m->contrast);
    const int edge = (int)fmax(least_edge, LEAST_EDGE) + 1;
    const ea_edges x = edges_of(s.across, n, edge), y = edges_of(s.down, n, edge);
    const ea_edges both = {x.count + y.count, x.sum + y.sum, x.squares + y.squares};
    m->sharpness = slope(both, m->contrast);
    m->sharpness_x = slope(x, m->contrast);
    m->sharpness_y = slope(y, m->contrast);
    m->edge_fraction = (double)both.count / (2 * points);
    for (int32_t i = 0; i < s.columns; i++) {
        m->luma_columns[i] = mean(s.luma_column[i], s.rows);
        m->edge_columns[i] = mean(s.across_column[i], s.rows);
    }
    for (int32_t j = 0; j < s.rows; j++) {
        m->luma_rows[j] = mean(s.luma_row[j], s.columns);
        m->edge_rows[j] = mean(s.down_row[j], s.columns);
    }
}
