/* The loop over output rows of a SIMD path. Included after kernel_lanes.h and emit.h. */

/* Raw planar tensors, and raw gray ones of either layout, are the rows themselves. */
static int rows_are_the_tensor(const ea_spec *s) { return s->raw && (s->layout == EA_NCHW || ea_channels(s) == 1); }

static void run_rows(const ea_plan *p, const uint8_t *frame, void *out) {
    const ea_spec *s = &p->spec;
    const ea_row_function make = choose_row(p);
    const int made = p->family == EA_MONO ? 1 : ea_channels(s), in_place = rows_are_the_tensor(s);
    uint8_t buffer[3][EA_MAX_SIMD_WIDTH];
    for (int32_t j = 0; j < s->inner_h; j++) {
        uint8_t *row[3];
        for (int c = 0; c < 3; c++) {
            if (c >= made) row[c] = row[0]; /* a gray picture fills all channels */
            else row[c] = in_place ? (uint8_t *)out + ea_element(s, c, s->pad_x, s->pad_y + j) : buffer[c];
        }
        make(p, frame, j, row);
        if (!in_place) emit_row(s, (const uint8_t *const *)row, j, out);
        else for (int c = made; c < ea_channels(s); c++)
            memcpy((uint8_t *)out + ea_element(s, c, s->pad_x, s->pad_y + j), row[0], (size_t)s->inner_w);
    }
}
