#include <string.h>

#include "plan.h"

static int family_of(const ea_spec *s) {
    switch (s->format) {
        case EA_BGR8: case EA_RGB8: return EA_PACKED3;
        case EA_GRAY8: return EA_MONO;
        case EA_NV12: return EA_FAMILY_NV12;
        case EA_YUYV: return EA_FAMILY_YUYV;
        default: return EA_FAMILY_BAYER;
    }
}

static int all_weights(const ea_tap *taps, int32_t count, int w0, int w1) {
    for (int32_t i = 0; i < count; i++)
        if (taps[i].w0 != w0 || taps[i].w1 != w1) return 0;
    return 1;
}

/* Whether the taps are all pixels of a stretch in turn, each pair over one chroma sample. */
static int halve_chroma(const ea_tap *taps, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (taps[i].p0 != taps[0].p0 + 2 * i || taps[i].p1 != taps[i].p0 + 1) return 0;
    return taps[0].p0 % 2 == 0;
}

/* The special cases are worth their code only where they are common; GENERAL gives the same bits. */
static int blend_of(const ea_plan *p) {
    const int gray_of_colour = p->spec.color == EA_GRAY && p->family != EA_MONO;
    if (p->family == EA_FAMILY_BAYER || gray_of_colour || p->spec.method == EA_SAMPLE) return EA_GENERAL;
    const int32_t w = p->spec.inner_w, h = p->spec.inner_h, half = EA_WEIGHT_ONE / 2;
    if (all_weights(p->x, w, EA_WEIGHT_ONE, 0) && all_weights(p->y, h, EA_WEIGHT_ONE, 0)) return EA_PICK;
    const int halves = all_weights(p->x, w, half, half) && all_weights(p->y, h, half, half);
    if (!halves || p->family == EA_FAMILY_YUYV) return EA_GENERAL;
    return p->family != EA_FAMILY_NV12 || (halve_chroma(p->x, w) && halve_chroma(p->y, h)) ? EA_BOX2 : EA_GENERAL;
}

int32_t ea_group_count(const ea_spec *s) { return (s->inner_w + EA_GROUP - 1) / EA_GROUP; }

/* Bayer: the first of the two demosaiced columns, so that both and their neighbours lie inside the frame. */
static int32_t bayer_column(const ea_spec *s, int32_t p0) { return p0 < 1 ? 1 : p0 > s->width - 3 ? s->width - 3 : p0; }

/* Byte in the row of channel c (in the tensor's order) at tap t of output column i. */
static int32_t byte_of(const ea_plan *p, int32_t i, int c, int t, int chroma) {
    const ea_spec *s = &p->spec;
    const int32_t at = t ? p->x[i].p1 : p->x[i].p0;
    const int swapped = s->color == EA_BGR;
    if (chroma) return at / 2 * 2 + (swapped ? c : 1 - c); /* the chroma that makes channel 0 comes first */
    switch (p->family) {
        case EA_PACKED3: return 3 * at + (swapped == (s->format == EA_BGR8) ? c : 2 - c);
        case EA_FAMILY_YUYV: return c == 0 ? 2 * at : at / 2 * 4 + ((c == 1) != swapped ? 3 : 1);
        case EA_FAMILY_BAYER: return bayer_column(s, p->x[i].p0) + t + c - 1; /* "channels": left, own, right column */
        default: return at;
    }
}

typedef struct {
    int32_t low, high;
} span;

static span span_of(const ea_plan *p, int32_t i, int channels, int chroma) {
    span s = {INT32_MAX, 0};
    for (int c = 0; c < channels; c++)
        for (int t = 0; t < 2; t++) {
            int32_t at = byte_of(p, i, c, t, chroma);
            if (at < s.low) s.low = at;
            if (at > s.high) s.high = at;
        }
    return s;
}

static int32_t first_column(const ea_plan *p, int32_t g) {
    const int32_t x = g * EA_GROUP, last = p->spec.inner_w - EA_GROUP;
    return x < last ? x : last; /* the last group overlaps the one before */
}

static int pairs_fit_16_bytes(const ea_plan *p, int channels, int chroma) {
    for (int32_t g = 0; g < ea_group_count(&p->spec); g++)
        for (int32_t i = first_column(p, g); i < first_column(p, g) + EA_GROUP; i += 2) {
            span a = span_of(p, i, channels, chroma), b = span_of(p, i + 1, channels, chroma);
            if (b.high - a.low >= 16) return 0;
        }
    return 1;
}

static int32_t at_most(int32_t v, int32_t limit) { return v < limit ? v : limit; }

/* The four bytes of a column's channel go to place, place + 1 of its pair's shuffle; tap 1 is left zero for a pick. */
static void set_shuffle(const ea_plan *p, uint8_t *shuffle, int32_t i, int place, int32_t base, int channels, int chroma) {
    for (int c = 0; c < channels; c++) {
        shuffle[4 * c + place] = (uint8_t)(byte_of(p, i, c, 0, chroma) - base);
        shuffle[4 * c + place + 1] = p->blend == EA_PICK ? 0x80 : (uint8_t)(byte_of(p, i, c, 1, chroma) - base);
    }
}

static void build_fetch(const ea_plan *p, ea_fetch *f, int32_t x, int channels, int chroma) {
    const int32_t row = chroma ? (p->spec.width + 1) / 2 * 2 : ea_row_bytes(&p->spec);
    memset(f->shuffle, 0x80, sizeof f->shuffle);
    for (int pair = 0; pair < EA_GROUP / 2; pair++) {
        uint8_t *shuffle = f->shuffle[pair % 4] + 16 * (pair / 4);
        const int32_t a = x + 2 * pair, b = a + 1;
        if (p->narrow) {
            const int32_t at_a = at_most(span_of(p, a, channels, chroma).low, row - 8);
            const int32_t at_b = at_most(span_of(p, b, channels, chroma).low, row - 8);
            f->at[2 * pair] = at_a;
            f->at[2 * pair + 1] = at_b;
            set_shuffle(p, shuffle, a, 0, at_a, channels, chroma);
            set_shuffle(p, shuffle, b, 2, at_b - 8, channels, chroma);
        } else {
            const int32_t at = at_most(span_of(p, a, channels, chroma).low, row - 16);
            f->at[pair] = at;
            set_shuffle(p, shuffle, a, 0, at, channels, chroma);
            set_shuffle(p, shuffle, b, 2, at, channels, chroma);
        }
    }
}

static void split_weight(int32_t w, int8_t *high, int8_t *low) {
    *high = (int8_t)(w == EA_WEIGHT_ONE ? 127 : w >> 4);
    *low = (int8_t)(w - 16 * *high);
}

static void build_weights(const ea_plan *p, ea_group *g) {
    const ea_spec *s = &p->spec;
    /* A BGR tensor of one pattern is the RGB tensor of the pattern with red and blue changed places. */
    const int flipped = s->color == EA_BGR;
    const int red_x = (s->format == EA_BAYER_GR8 || s->format == EA_BAYER_BG8) != flipped;
    for (int i = 0; i < EA_GROUP; i++) {
        const ea_tap *tap = &p->x[g->x + i];
        int32_t w0 = tap->w0, w1 = tap->w1;
        if (p->family == EA_FAMILY_BAYER) {
            const int32_t column = bayer_column(s, tap->p0);
            for (int t = 0; t < 2; t++) g->red[2 * i + t] = ((column + t) & 1) == red_x ? 255 : 0;
            if (column > tap->p0) { w0 += w1 * (tap->p1 < column + 1); w1 -= w1 * (tap->p1 < column + 1); }
            if (column < tap->p0) { w1 += w0; w0 = 0; }
        }
        split_weight(w0, &g->high[2 * i], &g->low[2 * i]);
        split_weight(w1, &g->high[2 * i + 1], &g->low[2 * i + 1]);
    }
}

/* Each group prefetches from where the one before ended, so that every line is asked for once. */
static void build_touch(const ea_plan *p, ea_group *g, int channels, int32_t *done, int32_t *chroma_done) {
    g->touch = *done;
    g->touch_end = *done = span_of(p, g->x + EA_GROUP - 1, channels, 0).high + 1;
    if (p->family != EA_FAMILY_NV12) return;
    g->chroma_touch = *chroma_done;
    g->chroma_touch_end = *chroma_done = span_of(p, g->x + EA_GROUP - 1, 2, 1).high + 1;
}

void ea_build_groups(ea_plan *p, ea_group *group, ea_fetch *fetch, ea_fetch *chroma) {
    const ea_spec *s = &p->spec;
    const int nv12 = s->format == EA_NV12;
    p->family = family_of(s);
    p->blend = blend_of(p);
    const int channels = p->family == EA_MONO || nv12 ? 1 : 3;
    p->groups = 0;
    if (s->inner_w < EA_GROUP || ea_row_bytes(s) < 16 || s->width < 4) return;
    p->narrow = !pairs_fit_16_bytes(p, channels, 0) || (nv12 && !pairs_fit_16_bytes(p, 2, 1));
    p->groups = ea_group_count(s);
    p->group = group;
    p->fetch = fetch;
    p->chroma = nv12 ? chroma : NULL;
    int32_t done = span_of(p, 0, channels, 0).low, chroma_done = nv12 ? span_of(p, 0, 2, 1).low : 0;
    for (int32_t g = 0; g < p->groups; g++) {
        group[g].x = first_column(p, g);
        build_weights(p, &group[g]);
        build_touch(p, &group[g], channels, &done, &chroma_done);
        build_fetch(p, &fetch[g], group[g].x, channels, 0);
        if (nv12) build_fetch(p, &chroma[g], group[g].x, 2, 1);
    }
}
