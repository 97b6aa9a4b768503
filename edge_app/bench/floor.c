/* The memory floor of a resize: read whole source rows, write whole output rows, do nothing else. As fast as one core can:
 * a piece is read, a piece is written, and the lines of a later output row are asked for meanwhile. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LINE = 64, AHEAD = 2, PIECE = 4 * LINE };

/* Sum of lines first .. end - 1 of a row. */
static uint64_t read_lines(const uint8_t *row, const uint8_t *later, size_t first, size_t end) {
    uint64_t sum = 0;
    for (size_t at = first * LINE; at < end * LINE; at += LINE) {
        uint64_t words[LINE / 8];
        __builtin_prefetch(later + at, 0, 2);
        memcpy(words, row + at, LINE);
        for (int i = 0; i < LINE / 8; i++) sum += words[i];
    }
    return sum;
}

/* rows: byte offsets of the rows to read, per_output of them for each output row; planes lie plane_bytes apart. */
uint64_t floor_run(const uint8_t *frame, const int64_t *rows, int32_t outputs, int32_t per_output, size_t row_bytes,
                   uint8_t *out, int32_t planes, size_t plane_bytes, size_t out_row_bytes) {
    const size_t pieces = (out_row_bytes + PIECE - 1) / PIECE, lines = row_bytes / LINE;
    uint64_t sum = 0;
    for (int32_t j = 0; j < outputs; j++) {
        const int64_t *here = rows + (size_t)j * (size_t)per_output;
        const int64_t *later = j + AHEAD < outputs ? here + AHEAD * per_output : here;
        for (size_t p = 0; p < pieces; p++) {
            const size_t at = p * PIECE, bytes = out_row_bytes - at < PIECE ? out_row_bytes - at : PIECE;
            for (int32_t k = 0; k < per_output; k++)
                sum += read_lines(frame + here[k], frame + later[k], p * lines / pieces, (p + 1) * lines / pieces);
            for (int32_t c = 0; c < planes; c++)
                memset(out + (size_t)c * plane_bytes + (size_t)j * out_row_bytes + at, (int)sum, bytes);
        }
    }
    return sum;
}
