/* What is done to a frame, and the tables that are worked out once for it.
 *
 * A plan is one block of memory that the caller provides (ea_plan_bytes says how much); nothing here allocates,
 * knows Python or sets errno. A plan is read-only after ea_plan_build, so any number of threads may run it.
 */
#ifndef EA_PLAN_H
#define EA_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "groups.h"
#include "windows.h"

enum ea_format {
    EA_BGR8, EA_RGB8, EA_GRAY8, EA_NV12, EA_YUYV, EA_BAYER_RG8, EA_BAYER_GB8, EA_BAYER_GR8, EA_BAYER_BG8, EA_FORMATS
};
enum ea_method { EA_BILINEAR, EA_AREA, EA_ANTIALIAS, EA_SAMPLE, EA_METHODS };
enum ea_layout { EA_NCHW, EA_NHWC, EA_LAYOUTS };
enum ea_dtype { EA_FLOAT32, EA_UINT8, EA_UINT16, EA_DTYPES };
enum ea_color { EA_RGB, EA_BGR, EA_GRAY, EA_COLORS };
enum ea_path { EA_PATH_SCALAR, EA_PATH_SIMD };

enum { EA_MAX_SIDE = 32767, EA_WEIGHT_BITS = 11, EA_WEIGHT_ONE = 1 << EA_WEIGHT_BITS };

/* Lengths in pixels, strides and offsets in bytes. The region of the frame is resized to resized_w x resized_h, of
 * which the inner_w x inner_h window at (crop_x, crop_y) is written at (pad_x, pad_y) of the tensor.
 * An output value is  pixel * a_hi + (pixel * a_lo + b)  in float32, per channel of the tensor; a_hi has at most 16
 * significant bits, so that the first product is exact. Integer outputs round that half to even and saturate. */
typedef struct {
    int32_t format, width, height, bt709, full_range;
    int64_t stride, uv_offset, uv_stride;
    int32_t region_x, region_y, region_w, region_h;
    int32_t resized_w, resized_h, crop_x, crop_y;
    int32_t tensor_w, tensor_h, pad_x, pad_y, inner_w, inner_h;
    int32_t color, layout, dtype, method, pad_value, raw;
    float a_hi[3], a_lo[3], b[3];
} ea_spec;

/* Two neighbouring source positions (absolute, inside the region) and their weights, w0 + w1 = 2048. */
typedef struct {
    int32_t p0, p1;
    int16_t w0, w1;
} ea_tap;

/* Y'CbCr to RGB in 20-bit fixed point: c = (max(y - y_min, 0) * y_gain + cr * (v-128) + cb * (u-128) + 2^19) >> 20. */
typedef struct {
    int32_t y_min, y_gain, v_to_r, v_to_g, u_to_g, u_to_b;
} ea_yuv;

typedef struct ea_plan {
    ea_spec spec;
    ea_yuv yuv;
    const ea_tap *x, *y; /* inner_w and inner_h taps */
    /* For the SIMD paths; groups is 0 where only the scalar path can run this plan. */
    int32_t groups, family, blend, narrow;
    const ea_group *group;
    const ea_fetch *fetch, *chroma; /* chroma: NV12 only */
    /* For area and antialias: windows over `columns` columns of the region from `first_column` on, and over its rows;
     * and the plan that gives those columns of a source row as bytes, channel by channel, in the tensor's order. */
    ea_axis across, down;
    int32_t first_column, columns;
    const struct ea_plan *source_rows;
    /* Antialias of a packed colour frame: across's weights as its SIMD kernel takes them, or NULL; the byte at which each
     * window begins; how many columns, eights, can be read without care for the end of the row. */
    const int16_t *spread;
    const int32_t *spread_at;
    int32_t spread_inside;
} ea_plan;

/* NULL if the spec can be planned, else what is wrong with it. */
const char *ea_spec_error(const ea_spec *spec);
size_t ea_plan_bytes(const ea_spec *spec);
/* Room that one run of the plan needs. */
size_t ea_scratch_bytes(const ea_plan *plan);
/* mem: ea_plan_bytes(spec) bytes, aligned to 64. spec: one that ea_spec_error found good. */
void ea_plan_build(void *mem, const ea_spec *spec);

int ea_channels(const ea_spec *spec);
size_t ea_frame_bytes(const ea_spec *spec);
size_t ea_tensor_bytes(const ea_spec *spec);
size_t ea_dtype_bytes(int dtype);

/* The taps of OpenCV's INTER_LINEAR along one axis: source length n resized to m, positions first .. first+count-1.
 * At the ends columns clamp the weight and rows (is_row) keep it, as OpenCV does. */
void ea_linear_taps(ea_tap *taps, int32_t n, int32_t m, int32_t first, int32_t count, int32_t origin, int is_row);
/* Sample points (p0), m of them spread evenly over n px, and their neighbours (p1). Weights are not used.
 * Points outside 1 .. limit - 3 are moved there: the columns where a Bayer frame has colours of its own. limit 0: none. */
void ea_sample_taps(ea_tap *taps, int32_t n, int32_t m, int32_t origin, int32_t limit);

int ea_row_bytes(const ea_spec *spec);
int32_t ea_group_count(const ea_spec *spec);
/* Fills the SIMD tables, each of ea_group_count entries, or finds that the plan has no use for them. */
void ea_build_groups(ea_plan *plan, ea_group *group, ea_fetch *fetch, ea_fetch *chroma);

#endif
