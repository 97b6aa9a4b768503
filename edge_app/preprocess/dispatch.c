#include "dispatch.h"

#if defined(__x86_64__)
/* Whether the kernels of kernel_avx2.c run here: AVX2, and the fused multiply-add that comes with it. */
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

const char *ea_simd_name(void) {
#if defined(__x86_64__)
    return has_avx2() ? "avx2" : "none";
#elif defined(__aarch64__)
    return "neon";
#else
    return "none";
#endif
}

void ea_run(const ea_plan *plan, const uint8_t *frame, void *out, void *scratch, int path) {
    if (path == EA_PATH_SIMD && plan->groups > 0) {
#if defined(__x86_64__)
        if (has_avx2()) {
            ea_run_avx2(plan, frame, out, scratch);
            return;
        }
#elif defined(__aarch64__)
        ea_run_neon(plan, frame, out, scratch);
        return;
#endif
    }
    ea_run_scalar(plan, frame, out, scratch);
}
