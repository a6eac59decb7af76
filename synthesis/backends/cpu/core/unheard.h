/* Whether a measurement said nothing about a part of a path (synthesis/unheard_bins.py, which completes such paths). */
#ifndef PRIME_UNHEARD_H
#define PRIME_UNHEARD_H

#include <stdlib.h>

#include "method.h"
#include "vector.h"

#define COARSE_BINS 1025
#define COARSE_STRIDE 16
#define MAX_LEVEL_BINS 64

/* expected: power of the support's paths per coarse bin, [1025]; NULL: no model of the paths. */
typedef struct {
    const float *primary, *secondary;
    int level_bins[MAX_LEVEL_BINS], n_level_bins, n_audible;
} expected_power;

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Whether so many bins in a row lie so far below what is to be expected at the path's level that nothing was heard. */
static int has_gap(const expected_power *e, const float *expected, const float *re, const float *im)
{
    float power[COARSE_BINS + 4] = {0}, ratio[COARSE_BINS], levels[MAX_LEVEL_BINS];
    for (int j = 0; j < COARSE_BINS; j++) {
        float a = re[j * COARSE_STRIDE], b = im[j * COARSE_STRIDE];
        power[j + 2] = a * a + b * b;
    }
    for (int j = 0; j < COARSE_BINS; j++)
        ratio[j] = (power[j] + power[j + 1] + power[j + 2] + power[j + 3] + power[j + 4]) / (5 * expected[j]);
    for (int i = 0; i < e->n_level_bins; i++)
        levels[i] = ratio[e->level_bins[i]];
    qsort(levels, (size_t)e->n_level_bins, sizeof *levels, by_size);
    float least = (float)UNHEARD * levels[e->n_level_bins / 2];
    for (int j = 0, run = 0; j < e->n_audible; j++) {
        run = ratio[j] < least ? run + 1 : 0;
        if (run == MIN_WIDTH_BINS)
            return 1;
    }
    return 0;
}

#endif
