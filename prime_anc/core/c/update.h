/* Gauss-Newton updates of one filter against the estimated paths of one or more conditions (prime_anc/method/updates/update.py):
   theory (15) to (17). */
#ifndef PRIME_UPDATE_H
#define PRIME_UPDATE_H

#include "tap_objective.h"

/* How the updates go. */
typedef struct {
    double value, decrease; /* J, and by how much the last step lowered it; infinite without one */
    double best;            /* by how much the best trial would have */
    slopes slope;
    int is_far;             /* whether J is so far from its minimum that `settle` goes on */
    float scale, residual;  /* of the last step */
} progress;

/* Judges by a step's decrease of J, and the one before, whether J is far from its minimum. */
static int shows_far(double decrease, double previous)
{
    int is_slow = decrease > constant.slow_decrease && decrease > constant.slow_share * previous;
    return decrease > constant.large_decrease || is_slow;
}

static float response_rms(const band_edges *bands, const float *re, const float *im)
{
    double sum = 0;
    int low = bands->edge[AMP_FIRST], high = bands->edge[AMP_FIRST + AMP_COUNT];
    for (int k = low; k < high; k++)
        sum += (double)re[k] * re[k] + (double)im[k] * im[k];
    return (float)sqrt(sum / (high - low));
}

/* Response and residuals of the filter that the updates start from. */
static void start_from(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                       phase_space *phase, refinement_space *s, const float *taps)
{
    rfft_f(grid, phase->scratch, taps, N_TAPS, s->wr, s->wi);
    for (int t = 0; t < s->n_conditions; t++) {
        condition_space *c = &s->conditions[t];
        for (int k = 0; k < end_of_bands(profile, bands); k += WIDTH) {
            v8 sr = load8(c->sr + k), si = load8(c->si + k), wr = load8(s->wr + k), wi = load8(s->wi + k);
            store8(c->er + k, load8(c->pr + k) - (sr * wr - si * wi));
            store8(c->ei + k, load8(c->pi + k) - (sr * wi + si * wr));
        }
    }
    residual_power(profile, bands, s);
}

/* Solves for a step, [2048]; returns the system's relative residual. */
static float solve_step(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                        const toeplitz_plan *plan, toeplitz_space *solver, phase_space *phase, refinement_space *s,
                        progress *now)
{
    float residual = 0;
    normal_equations(profile, bands, s, now->slope);
    if (profile->preconditioner == EXACT) {
        int stride = s->direct_grid->n / grid->n;
        solve_directly(s->direct_grid, &s->direct, s->symbol, s->descent_r, s->descent_i, stride, s->step);
    } else {
        irfft_f(grid, phase->scratch, s->descent_r, s->descent_i, s->gradient, N_TAPS);
        residual = solve_toeplitz(plan, solver, phase, grid, s->symbol, s->gradient, profile->preconditioner,
                                  profile->n_iterations, (float)profile->tolerance, s->step);
    }
    int is_finite = 1;
    for (int k = 0; k < N_TAPS; k++)
        is_finite &= isfinite(s->step[k]) != 0;
    if (!is_finite)
        memset(s->step, 0, N_TAPS * sizeof(float)); /* no step: the filter is kept, and the updates end */
    return residual;
}

/* Computes how a step, whose response is in s, changes the residuals and their band powers. */
static void begin_step(const refinement_profile *profile, const band_edges *bands, refinement_space *s)
{
    float *cross = s->descent_r, *square = s->descent_i;
    for (int t = 0; t < s->n_conditions; t++) {
        condition_space *c = &s->conditions[t];
        for (int k = 0; k < end_of_bands(profile, bands); k += WIDTH) {
            v8 sr = load8(c->sr + k), si = load8(c->si + k), dr = load8(s->dr + k), di = load8(s->di + k);
            v8 cr = sr * dr - si * di, ci = sr * di + si * dr, w = load8(c->weight + k);
            store8(c->cr + k, cr), store8(c->ci + k, ci);
            store8(cross + k, w * (load8(c->er + k) * cr + load8(c->ei + k) * ci));
            store8(square + k, w * squared8(cr, ci));
        }
        band_sums(bands, profile->first_band, profile->n_bands, cross, c->cross);
        band_sums(bands, profile->first_band, profile->n_bands, square, c->square);
    }
}

/* Adds x times (dr, di) to (re, im). */
static void add_scaled(int n_bins, float x, const float *dr, const float *di, float *re, float *im)
{
    for (int k = 0; k < n_bins; k += WIDTH) {
        store8(re + k, load8(re + k) + x * load8(dr + k));
        store8(im + k, load8(im + k) + x * load8(di + k));
    }
}

/* Moves the filter by x times the step. */
static void move_by(const refinement_profile *profile, const band_edges *bands, refinement_space *s, float x, float *taps)
{
    for (int k = 0; k < N_TAPS; k++)
        taps[k] += x * s->step[k];
    add_scaled(bands->n_bins, x, s->dr, s->di, s->wr, s->wi);
    for (int t = 0; t < s->n_conditions; t++) {
        condition_space *c = &s->conditions[t];
        add_scaled(end_of_bands(profile, bands), -x, c->cr, c->ci, c->er, c->ei);
    }
    residual_power(profile, bands, s);
}

/* Takes a step; returns whether a trial lowered J enough. None is taken where conjugate gradients have failed. */
static int take_step(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                     const toeplitz_plan *plan, toeplitz_space *solver, phase_space *phase, refinement_space *s,
                     progress *now, float *taps)
{
    int n_bins = bands->n_bins;
    slopes trial;
    int settles = profile->settles && profile->preconditioner != EXACT;
    now->residual = solve_step(profile, bands, grid, plan, solver, phase, s, now);
    if (settles && now->residual > constant.most_residual) {
        now->is_far = 1;
        return 0;
    }
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
    begin_step(profile, bands, s);
    now->best = -INFINITY;
    double scale = 1, enough = constant.sufficient_decrease * (fabs(now->value) > 1 ? fabs(now->value) : 1);
    for (int t = 0; t < N_STEP_SCALES; t++, scale /= 2) {
        double penalty = penalty_of(profile, n_bins, s, (float)scale);
        double found = value_at(profile, s, scale, penalty, trial);
        double gained = now->value - found;
        if (isnan(gained))
            gained = -INFINITY;
        now->best = gained > now->best ? gained : now->best;
        if (gained >= enough) {
            double before = now->value;
            move_by(profile, bands, s, (float)scale, taps);
            now->value = value_at(profile, s, 0, penalty, now->slope);
            double previous = now->decrease;
            now->decrease = before - now->value, now->scale = (float)scale;
            now->is_far = settles && shows_far(now->decrease, previous);
            return 1;
        }
    }
    return 0;
}

/* Begins at the filter whose response and residuals are in s. */
static progress begin_progress(const refinement_profile *profile, const band_edges *bands, refinement_space *s)
{
    progress now = {.decrease = INFINITY};
    now.value = value_at(profile, s, 0, penalty_of(profile, bands->n_bins, s, 0), now.slope);
    return now;
}

static void note(refinement_record *record, int update, const progress *now)
{
    record->step_scale[update] = now->scale, record->pcg_residual[update] = now->residual;
    record->objective[update + 1] = (float)now->value, record->applied = update + 1;
}

/* Up to n_updates updates of taps [2048]. Returns whether `settle` is to go on. */
static int refine(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                  const toeplitz_plan *plan, toeplitz_space *solver, phase_space *phase, refinement_space *s,
                  int n_updates, float *taps, refinement_record *record)
{
    progress now = begin_progress(profile, bands, s);
    record->applied = 0, record->stopped = STOPPED_BY_BUDGET;
    record->objective[0] = (float)now.value;
    for (int update = 0; update < n_updates; update++) {
        if (profile->settles && update >= constant.first_updates)
            return 1;
        int is_taken = take_step(profile, bands, grid, plan, solver, phase, s, &now, taps);
        if (is_taken)
            note(record, update, &now);
        if (now.is_far)
            return 1;
        if (!is_taken) {
            record->stopped = now.best > 0 ? STOPPED_CONVERGED : STOPPED_WITHOUT_DECREASE;
            return 0;
        }
    }
    return 0;
}

/* Continues the updates of taps [2048] by direct solves: the last one, if its step has shown that J is far, and those
   that are left. s holds paths, response and residuals on the grid. */
static void settle(const refinement_profile *profile, const band_edges *bands, const real_plan_f *grid,
                   const toeplitz_plan *plan, toeplitz_space *solver, phase_space *phase, refinement_space *s,
                   int n_updates, float *taps, refinement_record *record)
{
    progress now = begin_progress(profile, bands, s);
    int applied = record->applied;
    const float *last = record->objective + applied;
    int is_open = applied && shows_far(last[-1] - last[0], applied > 1 ? last[-2] - last[-1] : INFINITY);
    for (int update = is_open ? applied - 1 : applied; update < n_updates; update++) {
        for (int n = update < applied ? 1 : 0; n < constant.n_rounds; n++) {
            if (!take_step(profile, bands, grid, plan, solver, phase, s, &now, taps))
                break;
            note(record, update, &now);
            if (now.decrease <= constant.small_decrease)
                break;
        }
        if (record->applied <= update) {
            record->stopped = now.best > 0 ? STOPPED_CONVERGED : STOPPED_WITHOUT_DECREASE;
            return;
        }
    }
}

#endif
