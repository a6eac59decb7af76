/* What is unknown of paths, and bands in which nothing passes (prime_anc/method/unknown.py): theory (22). */
#ifndef PRIME_UNKNOWN_H
#define PRIME_UNKNOWN_H

#include "predict.h"

/* Grids of the ends' spectra, and work space, of which each array holds a part of up to 8192 samples or its bins. */
typedef struct {
    const real_plan_f *plan, *coarse_plan; /* of 8192 and 1024 points */
    const band_edges *bands, *coarse_bands;
    scratch_f scratch;
    float *part, *re, *im, *power;
} ends_space;

enum { COARSE_N_FFT = 1024 };

/* Returns the number of samples up to the last above END_OF_RESPONSE of the largest. */
static int length_of(const float *response, int n_samples)
{
    float end = constant.end_of_response * largest_of(response, n_samples);
    while (n_samples > 0 && !(fabsf(response[n_samples - 1]) > end))
        n_samples--;
    return n_samples;
}

/* Interpolates a table over the log of a response's length, from 128 samples to 8192. */
static double at_length(double n_samples, const double *values)
{
    double place = log2(n_samples > 1 ? n_samples : 1) - 7;
    if (!(place > 0))
        return values[0];
    int below = place < N_LENGTHS - 1 ? (int)place : N_LENGTHS - 2;
    double beyond = place - below;
    return beyond < 1 ? values[below] + beyond * (values[below + 1] - values[below]) : values[below + 1];
}

/* Copies n samples to s->part, and multiplies them by a Hann window. Its angles stay below a right one, where they are
   more exact. */
static void windowed(const ends_space *s, const float *response, int n)
{
    v8 sine, cosine, place = {0, 1, 2, 3, 4, 5, 6, 7};
    memcpy(s->part, response, (size_t)n * sizeof(float));
    for (int i = 0; i < n; i += WIDTH) {
        v8 before = place + (float)i, after = (float)(n - 1) - before;
        sincos8(select8(before < after, before, after) * (float)(M_PI / (n - 1)), &sine, &cosine);
        store8(s->part + i, load8(s->part + i) * sine * sine);
    }
}

/* Computes the power of n samples per band, of the next bin where a band has none. */
static void band_powers(const ends_space *s, const float *samples, int n, double *powers)
{
    rfft_f(s->plan, s->scratch, samples, n, s->re, s->im);
    for (int k = 0; k < s->bands->n_bins; k += WIDTH) {
        v8 re = load8(s->re + k), im = load8(s->im + k);
        store8(s->power + k, re * re + im * im);
    }
    band_sums(s->bands, 0, N_BANDS, s->power, powers);
    for (int b = 0; b < N_BANDS; b++)
        if (s->bands->edge[b] == s->bands->edge[b + 1])
            powers[b] = s->power[s->bands->edge[b]];
}

/* Replaces each value by the mean over five adjacent bands. */
static void smooth(double *values)
{
    double padded[N_BANDS + 4];
    for (int b = 0; b < N_BANDS + 4; b++)
        padded[b] = values[b < 2 ? 0 : b > N_BANDS + 1 ? N_BANDS - 1 : b - 2];
    for (int b = 0; b < N_BANDS; b++)
        values[b] = (padded[b] + padded[b + 1] + padded[b + 2] + padded[b + 3] + padded[b + 4]) / 5;
}

/* Computes unknown over known power per band; a filter matches, or plays, the noise of n_matched of n lags. */
static void unknown_share(const ends_space *s, const float *response, int n, int n_matched, double *share)
{
    double before[N_BANDS], last[N_BANDS], known[N_BANDS], ratio[N_BANDS];
    int quarter = n / 4, n_noise = (n < n_matched ? n : n_matched) - (n > n_matched ? n - n_matched : 0);
    memset(share, 0, N_BANDS * sizeof(double));
    if (n < constant.least_samples || n >= constant.long_samples)
        return;
    windowed(s, response + 2 * quarter, quarter), band_powers(s, s->part, quarter, before);
    windowed(s, response + 3 * quarter, quarter), band_powers(s, s->part, quarter, last);
    band_powers(s, response, n, known);
    for (int b = 0; b < N_BANDS; b++)
        ratio[b] = log(fmax(last[b], DBL_MIN) / fmax(before[b], DBL_MIN));
    smooth(ratio);
    for (int b = 0; b < N_BANDS; b++) {
        /* the mean square of the window is 3 (n - 1) / 8 n */
        double falls = exp(ratio[b]), end = last[b] / (0.375 * (quarter - 1) / quarter);
        double tail = end * falls / fmax(1 - falls, constant.stationary);
        share[b] = (falls > constant.stationary ? end / quarter * n_noise : tail) / fmax(known[b], DBL_MIN);
    }
}

/* Returns whether a long response, of n samples, is louder in its last quarter than in its middle. */
static int rises(const ends_space *s, const float *response, int n)
{
    enum { N_PARTS = 5 };
    double powers[N_PARTS][N_BANDS], level[N_PARTS] = {0}, quietest = INFINITY;
    int eighth = n / 8, is_coarse = eighth <= COARSE_N_FFT, first = constant.rising_first, end = NR_FIRST + NR_COUNT;
    const real_plan_f *plan = is_coarse ? s->coarse_plan : s->plan;
    const band_edges *bands = is_coarse ? s->coarse_bands : s->bands;
    if (8 * eighth < constant.long_samples)
        return 0;
    for (int i = 0; i < N_PARTS; i++) {
        windowed(s, response + (3 + i) * eighth, eighth);
        rfft_f(plan, s->scratch, s->part, eighth, s->re, s->im);
        for (int b = first; b < end; b++) {
            powers[i][b] = 0;
            for (int k = bands->edge[b]; k < bands->edge[b + 1]; k++)
                powers[i][b] += s->re[k] * s->re[k] + s->im[k] * s->im[k];
        }
    }
    for (int b = first; b < end; b++) {
        double loudest = 0;
        for (int i = 0; i < N_PARTS; i++)
            loudest = fmax(loudest, powers[i][b]);
        for (int i = 0; i < N_PARTS; i++)
            level[i] += decibels(fmax(powers[i][b], 1e-12 * loudest + DBL_MIN)) / (end - first);
    }
    for (int i = 0; i < 3; i++)
        quietest = fmin(quietest, level[i]);
    return (level[3] + level[4]) / 2 - quietest > constant.rising_db;
}

/* Computes the power after N_TAPS over the whole per band, without noise: the same in circular lags from either end.
   n: length of the response, of n_samples. */
static void late_share(const ends_space *s, const float *response, int n_samples, int n, double *share)
{
    double early[N_BANDS] = {0}, middle[N_BANDS] = {0}, all[N_BANDS] = {0}, late[N_BANDS], whole[N_BANDS];
    int eighth = n / 8, n_kept = n_samples < s->plan->n ? n_samples : s->plan->n;
    for (int k = 2; k < 8; k++) {
        windowed(s, response + k * eighth, eighth), band_powers(s, s->part, eighth, late);
        for (int b = 0; b < N_BANDS; b++)
            early[b] += k < 4 ? late[b] : 0, middle[b] += k >= 4 && k < 6 ? late[b] : 0, all[b] += late[b];
    }
    for (int b = 0; b < N_BANDS; b++)
        share[b] = fmax(early[b] - middle[b], 0) / fmax(all[b], DBL_MIN);
    smooth(share);
    band_powers(s, response, n_kept, whole);
    memcpy(s->part, response, (size_t)n_kept * sizeof(float)), memset(s->part, 0, N_TAPS * sizeof(float));
    band_powers(s, s->part, n_kept, late);
    for (int b = 0; b < N_BANDS; b++)
        share[b] *= constant.lacked * late[b] / fmax(whole[b], DBL_MIN);
}

static void write_shares(const double *share, float *uncertainty)
{
    for (int b = 0; b < N_BANDS; b++)
        uncertainty[b] = share[b] < constant.smallest_share ? 0 : (float)fmin(share[b], constant.most_uncertain);
}

/* Computes what a primary response of n_samples leaves unknown, [31]; returns the half-width of the interval in dB. */
static double primary_uncertainty(const ends_space *s, const float *response, int n_samples, float *uncertainty)
{
    double share[N_BANDS];
    int n = length_of(response, n_samples);
    double interval = at_length(n, constant.response_interval_db);
    unknown_share(s, response, n, N_TAPS, share);
    if (rises(s, response, n)) {
        late_share(s, response, n_samples, n, share);
        interval = fmax(interval, constant.rising_interval_db);
    }
    write_shares(share, uncertainty);
    return interval;
}

static void secondary_uncertainty(const ends_space *s, const float *response, int n_samples, float *uncertainty)
{
    double share[N_BANDS];
    unknown_share(s, response, length_of(response, n_samples), constant.long_samples, share);
    write_shares(share, uncertainty);
}

/* Finds the bands in which nothing passes a path, given its spectrum on the grid of `bands`. Overwrites power, [bins]. */
static void silent_bands(const band_edges *bands, const float *re, const float *im, float *power, unsigned char *silent)
{
    double sums[N_BANDS], loudest = 0;
    for (int k = 0; k < bands->edge[N_BANDS]; k += WIDTH)
        store8(power + k, load8(re + k) * load8(re + k) + load8(im + k) * load8(im + k));
    band_sums(bands, 0, N_BANDS, power, sums);
    for (int b = 0; b < N_BANDS; b++)
        sums[b] /= bands->edge[b + 1] - bands->edge[b], loudest = fmax(loudest, sums[b]);
    for (int b = 0; b < N_BANDS; b++)
        silent[b] = sums[b] < constant.silent * loudest;
}

/* Computes both uncertainties from the power that a coherence leaves unexplained. Where more is unknown than known, it
   says nothing of the secondary path either. */
static void coherence_uncertainty(const double *expected, const double *learned, const double *power,
                                  const double *unexplained, float *uncertainty)
{
    for (int b = 0; b < N_BANDS; b++) {
        double share = constant.coherence_share * unexplained[b] / fmax(power[b], DBL_MIN);
        double bound = learned[b] > 0 ? constant.model_bound * expected[b] : INFINITY; /* without a device no bound */
        uncertainty[b] = (float)(share > 1 ? share : fmin(share, bound));
        uncertainty[N_BANDS + b] = share > 1 ? (float)share : 0;
    }
}

#endif
