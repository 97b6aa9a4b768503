#include "dispatch.h"

const char *ea_simd_name(void) { return "none"; }

void ea_run(const ea_plan *plan, const uint8_t *frame, void *out, int path) {
    (void)path;
    ea_run_scalar(plan, frame, out);
}
