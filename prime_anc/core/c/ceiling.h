/* The filter with the lowest log residual among those that keep a ceiling on their gain at every frequency: theory (18).

       minimise J(w) subject to |W(f)| <= c(f),    W = DFT of 2048 real taps,

   J as the updates have it (update.h), without their penalty. With a multiplier lambda_k >= 0 for each bin, a
   filter is optimal if it minimises

       sum_k v_k |P_k - S_k W_k|^2 + lambda_k |W_k|^2,    v_k = psd_k (dJ / dl_b) / E_b,

   and multipliers vanish where nothing is at its limit. A round reweights v, which majorises the logarithm, scales the
   symbol v |S|^2 + lambda by (|W| / c)^2 (by |W| / c an isolated bin would end at its ceiling; the square needs fewer
   rounds), and improves the filter by a few conjugate gradients on that Toeplitz system. The rounds may
   swing, so that the best is kept. What it leaves above the ceiling is taken off by minimum-phase filters, and the last
   hundredths by a factor.

   Hardly damped systems are then far from the minimum: conjugate gradients and damping hold the rounds up. Direct steps
   of the updates go on below a penalty whose ceiling sinks wherever the filter exceeds it: bending by tenths of a dB
   would cost such a system most of what it has gained. */
#ifndef PRIME_CEILING_H
#define PRIME_CEILING_H

#include "update.h"

#define CEILING_ROUNDS 24      /* at least; the rounds end where no more than SMALL_EXCESS is left above the ceiling */
#define MAX_CEILING_ROUNDS 64
#define SMALL_FALL 3e-3        /* of J in a round: 0.01 dB */
#define SMALL_EXCESS 1.0115795f /* 0.1 dB */
#define CEILING_ITERATIONS 6   /* of the conjugate gradients in a round */
#define CEILING_DAMPING 3e-4f  /* of the mean symbol; with 1e-3 deep systems end 2 dB lower, with less rounding shows */
#define CEILING_BENDS 4
#define CEILING_STEPS 16       /* direct ones, at most */
#define CLEAR_DECREASE 0.03    /* of J by the first of them, without which they end: 0.1 dB */
#define CEILING_AIM 1.01f      /* 0.1 dB below the ceiling, about which their filters swing by as much */
#define MOST_GROWTH 100        /* of a symbol in a round: 3 iterations do not follow more, and multipliers would overflow */
#define MOST_MULTIPLIER 1e20f

typedef struct {
    int stride;        /* bins of the design grid for one of the rounds' grid */
    float *inverse;    /* of the ceiling, on the design grid */
    float *requested;      /* the same on the rounds' grid, without that of the loudspeaker */
    float *multiplier; /* [bins] of the rounds' grid */
    float *wanted;
    float best[N_TAPS]; /* taps of the round with the least J that all but keeps all limits */
    double gradient[MAX_CONDITIONS][N_BANDS]; /* (dJ / dl_b) / E_b, averaged over the rounds */
} ceiling_space;

/* A coarse bin stands for the fine ones around it. */
static void begin_ceiling(refinement_space *s, ceiling_space *c, int n_bins)
{
    for (int j = 0; j < n_bins; j++) {
        float most = 0;
        for (int i = -c->stride / 2; i <= c->stride / 2; i++) {
            int k = abs(c->stride * j + i);
            float here = c->inverse[k < N_BINS ? k : 2 * (N_BINS - 1) - k];
            most = here > most ? here : most;
        }
        c->requested[j] = most;
        s->inverse_ceiling[j] = most > s->inverse_ceiling[j] ? most : s->inverse_ceiling[j];
    }
}

/* The largest |W| over the requested ceiling, on the rounds' grid. */
static float excess_of(const refinement_space *s, const ceiling_space *c, int n_bins)
{
    float most = 0;
    for (int k = 0; k < n_bins; k++) {
        float over = (s->wr[k] * s->wr[k] + s->wi[k] * s->wi[k]) * (c->requested[k] * c->requested[k]);
        most = over > most ? over : most;
    }
    return sqrtf(most);
}

/* One round: better multipliers, better taps [2048]; s holds the response and the residuals of the taps, slope that of
   their J. */
static void ceiling_round(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                          const toeplitz_plan *plan, toeplitz_space *solver, phase_space *phase, refinement_space *s,
                          ceiling_space *c, slopes slope, int is_first, float *taps)
{
    int n_bins = bands->n_bins;
    const size_t bytes = (size_t)(n_bins + WIDTH) * sizeof(float);
    float *wanted = c->wanted, *drive = s->power;
    memset(wanted, 0, bytes), memset(drive, 0, bytes), memset(s->descent_r, 0, bytes), memset(s->descent_i, 0, bytes);
    for (int t = 0; t < s->n_conditions; t++) {
        const condition_space *condition = &s->conditions[t];
        for (int b = 0; b < profile->n_bands; b++) {
            double now = slope[t][b] / condition->band_power[b];
            if (!is_first) /* or rounds that move much would swing between two weightings */
                now = sqrt(now * c->gradient[t][b]);
            c->gradient[t][b] = now;
            for (int k = bands->edge[profile->first_band + b]; k < bands->edge[profile->first_band + b + 1]; k++) {
                float v = condition->weight[k] * (float)now;
                wanted[k] += v * condition->secondary_power[k];
                if (is_first)
                    drive[k] += v * sqrtf(condition->secondary_power[k] * (condition->pr[k] * condition->pr[k] + condition->pi[k] * condition->pi[k]));
                s->descent_r[k] += v * (condition->sr[k] * condition->er[k] + condition->si[k] * condition->ei[k]);
                s->descent_i[k] += v * (condition->sr[k] * condition->ei[k] - condition->si[k] * condition->er[k]);
            }
        }
    }
    const v8 zero = splat8(0);
    float share = CEILING_DAMPING / (float)n_bins, damping = share * sum_of(wanted, n_bins);
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 wr = load8(s->wr + k), wi = load8(s->wi + k), symbol = load8(wanted + k), inverse = load8(s->inverse_ceiling + k);
        v8 multiplier = load8(drive + k) * inverse - symbol; /* what an isolated bin would need */
        if (!is_first) {
            v8 growth = at_most8(squared8(wr, wi) * inverse * inverse, splat8(MOST_GROWTH));
            multiplier = (symbol + load8(c->multiplier + k) + damping) * growth - symbol - damping;
        }
        multiplier = at_most8(at_least8(multiplier, zero), splat8(MOST_MULTIPLIER));
        store8(c->multiplier + k, multiplier);
        store8(s->symbol + k, symbol + multiplier);
        store8(s->descent_r + k, load8(s->descent_r + k) - multiplier * wr);
        store8(s->descent_i + k, load8(s->descent_i + k) - multiplier * wi);
    }
    float level = sum_of(s->symbol, n_bins), scale = level > TINY * (float)n_bins ? (float)n_bins / level : 1;
    for (int k = 0; k < n_bins; k++) /* of mean one */
        s->symbol[k] = s->symbol[k] * scale + CEILING_DAMPING, s->descent_r[k] *= scale, s->descent_i[k] *= scale;
    for (int k = n_bins; k < n_bins + WIDTH - 1; k++)
        s->symbol[k] = 1;
    irfft_f(grid, phase->scratch, s->descent_r, s->descent_i, s->gradient, N_TAPS);
    solve_toeplitz(plan, solver, phase, grid, s->symbol, s->gradient, 1, CEILING_ITERATIONS, 0, s->step);
    for (int k = 0; k < N_TAPS; k++)
        taps[k] += s->step[k];
}

/* Brings taps [2048] below most / c->inverse at every bin of the design grid, by bends and a factor. */
static void take_off_excess(const real_plan_f *fine, const real_plan_f *grid, phase_space *phase, refinement_space *s,
                            ceiling_space *c, float *wr, float *wi, float *over, float most, float *taps)
{
    int n_bins = grid->n / 2 + 1;
    for (int bend = 0;; bend++) {
        float largest = 0;
        rfft_f(fine, phase->scratch, taps, N_TAPS, wr, wi);
        for (int k = 0; k < N_BINS; k += WIDTH)
            store8(over + k, squared8(load8(wr + k), load8(wi + k)) * load8(c->inverse + k) * load8(c->inverse + k));
        for (int k = 0; k < N_BINS; k++)
            largest = over[k] > largest ? over[k] : largest;
        if (largest <= most * most)
            return;
        if (bend == CEILING_BENDS) {
            for (int k = 0; k < N_TAPS; k++)
                taps[k] *= most / sqrtf(largest);
            return;
        }
        for (int k = 0; k < N_BINS; k += WIDTH)
            store8(over + k, log8(at_least8(load8(over + k), splat8(1))) * 0.5f);
        collect(over, n_bins, c->stride, phase->log_gain);
        for (int k = 0; k < n_bins; k++) { /* the mean over the fine bins around it: at the ends there are fewer */
            int is_end = k == 0 || k == n_bins - 1;
            phase->log_gain[k] *= -1 / (is_end ? 0.5f + (float)c->stride / 2 : (float)c->stride);
        }
        minimum_phase_response(grid, phase, phase->response_r, phase->response_i);
        for (int k = 0; k < n_bins; k++) {
            float a = wr[c->stride * k], b = wi[c->stride * k];
            s->dr[k] = a * phase->response_r[k] - b * phase->response_i[k];
            s->di[k] = a * phase->response_i[k] + b * phase->response_r[k];
        }
        irfft_f(grid, phase->scratch, s->dr, s->di, taps, N_TAPS);
    }
}

/* Lowers the penalty's ceiling where the filter exceeds the aim, by as much. */
static void lower_where_exceeded(refinement_space *s, const ceiling_space *c, int n_bins)
{
    for (int k = 0; k < n_bins; k++) {
        float over = CEILING_AIM * c->requested[k] * sqrtf(s->wr[k] * s->wr[k] + s->wi[k] * s->wi[k]);
        s->inverse_ceiling[k] *= over > 1 ? over : 1;
    }
}

/* Direct steps from taps [2048] below the ceiling, whose response and residuals are in s, until J hardly falls and no
   more than `most` is exceeded. They end where they only gain by exceeding it. */
static void step_below(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                       const toeplitz_plan *plan, toeplitz_space *solver, phase_space *phase, refinement_space *s,
                       const ceiling_space *c, float most, float *taps)
{
    progress now = begin_progress(profile, bands, s);
    double start = now.value;
    for (int step = 0; step < CEILING_STEPS; step++) {
        int falls = take_step(profile, bands, grid, plan, solver, phase, s, &now, taps)
                    && now.decrease > (step ? constant.small_decrease : CLEAR_DECREASE);
        if (!falls && (step == 0 || excess_of(s, c, bands->n_bins) <= most))
            return;
        lower_where_exceeded(s, c, bands->n_bins);
        now.value = value_at(profile, s, 0, penalty_of(profile, bands->n_bins, s, 0), now.slope);
        if (step && now.value > start - constant.small_decrease)
            return;
    }
}

#endif
