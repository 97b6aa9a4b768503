/* The loop over output rows, for each path. Included after the path's row_function (bilinear rows), its resample_*.h and
 * emit.h. One row is made as bytes, channel by channel, then written to the tensor. */
#include <string.h>

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
        source_row(p->source_rows, frame, *next, row);
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

static void write_row(const ea_plan *p, const ea_scratch *t, uint8_t *const row[3], int32_t j, void *out) {
    const ea_spec *s = &p->spec;
    if (!rows_are_the_tensor(s)) {
        emit_row(s, (const uint8_t *const *)row, t->mixed, j, out);
        return;
    }
    for (int c = t->made; c < ea_channels(s); c++)
        memcpy((uint8_t *)out + ea_element(s, c, s->pad_x, s->pad_y + j), row[0], (size_t)s->inner_w);
}

static void run_rows(const ea_plan *p, const uint8_t *frame, void *out, void *scratch, ea_row_function bilinear, ea_row_function source_row) {
    const ea_spec *s = &p->spec;
    const ea_scratch t = ea_scratch_of(p, scratch);
    const int in_place = rows_are_the_tensor(s), windows = s->method != EA_BILINEAR;
    ea_rows rows[3];
    int32_t next = windows ? p->down.window[0].first : 0;
    const int direct = windows && windows_rows(p, frame, &t, rows);
    for (int32_t j = 0; j < s->inner_h; j++) {
        uint8_t *row[3] = {t.row[0], t.row[0], t.row[0]};
        for (int c = 0; c < 3; c++) {
            if (c >= t.made) row[c] = row[0]; /* a gray picture fills all channels */
            else row[c] = in_place ? (uint8_t *)out + ea_element(s, c, s->pad_x, s->pad_y + j) : t.row[c];
        }
        if (!windows) {
            bilinear(p, frame, j, row);
        } else {
            if (!direct) fill_ring(p, frame, &t, source_row, &next, p->down.window[j].first + p->down.window[j].count - 1);
            make_window_row(p, &t, rows, j, row);
        }
        write_row(p, &t, row, j, out);
    }
}
