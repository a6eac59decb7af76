/* Gauss-Newton updates of one filter against the estimated paths of one or more conditions
   (synthesis/update.py, synthesis/objective.py): theory (12) to (17). */
#ifndef PRIME_UPDATE_H
#define PRIME_UPDATE_H

#include "bands.h"
#include "toeplitz.h"

typedef struct {
    int n_fft, first_band, n_bands, preconditioned, n_iterations;
    double risk_weight, damping, step_cap /* 0: none */, ceiling_weight, tolerance;
} refinement_profile;

enum { STOPPED_BY_BUDGET, STOPPED_CONVERGED, STOPPED_WITHOUT_DECREASE };

typedef struct {
    int applied, stopped;
    float objective[MAX_UPDATES + 1], step_scale[MAX_UPDATES], pcg_residual[MAX_UPDATES];
} refinement_record;

/* One pair of paths that the filter serves, on the profile's grid, [bins]. */
typedef struct {
    float *pr, *pi, *sr, *si;       /* the paths */
    float *secondary_power, *weight;
    float *er, *ei;                 /* the residual P - S W */
    float *cr, *ci;                 /* S times a step's response */
    double share;                   /* of the condition in the objective; all shares add up to one */
    const unsigned char *unknown;   /* bands of which nothing is known, [31]; NULL: none */
    double disturbance[N_BANDS], band_power[N_BANDS], cross[N_BANDS], square[N_BANDS];
} condition_space;

/* Everything on the profile's grid, [bins]. */
typedef struct {
    condition_space *conditions;
    int n_conditions;
    float *inverse_ceiling;
    float *wr, *wi;                /* the filter's response */
    float *dr, *di;                /* a step's response */
    float *symbol, *descent_r, *descent_i, *power;
    float *step, *gradient;        /* [2048] */
    float ratio_rms;               /* of the regularised path ratio over the 23 bands; only for a cap on steps */
    const float *penalty;          /* of exceeding the ceiling, per bin, of sum one */
} refinement_space;

static inline v8 squared8(v8 re, v8 im) { return re * re + im * im; }

/* Power of each condition's residual in each band, on a scale on which its disturbance's total is one. */
static void residual_power(const refinement_profile *profile, const band_edges *bands, refinement_space *s)
{
    for (int t = 0; t < s->n_conditions; t++) {
        condition_space *c = &s->conditions[t];
        for (int k = 0; k < bands->n_bins; k += WIDTH)
            store8(s->power + k, load8(c->weight + k) * squared8(load8(c->er + k), load8(c->ei + k)));
        band_sums(bands, profile->first_band, profile->n_bands, s->power, c->band_power);
        for (int b = 0; b < profile->n_bands; b++)
            c->band_power[b] += constant.silence;
    }
}

static inline int is_target(const refinement_profile *profile, int band)
{
    int b = profile->first_band + band;
    return b >= NR_FIRST && b < NR_FIRST + NR_COUNT;
}

static inline int is_unknown(const refinement_profile *profile, const condition_space *c, int band)
{
    return c->unknown && c->unknown[profile->first_band + band];
}

/* dJ/dl of the bands of every condition: [n_conditions][N_BANDS]. */
typedef double slopes[MAX_CONDITIONS][N_BANDS];

/* J after a step of this scale (0: none), from its penalty on |W| above the ceiling. Fills slope: of the amplitudes'
   mean over conditions, and the softmax over bands and conditions; a band of which nothing is known weighs nothing
   unless it becomes louder. */
static double objective_of(const refinement_profile *profile, const refinement_space *s, double scale, double penalty,
                           slopes slope)
{
    double largest = -INFINITY, mean = 0, sum = 0, louder = 0, amplitude[N_BANDS] = {0};
    for (int t = 0; t < s->n_conditions; t++) {
        const condition_space *c = &s->conditions[t];
        for (int b = 0; b < profile->n_bands; b++) {
            double power = c->band_power[b];
            if (scale != 0) {
                power += scale * (scale * c->square[b] - 2 * c->cross[b]);
                power = power > constant.silence ? power : constant.silence;
            }
            double log_ratio = slope[t][b] = log(power / c->disturbance[b]);
            if (is_unknown(profile, c, b)) {
                louder += constant.unknown_weight * c->share * fmax(log_ratio, 0);
                continue;
            }
            amplitude[b] += c->share * exp(log_ratio / 2);
            if (!(log_ratio <= largest))
                largest = log_ratio;
        }
    }
    for (int b = 0; b < profile->n_bands; b++)
        mean += is_target(profile, b) && amplitude[b] != 0 ? 2 * log(amplitude[b]) / NR_COUNT : 0;
    for (int t = 0; t < s->n_conditions; t++)
        for (int b = 0; b < profile->n_bands; b++)
            if (!is_unknown(profile, &s->conditions[t], b))
                sum += s->conditions[t].share * exp(slope[t][b] - largest);
    for (int t = 0; t < s->n_conditions; t++)
        for (int b = 0; b < profile->n_bands; b++) {
            double share = s->conditions[t].share, log_ratio = slope[t][b];
            if (is_unknown(profile, &s->conditions[t], b)) {
                slope[t][b] = log_ratio > 0 ? constant.unknown_weight * share : 0;
                continue;
            }
            double of_mean = is_target(profile, b) ? share * exp(log_ratio / 2) / amplitude[b] / NR_COUNT : 0;
            slope[t][b] = of_mean + profile->risk_weight * share * exp(log_ratio - largest) / sum;
        }
    double soft_maximum = sum == 0 ? 0 : largest + log(sum / profile->n_bands);
    return mean + profile->risk_weight * soft_maximum + louder + penalty;
}

/* ln(E / D) of the band that is loudest among those of which nothing is known; minus infinity: there is none. */
static double loudest_unknown(const refinement_profile *profile, const refinement_space *s)
{
    double loudest = -INFINITY;
    for (int t = 0; t < s->n_conditions; t++)
        for (int b = 0; b < profile->n_bands; b++)
            if (is_unknown(profile, &s->conditions[t], b))
                loudest = fmax(loudest, log(s->conditions[t].band_power[b] / s->conditions[t].disturbance[b]));
    return loudest;
}

/* sum of c_k [|W + scale D| / ceiling - 1]_+^2 */
static double penalty_of(const refinement_profile *profile, int n_bins, const refinement_space *s, float scale)
{
    if (profile->ceiling_weight == 0)
        return 0;
    v8 lanes = splat8(0), zero = splat8(0);
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 wr = load8(s->wr + k), wi = load8(s->wi + k);
        if (scale != 0)
            wr += scale * load8(s->dr + k), wi += scale * load8(s->di + k);
        v8 over = at_least8(sqrt8(squared8(wr, wi)) * load8(s->inverse_ceiling + k) - 1.0f, zero);
        lanes += load8(s->penalty + k) * over * over;
    }
    return profile->ceiling_weight * sum8(lanes);
}

/* The normal matrix' symbol, damped, and minus the gradient, [2048]. */
static void normal_equations(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                             phase_space *phase, refinement_space *s, slopes slope)
{
    int n_bins = bands->n_bins;
    memset(s->symbol, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    memset(s->descent_r, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    memset(s->descent_i, 0, (size_t)(n_bins + WIDTH) * sizeof(float));
    for (int t = 0; t < s->n_conditions; t++) {
        const condition_space *c = &s->conditions[t];
        for (int b = 0; b < profile->n_bands; b++) {
            float per_power = (float)(slope[t][b] / c->band_power[b]), held = per_power;
            if (is_unknown(profile, c, b)) /* no step may make it louder unseen */
                held = (float)(c->share / fmax(c->band_power[b], c->disturbance[b]));
            for (int k = bands->edge[profile->first_band + b]; k < bands->edge[profile->first_band + b + 1]; k++) {
                float w = c->weight[k] * per_power;
                s->symbol[k] += c->weight[k] * held * c->secondary_power[k];
                s->descent_r[k] += w * (c->sr[k] * c->er[k] + c->si[k] * c->ei[k]);
                s->descent_i[k] += w * (c->sr[k] * c->ei[k] - c->si[k] * c->er[k]);
            }
        }
    }
    if (profile->ceiling_weight > 0) { /* the excess of |W|, linearised towards ceiling * W / |W| */
        v8 zero = splat8(0), one = splat8(1);
        for (int k = 0; k < n_bins; k += WIDTH) {
            v8 wr = load8(s->wr + k), wi = load8(s->wi + k), inverse = load8(s->inverse_ceiling + k);
            v8 gain = sqrt8(squared8(wr, wi)), over = at_least8(gain * inverse - one, zero);
            v8 pull = (float)profile->ceiling_weight * load8(s->penalty + k) * inverse;
            v8 excess = pull * over / at_least8(gain, splat8(TINY));
            store8(s->symbol + k, load8(s->symbol + k) + select8(over > zero, pull * inverse, zero));
            store8(s->descent_r + k, load8(s->descent_r + k) - excess * wr);
            store8(s->descent_i + k, load8(s->descent_i + k) - excess * wi);
        }
    }
    /* The column's first sample: the mean over the circle, times n_fft. */
    double level = 2 * (double)sum_of(s->symbol, n_bins) - s->symbol[0] - s->symbol[n_bins - 1];
    float added = (float)(profile->damping * (level > 1e-6 ? level : 1e-6) + constant.damping_floor), n = (float)grid->n;
    for (int k = 0; k < n_bins; k++)
        s->symbol[k] = s->symbol[k] * n + added;
    for (int k = n_bins; k < n_bins + WIDTH - 1; k++)
        s->symbol[k] = 1;
    irfft_f(grid, phase->scratch, s->descent_r, s->descent_i, s->gradient, N_TAPS);
    for (int k = 0; k < N_TAPS; k++)
        s->gradient[k] *= n;
}

static float response_rms(const band_edges *bands, const float *re, const float *im)
{
    double sum = 0;
    int low = bands->edge[AMP_FIRST], high = bands->edge[AMP_FIRST + AMP_COUNT];
    for (int k = low; k < high; k++)
        sum += (double)re[k] * re[k] + (double)im[k] * im[k];
    return (float)sqrt(sum / (high - low));
}

/* Weights, disturbance and the loudspeaker's ceiling of one condition, whose paths are in c. primary_power: [bins],
   overwritten. psd: on the grid. */
static void begin_condition(const refinement_profile *profile, const band_edges *bands, refinement_space *s,
                            condition_space *c, float *primary_power, const float *psd)
{
    int n_bins = bands->n_bins;
    double loudest = 0, psd_sum = 0, total = 0;
    for (int k = 0; k < n_bins; k++) {
        float p = c->pr[k] * c->pr[k] + c->pi[k] * c->pi[k];
        primary_power[k] = p;
        c->secondary_power[k] = c->sr[k] * c->sr[k] + c->si[k] * c->si[k];
        s->power[k] = psd[k] * p;
        loudest = p > loudest ? p : loudest;
        psd_sum += psd[k];
    }
    band_sums(bands, profile->first_band, profile->n_bands, s->power, c->disturbance);
    for (int b = 0; b < profile->n_bands; b++)
        total += c->disturbance[b];
    /* A primary path that is silent in every band must not turn the reference into infinite weights. */
    if (total < constant.silence * psd_sum * loudest)
        total = constant.silence * psd_sum * loudest;
    if (!(total >= TINY))
        total = TINY;
    float scale = total > TINY ? (float)(1 / total) : 0;
    for (int k = 0; k < n_bins; k++)
        c->weight[k] = psd[k] * scale;
    end_with_zeros(c->weight, n_bins);
    for (int b = 0; b < profile->n_bands; b++)
        c->disturbance[b] = c->disturbance[b] / total + constant.silence;
    if (profile->ceiling_weight == 0)
        return;
    /* Above the scored bands the loudspeaker stays below the disturbance. The paths' ratio is taken band by band: bin
       by bin it would follow the estimates' noise. */
    double primary[N_BANDS], secondary[N_BANDS];
    int first = AMP_FIRST + AMP_COUNT, n = N_BANDS - first;
    band_sums(bands, first, n, primary_power, primary);
    band_sums(bands, first, n, c->secondary_power, secondary);
    for (int b = 0; b < n; b++) {
        double ceiling = constant.drive_limit * sqrt(primary[b] / (secondary[b] > TINY ? secondary[b] : TINY));
        ceiling = ceiling > constant.most_ceiling ? constant.most_ceiling : ceiling > constant.least_ceiling ? ceiling : constant.least_ceiling;
        float drive = (float)(1 / ceiling);
        for (int k = bands->edge[first + b]; k < bands->edge[first + b + 1]; k++)
            s->inverse_ceiling[k] = drive > s->inverse_ceiling[k] ? drive : s->inverse_ceiling[k];
    }
}

/* What does not depend on the filter. The conditions' paths are in s. */
static void begin_refinement(const refinement_profile *profile, const band_edges *bands, refinement_space *s,
                             const float *psd, float max_gain_db)
{
    int n_bins = bands->n_bins;
    float asked = isnan(max_gain_db) ? 0 : (float)pow(10, -max_gain_db / 20);
    for (int k = 0; k < n_bins; k++)
        s->inverse_ceiling[k] = asked;
    end_with_zeros(s->inverse_ceiling, n_bins);
    for (int t = 0; t < s->n_conditions; t++)
        begin_condition(profile, bands, s, &s->conditions[t], s->descent_r, psd);
}

/* Response and residuals of the filter that the updates start from. */
static void start_from(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                       phase_space *phase, refinement_space *s, const float *taps)
{
    int n_bins = bands->n_bins;
    rfft_f(grid, phase->scratch, taps, N_TAPS, s->wr, s->wi);
    for (int t = 0; t < s->n_conditions; t++) {
        condition_space *c = &s->conditions[t];
        for (int k = 0; k < n_bins; k += WIDTH) {
            v8 sr = load8(c->sr + k), si = load8(c->si + k), wr = load8(s->wr + k), wi = load8(s->wi + k);
            store8(c->er + k, load8(c->pr + k) - (sr * wr - si * wi));
            store8(c->ei + k, load8(c->pi + k) - (sr * wi + si * wr));
        }
    }
    residual_power(profile, bands, s);
}

/* Up to n_updates updates of taps [2048]. */
static void refine(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                   const toeplitz_plan *plan, toeplitz_space *solver, phase_space *phase, refinement_space *s,
                   int n_updates, float *taps, refinement_record *record)
{
    int n_bins = bands->n_bins;
    slopes slope, trial_slope;
    double value = objective_of(profile, s, 0, penalty_of(profile, n_bins, s, 0), slope);
    record->applied = 0, record->stopped = STOPPED_BY_BUDGET;
    record->objective[0] = (float)value;
    for (int update = 0; update < n_updates; update++) {
        normal_equations(profile, bands, grid, phase, s, slope);
        float left = solve_toeplitz(plan, solver, phase, grid, s->symbol, s->gradient, profile->preconditioned,
                                    profile->n_iterations, (float)profile->tolerance, s->step);
        int is_finite = 1;
        for (int k = 0; k < N_TAPS; k++)
            is_finite &= isfinite(s->step[k]) != 0;
        if (!is_finite)
            memset(s->step, 0, N_TAPS * sizeof(float)); /* no step: the filter is kept, and the updates end */
        rfft_f(grid, phase->scratch, s->step, N_TAPS, s->dr, s->di);
        if (profile->step_cap > 0) {
            float rms = response_rms(bands, s->dr, s->di);
            float shrink = (float)profile->step_cap * s->ratio_rms / (rms > 1e-30f ? rms : 1e-30f);
            if (shrink < 1) {
                for (int k = 0; k < N_TAPS; k++)
                    s->step[k] *= shrink;
                for (int k = 0; k < n_bins; k++)
                    s->dr[k] *= shrink, s->di[k] *= shrink;
            }
        }
        /* The band powers are quadratic in the step's scale, so that trials need no transform. */
        float *cross_power = s->descent_r, *square_power = s->descent_i;
        for (int t = 0; t < s->n_conditions; t++) {
            condition_space *c = &s->conditions[t];
            for (int k = 0; k < n_bins; k += WIDTH) {
                v8 sr = load8(c->sr + k), si = load8(c->si + k), dr = load8(s->dr + k), di = load8(s->di + k);
                v8 cr = sr * dr - si * di, ci = sr * di + si * dr, w = load8(c->weight + k);
                store8(c->cr + k, cr), store8(c->ci + k, ci);
                store8(cross_power + k, w * (load8(c->er + k) * cr + load8(c->ei + k) * ci));
                store8(square_power + k, w * squared8(cr, ci));
            }
            band_sums(bands, profile->first_band, profile->n_bands, cross_power, c->cross);
            band_sums(bands, profile->first_band, profile->n_bands, square_power, c->square);
        }
        double best = -INFINITY, scale = 1;
        int accepted = 0;
        for (int t = 0; t < N_STEP_SCALES; t++, scale /= 2) {
            double penalty = penalty_of(profile, n_bins, s, (float)scale);
            double gained = value - objective_of(profile, s, scale, penalty, trial_slope);
            if (isnan(gained))
                gained = -INFINITY;
            best = gained > best ? gained : best;
            if (gained >= constant.sufficient_decrease * (fabs(value) > 1 ? fabs(value) : 1)) {
                accepted = 1;
                break;
            }
        }
        if (!accepted) {
            record->stopped = best > 0 ? STOPPED_CONVERGED : STOPPED_WITHOUT_DECREASE;
            return;
        }
        float f = (float)scale;
        for (int k = 0; k < N_TAPS; k++)
            taps[k] += f * s->step[k];
        for (int k = 0; k < n_bins; k++)
            s->wr[k] += f * s->dr[k], s->wi[k] += f * s->di[k];
        for (int t = 0; t < s->n_conditions; t++) {
            condition_space *c = &s->conditions[t];
            for (int k = 0; k < n_bins; k++)
                c->er[k] -= f * c->cr[k], c->ei[k] -= f * c->ci[k];
        }
        residual_power(profile, bands, s);
        value = objective_of(profile, s, 0, penalty_of(profile, n_bins, s, 0), slope);
        record->step_scale[update] = f, record->pcg_residual[update] = left;
        record->objective[update + 1] = (float)value, record->applied = update + 1;
    }
}

#endif
