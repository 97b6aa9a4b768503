/* What the C tests share: drawn bytes and floats, hashes, a failure count, golden files. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition, ...)                                    \
    do {                                                         \
        if (!(condition)) {                                      \
            failures++;                                          \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);      \
            fprintf(stderr, __VA_ARGS__);                        \
            fputc('\n', stderr);                                 \
        }                                                        \
    } while (0)

/* The i-th number of a seed: a counter and a mixer, so that NumPy draws the same in one go (tests/golden/draw.py). */
static inline uint32_t drawn(uint32_t seed, uint32_t i) {
    uint32_t z = seed + i * 0x9E3779B9u;
    z = (z ^ (z >> 16)) * 0x7feb352du;
    z = (z ^ (z >> 15)) * 0x846ca68bu;
    return z ^ (z >> 16);
}

static inline float drawn_float(uint32_t seed, uint32_t i, float low, float high) {
    float unit = (float)(drawn(seed, i) >> 8) * (1.0f / 16777216.0f);
    float scaled = unit * (high - low);
    return low + scaled;
}

static inline void draw_bytes(uint8_t *to, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) to[i] = (uint8_t)(drawn(seed, (uint32_t)i) >> 24);
}

static inline uint64_t hashed(uint64_t hash, const void *data, size_t bytes) {
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3ull;
    return hash;
}
enum { HASH_LOW = 0x84222325 };
#define HASH_START (0xcbf29ce400000000ull | (uint32_t)HASH_LOW)

/* Uniform integer low..high of a running generator. */
static uint32_t running;
static inline int32_t pick(int32_t low, int32_t high) { return low + (int32_t)(drawn(77, running++) % (uint32_t)(high - low + 1)); }

static inline void *must(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return memory;
}

static inline FILE *must_open(const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "can't open %s\n", path);
        exit(2);
    }
    return file;
}

static inline int report(const char *name, int checked) {
    printf("%s: %d cases, %d failures\n", name, checked, failures);
    return failures > 0 || checked == 0;
}

#endif
