#include "kernels.h"

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#include "lanes_avx2.h"

#include "kernel_lanes.h"

#include "resample_lanes.h"

#include "emit.h"

#include "run_rows.h"

#include "measure_lanes.h"

#include "measure_frame.h"

void ea_run_avx2(const ea_plan *plan, const uint8_t *frame, void *out, void *scratch) {
    if (plan->spec.method == EA_SAMPLE) {
        measure_frame(plan, frame, out, scratch);
        return;
    }
    const int windows = plan->source_rows != NULL;
    run_rows(plan, frame, out, scratch, windows ? NULL : choose_row(plan), windows ? choose_row(plan->source_rows) : NULL);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
