/* The factors of a tensor's values, in the order in which these lie in memory. */
#ifndef EA_EMIT_FACTORS_H
#define EA_EMIT_FACTORS_H

#include "store.h"

enum { EMIT_STEP = 24 }; /* three channels of eight values: where factors repeat */

typedef struct {
    float high[EMIT_STEP], low[EMIT_STEP], b[EMIT_STEP];
} emit_factors;

/* Of channels first, first + 1, ... first + period - 1 in turn. */
static inline emit_factors factors_in_order(const ea_spec *s, int first, int period) {
    emit_factors f;
    for (int i = 0; i < EMIT_STEP; i++) {
        const int c = first + i % period;
        f.high[i] = s->a_hi[c];
        f.low[i] = s->a_lo[c];
        f.b[i] = s->b[c];
    }
    return f;
}

/* Of a tensor's planes, or in of[0] of its pixels. */
typedef struct {
    emit_factors of[3];
} tensor_factors;

static inline tensor_factors factors_of_tensor(const ea_spec *s) {
    const int channels = ea_channels(s), mixed = s->layout == EA_NHWC && channels == 3;
    tensor_factors f = {.of[0] = factors_in_order(s, 0, mixed ? 3 : 1)};
    for (int c = 1; c < channels && !mixed; c++) f.of[c] = factors_in_order(s, c, 1);
    return f;
}

#endif
