/* Detection heads of the YOLO family, from raw output tensors to kept boxes. Knows no Python, allocates nothing.
 *
 * Boxes are in tensor px, x0 y0 x1 y1. A score counts if it is above its class' threshold (strictly); the first of
 * equal maxima wins; candidates of equal score keep the order of their anchors; a candidate falls if its IoU with a
 * kept box of its class (or any box, agnostic) is above the IoU threshold (strictly).
 */
#ifndef EA_HEAD_H
#define EA_HEAD_H

#include <stddef.h>
#include <stdint.h>

enum ea_kind { EA_YOLOV8, EA_YOLOV5, EA_YOLOX, EA_END2END, EA_YOLOV8_CUT, EA_KINDS };
enum ea_type { EA_F32, EA_U8, EA_U16, EA_TYPES };
enum ea_status { EA_OK, EA_NOT_FINITE, EA_BAD_CLASS };
enum { EA_BINS = 16, EA_MAX_LEVELS = 8, EA_MAX_CLASSES = 65536, EA_MAX_ANCHORS = 1 << 22 };

/* A tensor's type and what its integers mean: real = (q - zero) * scale. */
typedef struct {
    int32_t type, zero;
    float scale;
} ea_encoding;

/* One feature map of a head with a grid: columns, rows, px per cell; for a cut head the encodings of its two tensors. */
typedef struct {
    int32_t columns, rows, stride;
    ea_encoding box, scores;
} ea_level;

typedef struct {
    int32_t kind, classes, anchors, agnostic, max_detections, levels;
    float iou, lowest; /* lowest of the thresholds */
    ea_level level[EA_MAX_LEVELS];
    const float *thresholds; /* [classes] */
} ea_head;

/* Candidates or detections, struct of arrays. */
typedef struct {
    float *x0, *y0, *x1, *y1, *score;
    int32_t *label;
    int32_t count;
} ea_boxes;

/* Room for one decode at a time, all arrays as long as the head has anchors. */
typedef struct {
    ea_boxes found, kept;
    float *area;
    uint64_t *entry, *entry_swap; /* what is sorted */
    int32_t *passing, *by_class, *class_start; /* class_start: [classes + 1] */
    uint8_t *keep;
} ea_work;

const char *ea_head_error(const ea_head *head);
size_t ea_work_bytes(const ea_head *head);
void ea_work_init(ea_work *work, void *block, const ea_head *head);

/* tensors: one, or for a cut head box and score tensor of each level in turn; element-aligned, shapes as the head says
 * ([4+C, N], [N, 5+C], [N, 6]; cut: [64, rows, columns] and [C, rows, columns]).
 * out: room for max_detections. total: how many were kept before that limit. */
int ea_decode(const ea_head *head, const void *const *tensors, ea_work *work, ea_boxes *out, int32_t *total);

/* Parts of ea_decode. */
int ea_find(const ea_head *head, const void *const *tensors, ea_work *work);
void ea_suppress(const ea_head *head, ea_work *work, ea_boxes *out, int32_t *total);

#endif
