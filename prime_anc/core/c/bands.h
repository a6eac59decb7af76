/* Sums over one-third octaves and onto coarser grids (prime_anc/method/bands.py). */
#ifndef PRIME_BANDS_H
#define PRIME_BANDS_H

#include <math.h>

#include "method.h"
#include "vector.h"

typedef struct {
    int n_bins;
    int edge[N_BANDS + 1]; /* band b holds the bins edge[b] to edge[b + 1] - 1 */
} band_edges;

/* Band n runs from 10^((2n - 1) / 20) Hz to the next band's lower edge. */
static band_edges band_edges_of(int n_fft)
{
    band_edges bands = {n_fft / 2 + 1, {0}};
    for (int b = 0; b <= N_BANDS; b++) {
        double low_hz = pow(10, (2 * (FIRST_BAND + b) - 1) / 20.0);
        int bin = 0;
        while (bin < bands.n_bins && (double)bin * SAMPLE_RATE_HZ / n_fft < low_hz)
            bin++;
        bands.edge[b] = bin;
    }
    return bands;
}

/* Sums of power over the bands first to first + n - 1. */
static void band_sums(const band_edges *bands, int first, int n, const float *power, double *sums)
{
    for (int b = 0; b < n; b++) {
        int bin = bands->edge[first + b], end = bands->edge[first + b + 1];
        v8 lanes = splat8(0);
        for (; bin + WIDTH <= end; bin += WIDTH)
            lanes += load8(power + bin);
        double sum = sum8(lanes);
        for (; bin < end; bin++)
            sum += power[bin];
        sums[b] = sum;
    }
}

/* Power per bin on a grid coarser by the even number `stride` (or 1); a bin half-way between two is shared. */
static void collect(const float *power, int n_coarse, int stride, float *collected)
{
    if (stride == 1) {
        memcpy(collected, power, (size_t)n_coarse * sizeof(float));
        return;
    }
    for (int j = 0; j < n_coarse; j++) {
        float sum = power[j * stride];
        for (int offset = 1; offset <= stride / 2; offset++) {
            float share = 2 * offset == stride ? 0.5f : 1.0f;
            if (j < n_coarse - 1)
                sum += share * power[j * stride + offset];
            if (j > 0)
                sum += share * power[j * stride - offset];
        }
        collected[j] = sum;
    }
}

#endif
