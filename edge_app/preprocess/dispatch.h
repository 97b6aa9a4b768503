/* Which path runs: the best that this CPU has, or the scalar one where it is asked for. */
#ifndef EA_DISPATCH_H
#define EA_DISPATCH_H

#include "kernels.h"

const char *ea_simd_name(void); /* "avx2", "neon" or "none" */
void ea_run(const ea_plan *plan, const uint8_t *frame, void *out, void *scratch, int path);

#endif
