/* The decode: golden hashes of the NumPy oracle, and drawn heads under the sanitizers. Every buffer is exactly as large as
 * promised.
 *
 * Usage: test_decode GOLDEN_FILE DRAWN_HEADS */
#include <math.h>

#include "check.h"
#include "head.h"

enum { MOST_CLASSES = 128 };

typedef struct {
    void *data[2 * EA_MAX_LEVELS];
    int count;
} tensors;

static float *draw_rows(const ea_head *h, uint32_t seed, int channels, const float (*range)[2]) {
    const size_t n = (size_t)h->anchors, total = n * (size_t)channels;
    float *t = must(malloc(total * sizeof *t));
    for (size_t i = 0; i < total; i++) {
        const size_t channel = h->kind == EA_YOLOV8 ? i / n : i % (size_t)channels;
        t[i] = drawn_float(seed, (uint32_t)i, range[channel][0], range[channel][1]);
    }
    return t;
}

/* As tests/golden/make_decode.py draws them. */
static tensors draw_plain(const ea_head *h, uint32_t seed) {
    float range[5 + MOST_CLASSES][2];
    const int channels = h->kind == EA_END2END ? 6 : (h->kind == EA_YOLOV8 ? 4 : 5) + h->classes;
    for (int c = 0; c < channels; c++) range[c][0] = 0.0f, range[c][1] = 1.0f;
    for (int c = 0; c < 4; c++) {
        range[c][0] = h->kind == EA_YOLOX ? -1.0f : c < 2 ? 0.0f : h->kind == EA_END2END ? 80.0f : 4.0f;
        range[c][1] = h->kind == EA_YOLOX ? 2.0f : h->kind == EA_END2END ? (c < 2 ? 80.0f : 160.0f) : c < 2 ? 160.0f : 60.0f;
    }
    if (h->kind == EA_END2END) range[5][1] = (float)h->classes;
    float *t = draw_rows(h, seed, channels, (const float (*)[2])range);
    for (int a = 0; h->kind == EA_END2END && a < h->anchors; a++)
        t[6 * a + 5] = fminf(floorf(t[6 * a + 5]), (float)h->classes - 1.0f);
    return (tensors){{t}, 1};
}

static void *draw_cut_tensor(const ea_encoding *e, size_t count, uint32_t seed) {
    const size_t size = e->type == EA_F32 ? 4 : e->type == EA_U16 ? 2 : 1;
    void *t = must(malloc(count * size));
    for (size_t i = 0; i < count; i++) {
        if (e->type == EA_F32) ((float *)t)[i] = drawn_float(seed, (uint32_t)i, -6.0f, 6.0f);
        else if (e->type == EA_U16) ((uint16_t *)t)[i] = (uint16_t)(drawn(seed, (uint32_t)i) >> 16);
        else ((uint8_t *)t)[i] = (uint8_t)(drawn(seed, (uint32_t)i) >> 24);
    }
    return t;
}

static tensors draw_tensors(const ea_head *h, uint32_t seed) {
    if (h->kind != EA_YOLOV8_CUT) return draw_plain(h, seed);
    tensors t = {.count = 2 * h->levels};
    for (int i = 0; i < t.count; i++) {
        const ea_level *level = &h->level[i / 2];
        const size_t cells = (size_t)level->columns * (size_t)level->rows;
        seed += 1000;
        t.data[i] = draw_cut_tensor(i % 2 ? &level->scores : &level->box, cells * (i % 2 ? (size_t)h->classes : 64), seed);
    }
    return t;
}

static void free_tensors(tensors *t) {
    for (int i = 0; i < t->count; i++) free(t->data[i]);
}

typedef struct {
    int status, count, total;
    uint64_t hash;
} outcome;

static outcome decode(const ea_head *h, const tensors *t) {
    const size_t n = (size_t)h->max_detections;
    void *block = must(aligned_alloc(64, ea_work_bytes(h)));
    float *f = must(malloc(5 * n * sizeof *f));
    int32_t *labels = must(malloc(n * sizeof *labels));
    ea_boxes out = {f, f + n, f + 2 * n, f + 3 * n, f + 4 * n, labels, 0};
    ea_work work;
    outcome o = {0, 0, 0, HASH_START};
    ea_work_init(&work, block, h);
    o.status = ea_decode(h, (const void *const *)t->data, &work, &out, &o.total);
    if (o.status == EA_OK) {
        o.count = out.count;
        for (int i = 0; i < out.count; i++) {
            float box[4] = {out.x0[i], out.y0[i], out.x1[i], out.y1[i]};
            o.hash = hashed(o.hash, box, sizeof box);
        }
        o.hash = hashed(o.hash, out.score, (size_t)out.count * 4);
        o.hash = hashed(o.hash, out.label, (size_t)out.count * 4);
    }
    free(labels);
    free(f);
    free(block);
    return o;
}

static int read_head(FILE *file, ea_head *h, float *thresholds) {
    if (fscanf(file, "%d %d %d %d %d %d", &h->kind, &h->classes, &h->anchors, &h->agnostic, &h->max_detections, &h->levels) != 6 ||
        h->classes > MOST_CLASSES || h->levels > EA_MAX_LEVELS)
        return 0;
    for (int i = 0; i < h->levels; i++) {
        ea_level *v = &h->level[i];
        if (fscanf(file, "%d %d %d %d %d %a %d %d %a", &v->columns, &v->rows, &v->stride, &v->box.type, &v->box.zero,
                   &v->box.scale, &v->scores.type, &v->scores.zero, &v->scores.scale) != 9)
            return 0;
    }
    if (fscanf(file, "%a", &h->iou) != 1) return 0;
    h->lowest = 1.0f;
    for (int c = 0; c < h->classes; c++) {
        if (fscanf(file, "%a", &thresholds[c]) != 1) return 0;
        h->lowest = fminf(h->lowest, thresholds[c]);
    }
    h->thresholds = thresholds;
    return 1;
}

static int check_golden(const char *path) {
    FILE *file = must_open(path);
    char name[128];
    int cases = 0;
    while (fscanf(file, "%127s", name) == 1) {
        ea_head head;
        float thresholds[MOST_CLASSES];
        unsigned seed;
        int count, total;
        unsigned long long hash;
        memset(&head, 0, sizeof head);
        if (!read_head(file, &head, thresholds) || fscanf(file, "%u %d %d %llx", &seed, &count, &total, &hash) != 4) {
            fprintf(stderr, "%s: damaged at case %s\n", path, name);
            exit(2);
        }
        const char *error = ea_head_error(&head);
        CHECK(error == NULL, "%s: %s", name, error);
        if (error != NULL) continue;
        tensors t = draw_tensors(&head, seed);
        outcome o = decode(&head, &t);
        CHECK(o.status == EA_OK && o.count == count && o.total == total && o.hash == hash,
              "%s: wanted %d of %d, %llx; got status %d, %d of %d, %llx", name, count, total, hash, o.status, o.count, o.total,
              (unsigned long long)o.hash);
        free_tensors(&t);
        cases++;
    }
    fclose(file);
    return cases;
}

static ea_head draw_head(float *thresholds) {
    ea_head h;
    memset(&h, 0, sizeof h);
    h.kind = pick(0, EA_KINDS - 1);
    h.classes = pick(1, 12);
    h.agnostic = pick(0, 1);
    h.max_detections = pick(1, 50);
    h.iou = (float)pick(0, 100) / 100.0f;
    h.lowest = 1.0f;
    for (int c = 0; c < h.classes; c++) {
        thresholds[c] = (float)pick(0, 100) / 100.0f;
        h.lowest = fminf(h.lowest, thresholds[c]);
    }
    h.thresholds = thresholds;
    h.anchors = pick(1, 200);
    if (h.kind != EA_YOLOX && h.kind != EA_YOLOV8_CUT) return h;
    h.levels = pick(1, 3);
    h.anchors = 0;
    for (int i = 0; i < h.levels; i++) {
        const int type = pick(0, EA_TYPES - 1), zero = type == EA_U16 ? pick(0, 65535) : pick(0, 255);
        const ea_encoding e = {type, zero, (float)pick(1, 1000) / (type == EA_U16 ? 4e6f : 1e4f)};
        h.level[i] = (ea_level){pick(1, 11), pick(1, 9), 8 << i, e, e};
        h.anchors += h.level[i].columns * h.level[i].rows;
    }
    return h;
}

static size_t elements(const ea_head *h, int tensor) {
    if (h->kind == EA_END2END) return 6 * (size_t)h->anchors;
    const ea_level *level = &h->level[tensor / 2];
    if (h->kind == EA_YOLOV8_CUT) return (size_t)level->columns * (size_t)level->rows * (tensor % 2 ? (size_t)h->classes : 64);
    return (size_t)((h->kind == EA_YOLOV8 ? 4 : 5) + h->classes) * (size_t)h->anchors;
}

/* A NaN or infinity at any place of a float tensor must be found. */
static void check_poison(const ea_head *h, tensors *t) {
    static const float poisons[] = {NAN, -NAN, INFINITY, -INFINITY};
    const int tensor = pick(0, t->count - 1);
    const ea_level *level = &h->level[tensor / 2];
    if (h->kind == EA_YOLOV8_CUT && (tensor % 2 ? level->scores.type : level->box.type) != EA_F32) return;
    const size_t at = (size_t)pick(0, (int32_t)elements(h, tensor) - 1);
    float *place = (float *)t->data[tensor] + at, kept = *place;
    *place = poisons[pick(0, 3)];
    outcome o = decode(h, t);
    CHECK(o.status == EA_NOT_FINITE, "kind %d: %f at %zu of tensor %d went unseen, status %d", h->kind, (double)*place, at, tensor,
          o.status);
    *place = kept;
}

static int check_drawn(int wanted) {
    for (int i = 0; i < wanted; i++) {
        float thresholds[MOST_CLASSES];
        ea_head head = draw_head(thresholds);
        const char *error = ea_head_error(&head);
        CHECK(error == NULL, "drawn head %d: %s", i, error);
        if (error != NULL) continue;
        tensors t = draw_tensors(&head, running);
        outcome o = decode(&head, &t);
        CHECK(o.status == EA_OK && o.count <= head.max_detections && o.count <= o.total && o.total <= head.anchors,
              "drawn head %d, kind %d: status %d, %d of %d", i, head.kind, o.status, o.count, o.total);
        check_poison(&head, &t);
        free_tensors(&t);
    }
    return wanted;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: %s GOLDEN_FILE DRAWN_HEADS\n", arguments[0]);
        return 2;
    }
    int cases = check_golden(arguments[1]);
    CHECK(cases > 0, "no golden case");
    return report("decode", cases + check_drawn(atoi(arguments[2])));
}
