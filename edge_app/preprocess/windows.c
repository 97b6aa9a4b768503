#include "windows.h"

#include <math.h>
#include <string.h>

int32_t ea_padded(int32_t most, int32_t step) { return (most + step - 1) / step * step; }

int32_t ea_area_most(int32_t n, int32_t m) { return n / m + 2; }

int32_t ea_antialias_most(int32_t n, int32_t m) {
    const double scale = (double)n / m;
    return (int32_t)ceil(scale > 1.0 ? scale : 1.0) * 2 + 1;
}

/* Bits such that the largest weight, 2^bits * m / n, fits 15 bits, and sums of 15-bit values fit 32. */
static int32_t area_bits(int32_t n, int32_t m) {
    int32_t bits = 14;
    while (bits < 16 && ((int64_t)m << (bits + 1)) <= (int64_t)n * 16384) bits++;
    return bits;
}

/* Position i of m covers n * i / m .. n * (i + 1) / m of the source, here in units of 1 / m pixel. A pixel's weight is its
 * share; all pixels that are wholly covered have one weight, and what rounding left over goes to the last one. */
static void area_window(ea_window *window, int16_t *weight, int64_t n, int64_t m, int64_t i, int32_t bits) {
    const int64_t from = n * i, to = n * (i + 1);
    const int64_t first = from / m, last = (to + m - 1) / m - 1;
    const int64_t one = (int64_t)1 << bits;
    int64_t left = one;
    window->first = (int32_t)first;
    window->count = (int32_t)(last - first + 1);
    for (int64_t p = first; p < last; p++) {
        const int64_t start = p * m > from ? p * m : from;
        const int64_t share = ((p + 1) * m - start) * one;
        weight[p - first] = (int16_t)((share + n / 2) / n);
        left -= weight[p - first];
    }
    weight[last - first] = (int16_t)left;
}

/* Longest of `count` windows. */
static int32_t longest(const ea_window *window, int32_t count) {
    int32_t most = 1;
    for (int32_t i = 0; i < count; i++) most = window[i].count > most ? window[i].count : most;
    return most;
}

ea_axis ea_area_axis(ea_window *window, int16_t *weight, int32_t n, int32_t m, int32_t first, int32_t count, int32_t step) {
    ea_axis axis = {area_bits(n, m), ea_area_most(n, m), 0, window, weight};
    axis.padded = ea_padded(axis.most, step);
    memset(weight, 0, (size_t)count * (size_t)axis.padded * sizeof *weight);
    for (int32_t i = 0; i < count; i++) area_window(&window[i], weight + (size_t)i * (size_t)axis.padded, n, m, first + i, axis.bits);
    return axis;
}

/* Where the triangle of half-width `support` around a position's centre lies, as torchvision has it. */
static double antialias_window(ea_window *window, int32_t n, double scale, double support, int32_t i) {
    const double centre = scale * (i + 0.5);
    int64_t low = (int64_t)(centre - support + 0.5), high = (int64_t)(centre + support + 0.5);
    if (low < 0) low = 0;
    if (high > n) high = n;
    window->first = (int32_t)low;
    window->count = (int32_t)(high - low);
    return centre;
}

/* Weight of position p of a window before normalising, and their sum. */
static double triangle(const ea_window *window, int32_t p, double centre, double scale) {
    const double shrink = scale >= 1.0 ? 1.0 / scale : 1.0;
    const double x = fabs((p + window->first - centre + 0.5) * shrink);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double triangle_sum(const ea_window *window, double centre, double scale) {
    double sum = 0.0;
    for (int32_t p = 0; p < window->count; p++) sum += triangle(window, p, centre, scale);
    return sum;
}

/* As many bits as keep the largest weight within 15. */
static int32_t antialias_bits(double largest) {
    int32_t bits = 0;
    while (bits < 22 && (int32_t)(0.5 + largest * (double)((int64_t)1 << (bits + 1))) < 1 << 15) bits++;
    return bits;
}

ea_axis ea_antialias_axis(ea_window *window, int16_t *weight, int32_t n, int32_t m, int32_t first, int32_t count, int32_t step) {
    const double scale = (double)n / m, support = scale > 1.0 ? scale : 1.0;
    double largest = 0.0;
    /* The bits follow from all m positions, also those that a crop leaves out. */
    for (int32_t i = 0; i < m; i++) {
        ea_window w;
        const double centre = antialias_window(&w, n, scale, support, i), sum = triangle_sum(&w, centre, scale);
        for (int32_t p = 0; p < w.count; p++) largest = fmax(largest, triangle(&w, p, centre, scale) / sum);
    }
    for (int32_t i = 0; i < count; i++) antialias_window(&window[i], n, scale, support, first + i);
    ea_axis axis = {antialias_bits(largest), longest(window, count), 0, window, weight};
    axis.padded = ea_padded(axis.most, step);
    memset(weight, 0, (size_t)count * (size_t)axis.padded * sizeof *weight);
    for (int32_t i = 0; i < count; i++) {
        int16_t *row = weight + (size_t)i * (size_t)axis.padded;
        const double centre = antialias_window(&window[i], n, scale, support, first + i);
        const double sum = triangle_sum(&window[i], centre, scale);
        for (int32_t p = 0; p < window[i].count; p++)
            row[p] = (int16_t)(0.5 + triangle(&window[i], p, centre, scale) / sum * (double)((int64_t)1 << axis.bits));
    }
    return axis;
}

void ea_spread_weights(const ea_axis *axis, int32_t count, int16_t *spread) {
    for (int32_t i = 0; i < count * axis->padded; i += EA_SPREAD_STEP, spread += EA_SPREAD)
        for (int k = 0; k < EA_SPREAD; k++) spread[k] = k % 8 < 6 ? axis->weight[i + k / 8 * 2 + k % 2] : 0;
}

void ea_widen_windows(ea_axis *axis, ea_window *window, int16_t *weight, int32_t count, int32_t n) {
    for (int32_t i = 0; i < count; i++) {
        int16_t *row = weight + (size_t)i * (size_t)axis->padded;
        const int32_t first = window[i].first, latest = n - axis->padded;
        if (first > latest) {
            const int32_t by = first - latest;
            memmove(row + by, row, (size_t)window[i].count * sizeof *row);
            memset(row, 0, (size_t)by * sizeof *row);
            window[i].first = latest;
        }
        window[i].count = axis->padded;
    }
}
