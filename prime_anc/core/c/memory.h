/* Plans of all grids, models that threads share, and workspaces of one thread each. Memory is allocated when a model or
   workspace is created, never during a design. */
#ifndef PRIME_MEMORY_H
#define PRIME_MEMORY_H

#include "core.h"

#include "ceiling.h"
#include "features.h"
#include "fir_wiener.h"
#include "generator.h"
#include "predict.h"
#include "unknown.h"
#include "wiener.h"

#define EXPORT __attribute__((visibility("default")))
#define N_GRIDS 4 /* of 4096, 8192, 16384 and 32768 points */
#define MAX_BLOCKS 512

static real_plan_f plans[N_GRIDS], coarse_plan;
static real_plan_d double_plan;
static band_edges edges[N_GRIDS], coarse_edges;
static toeplitz_plan toeplitz;
static float *per_octave[N_GRIDS]; /* weights of the penalty on |W|; they sum to one, equally per octave */

static int grid_of(int n_fft)
{
    int grid = 0;
    while (4096 << grid < n_fft)
        grid++;
    return grid;
}

/* Memory that is freed as a whole. */
typedef struct {
    void *blocks[MAX_BLOCKS];
    int n, failed;
} arena;

static void *take(arena *a, size_t bytes)
{
    size_t whole = (bytes + 127) / 64 * 64; /* one more vector, which the last vector operation may overrun */
    void *p = a->n < MAX_BLOCKS ? aligned_alloc(64, whole) : NULL;
    if (!p) {
        a->failed = 1;
        return NULL;
    }
    memset(p, 0, whole);
    return a->blocks[a->n++] = p;
}

static void release(arena *a)
{
    while (a->n)
        free(a->blocks[--a->n]);
}

static void *copied(arena *a, const void *from, size_t bytes)
{
    void *p = take(a, bytes);
    if (p)
        memcpy(p, from, bytes);
    return p;
}

struct prime_model {
    arena memory;
    int n_fft, is_held, is_fir_wiener;
    generator network;
    point_grid grid;
    wiener_start start;
    const double *band_uncertainty;
};

struct prime_workspace {
    arena memory;
    phase_space phase;
    toeplitz_space *solver;
    generator_space network;
    feature_space features;
    wiener_space wiener;
    refinement_space refinement;
    ceiling_space ceiling;
    condition_space conditions[MAX_CONDITIONS];
    int n_reserved; /* conditions that have memory */
    prediction_space prediction;
    wmmse_space wmmse;
    float *pr, *pi, *sr, *si;     /* the paths on the design grid */
    float *gpr, *gpi, *gsr, *gsi; /* on the generator's grid */
    float *psd;
    double *exact, *exact_r, *exact_i; /* a response, [32768], and its spectrum */
};

static const float *next_tensor(const float **weights, size_t n)
{
    const float *here = *weights;
    *weights += n;
    return here;
}

static convolution convolution_of(arena *a, const float **weights, int n_in, int n_out, int kernel, int dilation)
{
    const float *weight = next_tensor(weights, (size_t)n_out * n_in * kernel), *bias = next_tensor(weights, n_out);
    int groups = (n_out + OUTPUTS_AT_ONCE - 1) / OUTPUTS_AT_ONCE;
    float *laid_out = take(a, sizeof(float) * groups * OUTPUTS_AT_ONCE * n_in * kernel);
    if (laid_out)
        for (int o = 0; o < n_out; o++)
            for (int i = 0; i < n_in * kernel; i++)
                laid_out[((size_t)(o / OUTPUTS_AT_ONCE) * n_in * kernel + i) * OUTPUTS_AT_ONCE + o % OUTPUTS_AT_ONCE] =
                    weight[(size_t)o * n_in * kernel + i];
    convolution c = {n_in, n_out, kernel, dilation, laid_out, copied(a, bias, sizeof(float) * n_out)};
    return c;
}

static group_norm norm_of(arena *a, const float **weights, int n)
{
    const float *scale = next_tensor(weights, n), *shift = next_tensor(weights, n);
    group_norm norm = {copied(a, scale, sizeof(float) * n), copied(a, shift, sizeof(float) * n)};
    return norm;
}

EXPORT void prime_model_free(prime_model *model)
{
    if (!model)
        return;
    release(&model->memory);
    free(model);
}

EXPORT prime_model *prime_model_create(const prime_parameters *p)
{
    prime_model *model = calloc(1, sizeof *model);
    if (!model)
        return NULL;
    arena *a = &model->memory;
    int n_bins = p->n_fft / 2 + 1, widest = p->kernel_size / 2, width = p->n_channels;
    model->n_fft = p->n_fft, model->is_held = p->is_held, model->is_fir_wiener = p->is_fir_wiener;

    generator *g = &model->network;
    g->n_channels = width, g->n_groups = p->n_groups, g->n_points = p->n_points, g->bound = p->bound;
    g->n_outputs = p->is_fir_wiener ? 2 : 1, g->n_blocks = p->n_blocks, g->has_head_norm = p->has_head_norm;
    const float *w = p->weights;
    g->stem = convolution_of(a, &w, N_FEATURES, width, p->kernel_size, 1);
    g->stem_norm = norm_of(a, &w, width);
    for (int b = 0; b < p->n_blocks; b++) {
        int reach = p->dilations[b] * (p->kernel_size / 2);
        widest = reach > widest ? reach : widest;
        g->first[b] = convolution_of(a, &w, width, width, p->kernel_size, p->dilations[b]);
        g->first_norm[b] = norm_of(a, &w, width);
        g->second[b] = convolution_of(a, &w, width, width, p->kernel_size, p->dilations[b]);
        g->second_norm[b] = norm_of(a, &w, width);
    }
    g->head = convolution_of(a, &w, width, width, 1, 1);
    if (p->has_head_norm)
        g->head_norm = norm_of(a, &w, width);
    g->last = convolution_of(a, &w, width, g->n_outputs, 1, 1);
    g->margin = (widest + WIDTH - 1) / WIDTH * WIDTH;
    g->row = 2 * g->margin + (p->n_points + 2 * WIDTH - 1) / (2 * WIDTH) * 2 * WIDTH;

    point_grid *grid = &model->grid;
    grid->n_points = p->n_points, grid->is_linear = p->is_linear;
    grid->frequency = copied(a, p->frequency, sizeof(float) * p->n_points);
    if (!p->is_linear) {
        size_t n_weights = 0;
        for (int j = 0; j < p->n_points; j++)
            n_weights += p->pool_count[j];
        grid->first = copied(a, p->pool_first, sizeof(int) * p->n_points);
        grid->count = copied(a, p->pool_count, sizeof(int) * p->n_points);
        grid->weights = copied(a, p->pool_weights, sizeof(float) * n_weights);
        grid->lower = copied(a, p->lower, sizeof(int) * n_bins);
        grid->fraction = copied(a, p->fraction, sizeof(float) * n_bins);
    }
    model->start.weight = copied(a, p->start_weight, sizeof(float) * p->n_points);
    model->start.penalty = copied(a, p->start_penalty, sizeof(float) * p->n_points);
    model->start.ceiling = copied(a, p->start_ceiling, sizeof(float) * p->n_points);
    model->start.average = copied(a, p->start_average, sizeof(float) * p->n_points);
    model->band_uncertainty = copied(a, p->band_uncertainty, sizeof(double) * N_BANDS);
    if (a->failed) {
        prime_model_free(model);
        return NULL;
    }
    return model;
}

EXPORT void prime_workspace_free(prime_workspace *ws)
{
    if (!ws)
        return;
    release(&ws->memory);
    free(ws);
}

EXPORT int prime_workspace_reserve(prime_workspace *ws, int n_conditions)
{
    if (n_conditions > MAX_CONDITIONS)
        return 0;
    for (; ws->n_reserved < n_conditions; ws->n_reserved++) {
        condition_space *c = &ws->conditions[ws->n_reserved];
        float **per_bin[] = {&c->pr, &c->pi, &c->sr, &c->si, &c->secondary_power, &c->weight, &c->er, &c->ei, &c->cr, &c->ci};
        for (size_t i = 0; i < sizeof per_bin / sizeof *per_bin; i++)
            *per_bin[i] = take(&ws->memory, sizeof(float) * N_BINS);
        if (ws->memory.failed)
            return 0;
    }
    return 1;
}

EXPORT prime_workspace *prime_workspace_create(const prime_model *model)
{
    prime_workspace *ws = calloc(1, sizeof *ws);
    if (!ws)
        return NULL;
    arena *a = &ws->memory;
    const size_t bins = sizeof(float) * N_BINS, points = sizeof(float) * DESIGN_N_FFT, taps = sizeof(float) * N_TAPS;
    float **per_bin[] = {
        &ws->pr, &ws->pi, &ws->sr, &ws->si, &ws->gpr, &ws->gpi, &ws->gsr, &ws->gsi,
        &ws->psd, &ws->ceiling.inverse, &ws->ceiling.requested, &ws->ceiling.multiplier, &ws->ceiling.wanted, &ws->phase.log_gain, &ws->phase.phase_r, &ws->phase.phase, &ws->phase.response_r, &ws->phase.response_i,
        &ws->features.log_base, &ws->wiener.spread[0], &ws->wiener.spread[1], &ws->wiener.spread[2], &ws->wiener.symbol,
        &ws->wiener.matched_r, &ws->wiener.matched_i, &ws->wiener.log_ceiling, &ws->wiener.log_gain,
        &ws->refinement.inverse_ceiling, &ws->refinement.wr, &ws->refinement.wi, &ws->refinement.dr, &ws->refinement.di,
        &ws->refinement.symbol, &ws->refinement.descent_r, &ws->refinement.descent_i, &ws->refinement.power,
        &ws->prediction.power, &ws->prediction.wr, &ws->prediction.wi, &ws->prediction.second, &ws->prediction.third,
        &ws->prediction.fourth, &ws->prediction.fifth,
        /* per point of the generator's grid, at most one point per bin */
        &ws->features.log_primary, &ws->features.log_secondary, &ws->features.log_ratio, &ws->wiener.terms[0],
        &ws->wiener.terms[1], &ws->wiener.terms[2],
    };
    for (size_t i = 0; i < sizeof per_bin / sizeof *per_bin; i++)
        *per_bin[i] = take(a, bins);
    for (int i = 0; i < N_COLUMNS; i++)
        ws->features.column[i] = take(a, bins);
    scratch_f scratch = {take(a, points / 2), take(a, points / 2), take(a, points / 2), take(a, points / 2)};
    ws->phase.scratch = ws->prediction.scratch = scratch;
    ws->phase.cepstrum = ws->prediction.response = take(a, points);
    ws->solver = take(a, sizeof *ws->solver);
    ws->refinement.step = take(a, taps), ws->refinement.gradient = take(a, taps), ws->wiener.rhs = take(a, taps);
    size_t rows = sizeof(float) * model->network.row * (model->network.n_channels > N_FEATURES ? model->network.n_channels : N_FEATURES);
    ws->network.hidden = take(a, rows), ws->network.inner = take(a, rows), ws->network.input = take(a, rows);
    wmmse_space *w = &ws->wmmse;
    w->weight = take(a, 2 * bins), w->power = take(a, 2 * bins), w->re = take(a, 2 * bins), w->im = take(a, 2 * bins);
    const size_t room = sizeof(double) * LEVINSON_ROOM;
    w->column = take(a, room), w->rhs = take(a, room), w->solution = take(a, room), w->levinson = take(a, 4 * room);
    ws->exact = take(a, 2 * points), ws->exact_r = take(a, 2 * bins), ws->exact_i = take(a, 2 * bins);
    scratch_d wide = {take(a, points), take(a, points), take(a, points), take(a, points)};
    w->scratch = wide;
    direct_space direct = {take(a, 2 * bins), take(a, 2 * bins), w->column, w->rhs, w->solution, w->levinson, wide};
    ws->refinement.direct = direct, ws->refinement.direct_grid = &double_plan;
    w->symbol = take(a, bins), w->re_single = take(a, bins), w->im_single = take(a, bins);
    ws->refinement.conditions = ws->conditions;
    if (a->failed || !prime_workspace_reserve(ws, 1)) {
        prime_workspace_free(ws);
        return NULL;
    }
    return ws;
}

#endif
