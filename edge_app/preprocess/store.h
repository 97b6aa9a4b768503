/* Writing one value of the tensor. */
#ifndef EA_STORE_H
#define EA_STORE_H

#include <math.h>

#include "plan.h"

static inline size_t ea_element(const ea_spec *s, int c, int32_t x, int32_t y) {
    size_t at = (size_t)y * (size_t)s->tensor_w + (size_t)x;
    if (s->layout == EA_NHWC) return at * (size_t)ea_channels(s) + (size_t)c;
    return at + (size_t)c * (size_t)s->tensor_w * (size_t)s->tensor_h;
}

static inline float ea_affine(uint8_t pixel, float high, float low, float b) {
    const float p = (float)pixel;
    return p * high + (p * low + b);
}

/* top: the type's largest value. */
static inline int32_t ea_quantised(uint8_t pixel, float high, float low, float b, float top) {
    const float q = rintf(ea_affine(pixel, high, low, b));
    const float above = q < 0.0f ? 0.0f : q;
    return (int32_t)(above > top ? top : above);
}

static inline void ea_store(const ea_spec *s, void *out, int c, int32_t x, int32_t y, uint8_t pixel) {
    const size_t at = ea_element(s, c, x, y);
    const float high = s->a_hi[c], low = s->a_lo[c], b = s->b[c];
    if (s->raw) ((uint8_t *)out)[at] = pixel;
    else if (s->dtype == EA_FLOAT32) ((float *)out)[at] = ea_affine(pixel, high, low, b);
    else if (s->dtype == EA_UINT8) ((uint8_t *)out)[at] = (uint8_t)ea_quantised(pixel, high, low, b, 255.0f);
    else ((uint16_t *)out)[at] = (uint16_t)ea_quantised(pixel, high, low, b, 65535.0f);
}

#endif
