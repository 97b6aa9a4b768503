#include "plan.h"

#include "measure.h"

#include <math.h>
#include <string.h>

int ea_row_bytes(const ea_spec *s) {
    switch (s->format) {
        case EA_BGR8: case EA_RGB8: return 3 * s->width;
        case EA_YUYV: return (s->width + 1) / 2 * 4;
        default: return s->width;
    }
}

static int is_bayer(int format) { return format >= EA_BAYER_RG8 && format <= EA_BAYER_BG8; }

static int in_range(int32_t v, int32_t low, int32_t high) { return v >= low && v <= high; }

const char *ea_spec_error(const ea_spec *s) {
    if (!in_range(s->format, 0, EA_FORMATS - 1)) return "unknown pixel format";
    if (!in_range(s->width, 1, EA_MAX_SIDE) || !in_range(s->height, 1, EA_MAX_SIDE)) return "frame sides must be 1..32767 px";
    if (is_bayer(s->format) && (s->width < 3 || s->height < 3)) return "a Bayer frame needs at least 3x3 px";
    if (s->stride < ea_row_bytes(s) || s->stride > INT32_MAX) return "stride is shorter than a row";
    if (s->format == EA_NV12 && (s->uv_offset < 0 || s->uv_stride < (s->width + 1) / 2 * 2 || s->uv_stride > INT32_MAX))
        return "chroma offset is negative or chroma stride is shorter than a row";
    if (!in_range(s->region_x, 0, s->width - 1) || !in_range(s->region_y, 0, s->height - 1) ||
        !in_range(s->region_w, 1, s->width - s->region_x) || !in_range(s->region_h, 1, s->height - s->region_y))
        return "region lies outside the frame";
    if (!in_range(s->tensor_w, 1, EA_MAX_SIDE) || !in_range(s->tensor_h, 1, EA_MAX_SIDE)) return "tensor sides must be 1..32767 px";
    if (!in_range(s->inner_w, 1, s->tensor_w) || !in_range(s->inner_h, 1, s->tensor_h) ||
        !in_range(s->pad_x, 0, s->tensor_w - s->inner_w) || !in_range(s->pad_y, 0, s->tensor_h - s->inner_h))
        return "picture lies outside the tensor";
    if (!in_range(s->resized_w, s->inner_w, EA_MAX_SIDE) || !in_range(s->resized_h, s->inner_h, EA_MAX_SIDE) ||
        !in_range(s->crop_x, 0, s->resized_w - s->inner_w) || !in_range(s->crop_y, 0, s->resized_h - s->inner_h))
        return "crop lies outside the resized picture";
    if (!in_range(s->color, 0, EA_COLORS - 1) || !in_range(s->layout, 0, EA_LAYOUTS - 1) || !in_range(s->dtype, 0, EA_DTYPES - 1) ||
        !in_range(s->method, 0, EA_METHODS - 1))
        return "unknown colour order, layout, type or method";
    if (s->method == EA_SAMPLE && (s->color != EA_GRAY || s->inner_w > s->region_w || s->inner_h > s->region_h ||
                                   s->inner_w > EA_MEASURE_COLUMNS || s->inner_h > EA_MEASURE_ROWS))
        return "samples are gray, at most 640x320 and no more than pixels";
    if (!in_range(s->pad_value, 0, 255)) return "pad value must be 0..255";
    if (s->raw && s->dtype != EA_UINT8) return "raw pixels need a uint8 tensor";
    return NULL;
}

int ea_channels(const ea_spec *s) { return s->color == EA_GRAY ? 1 : 3; }

size_t ea_dtype_bytes(int dtype) { return dtype == EA_FLOAT32 ? 4 : dtype == EA_UINT16 ? 2 : 1; }

size_t ea_frame_bytes(const ea_spec *s) {
    size_t first = (size_t)(s->height - 1) * (size_t)s->stride + (size_t)ea_row_bytes(s);
    if (s->format != EA_NV12) return first;
    size_t rows = (size_t)(s->height + 1) / 2, last = (size_t)(s->width + 1) / 2 * 2;
    size_t second = (size_t)s->uv_offset + (rows - 1) * (size_t)s->uv_stride + last;
    return first > second ? first : second;
}

size_t ea_tensor_bytes(const ea_spec *s) {
    return (size_t)s->tensor_w * (size_t)s->tensor_h * (size_t)ea_channels(s) * ea_dtype_bytes(s->dtype);
}

void ea_linear_taps(ea_tap *taps, int32_t n, int32_t m, int32_t first, int32_t count, int32_t origin, int is_row) {
    const double scale = (double)n / (double)m;
    for (int32_t i = 0; i < count; i++) {
        float f = (float)((first + i + 0.5) * scale - 0.5);
        int32_t p = (int32_t)floorf(f);
        f -= (float)p;
        if (!is_row && p < 0) { p = 0; f = 0.0f; }
        if (!is_row && p >= n - 1) { p = n - 1; f = 0.0f; }
        int32_t q = p + 1;
        if (p < 0) p = 0;
        if (p > n - 1) p = n - 1;
        if (q > n - 1) q = n - 1;
        taps[i].p0 = origin + p;
        taps[i].p1 = origin + q;
        taps[i].w0 = (int16_t)lrintf((1.0f - f) * (float)EA_WEIGHT_ONE);
        taps[i].w1 = (int16_t)lrintf(f * (float)EA_WEIGHT_ONE);
    }
}

void ea_sample_taps(ea_tap *taps, int32_t n, int32_t m, int32_t origin, int32_t limit) {
    const int32_t step = n / m;
    for (int32_t i = 0; i < m; i++) {
        int32_t p = origin + i * step + (step - 1) / 2, last = origin + n - 1;
        if (limit > 0) {
            last = limit - 2;
            p = p > limit - 3 ? limit - 3 : p;
            p = p < 1 ? 1 : p;
        }
        taps[i] = (ea_tap){p, p < last ? p + 1 : p, EA_WEIGHT_ONE / 2, EA_WEIGHT_ONE / 2};
    }
}

/* BT.601 limited range is OpenCV's table. The others are round(2^20 * x) of the standards' matrices:
 * BT.601 Kr=.299 Kb=.114, BT.709 Kr=.2126 Kb=.0722; limited range scales luma by 255/219 and chroma by 255/224. */
static ea_yuv yuv_table(int bt709, int full_range) {
    static const ea_yuv tables[2][2] = {
        {{16, 1220542, 1673527, -852492, -409993, 2116026}, {0, 1048576, 1470104, -748826, -360853, 1858077}},
        {{16, 1220945, 1879825, -558796, -223607, 2215014}, {0, 1048576, 1651297, -490864, -196424, 1945738}},
    };
    return tables[bt709 ? 1 : 0][full_range ? 1 : 0];
}

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* The pieces of a plan's memory, in order. */
typedef struct {
    size_t x, y, group, fetch, chroma, end;
} layout;

static layout lay_out(const ea_spec *s) {
    const size_t groups = (size_t)ea_group_count(s);
    layout l;
    l.x = aligned(sizeof(ea_plan));
    l.y = l.x + aligned((size_t)s->inner_w * sizeof(ea_tap));
    l.group = l.y + aligned((size_t)s->inner_h * sizeof(ea_tap));
    l.fetch = l.group + aligned(groups * sizeof(ea_group));
    l.chroma = l.fetch + aligned(groups * sizeof(ea_fetch));
    l.end = l.chroma + (s->format == EA_NV12 ? aligned(groups * sizeof(ea_fetch)) : 0);
    return l;
}

size_t ea_plan_bytes(const ea_spec *s) { return lay_out(s).end; }

void ea_plan_build(void *mem, const ea_spec *s) {
    const layout l = lay_out(s);
    char *block = mem;
    ea_plan *plan = mem;
    ea_tap *x = (ea_tap *)(block + l.x), *y = (ea_tap *)(block + l.y);
    memset(plan, 0, sizeof *plan);
    plan->spec = *s;
    plan->yuv = yuv_table(s->bt709, s->full_range);
    plan->bytes = l.end;
    plan->x = x;
    plan->y = y;
    if (s->method == EA_SAMPLE) {
        ea_sample_taps(x, s->region_w, s->inner_w, s->region_x, is_bayer(s->format) ? s->width : 0);
        ea_sample_taps(y, s->region_h, s->inner_h, s->region_y, 0);
    } else {
        ea_linear_taps(x, s->region_w, s->resized_w, s->crop_x, s->inner_w, s->region_x, 0);
        ea_linear_taps(y, s->region_h, s->resized_h, s->crop_y, s->inner_h, s->region_y, 1);
    }
    ea_build_groups(plan, (ea_group *)(block + l.group), (ea_fetch *)(block + l.fetch), (ea_fetch *)(block + l.chroma));
}
