/* J of one filter's taps and its normal equations (prime_anc/method/updates/tap_objective.py): theory (12) to (16). */
#ifndef PRIME_TAP_OBJECTIVE_H
#define PRIME_TAP_OBJECTIVE_H

#include "objective.h"
#include "toeplitz.h"

/* One condition on the profile's grid; arrays are [bins]. */
typedef struct {
    float *pr, *pi, *sr, *si;       /* the paths, P / sqrt(1 + u_s) and S sqrt(1 + u_s) */
    float *secondary_power, *weight;
    float *er, *ei;                 /* residual P - S W */
    float *cr, *ci;                 /* S D of a step */
    double share;                   /* weight in J; all add up to one */
    double unknown_primary[N_BANDS], unknown_secondary[N_BANDS]; /* unknown over known power */
    double disturbance[N_BANDS], constant[N_BANDS], band_power[N_BANDS]; /* expected powers; constant: that no filter changes */
    double cross[N_BANDS], square[N_BANDS]; /* Re E* S D and |S D|^2 of a step */
} condition_space;

/* Updates of one filter on the profile's grid; arrays are [bins] unless stated. */
typedef struct {
    condition_space *conditions;
    int n_conditions;
    float *inverse_ceiling;
    float *wr, *wi;                /* response of the filter */
    float *dr, *di;                /* response of a step */
    float *symbol, *descent_r, *descent_i, *power;
    float *step, *gradient;        /* [2048] */
    float ratio_rms;               /* RMS of the regularised path ratio over the 23 bands, for a step cap */
    const float *penalty;          /* weights of the bins in the penalty, of sum one */
    direct_space direct;
    const real_plan_d *direct_grid; /* design grid in double precision */
} refinement_space;

static inline v8 squared8(v8 re, v8 im) { return re * re + im * im; }

/* The bin after the last band of J: beyond it the residuals and a step's effect on them are not needed. */
static inline int end_of_bands(const refinement_profile *profile, const band_edges *bands)
{
    return bands->edge[profile->first_band + profile->n_bands];
}

/* Computes the expected band powers of the residual per condition, relative to its total disturbance. */
static void residual_power(const refinement_profile *profile, const band_edges *bands, refinement_space *s)
{
    for (int t = 0; t < s->n_conditions; t++) {
        condition_space *c = &s->conditions[t];
        for (int k = 0; k < end_of_bands(profile, bands); k += WIDTH)
            store8(s->power + k, load8(c->weight + k) * squared8(load8(c->er + k), load8(c->ei + k)));
        band_sums(bands, profile->first_band, profile->n_bands, s->power, c->band_power);
        for (int b = 0; b < profile->n_bands; b++)
            c->band_power[b] += c->constant[b];
    }
}

/* Band power after x times a step. */
static double power_at(const condition_space *c, int b, double x)
{
    double power = c->band_power[b] + x * (x * c->square[b] - 2 * c->cross[b]);
    return power > c->constant[b] ? power : c->constant[b];
}

/* Computes J after x times a step (0: of the filter), given the penalty on |W| there, and the slopes dJ/dl. */
static double value_at(const refinement_profile *profile, const refinement_space *s, double x, double penalty, slopes slope)
{
    double share[MAX_CONDITIONS];
    for (int t = 0; t < s->n_conditions; t++) {
        const condition_space *c = &s->conditions[t];
        share[t] = c->share;
        for (int b = 0; b < profile->n_bands; b++)
            slope[t][b] = (x ? power_at(c, b, x) : c->band_power[b]) / c->disturbance[b];
    }
    return penalty + objective(&profile->weights, profile->first_band, profile->n_bands, s->n_conditions, share, slope);
}

/* sum of c_k [|W + x D| / ceiling - 1]_+^2 */
static double penalty_of(const refinement_profile *profile, int n_bins, const refinement_space *s, float x)
{
    if (profile->ceiling_weight == 0)
        return 0;
    v8 lanes = splat8(0), zero = splat8(0);
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 wr = load8(s->wr + k), wi = load8(s->wi + k);
        if (x != 0)
            wr += x * load8(s->dr + k), wi += x * load8(s->di + k);
        v8 inverse = load8(s->inverse_ceiling + k), square = squared8(wr, wi);
        if (!__builtin_reduce_or(~(square * inverse * inverse <= 1.0f))) /* true for NaN, too */
            continue;
        v8 over = at_least8(sqrt8(square) * inverse - 1.0f, zero);
        lanes += load8(s->penalty + k) * over * over;
    }
    return profile->ceiling_weight * sum8(lanes);
}

/* Computes the damped symbol of the normal matrix and the spectrum of the negative gradient: theory (15), (16). */
static void normal_equations(const refinement_profile *profile, const band_edges *bands, refinement_space *s,
                             slopes slope)
{
    int n_bins = bands->n_bins;
    memset(s->symbol, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    memset(s->descent_r, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    memset(s->descent_i, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    for (int t = 0; t < s->n_conditions; t++) {
        const condition_space *c = &s->conditions[t];
        for (int b = 0; b < profile->n_bands; b++) {
            float per_power = (float)(slope[t][b] / c->band_power[b]);
            const float *RESTRICT weight = c->weight, *RESTRICT power = c->secondary_power;
            const float *RESTRICT sr = c->sr, *RESTRICT si = c->si, *RESTRICT er = c->er, *RESTRICT ei = c->ei;
            float *RESTRICT symbol = s->symbol, *RESTRICT descent_r = s->descent_r, *RESTRICT descent_i = s->descent_i;
            for (int k = bands->edge[profile->first_band + b]; k < bands->edge[profile->first_band + b + 1]; k++) {
                float w = weight[k] * per_power;
                symbol[k] += w * power[k];
                descent_r[k] += w * (sr[k] * er[k] + si[k] * ei[k]);
                descent_i[k] += w * (sr[k] * ei[k] - si[k] * er[k]);
            }
        }
    }
    if (profile->ceiling_weight > 0)
        for (int k = 0; k < n_bins; k += WIDTH) {
            v8 zero = splat8(0), one = splat8(1);
            v8 wr = load8(s->wr + k), wi = load8(s->wi + k), inverse = load8(s->inverse_ceiling + k);
            v8 gain = sqrt8(squared8(wr, wi)), over = at_least8(gain * inverse - one, zero);
            v8 pull = (float)profile->ceiling_weight * load8(s->penalty + k) * inverse;
            v8 excess = pull * over / at_least8(gain, splat8(TINY));
            v8 stiffness = pull * inverse * select8(over > zero, one, splat8((float)constant.guard));
            store8(s->symbol + k, load8(s->symbol + k) + stiffness);
            store8(s->descent_r + k, load8(s->descent_r + k) - excess * wr);
            store8(s->descent_i + k, load8(s->descent_i + k) - excess * wi);
        }
    /* First sample of the column: mean over all n_fft bins, times n_fft. */
    double level = 2 * (double)sum_of(s->symbol, n_bins) - s->symbol[0] - s->symbol[n_bins - 1];
    float added = (float)(profile->damping * (level > 1e-6 ? level : 1e-6) + constant.damping_floor);
    float n = (float)(2 * (n_bins - 1));
    for (int k = 0; k < n_bins; k++)
        s->symbol[k] = s->symbol[k] * n + added, s->descent_r[k] *= n, s->descent_i[k] *= n;
    for (int k = n_bins; k < n_bins + WIDTH - 1; k++)
        s->symbol[k] = 1;
}

/* Computes a condition's weights, disturbance and ceiling above the scored bands from its paths. Overwrites
   primary_power, [bins]. */
static void begin_condition(const refinement_profile *profile, const band_edges *bands, refinement_space *s,
                            condition_space *c, float *primary_power, const float *psd)
{
    int n_bins = bands->n_bins;
    double total = 0;
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 power = squared8(load8(c->pr + k), load8(c->pi + k));
        store8(primary_power + k, power);
        store8(c->secondary_power + k, squared8(load8(c->sr + k), load8(c->si + k)));
        store8(s->power + k, load8(psd + k) * power);
    }
    double loudest = largest_of(primary_power, n_bins), psd_sum = sum_of(psd, n_bins);
    band_sums(bands, profile->first_band, profile->n_bands, s->power, c->disturbance);
    for (int b = 0; b < profile->n_bands; b++)
        total += c->disturbance[b];
    /* Finite weights even if the primary path has no power in any band. */
    if (total < constant.silence * psd_sum * loudest)
        total = constant.silence * psd_sum * loudest;
    if (!(total >= TINY))
        total = TINY;
    float scale = total > TINY ? (float)(1 / total) : 0;
    for (int k = 0; k < n_bins; k++)
        c->weight[k] = psd[k] * scale;
    end_with_zeros(c->weight, n_bins);
    for (int b = 0; b < profile->n_bands; b++) { /* theory (12); the primary path is divided by sqrt(1 + u_s) */
        double played = 1 + c->unknown_secondary[profile->first_band + b];
        double known = c->disturbance[b] * played / total, expected = (1 + c->unknown_primary[profile->first_band + b]) * known;
        c->disturbance[b] = expected + constant.silence, c->constant[b] = expected - known / played + constant.silence;
    }
    if (profile->ceiling_weight == 0)
        return;
    /* Above 8.9 kHz the loudspeaker stays below the disturbance. The paths' ratio is that of bands: per bin it would
       follow the noise of the estimates. */
    double primary[N_BANDS], secondary[N_BANDS];
    int first = AMP_FIRST + AMP_COUNT, n = N_BANDS - first;
    band_sums(bands, first, n, primary_power, primary);
    band_sums(bands, first, n, c->secondary_power, secondary);
    for (int b = 0; b < n; b++) {
        double ceiling = constant.drive_limit * sqrt(primary[b] / (secondary[b] > TINY ? secondary[b] : TINY));
        ceiling = fmin(fmax(ceiling, constant.least_ceiling), constant.most_ceiling);
        float drive = (float)(1 / ceiling);
        for (int k = bands->edge[first + b]; k < bands->edge[first + b + 1]; k++)
            s->inverse_ceiling[k] = drive > s->inverse_ceiling[k] ? drive : s->inverse_ceiling[k];
    }
}

/* Computes what does not depend on the filter from the paths in s. */
static void begin_refinement(const refinement_profile *profile, const band_edges *bands, refinement_space *s,
                             const float *psd, float max_gain_db)
{
    int n_bins = bands->n_bins;
    float requested = isnan(max_gain_db) ? 0 : (float)pow(10, -max_gain_db / 20);
    for (int k = 0; k < n_bins; k++)
        s->inverse_ceiling[k] = requested;
    end_with_zeros(s->inverse_ceiling, n_bins);
    for (int t = 0; t < s->n_conditions; t++)
        begin_condition(profile, bands, s, &s->conditions[t], s->descent_r, psd);
}

#endif
