/* Taps from a generator's corrections: the finite causal Wiener filter, or the minimum-phase response of the
   corrected base (prime_anc/method/start/fir_wiener.py, synthesizer.py): theory (5) to (10). */
#ifndef PRIME_FIR_WIENER_H
#define PRIME_FIR_WIENER_H

#include "features.h"
#include "toeplitz.h"

#define UNTOUCHED_NEPER -1.0f /* a response so far below its ceiling would change by less than 1e-5 neper and is kept */

/* Starting weight, penalty and ceiling per point for paths of magnitude one; average: weights of the points between the
   edges. */
typedef struct {
    const float *weight, *penalty, *ceiling, *average;
} wiener_start;

typedef struct {
    float *terms[3];  /* log weight, log penalty, log ceiling: per point */
    float *spread[3]; /* the same per bin */
    float *symbol, *matched_r, *matched_i, *log_ceiling, *log_gain, *rhs; /* of all conditions */
} wiener_space;

/* Computes log(1 + exp(10 x)) / 10 in a form that neither overflows nor loses small values. */
static inline v8 softplus8(v8 x)
{
    v8 magnitude = __builtin_elementwise_abs(x);
    v8 bend = log8(1.0f + exp8(-constant.ceiling_sharpness * magnitude)) / constant.ceiling_sharpness;
    return bend + at_least8(x, splat8(0));
}

/* Bends |W| of taps [2048] below the ceiling with a minimum-phase filter. */
static void bend_below_ceiling(const real_plan_f *plan, phase_space *phase, wiener_space *s, const float *log_ceiling,
                               float *taps)
{
    int n_bins = plan->n / 2 + 1;
    float *re = s->matched_r, *im = s->matched_i, largest = -INFINITY;
    rfft_f(plan, phase->scratch, taps, N_TAPS, re, im);
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 a = load8(re + k), b = load8(im + k);
        store8(phase->log_gain + k, log8(at_least8(a * a + b * b, splat8(TINY))) * 0.5f - load8(log_ceiling + k));
    }
    for (int k = 0; k < n_bins; k++)
        largest = phase->log_gain[k] > largest ? phase->log_gain[k] : largest;
    if (largest < UNTOUCHED_NEPER)
        return;
    for (int k = 0; k < n_bins; k += WIDTH)
        store8(phase->log_gain + k, -softplus8(load8(phase->log_gain + k)));
    minimum_phase_response(plan, phase, phase->response_r, phase->response_i);
    for (int k = 0; k < n_bins; k++) {
        float a = re[k], b = im[k];
        re[k] = a * phase->response_r[k] - b * phase->response_i[k];
        im[k] = a * phase->response_i[k] + b * phase->response_r[k];
    }
    irfft_f(plan, phase->scratch, re, im, taps, N_TAPS);
}

/* Starts the sums over conditions. */
static void begin_wiener(int n_bins, wiener_space *s)
{
    memset(s->symbol, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    memset(s->matched_r, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    memset(s->matched_i, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    memset(s->log_gain, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    for (int k = 0; k < n_bins + WIDTH - 1; k++)
        s->log_ceiling[k] = INFINITY;
}

/* Adds a condition's normal equations, times its share. Corrections: [n_points], rows of a generator's output.
   log_gain_limit: natural log of the requested ceiling; NAN: none. */
static void add_to_wiener(const real_plan_f *plan, wiener_space *s, const feature_space *f, const point_grid *grid,
                          const wiener_start *start, const float *weight_correction, const float *penalty_correction,
                          float log_gain_limit, float share, const float *pr, const float *pi, const float *sr,
                          const float *si)
{
    int n_bins = plan->n / 2 + 1, n = grid->n_points;
    double level = 0;
    for (int j = 0; j < n; j++)
        level += (double)start->average[j] * (f->log_primary[j] - f->log_secondary[j]);
    for (int j = 0; j < n; j++) {
        s->terms[0][j] = start->weight[j] + 2 * ((float)level - f->log_primary[j] + weight_correction[j]);
        s->terms[1][j] = start->penalty[j] + 2 * penalty_correction[j];
        s->terms[2][j] = start->ceiling[j] + f->log_primary[j] - f->log_secondary[j];
    }
    for (int i = 0; i < 3; i++)
        spread(grid, n_bins, s->terms[i], s->spread[i]);
    if (!isnan(log_gain_limit))
        for (int k = 0; k < n_bins; k++)
            s->spread[2][k] = s->spread[2][k] < log_gain_limit ? s->spread[2][k] : log_gain_limit;
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 a = load8(pr + k), b = load8(pi + k), x = load8(sr + k), y = load8(si + k);
        v8 weight = exp8(load8(s->spread[0] + k)), power = x * x + y * y, ceiling = load8(s->spread[2] + k);
        /* The penalty at which an isolated bin would end at its ceiling. */
        v8 drive = sqrt8(a * a + b * b) * sqrt8(power) * exp8(-ceiling);
        v8 penalty = at_least8(weight * (drive - power), exp8(load8(s->spread[1] + k)));
        v8 lowest = load8(s->log_ceiling + k);
        store8(s->symbol + k, load8(s->symbol + k) + share * (weight * power + penalty));
        store8(s->matched_r + k, load8(s->matched_r + k) + share * (weight * (x * a + y * b)));
        store8(s->matched_i + k, load8(s->matched_i + k) + share * (weight * (x * b - y * a)));
        store8(s->log_ceiling + k, select8(ceiling < lowest, ceiling, lowest));
    }
}

static void solve_wiener(const real_plan_f *plan, const toeplitz_plan *solver, toeplitz_space *space, phase_space *phase,
                         wiener_space *s, float *taps)
{
    int n_bins = plan->n / 2 + 1;
    float damping = (float)constant.symbol_damping * (sum_of(s->symbol, n_bins) / (float)n_bins);
    for (int k = 0; k < n_bins; k++)
        s->symbol[k] += damping;
    for (int k = n_bins; k < n_bins + WIDTH - 1; k++)
        s->symbol[k] = 1;
    irfft_f(plan, phase->scratch, s->matched_r, s->matched_i, s->rhs, N_TAPS);
    solve_toeplitz(solver, space, phase, plan, s->symbol, s->rhs, 1, constant.wiener_iterations, 1e-6f, taps);
    bend_below_ceiling(plan, phase, s, s->log_ceiling, taps);
}

/* Adds a condition's log gain, that of the base plus a correction (NULL: none), times its share. */
static void add_to_base(const real_plan_f *plan, wiener_space *s, const point_grid *grid, const float *log_base,
                        const float *correction, float share)
{
    int n_bins = plan->n / 2 + 1;
    float *per_bin = s->spread[0];
    if (correction)
        spread(grid, n_bins, correction, per_bin);
    else
        memset(per_bin, 0, (size_t)n_bins * sizeof(float));
    for (int k = 0; k < n_bins; k++)
        s->log_gain[k] += share * (per_bin[k] + log_base[k]);
}

/* Computes the minimum-phase response of the summed log gain, bent below a ceiling. */
static void base_filter(const real_plan_f *plan, phase_space *phase, const wiener_space *s, float log_gain_limit,
                        float *taps)
{
    int n_bins = plan->n / 2 + 1;
    memcpy(phase->log_gain, s->log_gain, (size_t)n_bins * sizeof(float));
    if (!isnan(log_gain_limit))
        for (int k = 0; k < n_bins; k += WIDTH) {
            v8 gain = load8(phase->log_gain + k);
            store8(phase->log_gain + k, gain - softplus8(gain - log_gain_limit));
        }
    minimum_phase_response(plan, phase, phase->response_r, phase->response_i);
    irfft_f(plan, phase->scratch, phase->response_r, phase->response_i, taps, N_TAPS);
}

#endif
