/* Entry points: design and prediction for one ear, with a model that threads share and one workspace per thread. */

#include "core.h"

#include <time.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "memory.h"

EXPORT void prime_init(const prime_constants *constants)
{
    constant = *constants;
    for (int grid = 0; grid < N_GRIDS; grid++) {
        plans[grid] = real_plan_of_f(4096 << grid);
        edges[grid] = band_edges_of(4096 << grid);
        int last = edges[grid].n_bins - 1;
        double sum = 0;
        per_octave[grid] = calloc((size_t)last + 1 + WIDTH, sizeof(float));
        for (int k = 1; k < last; k++)
            sum += 1.0 / k;
        for (int k = 1; k < last; k++) /* without 0 Hz and Nyquist, so that one-sided sums are exact transforms */
            per_octave[grid][k] = (float)(1 / (k * sum));
    }
    coarse_plan = real_plan_of_f(COARSE_N_FFT), coarse_edges = band_edges_of(COARSE_N_FFT);
    double_plan = real_plan_of_d(DESIGN_N_FFT);
    toeplitz_plan_init(&toeplitz);
    prediction_init();
}

EXPORT int prime_level(void)
{
#ifdef __x86_64__
    unsigned a, b, c, d, enabled, high, fma;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 2;
    fma = c & bit_FMA;
    __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0)); /* registers that the operating system saves at a context switch */
    if (!fma || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2) || !(b & bit_BMI2) || (enabled & 0x6) != 0x6)
        return 2;
    unsigned all = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    return (b & all) == all && (enabled & 0xe6) == 0xe6 ? 4 : 3;
#else
    return 0;
#endif
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Adds the time since the last call to a stage. */
static void mark(double *times_ms, int stage, double *since)
{
    double now = now_ms();
    times_ms[stage] = (isnan(times_ms[stage]) ? 0 : times_ms[stage]) + now - *since;
    *since = now;
}

/* Takes every stride-th bin of an interleaved spectrum. */
static void sample(const float *spectrum, int n_bins, int stride, float *re, float *im)
{
    for (int k = 0; k < n_bins; k++)
        re[k] = spectrum[2 * k * stride], im[k] = spectrum[2 * k * stride + 1];
    end_with_zeros(re, n_bins), end_with_zeros(im, n_bins);
}

/* Splits an interleaved spectrum, or transforms a response. */
static void load_path(prime_workspace *ws, const float *path, int n_samples, float *re, float *im)
{
    if (n_samples)
        rfft_f(&plans[N_GRIDS - 1], ws->phase.scratch, path, n_samples, re, im);
    else
        sample(path, N_BINS, 1, re, im);
}

/* Adds condition t to the sums of WMMSE. */
static void add_wmmse_condition(prime_workspace *ws, const prime_problem *problem, int t)
{
    sample(problem->primary + 2 * (size_t)t * N_BINS, N_BINS, 1, ws->pr, ws->pi);
    sample(problem->secondary + 2 * (size_t)t * N_BINS, N_BINS, 1, ws->sr, ws->si);
    add_to_wmmse(&ws->wmmse, problem->shares[t], ws->pr, ws->pi, ws->sr, ws->si);
}

/* Brings condition t to a grid coarser by `stride`, weighed by its uncertainty. */
static void load_condition(prime_workspace *ws, const prime_problem *problem, int t, int n_bins, int stride)
{
    condition_space *c = &ws->conditions[t];
    const float *uncertainty = problem->uncertainty + 2 * t * N_BANDS;
    sample(problem->primary + 2 * (size_t)t * N_BINS, n_bins, stride, c->pr, c->pi);
    sample(problem->secondary + 2 * (size_t)t * N_BINS, n_bins, stride, c->sr, c->si);
    c->share = problem->shares[t];
    const band_edges *bands = &edges[grid_of(2 * (n_bins - 1))];
    for (int b = 0; b < N_BANDS; b++) { /* theory (12) */
        c->unknown_primary[b] = uncertainty[b], c->unknown_secondary[b] = uncertainty[N_BANDS + b];
        float scale = sqrtf(1 + uncertainty[N_BANDS + b]);
        for (int k = bands->edge[b]; scale != 1 && k < bands->edge[b + 1]; k++)
            c->pr[k] /= scale, c->pi[k] /= scale, c->sr[k] *= scale, c->si[k] *= scale;
    }
}

/* Whether a spectrum is finite and not all zero. */
static int is_usable(const float *re, const float *im)
{
    v8 lanes = splat8(0);
    for (int k = 0; k < N_BINS - 1; k += WIDTH)
        lanes += __builtin_elementwise_abs(load8(re + k)) + __builtin_elementwise_abs(load8(im + k));
    float sum = sum8(lanes) + fabsf(re[N_BINS - 1]) + fabsf(im[N_BINS - 1]);
    return isfinite(sum) && sum > 0;
}

/* RMS of the regularised path ratio over the 23 bands, on the profile's grid. */
static float ratio_rms(const band_edges *bands, const condition_space *s)
{
    float largest = 0;
    double sum = 0;
    for (int k = 0; k < bands->n_bins; k++) {
        float power = s->sr[k] * s->sr[k] + s->si[k] * s->si[k];
        largest = power > largest ? power : largest;
    }
    double epsilon = constant.ratio_regularisation * constant.ratio_regularisation * largest;
    int low = bands->edge[AMP_FIRST], high = bands->edge[AMP_FIRST + AMP_COUNT];
    for (int k = low; k < high; k++) {
        double p = (double)s->pr[k] * s->pr[k] + (double)s->pi[k] * s->pi[k];
        double q = (double)s->sr[k] * s->sr[k] + (double)s->si[k] * s->si[k], scale = 1 / (q + epsilon);
        sum += p * scale * q * scale;
    }
    return (float)sqrt(sum / (high - low));
}

/* Adds the condition that is loaded to the sums from which the initial filter is made. */
static void add_condition(const prime_model *model, prime_workspace *ws, const prime_problem *problem, int t, int method,
                          double *times_ms, double *since)
{
    int stride = DESIGN_N_FFT / model->n_fft, n_bins = model->n_fft / 2 + 1;
    sample(problem->primary + 2 * (size_t)t * N_BINS, n_bins, stride, ws->gpr, ws->gpi);
    sample(problem->secondary + 2 * (size_t)t * N_BINS, n_bins, stride, ws->gsr, ws->gsi);
    const real_plan_f *plan = &plans[grid_of(model->n_fft)];
    const generator *network = method == METHOD_PRIME ? &model->network : NULL;
    read_paths(plan, &ws->phase, &ws->features, &model->grid, model->is_held, ws->gpr, ws->gpi, ws->gsr, ws->gsi,
               network, ws->network.input);
    mark(times_ms, TIME_PATH_RATIO, since);
    float share = (float)problem->shares[t], *delta = NULL, *first = NULL;
    if (network) {
        delta = generate(network, &ws->network), first = row_of(network, delta, 0);
        mark(times_ms, TIME_GENERATE, since);
    }
    if (network && model->is_fir_wiener)
        add_to_wiener(plan, &ws->wiener, &ws->features, &model->grid, &model->start, first, row_of(network, delta, 1),
                      problem->max_gain_db * (float)constant.neper_per_db, share, ws->gpr, ws->gpi, ws->gsr, ws->gsi);
    else
        add_to_base(plan, &ws->wiener, &model->grid, ws->features.log_base, first, share);
    mark(times_ms, TIME_RECONSTRUCT, since);
}

EXPORT void prime_start(const prime_model *model, prime_workspace *ws, const prime_problem *problem, int method,
                        float *taps, double *times_ms)
{
    double since = now_ms();
    const real_plan_f *plan = &plans[grid_of(model->n_fft)];
    int is_wmmse = method == METHOD_WMMSE;
    for (int i = 0; i < N_TIMES; i++)
        times_ms[i] = NAN;
    if (is_wmmse)
        begin_wmmse(&edges[N_GRIDS - 1], &ws->wmmse, problem->psd);
    else
        begin_wiener(model->n_fft / 2 + 1, &ws->wiener);
    for (int t = 0; t < problem->n_conditions; t++) {
        if (is_wmmse)
            add_wmmse_condition(ws, problem, t);
        else
            add_condition(model, ws, problem, t, method, times_ms, &since);
    }
    if (is_wmmse)
        solve_wmmse(&double_plan, &ws->wmmse, taps);
    else if (method == METHOD_PRIME && model->is_fir_wiener)
        solve_wiener(plan, &toeplitz, ws->solver, &ws->phase, &ws->wiener, taps);
    else
        base_filter(plan, &ws->phase, &ws->wiener, problem->max_gain_db * (float)constant.neper_per_db, taps);
    mark(times_ms, is_wmmse ? TIME_GENERATE : TIME_RECONSTRUCT, &since);
}

EXPORT void prime_wiener(prime_workspace *ws, const prime_problem *problem, float *taps)
{
    begin_wmmse(&edges[N_GRIDS - 1], &ws->wmmse, problem->psd);
    for (int t = 0; t < problem->n_conditions; t++)
        add_wmmse_condition(ws, problem, t);
    if (!approach_wmmse(&plans[N_GRIDS - 1], &plans[1], &toeplitz, ws->solver, &ws->phase, &ws->wmmse, taps))
        solve_wmmse(&double_plan, &ws->wmmse, taps);
}

/* Returns an impulse response as sent, or that of a loaded spectrum, in ws->prediction.response. In single precision its
   end would hold rounding errors, which look like noise. */
static const float *response_of(prime_workspace *ws, const float *path, const float *re, const float *im, int *n_samples)
{
    if (*n_samples)
        return path;
    *n_samples = DESIGN_N_FFT;
    for (int k = 0; k < N_BINS; k++)
        ws->exact_r[k] = re[k], ws->exact_i[k] = im[k];
    irfft_d(&double_plan, ws->wmmse.scratch, ws->exact_r, ws->exact_i, ws->exact, DESIGN_N_FFT);
    for (int n = 0; n < DESIGN_N_FFT; n++)
        ws->prediction.response[n] = (float)ws->exact[n];
    return ws->prediction.response;
}

/* Finds what the ends of the loaded responses show. */
static void judge_ends(prime_workspace *ws, const prime_paths *paths, prime_knowledge *found)
{
    const prediction_space *p = &ws->prediction;
    ends_space s = {&plans[1], &coarse_plan, &edges[1], &coarse_edges, p->scratch, p->second, p->wr, p->wi, p->power};
    int n_primary = paths->n_primary, n_secondary = paths->n_secondary;
    const float *primary = response_of(ws, paths->primary, ws->pr, ws->pi, &n_primary);
    found->ends_interval = primary_uncertainty(&s, primary, n_primary, found->uncertainty);
    const float *secondary = response_of(ws, paths->secondary, ws->sr, ws->si, &n_secondary);
    secondary_uncertainty(&s, secondary, n_secondary, found->uncertainty + N_BANDS);
}

/* Sums the power of bins under the reference per band, times (1 - c) / c of a coherence unless it is NULL. */
static void sum_under(prime_workspace *ws, const float *re, const float *im, const float *psd, const float *coherence,
                      double *sums)
{
    float *power = ws->prediction.power;
    for (int k = 0; k < N_BINS; k++)
        power[k] = psd[k] * (re[k] * re[k] + im[k] * im[k]);
    for (int k = 0; coherence && k < N_BINS; k++) {
        float known = coherence[k] < constant.coherence_floor ? constant.coherence_floor : coherence[k] > 1 ? 1 : coherence[k];
        power[k] *= (1 - known) / known;
    }
    band_sums(&edges[N_GRIDS - 1], 0, N_BANDS, power, sums);
}

/* Finds what the model's listeners, or a coherence, show of the loaded paths. */
static void judge_by_model(const prime_model *model, prime_workspace *ws, const prime_paths *paths, prime_knowledge *found)
{
    prediction_space *p = &ws->prediction;
    double power[N_BANDS], unexplained[N_BANDS], expected[N_BANDS];
    int n = paths->n_primary;
    const float *response = response_of(ws, paths->primary, ws->pr, ws->pi, &n);
    int length = length_of(response, n);
    double raised = pow(10, at_length(length, constant.cut_db) / 10);
    for (int b = 0; b < N_BANDS; b++)
        expected[b] = raised * model->band_uncertainty[b];
    found->ends_interval = at_length(length, constant.model_interval_db);
    for (int b = 0; b < N_BANDS; b++)
        found->uncertainty[b] = (float)expected[b];
    if (paths->coherence) {
        sum_under(ws, ws->pr, ws->pi, paths->psd, NULL, power);
        sum_under(ws, ws->pr, ws->pi, paths->psd, paths->coherence, unexplained);
        coherence_uncertainty(expected, model->band_uncertainty, power, unexplained, found->uncertainty);
    }
}

EXPORT int prime_pose(const prime_model *model, prime_workspace *ws, const prime_paths *paths, float *primary,
                      float *secondary, prime_knowledge *known)
{
    load_path(ws, paths->primary, paths->n_primary, ws->pr, ws->pi);
    load_path(ws, paths->secondary, paths->n_secondary, ws->sr, ws->si);
    if (!is_usable(ws->pr, ws->pi))
        return FAULT_PRIMARY;
    if (!is_usable(ws->sr, ws->si))
        return FAULT_SECONDARY;
    for (int k = 0; k < N_BINS; k++) {
        primary[2 * k] = ws->pr[k], primary[2 * k + 1] = ws->pi[k];
        secondary[2 * k] = ws->sr[k], secondary[2 * k + 1] = ws->si[k];
    }
    memset(known, 0, sizeof *known);
    known->basis = paths->coherence ? OF_COHERENCE : paths->is_device ? OF_MODEL : OF_RESPONSE;
    silent_bands(&edges[N_GRIDS - 1], ws->pr, ws->pi, ws->prediction.power, known->silent);
    if (known->basis == OF_RESPONSE)
        judge_ends(ws, paths, known);
    else
        judge_by_model(model, ws, paths, known);
    for (int b = 0; b < N_BANDS; b++)
        if (known->silent[b])
            known->uncertainty[N_BANDS + b] = (float)constant.silent_uncertainty;
    return FAULT_NONE;
}

/* Brings all conditions to a profile's grid, ready for updates. */
static void pose_updates(prime_workspace *ws, const prime_problem *problem, const refinement_profile *profile,
                         float max_gain_db)
{
    int i = grid_of(profile->n_fft), stride = DESIGN_N_FFT / profile->n_fft, n_bins = edges[i].n_bins;
    refinement_space *s = &ws->refinement;
    s->n_conditions = problem->n_conditions, s->ratio_rms = 0, s->penalty = per_octave[i];
    for (int t = 0; t < problem->n_conditions; t++) {
        load_condition(ws, problem, t, n_bins, stride);
        if (profile->step_cap > 0)
            s->ratio_rms += (float)problem->shares[t] * ratio_rms(&edges[i], &ws->conditions[t]);
    }
    collect(problem->psd, n_bins, stride, ws->psd);
    begin_refinement(profile, &edges[i], s, ws->psd, max_gain_db);
}

EXPORT void prime_update(prime_workspace *ws, const prime_problem *problem, const refinement_profile *profile,
                         int n_updates, float *taps, refinement_record *record)
{
    int i = grid_of(profile->n_fft), last = N_GRIDS - 1;
    refinement_space *s = &ws->refinement;
    pose_updates(ws, problem, profile, problem->max_gain_db);
    start_from(profile, &edges[i], &plans[i], &ws->phase, s, taps);
    if (!refine(profile, &edges[i], &plans[i], &toeplitz, ws->solver, &ws->phase, s, n_updates, taps, record))
        return;
    refinement_profile exact = *profile;
    exact.n_fft = DESIGN_N_FFT, exact.damping = constant.direct_damping, exact.preconditioner = EXACT;
    pose_updates(ws, problem, &exact, problem->max_gain_db);
    start_from(&exact, &edges[last], &plans[last], &ws->phase, s, taps);
    settle(&exact, &edges[last], &plans[last], &toeplitz, ws->solver, &ws->phase, s, n_updates, taps, record);
}

EXPORT void prime_limit(prime_workspace *ws, const prime_problem *problem, const refinement_profile *profile,
                        const float *inverse_ceiling, float most, float *taps)
{
    int i = grid_of(profile->n_fft), n_bins = edges[i].n_bins;
    refinement_space *s = &ws->refinement;
    ceiling_space *c = &ws->ceiling;
    c->stride = DESIGN_N_FFT / profile->n_fft;
    memcpy(c->inverse, inverse_ceiling, N_BINS * sizeof(float));
    pose_updates(ws, problem, profile, NAN);
    begin_ceiling(s, c, n_bins);
    double least = INFINITY;
    slopes slope;
    for (int round = 0;; round++) {
        start_from(profile, &edges[i], &plans[i], &ws->phase, s, taps);
        double value = value_at(profile, s, 0, 0, slope);
        int is_kept = excess_of(s, c, n_bins) <= SMALL_EXCESS;
        int falls = is_kept && value < least - SMALL_FALL;
        if (is_kept && value < least)
            least = value, memcpy(c->best, taps, sizeof c->best);
        if (round == MAX_CEILING_ROUNDS || (round >= CEILING_ROUNDS && is_kept && !falls))
            break;
        ceiling_round(profile, &edges[i], &plans[i], &toeplitz, ws->solver, &ws->phase, s, c, slope, round == 0, taps);
    }
    if (least < INFINITY)
        memcpy(taps, c->best, sizeof c->best);
    refinement_profile exact = *profile;
    exact.damping = constant.direct_damping, exact.preconditioner = EXACT;
    for (int is_last = 0; is_last < 2; is_last++) {
        take_off_excess(&plans[N_GRIDS - 1], &plans[i], &ws->phase, s, c, ws->prediction.wr, ws->prediction.wi,
                        ws->prediction.power, most, taps);
        start_from(profile, &edges[i], &plans[i], &ws->phase, s, taps);
        double value = value_at(profile, s, 0, 0, slope);
        if (!is_last || value < least)
            least = value, memcpy(c->best, taps, sizeof c->best);
        if (!is_last)
            step_below(&exact, &edges[i], &plans[i], &toeplitz, ws->solver, &ws->phase, s, c, most, taps);
    }
    memcpy(taps, c->best, sizeof c->best);
}

EXPORT void prime_predict(const prime_model *model, prime_workspace *ws, const float *primary, const float *secondary,
                          const float *psd, const prime_knowledge *known, const float *filter, int n_taps, double *sums,
                          prediction_figures *figures)
{
    load_path(ws, primary, 0, ws->pr, ws->pi), load_path(ws, secondary, 0, ws->sr, ws->si);
    load_path(ws, filter, n_taps, ws->prediction.wr, ws->prediction.wi);
    predict_filter(&edges[N_GRIDS - 1], &ws->prediction, ws->pr, ws->pi, ws->sr, ws->si, psd, sums);
    figures_of(sums, model->band_uncertainty, known, figures);
}
