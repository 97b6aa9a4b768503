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

static inline float ea_value(const ea_spec *s, int c, uint8_t pixel) {
    float p = (float)pixel;
    return p * s->a_hi[c] + (p * s->a_lo[c] + s->b[c]);
}

static inline uint32_t ea_quantised(const ea_spec *s, int c, uint8_t pixel, float top) {
    float q = rintf(ea_value(s, c, pixel));
    return (uint32_t)(q < 0.0f ? 0.0f : q > top ? top : q);
}

static inline void ea_store(const ea_spec *s, void *out, int c, int32_t x, int32_t y, uint8_t pixel) {
    size_t at = ea_element(s, c, x, y);
    if (s->raw) ((uint8_t *)out)[at] = pixel;
    else if (s->dtype == EA_FLOAT32) ((float *)out)[at] = ea_value(s, c, pixel);
    else if (s->dtype == EA_UINT8) ((uint8_t *)out)[at] = (uint8_t)ea_quantised(s, c, pixel, 255.0f);
    else ((uint16_t *)out)[at] = (uint16_t)ea_quantised(s, c, pixel, 65535.0f);
}

#endif
