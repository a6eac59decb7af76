/* What a filter does, as sums over bands on the design grid; synthesis/prediction.py makes the figures of them. */
#ifndef PRIME_PREDICTION_H
#define PRIME_PREDICTION_H

#include "bands.h"
#include "transforms.h"

enum { POWER_DISTURBANCE, POWER_RESIDUAL, POWER_CONTROL, POWER_IN_PHASE, POWER_QUADRATURE, POWER_UNEXPLAINED, POWER_LATE,
       N_POWERS };
enum { SUM_MAX_GAIN = N_POWERS * N_BANDS, SUM_CONTROL, SUM_RESPONSE_LENGTH, N_SUMS };

typedef struct {
    float *power, *second, *third, *fourth, *wr, *wi, *response; /* [bins] but for the last, [points] */
    scratch_f scratch;
} prediction_space;

/* Power of the primary response from LATE_FROM_SAMPLES on per band, and the length of the response. */
static void late_part(const band_edges *bands, const real_plan_f *plan, prediction_space *s, const float *pr,
                      const float *pi, const float *psd, double *late, double *length)
{
    float largest = 0;
    int last = DESIGN_N_FFT - 1;
    irfft_f(plan, s->scratch, pr, pi, s->response, DESIGN_N_FFT);
    for (int n = 0; n < DESIGN_N_FFT; n++)
        largest = fabsf(s->response[n]) > largest ? fabsf(s->response[n]) : largest;
    while (last >= 0 && !(fabsf(s->response[last]) > END_OF_RESPONSE * largest))
        last--;
    *length = last + 1;
    memset(s->response, 0, LATE_FROM_SAMPLES * sizeof(float));
    rfft_f(plan, s->scratch, s->response, DESIGN_N_FFT, s->wr, s->wi);
    for (int k = 0; k < N_BINS; k++)
        s->power[k] = psd[k] * (s->wr[k] * s->wr[k] + s->wi[k] * s->wi[k]);
    band_sums(bands, 0, N_BANDS, s->power, late);
}

/* Fills the sums that no filter enters into. coherence: NULL: none. is_true: nothing is uncertain, so what only tells
   of uncertainty is left at zero. */
static void predict_paths(const band_edges *bands, const real_plan_f *plan, prediction_space *s, const float *pr,
                          const float *pi, const float *psd, const float *coherence, int is_true, double *sums)
{
    memset(sums, 0, N_SUMS * sizeof(double));
    for (int k = 0; k < N_BINS; k++)
        s->power[k] = psd[k] * (pr[k] * pr[k] + pi[k] * pi[k]);
    band_sums(bands, 0, N_BANDS, s->power, sums + POWER_DISTURBANCE * N_BANDS);
    if (is_true)
        return;
    if (coherence) {
        for (int k = 0; k < N_BINS; k++) {
            float known = coherence[k] < COHERENCE_FLOOR ? COHERENCE_FLOOR : coherence[k] > 1 ? 1 : coherence[k];
            s->power[k] *= (1 - known) / known;
        }
        band_sums(bands, 0, N_BANDS, s->power, sums + POWER_UNEXPLAINED * N_BANDS);
    }
    late_part(bands, plan, s, pr, pi, psd, sums + POWER_LATE * N_BANDS, sums + SUM_RESPONSE_LENGTH);
}

/* Fills the sums of a filter. */
static void predict_filter(const band_edges *bands, const real_plan_f *plan, prediction_space *s, const float *pr,
                           const float *pi, const float *sr, const float *si, const float *psd, const float *taps,
                           double *sums)
{
    double control = 0;
    float largest = 0;
    rfft_f(plan, s->scratch, taps, N_TAPS, s->wr, s->wi);
    v8 lanes = splat8(0);
    for (int k = 0; k < N_BINS; k += WIDTH) {
        v8 wr = load8(s->wr + k), wi = load8(s->wi + k), x = load8(sr + k), y = load8(si + k), w = load8(psd + k);
        v8 yr = x * wr - y * wi, yi = x * wi + y * wr, re = load8(pr + k) - yr, im = load8(pi + k) - yi;
        store8(s->power + k, w * (re * re + im * im));
        store8(s->second + k, w * (yr * yr + yi * yi));
        store8(s->third + k, w * (re * yr + im * yi));
        store8(s->fourth + k, w * (re * yi - im * yr));
        if (k + WIDTH <= N_BINS)
            lanes += w * (wr * wr + wi * wi);
    }
    control = sum8(lanes);
    int last = N_BINS - 1;
    control += (double)psd[last] * (s->wr[last] * s->wr[last] + s->wi[last] * s->wi[last]);
    for (int k = 0; k < N_BINS; k++) {
        float gain = s->wr[k] * s->wr[k] + s->wi[k] * s->wi[k];
        largest = gain > largest ? gain : largest;
    }
    const float *powers[] = {s->power, s->second, s->third, s->fourth};
    for (int i = 0; i < 4; i++)
        band_sums(bands, 0, N_BANDS, powers[i], sums + (POWER_RESIDUAL + i) * N_BANDS);
    sums[SUM_MAX_GAIN] = largest;
    sums[SUM_CONTROL] = control;
}

/* Of a filter, only what its mean noise reduction follows from, which are the powers in the bands from 50 Hz to 5 kHz,
   and its largest |W|^2. */
typedef struct {
    double residual[N_BANDS], control[N_BANDS], max_gain;
} rival_prediction;

static void predict_residual(const band_edges *bands, const real_plan_f *plan, prediction_space *s, const float *pr,
                             const float *pi, const float *sr, const float *si, const float *psd, const float *taps,
                             rival_prediction *found)
{
    float largest = 0;
    rfft_f(plan, s->scratch, taps, N_TAPS, s->wr, s->wi);
    for (int k = bands->edge[NR_FIRST] / WIDTH * WIDTH; k < bands->edge[NR_FIRST + NR_COUNT]; k += WIDTH) {
        v8 wr = load8(s->wr + k), wi = load8(s->wi + k), x = load8(sr + k), y = load8(si + k), w = load8(psd + k);
        v8 yr = x * wr - y * wi, yi = x * wi + y * wr, re = load8(pr + k) - yr, im = load8(pi + k) - yi;
        store8(s->power + k, w * (re * re + im * im));
        store8(s->second + k, w * (yr * yr + yi * yi));
    }
    band_sums(bands, NR_FIRST, NR_COUNT, s->power, found->residual + NR_FIRST);
    band_sums(bands, NR_FIRST, NR_COUNT, s->second, found->control + NR_FIRST);
    for (int k = 0; k < N_BINS; k++) {
        float gain = s->wr[k] * s->wr[k] + s->wi[k] * s->wi[k];
        largest = gain > largest ? gain : largest;
    }
    found->max_gain = largest;
}

#endif
