/* The colour of one pixel of any format, as OpenCV's cvtColor gives it. */
#ifndef EA_PIXEL_H
#define EA_PIXEL_H

#include "plan.h"

static inline uint8_t ea_clip8(int32_t v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); }

static inline void ea_yuv_to_rgb(const ea_yuv *t, int32_t y, int32_t u, int32_t v, uint8_t rgb[3]) {
    int32_t luma = (y < t->y_min ? 0 : y - t->y_min) * t->y_gain + (1 << 19);
    u -= 128;
    v -= 128;
    rgb[0] = ea_clip8((luma + t->v_to_r * v) >> 20);
    rgb[1] = ea_clip8((luma + t->v_to_g * v + t->u_to_g * u) >> 20);
    rgb[2] = ea_clip8((luma + t->u_to_b * u) >> 20);
}

static inline uint8_t ea_luma(const uint8_t rgb[3]) {
    return (uint8_t)((rgb[0] * 9798 + rgb[1] * 19235 + rgb[2] * 3735 + (1 << 14)) >> 15);
}

/* What a frame is measured by: luma with weights of 7 bits, which fit products of bytes; at most 1 from ea_luma, and gray
 * stays as it is. */
enum { EA_LUMA_RED = 38, EA_LUMA_GREEN = 75, EA_LUMA_BLUE = 15 };
static inline uint8_t ea_sample_luma(const uint8_t rgb[3]) {
    return (uint8_t)((rgb[0] * EA_LUMA_RED + rgb[1] * EA_LUMA_GREEN + rgb[2] * EA_LUMA_BLUE + 64) >> 7);
}

/* Bilinear demosaicing. The outermost rows and columns repeat their inner neighbours, as in OpenCV. */
static inline void ea_bayer_to_rgb(const ea_spec *s, const uint8_t *frame, int32_t x, int32_t y, uint8_t rgb[3]) {
    x = x < 1 ? 1 : x > s->width - 2 ? s->width - 2 : x;
    y = y < 1 ? 1 : y > s->height - 2 ? s->height - 2 : y;
    const uint8_t *p = frame + y * s->stride + x, *up = p - s->stride, *down = p + s->stride;
    int red_x = s->format == EA_BAYER_GR8 || s->format == EA_BAYER_BG8; /* column parity of the red sites */
    int red_y = s->format == EA_BAYER_GB8 || s->format == EA_BAYER_BG8;
    int on_red_column = (x & 1) == red_x, on_red_row = (y & 1) == red_y;
    uint8_t cross = (uint8_t)((up[0] + down[0] + p[-1] + p[1] + 2) >> 2);
    uint8_t corners = (uint8_t)((up[-1] + up[1] + down[-1] + down[1] + 2) >> 2);
    uint8_t sides = (uint8_t)((p[-1] + p[1] + 1) >> 1), poles = (uint8_t)((up[0] + down[0] + 1) >> 1);
    if (on_red_column && on_red_row) { rgb[0] = p[0]; rgb[1] = cross; rgb[2] = corners; }
    else if (!on_red_column && !on_red_row) { rgb[0] = corners; rgb[1] = cross; rgb[2] = p[0]; }
    else { rgb[0] = on_red_row ? sides : poles; rgb[1] = p[0]; rgb[2] = on_red_row ? poles : sides; }
}

static inline void ea_pixel(const ea_plan *plan, const uint8_t *frame, int32_t x, int32_t y, uint8_t rgb[3]) {
    const ea_spec *s = &plan->spec;
    const uint8_t *row = frame + y * s->stride;
    switch (s->format) {
        case EA_BGR8: rgb[0] = row[3 * x + 2]; rgb[1] = row[3 * x + 1]; rgb[2] = row[3 * x]; break;
        case EA_RGB8: rgb[0] = row[3 * x]; rgb[1] = row[3 * x + 1]; rgb[2] = row[3 * x + 2]; break;
        case EA_GRAY8: rgb[0] = rgb[1] = rgb[2] = row[x]; break;
        case EA_NV12: {
            const uint8_t *uv = frame + s->uv_offset + y / 2 * s->uv_stride + x / 2 * 2;
            ea_yuv_to_rgb(&plan->yuv, row[x], uv[0], uv[1], rgb);
            break;
        }
        case EA_YUYV: {
            const uint8_t *pair = row + x / 2 * 4;
            ea_yuv_to_rgb(&plan->yuv, pair[x % 2 * 2], pair[1], pair[3], rgb);
            break;
        }
        default: ea_bayer_to_rgb(s, frame, x, y, rgb);
    }
}

/* The pixel's channels in the tensor's order; gray is the luma of the colour, also where the sensor gave a luma. */
static inline void ea_pixel_channels(const ea_plan *plan, const uint8_t *frame, int32_t x, int32_t y, uint8_t c[3]) {
    uint8_t rgb[3];
    ea_pixel(plan, frame, x, y, rgb);
    switch (plan->spec.color) {
        case EA_RGB: c[0] = rgb[0]; c[1] = rgb[1]; c[2] = rgb[2]; break;
        case EA_BGR: c[0] = rgb[2]; c[1] = rgb[1]; c[2] = rgb[0]; break;
        default: c[0] = plan->spec.format == EA_GRAY8 ? rgb[0] : ea_luma(rgb);
    }
}

#endif
