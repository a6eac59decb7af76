/* The measurement mistake that best explains a pair of paths (prime_anc/method/plausibility.py, support_statistics.py). */
#ifndef PRIME_PLAUSIBILITY_H
#define PRIME_PLAUSIBILITY_H

#include <math.h>

#include "method.h"
#include "transforms.h"

enum { N_SECONDARY_BANDS = 11, N_PRIMARY_BANDS = 3, N_TRAITS = 2 * (N_SECONDARY_BANDS + N_PRIMARY_BANDS) };
enum { FITTED_LEVEL = 1, FITTED_DELAY = 2, N_FITTED = 4 };

static int is_phase(int trait)
{
    return trait < 2 * N_SECONDARY_BANDS ? trait >= N_SECONDARY_BANDS
                                         : trait >= 2 * N_SECONDARY_BANDS + N_PRIMARY_BANDS;
}

/* Computes log magnitude and phase of a spectrum's mean over bands, after advancing it by some samples. */
static void band_traits(const float *re, const float *im, const int *edges, int n_bands, int advance, double *magnitude,
                        double *phase)
{
    const double turn = 2 * M_PI * advance / DESIGN_N_FFT;
    v8 step_r = splat8((float)cos(WIDTH * turn)), step_i = splat8((float)sin(WIDTH * turn));
    for (int b = 0; b < n_bands; b++) {
        v8 c, d, sum_r = splat8(0), sum_i = splat8(0);
        for (int lane = 0; lane < WIDTH; lane++)
            c[lane] = (float)cos(turn * (edges[b] + lane)), d[lane] = (float)sin(turn * (edges[b] + lane));
        for (int k = edges[b]; k < edges[b + 1]; k += WIDTH) {
            v8 x = load8(re + k), y = load8(im + k);
            for (int lane = edges[b + 1] - k; lane < WIDTH; lane++)
                x[lane] = y[lane] = 0;
            sum_r += x * c - y * d, sum_i += x * d + y * c;
            v8 turned = c * step_r - d * step_i;
            d = c * step_i + d * step_r, c = turned;
        }
        double n = edges[b + 1] - edges[b], r = sum8(sum_r) / n, i = sum8(sum_i) / n;
        magnitude[b] = log(fmax(hypot(r, i), 1e-30));
        phase[b] = atan2(i, r);
    }
}

/* Returns the first sample at which a response reaches half of its maximum. */
static int onset_of(const float *response, int n)
{
    float largest = 0;
    int first = 0;
    for (int i = 0; i < n; i++)
        largest = fabsf(response[i]) > largest ? fabsf(response[i]) : largest;
    while (fabsf(response[first]) < largest / 2)
        first++;
    return first;
}

/* Returns the squared cosine between two spectra; is_complex: up to a constant phase. */
static double likeness_of(const float *pr, const float *pi, const float *sr, const float *si, int is_complex)
{
    v8 same = splat8(0), turned = splat8(0), one = splat8(0), other = splat8(0);
    for (int k = 0; k + WIDTH <= N_BINS; k += WIDTH) {
        v8 a = load8(pr + k), b = load8(pi + k), x = load8(sr + k), y = load8(si + k);
        same += a * x + b * y, turned += a * y - b * x, one += a * a + b * b, other += x * x + y * y;
    }
    double r = sum8(same), i = is_complex ? sum8(turned) : 0;
    return (r * r + i * i) / ((double)sum8(one) * sum8(other));
}

/* Finds the most probable change, sign and fit, with a delay of about -most to most samples. */
static void most_probable(const support_prior *s, const double *deviation, int most, int beyond, path_explanation *found)
{
    double best = INFINITY;
    for (int n = 0; n < 2 * s->n_changes; n++)
        for (int delay = -most; delay <= most; delay++) {
            double candidate[N_TRAITS], fitted[3] = {0};
            double whitened[N_FITTED * N_TRAITS] = {0};
            for (int i = 0; i < N_TRAITS; i++) {
                double x = deviation[i] - s->changes[n * N_TRAITS + i] - delay * s->later[i];
                candidate[i] = is_phase(i) ? x - 2 * M_PI * rint(x / (2 * M_PI)) : x;
                for (int j = 0; j < 3; j++)
                    fitted[j] += s->estimate[j * N_TRAITS + i] * candidate[i];
            }
            double later = fitted[2] + delay + beyond;
            int is_level = fabs(fitted[1]) > s->level_limit, is_delay = fabs(later) > s->delay_limit;
            for (int i = 0; i < N_TRAITS; i++)
                for (int j = 0; j < N_FITTED * N_TRAITS; j++)
                    whitened[j] += candidate[i] * s->roots[i * N_FITTED * N_TRAITS + j];
            for (int f = 0; f < N_FITTED; f++) {
                /* A level or delay within its limit is natural and no mistake; a shift needs a fitted delay. */
                if ((f & FITTED_LEVEL && !is_level) || (f & FITTED_DELAY && !is_delay)
                    || (!(f & FITTED_DELAY) && (delay || beyond)))
                    continue;
                double distance = 0;
                for (int j = f * N_TRAITS; j < (f + 1) * N_TRAITS; j++)
                    distance += whitened[j] * whitened[j];
                int n_mistakes = (n > 1) + (n & 1) + (f & 1) + (f >> 1);
                if (distance + constant.surprise * n_mistakes < best) {
                    best = found->score = distance + constant.surprise * n_mistakes;
                    found->distance = distance, found->level = fitted[1], found->delay = later;
                    found->is_reversed = n & 1, found->change = n / 2, found->fit = f;
                    found->primary_delay = 0;
                    for (int i = 0; i < N_TRAITS; i++)
                        found->primary_delay += s->primary_delay[f * N_TRAITS + i] * candidate[i];
                }
            }
        }
}

static int is_right(const support_prior *s, const path_explanation *found)
{
    return found->distance <= constant.max_distance && !found->is_reversed && !found->change && fabs(found->level) <= s->level_limit
           && fabs(found->delay) <= s->delay_limit && fabs(found->primary_delay) <= s->primary_delay_limits[found->fit];
}

/* Explains a pair of spectra; onset: first sample of the secondary response at half its maximum. */
static void explain(const support_prior *s, const float *pr, const float *pi, const float *sr, const float *si, int onset,
                    path_explanation *found)
{
    double t[N_TRAITS], cosines = 0;
    int beyond = onset - s->delay_samples;
    beyond = abs(beyond) > constant.realign_beyond ? beyond : 0;
    band_traits(sr, si, s->secondary_edges, N_SECONDARY_BANDS, s->delay_samples + beyond, t, t + N_SECONDARY_BANDS);
    double *primary = t + 2 * N_SECONDARY_BANDS;
    band_traits(pr, pi, s->primary_edges, N_PRIMARY_BANDS, 0, primary, primary + N_PRIMARY_BANDS);
    for (int i = 0; i < N_TRAITS; i++)
        t[i] -= s->mean[i];
    for (int i = N_TRAITS - N_PRIMARY_BANDS; i < N_TRAITS; i++)
        cosines += cos(t[i]);
    for (int i = 0; i < N_TRAITS && cosines < 0; i++) /* if both signs are reversed, so is the microphone's */
        t[i] += is_phase(i) ? M_PI : 0;
    most_probable(s, t, 0, beyond, found);
    if (!(found->distance < constant.convincing))
        most_probable(s, t, 4, beyond, found);
    found->is_right = is_right(s, found);
}

#endif
