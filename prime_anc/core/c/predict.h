/* Prediction of a filter's effect: band sums on the design grid and the figures that follow from them
   (prime_anc/method/predict.py): theory (21) to (23). */
#ifndef PRIME_PREDICT_H
#define PRIME_PREDICT_H

#include <float.h>

#include "bands.h"
#include "transforms.h"

typedef struct {
    float *power, *second, *third, *fourth, *fifth, *wr, *wi, *response; /* [bins] but for the last, [points] */
    scratch_f scratch;
} prediction_space;

/* Returns the largest |W|^2. */
static float largest_gain(const float *re, const float *im)
{
    const int last = N_BINS - 1;
    v8 largest = splat8(re[last] * re[last] + im[last] * im[last]);
    for (int k = 0; k < last; k += WIDTH)
        largest = larger8(load8(re + k) * load8(re + k) + load8(im + k) * load8(im + k), largest);
    return largest8(largest);
}

/* Fills the sums of a filter, whose response is in s->wr and s->wi. */
static void predict_filter(const band_edges *bands, prediction_space *s, const float *pr, const float *pi,
                           const float *sr, const float *si, const float *psd, double *sums)
{
    v8 lanes = splat8(0);
    const int last = N_BINS - 1; /* in no band; behind it the caller's psd ends */
    for (int k = 0; k < last; k += WIDTH) {
        v8 wr = load8(s->wr + k), wi = load8(s->wi + k), x = load8(sr + k), y = load8(si + k), w = load8(psd + k);
        v8 yr = x * wr - y * wi, yi = x * wi + y * wr, a = load8(pr + k), b = load8(pi + k), re = a - yr, im = b - yi;
        store8(s->power + k, w * (a * a + b * b));
        store8(s->fifth + k, w * (re * re + im * im));
        store8(s->second + k, w * (yr * yr + yi * yi));
        store8(s->third + k, w * (re * yr + im * yi));
        store8(s->fourth + k, w * (re * yi - im * yr));
        lanes += w * (wr * wr + wi * wi);
    }
    const float *powers[] = {s->power, s->fifth, s->second, s->third, s->fourth};
    for (int i = 0; i < N_POWERS; i++)
        band_sums(bands, 0, N_BANDS, powers[i], sums + i * N_BANDS);
    sums[SUM_MAX_GAIN] = largest_gain(s->wr, s->wi);
    sums[SUM_CONTROL] = sum8(lanes) + (double)psd[last] * (s->wr[last] * s->wr[last] + s->wi[last] * s->wi[last]);
}

static double one_sample[N_BANDS], a_weights[N_BANDS]; /* at the bands' centres: phase in rad, power gain */

/* Returns the power gain of the A-weighting of IEC 61672-1 (Annex E). */
static double a_weight(double hz)
{
    double square = hz * hz, poles = (square + 107.65265 * 107.65265) * (square + 737.86223 * 737.86223);
    double gain = 12194.217 * 12194.217 * square * square
                  / ((square + 20.598997 * 20.598997) * sqrt(poles) * (square + 12194.217 * 12194.217));
    return pow(pow(10, 2.0 / 20) * gain, 2);
}

static void prediction_init(void)
{
    for (int b = 0; b < N_BANDS; b++) {
        double centre_hz = pow(10, (FIRST_BAND + b) / 10.0);
        one_sample[b] = 2 * M_PI / SAMPLE_RATE_HZ * centre_hz;
        a_weights[b] = a_weight(centre_hz);
    }
}

static double decibels(double ratio) { return 10 * log10(ratio > DBL_MIN || isnan(ratio) ? ratio : DBL_MIN); }

static double level_change(double before, double after) { return after ? decibels(before / after) : NAN; }

/* Returns the power that is added to every band. */
static double silence_of(const double *disturbance, const double *unknown)
{
    double largest = 0;
    for (int b = 0; b < N_BANDS; b++)
        largest = fmax(largest, disturbance[b] + unknown[b]);
    return fmax(constant.silence * largest, DBL_MIN);
}

/* Fills the weight of each band in the mean over `count` bands from `first` on: of those that are not silent, if any. */
static void mean_weights(const unsigned char *silent, int first, int count, double *weight)
{
    int n = 0;
    memset(weight, 0, N_BANDS * sizeof(double));
    for (int b = first; b < first + count; b++)
        n += !silent[b];
    for (int b = first; b < first + count; b++)
        weight[b] = n ? !silent[b] / (double)n : 1.0 / count;
}

/* Returns a band's |P - c Y|^2 for a secondary path that turns Y into c Y; missing: 1 - c. */
static double residual_where(const double *sums, int b, double missing_r, double missing_i)
{
    double in_phase = sums[POWER_IN_PHASE * N_BANDS + b], quadrature = sums[POWER_QUADRATURE * N_BANDS + b];
    double power = sums[POWER_RESIDUAL * N_BANDS + b] + 2 * (missing_r * in_phase - missing_i * quadrature)
                   + (missing_r * missing_r + missing_i * missing_i) * sums[POWER_CONTROL * N_BANDS + b];
    return fmax(power, 0);
}

/* Adds a band to four levels: below and above the scored bands, overall and A-weighted. */
static void level_sums(int b, double before, double after, double *before_level, double *after_level)
{
    double weights[4] = {b < AMP_FIRST, b >= AMP_FIRST + AMP_COUNT, 1, a_weights[b]};
    for (int n = 0; n < 4; n++)
        before_level[n] += weights[n] * before, after_level[n] += weights[n] * after;
}

static void levels_of(const double *before, const double *after, prediction_figures *found)
{
    found->low = -level_change(before[0], after[0]), found->high = -level_change(before[1], after[1]);
    found->level = level_change(before[2], after[2]), found->a_weighted = level_change(before[3], after[3]);
}

/* The power that may be left of a band: of `unknown` and of an error of the secondary path several times the expected,
   the former in part against what is played (`predict.DOUBT`). */
static double doubtful(int b, double left, double unknown, double of_control, double played)
{
    double aligned = b < AMP_FIRST ? 1 : constant.aligned;
    return left + constant.doubt * (unknown + of_control) + aligned * sqrt(constant.doubt * unknown * played);
}

/* Computes all figures of a filter from its sums. learned: the model's typical uncertainty, [31]. */
static void figures_of(const double *sums, const double *learned, const prime_knowledge *k, prediction_figures *found)
{
    enum { AS_PREDICTED, LOUDER, QUIETER, LATER, EARLIER, BETTER_MEASURED, AS_SENT, N_CASES };
    double unknown[N_BANDS], in_mean[N_BANDS], in_amp[N_BANDS], in_wide[N_BANDS], mean[N_CASES] = {0}, before_level[4] = {0}, after_level[4] = {0};
    const double *disturbance = sums + POWER_DISTURBANCE * N_BANDS;
    for (int b = 0; b < N_BANDS; b++)
        unknown[b] = k->uncertainty[b] * disturbance[b];
    double silence = silence_of(disturbance, unknown);
    const double louder = pow(10, 1.0 / 20);
    mean_weights(k->silent, NR_FIRST, NR_COUNT, in_mean);
    mean_weights(k->silent, AMP_FIRST, AMP_COUNT, in_amp);
    mean_weights(k->silent, 0, N_BANDS, in_wide);
    found->amplification = found->wide_amplification = 0;
    int finite = 1;
    for (int n = 0; n < N_SUMS; n++)
        finite &= isfinite(sums[n]);
    for (int b = 0; b < N_BANDS; b++) {
        double after[N_CASES], missing_r = 1 - cos(one_sample[b]), missing_i = sin(one_sample[b]);
        double of_control = k->uncertainty[N_BANDS + b] * sums[POWER_CONTROL * N_BANDS + b];
        double missing = unknown[b] + of_control, left = missing + silence;
        /* For a model that knows no device, any uncertainty may be natural. */
        double typical = learned[b] > 0 ? constant.natural_spread * learned[b] * disturbance[b] : INFINITY;
        double natural = k->basis == OF_CALIBRATION ? unknown[b] : fmin(unknown[b], typical);
        double before = disturbance[b] + unknown[b] + silence, residual = sums[POWER_RESIDUAL * N_BANDS + b];
        after[AS_PREDICTED] = residual + left;
        after[LOUDER] = residual_where(sums, b, 1 - louder, 0) + left;
        after[QUIETER] = residual_where(sums, b, 1 - 1 / louder, 0) + left;
        after[LATER] = residual_where(sums, b, missing_r, missing_i) + left;
        after[EARLIER] = residual_where(sums, b, missing_r, -missing_i) + left;
        double reduction = found->band_reduction[b] = decibels(before / after[AS_PREDICTED]);
        double played = sums[POWER_CONTROL * N_BANDS + b], doubted = doubtful(b, residual + silence, unknown[b], of_control, played);
        found->least_reduction[b] = decibels((before + (constant.doubt - 1) * unknown[b]) / doubted);
        finite &= isfinite(reduction);
        found->wide_amplification += in_wide[b] * fmax(-reduction, 0);
        found->amplification += in_amp[b] * fmax(-reduction, 0);
        if (in_mean[b] > 0) {
            mean[AS_PREDICTED] += in_mean[b] * reduction;
            for (int n = LOUDER; n <= EARLIER; n++)
                mean[n] += in_mean[b] * decibels(before / after[n]);
            mean[AS_SENT] += in_mean[b] * decibels((disturbance[b] + silence) / (residual + silence));
            mean[BETTER_MEASURED] += in_mean[b] * decibels((disturbance[b] + natural + silence) / (residual + natural + silence));
        }
        level_sums(b, before, after[AS_PREDICTED], before_level, after_level);
    }
    found->mean = mean[AS_PREDICTED];
    found->nominal = mean[AS_SENT];
    found->interval = k->basis == OF_TRUE_PATHS    ? 0
                      : k->basis == OF_CALIBRATION ? constant.uncertainty_interval_db
                      : k->basis == OF_COHERENCE   ? constant.coherence_interval_db
                                                   : k->ends_interval;
    if (k->basis == OF_CALIBRATION || k->basis == OF_COHERENCE) {
        double widest = k->basis == OF_CALIBRATION ? constant.widest_uncertainty_db : constant.widest_coherence_db;
        found->interval = fmax(found->interval, fmin(constant.cost_share * (found->nominal - found->mean), widest));
    }
    if (k->basis == OF_RESPONSE) /* what was sent may as well be exact, or any other estimate */
        found->interval = fmax(fmax(found->nominal - found->mean, found->mean - constant.believed_db), k->ends_interval);
    levels_of(before_level, after_level, found);
    found->gain_sensitivity = found->mean - fmin(mean[LOUDER], mean[QUIETER]);
    found->delay_sensitivity = found->mean - fmin(mean[LATER], mean[EARLIER]);
    found->uncertainty_cost = fmax(mean[BETTER_MEASURED] - found->mean, 0);
    found->max_gain = decibels(sums[SUM_MAX_GAIN]);
    found->control_rms = sqrt(sums[SUM_CONTROL]);
    found->is_finite = finite;
}

#endif
