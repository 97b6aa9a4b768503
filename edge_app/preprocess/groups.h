/* Tables for the SIMD paths, which make 16 output columns at a time.
 *
 * A fetch loads the bytes of 16 columns' taps from one source row. It is made of 8 loads of 16 bytes, each of which covers
 * two columns (wide), or of 16 loads of 8 bytes (narrow, where columns lie too far apart). Byte shuffles then bring
 * each pair of columns a, b into the order a0 a1 b0 b1 (taps 0 and 1) of each channel in turn, four bytes a channel.
 * Offsets and shuffles are worked out so that no load touches a byte outside the row's pixels.
 */
#ifndef EA_GROUPS_H
#define EA_GROUPS_H

#include <stdint.h>

enum { EA_GROUP = 16 };

/* How colour comes out of the fetched bytes. */
enum ea_family { EA_PACKED3, EA_MONO, EA_FAMILY_NV12, EA_FAMILY_YUYV, EA_FAMILY_BAYER };
/* What the weights are: one pixel as it is; the mean of 2x2; anything. */
enum ea_blend { EA_PICK, EA_BOX2, EA_GENERAL };

typedef struct {
    int32_t at[EA_GROUP]; /* byte offset in the row of each load; wide: of the first 8 */
    uint8_t shuffle[4][32]; /* of loads 0|4, 1|5, 2|6, 3|7 (narrow: of the pairs 0,1|8,9 and so on) */
} ea_fetch;

/* Weights of the taps of 16 columns, w = 16 * high + low, high <= 127; tap 0 and 1 of each column in turn. */
typedef struct {
    int8_t high[32], low[32];
    uint8_t red[32]; /* Bayer: 255 where the tap is in a column of red sites */
    int32_t x; /* first output column */
    int32_t touch, touch_end; /* bytes of the row that are prefetched here, in steps of 64 */
    int32_t chroma_touch, chroma_touch_end;
    int32_t spare[3];
} ea_group;

/* A vector that lies across two lines of the cache is loaded twice. */
_Static_assert(sizeof(ea_fetch) % 64 == 0 && sizeof(ea_group) % 64 == 0, "tables begin with a line of the cache");

#endif
