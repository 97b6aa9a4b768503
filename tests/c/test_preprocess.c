/* Preprocessing kernels: golden hashes of the NumPy oracle, and the SIMD path against the scalar one on drawn plans. Every
 * buffer is exactly as large as promised, so that a sanitizer sees any step outside.
 *
 * Usage: test_preprocess GOLDEN_FILE DRAWN_PLANS */
#include "check.h"
#include "difference.h"
#include "dispatch.h"
#include "measure.h"

static ea_plan *build(const ea_spec *spec) {
    ea_plan *plan = must(aligned_alloc(64, (ea_plan_bytes(spec) + 63) / 64 * 64));
    ea_plan_build(plan, spec);
    return plan;
}

static uint64_t hash_of_path(const ea_plan *plan, const uint8_t *frame, int path) {
    const int measures = plan->spec.method == EA_SAMPLE;
    const size_t bytes = measures ? sizeof(ea_measures) : ea_tensor_bytes(&plan->spec);
    void *out = must(malloc(bytes)), *scratch = must(aligned_alloc(64, (ea_scratch_bytes(plan) + 63) / 64 * 64));
    if (!measures) ea_fill_padding(plan, out);
    ea_run(plan, frame, out, scratch, path);
    uint64_t hash = hashed(HASH_START, out, bytes);
    free(scratch);
    free(out);
    return hash;
}

static uint8_t *draw_frame(const ea_spec *spec, uint32_t seed) {
    uint8_t *frame = must(malloc(ea_frame_bytes(spec)));
    draw_bytes(frame, ea_frame_bytes(spec), seed);
    return frame;
}

static int read_spec(FILE *file, ea_spec *s) {
    long long v[28];
    float f[9];
    for (int i = 0; i < 28; i++)
        if (fscanf(file, "%lld", &v[i]) != 1) return 0;
    for (int i = 0; i < 9; i++)
        if (fscanf(file, "%a", &f[i]) != 1) return 0;
    int32_t *low[] = {&s->format, &s->width, &s->height, &s->bt709, &s->full_range};
    int32_t *high[] = {&s->region_x, &s->region_y, &s->region_w, &s->region_h, &s->resized_w, &s->resized_h, &s->crop_x,
                       &s->crop_y, &s->tensor_w, &s->tensor_h, &s->pad_x, &s->pad_y, &s->inner_w, &s->inner_h, &s->color,
                       &s->layout, &s->dtype, &s->method, &s->pad_value, &s->raw};
    for (int i = 0; i < 5; i++) *low[i] = (int32_t)v[i];
    s->stride = v[5];
    s->uv_offset = v[6];
    s->uv_stride = v[7];
    for (int i = 0; i < 20; i++) *high[i] = (int32_t)v[8 + i];
    for (int c = 0; c < 3; c++) {
        s->a_hi[c] = f[c];
        s->a_lo[c] = f[3 + c];
        s->b[c] = f[6 + c];
    }
    return 1;
}

static int check_golden(const char *path) {
    FILE *file = must_open(path);
    char name[128];
    unsigned seed;
    unsigned long long wanted;
    int cases = 0;
    while (fscanf(file, "%127s", name) == 1) {
        ea_spec spec;
        memset(&spec, 0, sizeof spec);
        if (!read_spec(file, &spec) || fscanf(file, "%u %llx", &seed, &wanted) != 2) {
            fprintf(stderr, "%s: damaged at case %s\n", path, name);
            exit(2);
        }
        const char *error = ea_spec_error(&spec);
        CHECK(error == NULL, "%s: %s", name, error);
        if (error != NULL) continue;
        ea_plan *plan = build(&spec);
        uint8_t *frame = draw_frame(&spec, seed);
        for (int simd = 0; simd < 2; simd++) {
            uint64_t got = hash_of_path(plan, frame, simd ? EA_PATH_SIMD : EA_PATH_SCALAR);
            CHECK(got == wanted, "%s, %s: wanted %llx, got %llx", name, simd ? ea_simd_name() : "scalar", wanted,
                  (unsigned long long)got);
        }
        free(frame);
        free(plan);
        cases++;
    }
    fclose(file);
    return cases;
}

static ea_spec draw_spec(void) {
    ea_spec s;
    memset(&s, 0, sizeof s);
    s.format = pick(0, EA_FORMATS - 1);
    s.width = pick(0, 3) ? pick(16, 200) : pick(1, pick(0, 1) ? 20 : 900);
    s.height = pick(1, 40);
    s.bt709 = pick(0, 1);
    s.full_range = pick(0, 1);
    s.stride = 4 * s.width + pick(0, 40);
    s.uv_offset = s.stride * s.height + pick(0, 9);
    s.uv_stride = s.width + 1 + pick(0, 9);
    s.region_x = pick(0, s.width - 1);
    s.region_y = pick(0, s.height - 1);
    s.region_w = pick(1, s.width - s.region_x);
    s.region_h = pick(1, s.height - s.region_y);
    if (pick(0, 1)) s.region_x = s.region_y = 0, s.region_w = s.width, s.region_h = s.height;
    s.resized_w = pick(0, 3) ? pick(16, 90) : pick(1, 40);
    s.resized_h = pick(1, 25);
    if (pick(0, 2) == 0) { /* whole ratios, even and odd: the special kernels, and what looks like their case */
        const int ratio = pick(1, 6);
        s.region_w = s.region_w / ratio * ratio;
        s.region_h = s.region_h / ratio * ratio;
        if (s.region_w < ratio || s.region_h < ratio) s.region_w = s.region_h = 1;
        else s.resized_w = s.region_w / ratio, s.resized_h = s.region_h / ratio;
    }
    s.crop_x = pick(0, 2) ? 0 : pick(0, s.resized_w - 1);
    s.crop_y = pick(0, s.resized_h - 1);
    s.inner_w = pick(0, 2) ? s.resized_w - s.crop_x : pick(1, s.resized_w - s.crop_x);
    s.inner_h = pick(1, s.resized_h - s.crop_y);
    s.pad_x = pick(0, 5);
    s.pad_y = pick(0, 5);
    s.tensor_w = s.inner_w + s.pad_x + pick(0, 5);
    s.tensor_h = s.inner_h + s.pad_y + pick(0, 5);
    s.color = pick(0, EA_COLORS - 1);
    s.layout = pick(0, 1);
    s.dtype = pick(0, EA_DTYPES - 1);
    s.method = pick(0, EA_SAMPLE);
    if (s.method == EA_SAMPLE) s.color = EA_GRAY;
    s.pad_value = pick(0, 255);
    s.raw = s.dtype == EA_UINT8 && pick(0, 3) > 0;
    for (int c = 0; c < 3; c++) {
        s.a_hi[c] = (float)pick(1, 60000) / 65536.0f;
        s.a_lo[c] = (float)pick(-100, 100) * 1e-8f;
        s.b[c] = (float)pick(-50, 50);
    }
    return s;
}

static int check_drawn(int wanted) {
    int cases = 0, with_simd = 0;
    while (cases < wanted) {
        ea_spec spec = draw_spec();
        if (ea_spec_error(&spec) != NULL) continue; /* Bayer frames of 1 px, enlargements by area or samples */
        ea_plan *plan = build(&spec);
        uint8_t *frame = draw_frame(&spec, running);
        const int calmer = pick(0, 5); /* measures look for edges above the noise */
        for (size_t i = 0; spec.method == EA_SAMPLE && i < ea_frame_bytes(&spec); i++)
            frame[i] = frame[i] < 8 ? 255 : frame[i] >> calmer;
        uint64_t scalar = hash_of_path(plan, frame, EA_PATH_SCALAR), simd = hash_of_path(plan, frame, EA_PATH_SIMD);
        CHECK(scalar == simd, "drawn plan %d: format %d, %dx%d to %dx%d, method %d: scalar and %s differ", cases, spec.format,
              spec.width, spec.height, spec.inner_w, spec.inner_h, spec.method, ea_simd_name());
        with_simd += plan->groups > 0;
        free(frame);
        free(plan);
        cases++;
    }
    CHECK(with_simd > wanted / 4, "only %d of %d drawn plans had a SIMD path", with_simd, wanted);
    return cases;
}

static int check_difference(void) {
    const int32_t n = EA_DIFFERENCE_MOST;
    uint8_t *dark = must(calloc((size_t)n, 1)), *half = must(calloc((size_t)n, 1));
    for (int32_t i = 0; i < n; i += 2) half[i] = 255;
    const ea_difference down = ea_compare(dark, half, n, 127), up = ea_compare(half, dark, n, 127);
    CHECK(down.shift == -127 && down.sum == 255u * (uint32_t)(n / 2) && down.changed == (uint32_t)(n / 2),
          "difference down: %d %u %u", down.shift, down.sum, down.changed);
    CHECK(up.shift == 128 && up.sum == 255u * (uint32_t)(n / 2) && up.changed == (uint32_t)(n / 2),
          "difference up: %d %u %u", up.shift, up.sum, up.changed);
    free(dark);
    free(half);
    return 2;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: %s GOLDEN_FILE DRAWN_PLANS\n", arguments[0]);
        return 2;
    }
    printf("path: %s\n", ea_simd_name());
    int cases = check_golden(arguments[1]);
    CHECK(cases > 0, "no golden case");
    return report("preprocess", cases + check_difference() + check_drawn(atoi(arguments[2])));
}
