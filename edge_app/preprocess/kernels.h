/* The resize kernels. Every path gives the same bits.
 *
 * frame: ea_frame_bytes(spec) readable bytes. out: ea_tensor_bytes(spec) writable bytes, aligned to the element.
 * Only the picture's window of the tensor is written; ea_fill_padding writes the rest, once.
 */
#ifndef EA_KERNELS_H
#define EA_KERNELS_H

#include "plan.h"

void ea_fill_padding(const ea_plan *plan, void *out);
void ea_run_scalar(const ea_plan *plan, const uint8_t *frame, void *out);

#endif
