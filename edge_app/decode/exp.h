/* exp and sigmoid that give the same bits on every CPU, compiler and C library (and in reference.py). */
#ifndef EA_EXP_H
#define EA_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^x = 2^k * e^r with k = round(x / ln 2), |r| <= ln 2 / 2; e^r by Taylor to the 7th power (error below 1e-8).
 * Within 2 units in the last place; 0 below -87, infinity above 88.7. ln 2 is subtracted in two parts, the first of
 * 12 bits, so that k times it is exact. No multiply-add may be contracted here. */
static inline float ea_exp(float x) {
    if (x < -87.0f) return 0.0f;
    if (x > 88.7f) return INFINITY;
    float k = rintf(x * 1.44269504f);
    float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t half = (int32_t)k / 2, rest = (int32_t)k - half; /* two factors: 2^128 alone has no float */
    uint32_t a = (uint32_t)(half + 127) << 23, b = (uint32_t)(rest + 127) << 23;
    float fa, fb;
    memcpy(&fa, &a, 4);
    memcpy(&fb, &b, 4);
    return p * fa * fb;
}

static inline float ea_sigmoid(float x) { return 1.0f / (1.0f + ea_exp(-x)); }

#endif
