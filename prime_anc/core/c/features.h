/* The generator's inputs from the paths of one ear: the magnitude base, theory (3), and twelve channels
   (prime_anc/method/start/features.py). */
#ifndef PRIME_FEATURES_H
#define PRIME_FEATURES_H

#include "generator.h"
#include "minimum_phase.h"

/* The generator's frequencies. Point j pools the bins first[j] to first[j] + count[j] - 1; bin k lies between the
   points lower[k] and lower[k] + 1. On a linear grid the points are the bins. */
typedef struct {
    int n_points, is_linear;
    const int *first, *count, *lower;
    const float *weights; /* of the pooled bins, point after point */
    const float *fraction, *frequency;
} point_grid;

enum { RATIO_RE, RATIO_IM, MISMATCH_RE, MISMATCH_IM, PRIMARY_RE, PRIMARY_IM, SECONDARY_RE, SECONDARY_IM,
       LOG_RATIO, LOG_PRIMARY, LOG_SECONDARY, N_COLUMNS };

typedef struct {
    float *column[N_COLUMNS]; /* per bin */
    float *log_base;          /* per bin, natural */
    float *log_primary, *log_secondary, *log_ratio; /* pooled, natural, per point */
} feature_space;

/* Turns squared magnitudes into natural logs, floored 120 dB below the largest, in place. */
static void floored_log(float *power, int n_bins)
{
    float largest = 0;
    for (int k = 0; k < n_bins; k++)
        largest = power[k] > largest ? power[k] : largest;
    float floor = (float)(constant.magnitude_floor * constant.magnitude_floor) * largest;
    v8 least = splat8(floor > TINY ? floor : TINY);
    for (int k = 0; k < n_bins; k += WIDTH)
        store8(power + k, log8(at_least8(load8(power + k), least)) * 0.5f);
}

/* Returns the power below which a phase fades in the audible bins. */
static float phase_floor(const float *re, const float *im, int n_bins)
{
    v8 lanes = splat8(0);
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 a = load8(re + k), b = load8(im + k), power = a * a + b * b;
        lanes = at_least8(power, lanes);
    }
    float largest = 0;
    for (int lane = 0; lane < WIDTH; lane++)
        largest = lanes[lane] > largest ? lanes[lane] : largest;
    float floor = (float)(constant.phase_floor * constant.phase_floor) * largest;
    return floor > TINY ? floor : TINY;
}

/* Computes log |W_reg| from the paths' powers, W_reg = P S* / (|S|^2 + eps^2) theory (2), (3). */
static void log_ratio_of(int n_bins, const float *primary_power, const float *secondary_power, float *log_ratio)
{
    float largest = 0;
    for (int k = 0; k < n_bins; k++)
        largest = secondary_power[k] > largest ? secondary_power[k] : largest;
    float epsilon = (float)(constant.ratio_regularisation * constant.ratio_regularisation) * largest;
    for (int k = 0; k < n_bins; k++) {
        /* Squared twice, a level of 1e-11 would leave single precision. */
        float scale = 1 / (secondary_power[k] + epsilon);
        log_ratio[k] = (primary_power[k] * scale) * (secondary_power[k] * scale);
    }
    end_with_zeros(log_ratio, n_bins);
    floored_log(log_ratio, n_bins);
}

static void pool(const point_grid *grid, const float *column, float *pooled)
{
    if (grid->is_linear) {
        memcpy(pooled, column, (size_t)grid->n_points * sizeof(float));
        return;
    }
    const float *w = grid->weights;
    for (int j = 0; j < grid->n_points; w += grid->count[j++]) {
        pooled[j] = dot_product(w, column + grid->first[j], grid->count[j]);
    }
}

/* Standardises by mean and standard deviation of the unpooled values, which are overwritten. */
static void standardise(float *values, int n_bins, const float *pooled, int n_points, float *out)
{
    float mean = sum_of(values, n_bins) / (float)n_bins;
    for (int k = 0; k < n_bins; k++)
        values[k] -= mean;
    float deviation = sqrtf(dot_product(values, values, n_bins) / (float)n_bins), scale = 1 / (deviation > 1e-6f ? deviation : 1e-6f);
    for (int j = 0; j < n_points; j++)
        out[j] = (pooled[j] - mean) * scale;
}

/* Fills space->log_base and the pooled logs; with g, also the twelve channels, in rows of `input`. */
static void read_paths(const real_plan_f *plan, phase_space *phase, feature_space *f, const point_grid *grid,
                       int is_held, const float *pr, const float *pi, const float *sr, const float *si,
                       const generator *g, float *input)
{
    int n_bins = plan->n / 2 + 1;
    float **c = f->column, least_p = phase_floor(pr, pi, n_bins), least_s = phase_floor(sr, si, n_bins);
    int n_audible = (int)(constant.audible_hz / SAMPLE_RATE_HZ * plan->n) / WIDTH * WIDTH;
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 a = load8(pr + k), b = load8(pi + k), x = load8(sr + k), y = load8(si + k);
        v8 p = a * a + b * b, s = x * x + y * y, low_p = splat8(k < n_audible ? least_p : TINY);
        v8 low_s = splat8(k < n_audible ? least_s : TINY);
        v8 ip = 1.0f / sqrt8(at_least8(p, low_p)), is = 1.0f / sqrt8(at_least8(s, low_s));
        a *= ip, b *= ip, x *= is, y *= is;
        store8(c[LOG_PRIMARY] + k, p), store8(c[LOG_SECONDARY] + k, s);
        store8(c[PRIMARY_RE] + k, a), store8(c[PRIMARY_IM] + k, b);
        store8(c[SECONDARY_RE] + k, x), store8(c[SECONDARY_IM] + k, y);
        store8(c[RATIO_RE] + k, a * x + b * y), store8(c[RATIO_IM] + k, b * x - a * y);
    }
    log_ratio_of(n_bins, c[LOG_PRIMARY], c[LOG_SECONDARY], c[LOG_RATIO]);
    floored_log(c[LOG_PRIMARY], n_bins);
    floored_log(c[LOG_SECONDARY], n_bins);
    memcpy(f->log_base, c[LOG_RATIO], (size_t)n_bins * sizeof(float));
    if (is_held) {
        double spacing_hz = (double)SAMPLE_RATE_HZ / plan->n;
        int low = (int)ceil(constant.held_low_hz / spacing_hz), high = (int)floor(constant.held_high_hz / spacing_hz);
        for (int k = 0; k < low; k++)
            f->log_base[k] = f->log_base[low];
        for (int k = high + 1; k < n_bins; k++)
            f->log_base[k] = f->log_base[high];
    }
    pool(grid, c[LOG_PRIMARY], f->log_primary);
    pool(grid, c[LOG_SECONDARY], f->log_secondary);
    if (!g)
        return;
    memcpy(phase->log_gain, f->log_base, (size_t)n_bins * sizeof(float));
    minimum_phase(plan, phase);
    for (int k = 0; k < n_bins; k += WIDTH) { /* the ratio's phase against the base's */
        v8 sine, cosine, re = load8(c[RATIO_RE] + k), im = load8(c[RATIO_IM] + k);
        sincos8(load8(phase->phase + k), &sine, &cosine);
        store8(c[MISMATCH_RE] + k, re * cosine + im * sine);
        store8(c[MISMATCH_IM] + k, im * cosine - re * sine);
    }
    pool(grid, c[LOG_RATIO], f->log_ratio);
    int n = grid->n_points;
    standardise(c[LOG_RATIO], n_bins, f->log_ratio, n, row_of(g, input, 0));
    memcpy(row_of(g, input, 1), grid->frequency, (size_t)n * sizeof(float));
    pool(grid, c[RATIO_RE], row_of(g, input, 2));
    pool(grid, c[RATIO_IM], row_of(g, input, 3));
    pool(grid, c[MISMATCH_RE], row_of(g, input, 4));
    pool(grid, c[MISMATCH_IM], row_of(g, input, 5));
    standardise(c[LOG_PRIMARY], n_bins, f->log_primary, n, row_of(g, input, 6));
    standardise(c[LOG_SECONDARY], n_bins, f->log_secondary, n, row_of(g, input, 7));
    pool(grid, c[PRIMARY_RE], row_of(g, input, 8));
    pool(grid, c[PRIMARY_IM], row_of(g, input, 9));
    pool(grid, c[SECONDARY_RE], row_of(g, input, 10));
    pool(grid, c[SECONDARY_IM], row_of(g, input, 11));
}

/* Interpolates linearly in log f from points to bins, constant beyond both ends. */
static void spread(const point_grid *grid, int n_bins, const float *values, float *out)
{
    end_with_zeros(out, n_bins);
    if (grid->is_linear) {
        memcpy(out, values, (size_t)n_bins * sizeof(float));
        return;
    }
    for (int k = 0; k < n_bins; k++) {
        float low = values[grid->lower[k]];
        out[k] = low + grid->fraction[k] * (values[grid->lower[k] + 1] - low);
    }
}

#endif
