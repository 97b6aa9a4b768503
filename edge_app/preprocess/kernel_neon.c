#include "kernels.h"

#if defined(__aarch64__)

#include <string.h>

#include "lanes_neon.h"

#include "kernel_lanes.h"

#include "emit.h"

#include "run_rows.h"

void ea_run_neon(const ea_plan *plan, const uint8_t *frame, void *out) { run_rows(plan, frame, out); }

void ea_sample_neon(const ea_plan *plan, const uint8_t *frame, int32_t j, ea_samples *samples) {
    sample(plan, frame, j, samples);
}

#endif
