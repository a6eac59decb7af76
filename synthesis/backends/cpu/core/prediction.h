/* What a filter will do (synthesis/noise_reduction.py, estimate_uncertainty.py). Everything on the design grid. */
#ifndef PRIME_PREDICTION_H
#define PRIME_PREDICTION_H

#include "bands.h"
#include "transforms.h"

enum { FIGURE_NR, FIGURE_MEAN_NR = AMP_COUNT, FIGURE_AMP, FIGURE_WIDE_AMP, FIGURE_LOW, FIGURE_HIGH, FIGURE_MAX_GAIN,
       FIGURE_RMS, N_FIGURES };

typedef enum { FROM_COHERENCE, FROM_MODEL, NOTHING_UNKNOWN } uncertainty_basis;

typedef struct {
    float *power, *wr, *wi, *response; /* [bins], [bins], [bins], [points] */
    scratch_f scratch;
} prediction_space;

static float level_db(double ratio) { return (float)(10 * log10(ratio > TINY ? ratio : TINY)); }

/* Unexplained over explained power to be expected without a coherence: what the support's ears had, scaled by the
   share of the primary's power that arrives late. */
static void expected_uncertainty(const band_edges *bands, const real_plan_f *plan, prediction_space *s, const float *pr,
                                 const float *pi, const float *psd, const float *learned, const double *disturbance,
                                 double *uncertainty)
{
    double late[N_BANDS];
    irfft_f(plan, s->scratch, pr, pi, s->response, DESIGN_N_FFT);
    memset(s->response, 0, LATE_FROM_SAMPLES * sizeof(float));
    rfft_f(plan, s->scratch, s->response, DESIGN_N_FFT, s->wr, s->wi);
    for (int k = 0; k < N_BINS; k++)
        s->power[k] = psd[k] * (s->wr[k] * s->wr[k] + s->wi[k] * s->wi[k]);
    band_sums(bands, 0, N_BANDS, s->power, late);
    for (int b = 0; b < N_BANDS; b++) {
        double typical = learned[b], share = late[b] / (disturbance[b] > TINY ? disturbance[b] : TINY);
        double scaled = learned[N_BANDS + b] * share;
        scaled = scaled > typical / PLAUSIBLE_RANGE ? scaled : typical / PLAUSIBLE_RANGE;
        scaled = scaled < typical * PLAUSIBLE_RANGE ? scaled : typical * PLAUSIBLE_RANGE;
        uncertainty[b] = share > NO_LATE_PART ? scaled : typical;
    }
}

static void predict(const band_edges *bands, const real_plan_f *plan, prediction_space *s, const float *pr,
                    const float *pi, const float *sr, const float *si, const float *psd, const float *coherence,
                    uncertainty_basis basis, const float *learned, const float *taps, float *figures)
{
    double disturbance[N_BANDS], error[N_BANDS], unknown[N_BANDS] = {0}, control = 0;
    float largest = 0;
    for (int k = 0; k < N_BINS; k++)
        s->power[k] = psd[k] * (pr[k] * pr[k] + pi[k] * pi[k]);
    band_sums(bands, 0, N_BANDS, s->power, disturbance);
    if (basis == FROM_COHERENCE) {
        for (int k = 0; k < N_BINS; k++) {
            float known = coherence[k] < COHERENCE_FLOOR ? COHERENCE_FLOOR : coherence[k] > 1 ? 1 : coherence[k];
            s->power[k] *= (1 - known) / known;
        }
        band_sums(bands, 0, N_BANDS, s->power, unknown);
    } else if (basis == FROM_MODEL) {
        expected_uncertainty(bands, plan, s, pr, pi, psd, learned, disturbance, unknown);
        for (int b = 0; b < N_BANDS; b++)
            unknown[b] *= disturbance[b];
    }
    rfft_f(plan, s->scratch, taps, N_TAPS, s->wr, s->wi);
    v8 lanes = splat8(0);
    for (int k = 0; k < N_BINS; k += WIDTH) {
        v8 wr = load8(s->wr + k), wi = load8(s->wi + k), x = load8(sr + k), y = load8(si + k);
        v8 re = load8(pr + k) - (x * wr - y * wi), im = load8(pi + k) - (x * wi + y * wr), w = load8(psd + k);
        store8(s->power + k, w * (re * re + im * im));
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
    band_sums(bands, 0, N_BANDS, s->power, error);

    /* A band 120 dB below the strongest holds nothing to reduce: silence scores 0 dB. */
    double strongest = 0, sums[4] = {0}, reduction[N_BANDS];
    for (int b = 0; b < N_BANDS; b++) {
        disturbance[b] += unknown[b], error[b] += unknown[b];
        strongest = disturbance[b] > strongest ? disturbance[b] : strongest;
    }
    double floor = SILENCE * strongest > TINY ? SILENCE * strongest : TINY, mean = 0, louder = 0, wide = 0;
    for (int b = 0; b < N_BANDS; b++) {
        disturbance[b] += floor, error[b] += floor;
        reduction[b] = level_db(disturbance[b] / error[b]);
        mean += b >= NR_FIRST && b < NR_FIRST + NR_COUNT ? reduction[b] / NR_COUNT : 0;
        double more = reduction[b] < 0 ? -reduction[b] : 0;
        wide += more / N_BANDS;
        if (b >= AMP_FIRST && b < AMP_FIRST + AMP_COUNT) {
            figures[FIGURE_NR + b - AMP_FIRST] = (float)reduction[b];
            louder += more / AMP_COUNT;
        } else if (b < AMP_FIRST) {
            sums[0] += error[b], sums[1] += disturbance[b];
        } else {
            sums[2] += error[b], sums[3] += disturbance[b];
        }
    }
    figures[FIGURE_MEAN_NR] = (float)mean;
    figures[FIGURE_AMP] = (float)louder;
    figures[FIGURE_WIDE_AMP] = (float)wide;
    figures[FIGURE_LOW] = level_db(sums[0] / sums[1]);
    figures[FIGURE_HIGH] = level_db(sums[2] / sums[3]);
    figures[FIGURE_MAX_GAIN] = level_db(largest);
    figures[FIGURE_RMS] = (float)sqrt(control);
}

#endif
