/* The loop over output rows, for each path. Included after the path's row_function (bilinear rows), its resample_*.h and
 * emit.h. One row is made as bytes, channel by channel, then written to the tensor. */
#include <string.h>

#include "emit_factors.h"
#include "kernels.h"
#include "scratch.h"

/* Raw planar tensors, and raw gray ones of either layout, are the rows themselves. */
static int rows_are_the_tensor(const ea_spec *s) { return s->raw && (s->layout == EA_NCHW || ea_channels(s) == 1); }

/* Brings source rows up to `last` into the ring, and for antialias each to the output's width. */
static void fill_ring(const ea_plan *p, const uint8_t *frame, const ea_scratch *t, ea_row_function source_row, int32_t *next, int32_t last) {
    for (; *next <= last; (*next)++) {
        uint8_t *row[3], *slot[3] = {NULL, NULL, NULL};
        for (int c = 0; c < t->made; c++) {
            slot[c] = t->ring[c] + (size_t)(*next % p->down.most) * t->ring_stride;
            row[c] = p->spec.method == EA_AREA ? slot[c] : t->source_row[c];
        }
        if (across_packed(p, frame, *next, slot)) continue;
        source_row(p->source_rows, frame, *next, (ea_columns){0, p->columns}, row);
        if (p->spec.method != EA_ANTIALIAS) continue;
        for (int c = 0; c < t->made; c++) across_bytes(&p->across, p->spec.inner_w, row[c], slot[c]);
    }
}

static void make_window_row(const ea_plan *p, const ea_scratch *t, const ea_rows rows[3], int32_t j, uint8_t *const row[3]) {
    for (int c = 0; c < t->made; c++) {
        if (p->spec.method == EA_ANTIALIAS) {
            down_bytes(&p->down, j, &rows[c], p->spec.inner_w, row[c]);
        } else {
            down_sums(&p->down, j, &rows[c], p->columns, t->sums);
            across_sums(&p->across, p->spec.inner_w, t->sums, row[c]);
        }
    }
}

/* Where the windows' rows are: a gray frame's own rows for area, else a ring of converted ones. */
static int windows_rows(const ea_plan *p, const uint8_t *frame, const ea_scratch *t, ea_rows rows[3]) {
    const ea_spec *s = &p->spec;
    const int direct = s->format == EA_GRAY8 && s->method == EA_AREA;
    const uint8_t *first = frame + s->region_y * s->stride + s->region_x + p->first_column;
    if (direct) rows[0] = (ea_rows){first, (size_t)s->stride, 0, s->region_h};
    else for (int c = 0; c < t->made; c++) rows[c] = (ea_rows){t->ring[c], t->ring_stride, p->down.most, 0};
    return direct;
}

/* Columns that are made, then written: reading and writing in turn, memory is busy with both. Of EA_GROUP a multiple. */
enum { COLUMNS_AT_ONCE = 112 };

static void run_rows(const ea_plan *p, const uint8_t *frame, void *out, void *scratch, ea_row_function bilinear, ea_row_function source_row) {
    const ea_spec *s = &p->spec;
    const ea_scratch t = ea_scratch_of(p, scratch);
    const tensor_factors factors = factors_of_tensor(s);
    const int channels = ea_channels(s), in_place = rows_are_the_tensor(s), windows = s->method != EA_BILINEAR;
    const int32_t step = windows || in_place ? s->inner_w : COLUMNS_AT_ONCE;
    ea_rows rows[3];
    int32_t next = windows ? p->down.window[0].first : 0;
    const int direct = windows && windows_rows(p, frame, &t, rows);
    for (int32_t j = 0; j < s->inner_h; j++) {
        uint8_t *row[3], *to[3];
        for (int c = 0; c < 3; c++) {
            to[c] = (uint8_t *)out + ea_element(s, c < channels ? c : 0, s->pad_x, s->pad_y + j) * ea_dtype_bytes(s->dtype);
            row[c] = in_place ? to[c] : t.row[c < t.made ? c : 0]; /* a gray picture fills all channels */
        }
        if (windows && !direct) fill_ring(p, frame, &t, source_row, &next, p->down.window[j].first + p->down.window[j].count - 1);
        if (windows) make_window_row(p, &t, rows, j, row);
        for (int32_t x = 0; x < s->inner_w; x += step) {
            const ea_columns columns = {x, x + step < s->inner_w ? x + step : s->inner_w};
            if (!windows) bilinear(p, frame, j, columns, row);
            if (!in_place) emit_columns(s, &factors, (const uint8_t *const *)row, t.mixed, columns, to);
        }
        for (int c = t.made; in_place && c < channels; c++) memcpy(to[c], row[0], (size_t)s->inner_w);
    }
}
