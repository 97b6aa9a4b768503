/* The kernels. Every path gives the same bits.
 *
 * frame: ea_frame_bytes(spec) readable bytes. out: ea_tensor_bytes(spec) writable bytes, aligned to the element; with a plan
 * of method EA_SAMPLE an ea_measures (measure.h).
 * scratch: ea_scratch_bytes(plan) writable bytes, aligned to 64.
 * Only the picture's window of the tensor is written; ea_fill_padding writes the rest, once.
 */
#ifndef EA_KERNELS_H
#define EA_KERNELS_H

#include "plan.h"

void ea_fill_padding(const ea_plan *plan, void *out);
void ea_run_scalar(const ea_plan *plan, const uint8_t *frame, void *out, void *scratch);
/* Only for plans with groups. */
void ea_run_avx2(const ea_plan *plan, const uint8_t *frame, void *out, void *scratch);
void ea_run_neon(const ea_plan *plan, const uint8_t *frame, void *out, void *scratch);

/* A stretch of an output row: columns first .. end - 1; first is a multiple of EA_GROUP. */
typedef struct {
    int32_t first, end;
} ea_columns;

/* Makes columns of output row j as bytes, channel by channel, into the whole rows out[c]. */
typedef void (*ea_row_function)(const ea_plan *plan, const uint8_t *frame, int32_t j, ea_columns columns, uint8_t *const out[3]);

#endif
