/* The weighted least-squares reference by a direct double-precision solve (prime_anc/method/start/wiener.py, theory (11)). */
#ifndef PRIME_WIENER_H
#define PRIME_WIENER_H

#include "bands.h"
#include "toeplitz.h"
#include "transforms.h"

#define RIVAL_ITERATIONS 16 /* at most */
#define RIVAL_ERROR 0.01f   /* of the taps, about, at which they end */

typedef struct {
    double *weight, *power, *re, *im; /* [bins], zero outside low to high - 1 */
    int low, high;
    double *column, *rhs, *solution;  /* [LEVINSON_ROOM] */
    double *levinson;                 /* [4 LEVINSON_ROOM] */
    scratch_d scratch;
    float *symbol, *re_single, *im_single; /* [bins] */
} wmmse_space;

/* The weight of each bin, and the start of the sums over conditions. psd: on the design grid. */
static void begin_wmmse(const band_edges *bands, wmmse_space *s, const float *psd)
{
    double sum = 0, *weight = s->weight;
    int low = s->low = bands->edge[NR_FIRST], high = s->high = bands->edge[NR_FIRST + NR_COUNT];
    for (int b = NR_FIRST; b < NR_FIRST + NR_COUNT; b++)
        for (int k = bands->edge[b]; k < bands->edge[b + 1]; k++)
            sum += weight[k] = (double)psd[k] / (bands->edge[b + 1] - bands->edge[b]);
    double mean = sum / (high - low), scale = 1 / (mean > 2.2250738585072014e-308 ? mean : 2.2250738585072014e-308);
    for (int k = low; k < high; k++)
        weight[k] *= scale, s->power[k] = s->re[k] = s->im[k] = 0;
}

/* Adds a condition's normal equations, times its share. */
static void add_to_wmmse(wmmse_space *s, double share, const float *pr, const float *pi, const float *sr, const float *si)
{
    for (int k = s->low; k < s->high; k++) {
        double w = s->weight[k], a = pr[k], b = pi[k], x = sr[k], y = si[k];
        s->power[k] += share * (w * (x * x + y * y));
        s->re[k] += share * (w * (x * a + y * b));
        s->im[k] += share * (w * (x * b - y * a));
    }
}

static void solve_wmmse(const real_plan_d *plan, wmmse_space *s, float *taps)
{
    double power_sum = 0;
    for (int k = s->low; k < s->high; k++)
        power_sum += s->power[k];
    irfft_d(plan, s->scratch, s->power, NULL, s->column, N_TAPS);
    irfft_d(plan, s->scratch, s->re, s->im, s->rhs, N_TAPS);
    for (int k = 0; k < N_TAPS; k++)
        s->column[k] *= DESIGN_N_FFT / 2, s->rhs[k] *= DESIGN_N_FFT / 2;
    s->column[0] += constant.wmmse_regularisation * power_sum;
    if (!(s->column[0] > 0)) /* no secondary path in any band: the least filter is none */
        s->column[0] = 1;
    levinson(s->column, s->rhs, s->levinson, s->solution);
    for (int k = 0; k < N_TAPS; k++)
        taps[k] = (float)s->solution[k];
}

/* About the same by conjugate gradients in single precision, in a quarter of the time, from taps [2048] that are a good
   filter already. The preconditioner's symbol is the matrix', its logarithm smoothed as far as 2048 taps resolve: it
   spans 65 dB, with steps at the bands' edges. fine: the design grid; grid: of a quarter of its points. Returns whether
   it has come near: then the noise reduction is within 0.05 dB of the direct solve's. */
static int approach_wmmse(const real_plan_f *fine, const real_plan_f *grid, const toeplitz_plan *plan,
                          toeplitz_space *solver, phase_space *phase, wmmse_space *s, float *taps)
{
    enum { REACH = 8, STRIDE = 4 };
    float kernel[2 * REACH + 1], *log_symbol = phase->response_r, rhs[N_TAPS];
    int is_near;
    double sum = 0;
    for (int k = s->low; k < s->high; k++)
        sum += s->power[k];
    const float n = DESIGN_N_FFT / 2, floor = (float)(constant.wmmse_regularisation * sum);
    memset(s->symbol, 0, N_BINS * sizeof(float));
    memset(s->re_single, 0, N_BINS * sizeof(float)), memset(s->im_single, 0, N_BINS * sizeof(float));
    for (int k = s->low; k < s->high; k++)
        s->symbol[k] = n * (float)s->power[k], s->re_single[k] = n * (float)s->re[k], s->im_single[k] = n * (float)s->im[k];
    irfft_f(fine, phase->scratch, s->re_single, s->im_single, rhs, N_TAPS);
    irfft_f(fine, phase->scratch, s->symbol, NULL, solver->rhs, N_TAPS);
    solver->rhs[0] += floor > 0 ? floor : 1;
    set_matrix(plan, solver, solver->rhs);

    int n_logs = s->high + 3 * REACH, n_smoothed = (s->high + REACH) / STRIDE + 1; /* beyond, the symbol is constant */
    for (int k = 0; k < n_logs; k += WIDTH)
        store8(log_symbol + k, log8(at_least8(load8(s->symbol + k) + floor, splat8(TINY))));
    for (int i = -REACH; i <= REACH; i++)
        kernel[i + REACH] = -0.5f * (float)(pow(cos(M_PI * i / (2 * REACH + 2)), 2) / (REACH + 1));
    for (int j = 0; j < n_smoothed; j++) {
        float smoothed = 0;
        for (int i = -REACH; i <= REACH; i++)
            smoothed += kernel[i + REACH] * log_symbol[abs(STRIDE * j + i)];
        phase->log_gain[j] = smoothed;
    }
    for (int j = n_smoothed; j < grid->n / 2 + WIDTH; j++)
        phase->log_gain[j] = -0.5f * log_symbol[n_logs - 1];
    set_preconditioner(plan, solver, phase, grid);
    conjugate_gradients(plan, solver, rhs, 1, RIVAL_ITERATIONS, 0, RIVAL_ERROR, 0, taps, &is_near);
    return is_near;
}

#endif
