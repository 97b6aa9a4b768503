/* Rows of one channel, in a frame or in a ring of the latest ones. */
#ifndef EA_ROWS_H
#define EA_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *base;
    size_t stride;
    int32_t slots; /* 0: no ring, row y lies at y * stride */
    int32_t end;   /* no ring: number of rows, beyond which nothing may be prefetched */
} ea_rows;

static inline const uint8_t *ea_row(const ea_rows *rows, int32_t y) {
    return rows->base + (size_t)(rows->slots ? y % rows->slots : y) * rows->stride;
}

#endif
