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
        return "samples are gray, at most 640x157 and no more than pixels";
    if (!in_range(s->pad_value, 0, 255)) return "pad value must be 0..255";
    if (s->method == EA_AREA && (s->resized_w > s->region_w || s->resized_h > s->region_h)) return "area averaging only reduces";
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
    for (int32_t i = 0; i < m; i++) {
        int32_t p = origin + ((2 * i + 1) * n - m) / (2 * m), last = origin + n - 1;
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
    size_t x, y, group, fetch, chroma, window_x, window_y, weight_x, weight_y, spread, spread_at, rows, end;
} layout;

static int has_windows(const ea_spec *s) { return s->method == EA_AREA || s->method == EA_ANTIALIAS; }

static int32_t most_of(const ea_spec *s, int32_t n, int32_t m) {
    return s->method == EA_AREA ? ea_area_most(n, m) : ea_antialias_most(n, m);
}

static int is_packed_colour(const ea_spec *s) { return (s->format == EA_BGR8 || s->format == EA_RGB8) && s->color != EA_GRAY; }

/* Weights of windows that will be spread come in fours: see EA_SPREAD. */
static int32_t column_step(const ea_spec *s) {
    const int spread = s->method == EA_ANTIALIAS && is_packed_colour(s) && most_of(s, s->region_w, s->resized_w) <= EA_MOST_SPREAD;
    return spread ? EA_SPREAD_STEP : EA_COLUMN_STEP;
}

/* Bytes of weights of `count` windows. */
static size_t weight_bytes(const ea_spec *s, int32_t n, int32_t m, int32_t count, int32_t step) {
    return aligned((size_t)count * (size_t)ea_padded(most_of(s, n, m), step) * sizeof(int16_t));
}

static layout lay_out(const ea_spec *s) {
    const size_t groups = has_windows(s) ? 0 : (size_t)ea_group_count(s);
    const size_t columns = (size_t)s->inner_w, rows = (size_t)s->inner_h;
    layout l;
    l.x = aligned(sizeof(ea_plan));
    l.y = l.x + (has_windows(s) ? 0 : aligned(columns * sizeof(ea_tap)));
    l.group = l.y + (has_windows(s) ? 0 : aligned(rows * sizeof(ea_tap)));
    l.fetch = l.group + aligned(groups * sizeof(ea_group));
    l.chroma = l.fetch + aligned(groups * sizeof(ea_fetch));
    l.window_x = l.chroma + (s->format == EA_NV12 ? aligned(groups * sizeof(ea_fetch)) : 0);
    l.end = l.window_x;
    if (!has_windows(s)) return l;
    l.window_y = l.window_x + aligned(columns * sizeof(ea_window));
    l.weight_x = l.window_y + aligned(rows * sizeof(ea_window));
    l.weight_y = l.weight_x + weight_bytes(s, s->region_w, s->resized_w, s->inner_w, column_step(s));
    l.spread = l.weight_y + weight_bytes(s, s->region_h, s->resized_h, s->inner_h, EA_ROW_STEP);
    l.spread_at = l.spread + (is_packed_colour(s) ? aligned(columns * EA_MOST_SPREAD / EA_SPREAD_STEP * EA_SPREAD * sizeof(int16_t)) : 0);
    l.rows = l.spread_at + (is_packed_colour(s) ? aligned(columns * sizeof(int32_t)) : 0);
    l.end = l.rows;
    return l;
}

/* The spec of the plan that gives whole source rows, columns from .. from + count - 1 of the region. */
static ea_spec rows_spec(const ea_spec *s, int32_t from, int32_t count) {
    ea_spec r = *s;
    r.method = EA_BILINEAR;
    r.region_x += from;
    r.region_w = r.resized_w = r.tensor_w = r.inner_w = count;
    r.resized_h = r.tensor_h = r.inner_h = r.region_h;
    r.crop_x = r.crop_y = r.pad_x = r.pad_y = 0;
    r.layout = EA_NCHW;
    r.dtype = EA_UINT8;
    r.raw = 1;
    return r;
}

size_t ea_plan_bytes(const ea_spec *s) {
    const size_t end = lay_out(s).end;
    if (!has_windows(s)) return end;
    const ea_spec rows = rows_spec(s, 0, s->region_w); /* at most so many columns */
    return end + lay_out(&rows).end;
}

static void build_taps(const ea_spec *s, ea_tap *x, ea_tap *y) {
    if (s->method == EA_SAMPLE) {
        ea_sample_taps(x, s->region_w, s->inner_w, s->region_x, is_bayer(s->format) ? s->width : 0);
        ea_sample_taps(y, s->region_h, s->inner_h, s->region_y, 0);
    } else {
        ea_linear_taps(x, s->region_w, s->resized_w, s->crop_x, s->inner_w, s->region_x, 0);
        ea_linear_taps(y, s->region_h, s->resized_h, s->crop_y, s->inner_h, s->region_y, 1);
    }
}

static void build_spread(ea_plan *plan, int16_t *spread, int32_t *at) {
    const ea_window *window = plan->across.window;
    const int32_t n = plan->spec.inner_w, span = plan->across.padded + EA_SPREAD_OVER;
    ea_spread_weights(&plan->across, n, spread);
    for (int32_t i = 0; i < n; i++) at[i] = 3 * window[i].first;
    plan->spread = spread;
    plan->spread_at = at;
    plan->spread_inside = n / 8 * 8;
    while (plan->spread_inside > 0 && window[plan->spread_inside - 1].first + span > plan->columns) plan->spread_inside -= 8;
}

typedef ea_axis (*axis_function)(ea_window *, int16_t *, int32_t, int32_t, int32_t, int32_t, int32_t);

static void build_windows(ea_plan *plan, char *block, const layout *l) {
    const ea_spec *s = &plan->spec;
    const axis_function axis = s->method == EA_AREA ? ea_area_axis : ea_antialias_axis;
    ea_window *x = (ea_window *)(block + l->window_x), *y = (ea_window *)(block + l->window_y);
    int16_t *weight_x = (int16_t *)(block + l->weight_x), *weight_y = (int16_t *)(block + l->weight_y);
    plan->across = axis(x, weight_x, s->region_w, s->resized_w, s->crop_x, s->inner_w, column_step(s));
    plan->down = axis(y, weight_y, s->region_h, s->resized_h, s->crop_y, s->inner_h, EA_ROW_STEP);
    plan->first_column = x[0].first;
    plan->columns = x[s->inner_w - 1].first + x[s->inner_w - 1].count - x[0].first;
    for (int32_t i = 0; i < s->inner_w; i++) x[i].first -= plan->first_column;
    ea_plan *rows = (ea_plan *)(block + l->rows);
    const ea_spec spec = rows_spec(s, plan->first_column, plan->columns);
    ea_plan_build(rows, &spec);
    plan->source_rows = rows;
    /* groups says here, too, whether SIMD can run: sums of inner rows must fit 15 bits, and windows the row. */
    const int fits = s->inner_w >= EA_GROUP && plan->columns >= EA_GROUP && plan->columns >= plan->across.padded;
    plan->groups = fits && plan->down.most < EA_MOST_SIMD_ROWS && rows->groups > 0 ? ea_group_count(s) : 0;
    if (plan->groups == 0) return;
    ea_widen_windows(&plan->across, x, weight_x, s->inner_w, plan->columns);
    if (s->method == EA_ANTIALIAS && is_packed_colour(s) && plan->across.padded <= EA_MOST_SPREAD)
        build_spread(plan, (int16_t *)(block + l->spread), (int32_t *)(block + l->spread_at));
}

void ea_plan_build(void *mem, const ea_spec *s) {
    const layout l = lay_out(s);
    char *block = mem;
    ea_plan *plan = mem;
    memset(plan, 0, sizeof *plan);
    plan->spec = *s;
    plan->yuv = yuv_table(s->bt709, s->full_range);
    if (has_windows(s)) {
        build_windows(plan, block, &l);
        return;
    }
    ea_tap *x = (ea_tap *)(block + l.x), *y = (ea_tap *)(block + l.y);
    build_taps(s, x, y);
    plan->x = x;
    plan->y = y;
    ea_build_groups(plan, (ea_group *)(block + l.group), (ea_fetch *)(block + l.fetch), (ea_fetch *)(block + l.chroma));
}
