#include "kernels.h"

#if defined(__aarch64__)

#include "lanes_neon.h"

#include "kernel_lanes.h"

#include "resample_lanes.h"

#include "emit.h"

#include "run_rows.h"

#include "measure_lanes.h"

#include "measure_frame.h"

void ea_run_neon(const ea_plan *plan, const uint8_t *frame, void *out, void *scratch) {
    if (plan->spec.method == EA_SAMPLE) {
        measure_frame(plan, frame, out, scratch);
        return;
    }
    const int windows = plan->source_rows != NULL;
    run_rows(plan, frame, out, scratch, windows ? NULL : choose_row(plan), windows ? choose_row(plan->source_rows) : NULL);
}

#endif
