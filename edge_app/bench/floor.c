/* The memory floor of a resize: read whole source rows, write whole output rows, do nothing else. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t read_row(const uint8_t *row, size_t bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, row + i, 8);
        sum += word;
    }
    return sum;
}

/* rows: byte offsets of the rows to read, per_output of them for each output row; planes lie plane_bytes apart. */
uint64_t floor_run(const uint8_t *frame, const int64_t *rows, int32_t outputs, int32_t per_output, size_t row_bytes,
                   uint8_t *out, int32_t planes, size_t plane_bytes, size_t out_row_bytes) {
    uint64_t sum = 0;
    for (int32_t j = 0; j < outputs; j++) {
        for (int32_t k = 0; k < per_output; k++) sum += read_row(frame + rows[j * per_output + k], row_bytes);
        for (int32_t p = 0; p < planes; p++) memset(out + (size_t)p * plane_bytes + (size_t)j * out_row_bytes, (int)sum, out_row_bytes);
    }
    return sum;
}
