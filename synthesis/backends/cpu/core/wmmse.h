/* The weighted least-squares reference by a direct double-precision solve (synthesis/wiener.py, Eq. 7). */
#ifndef PRIME_WMMSE_H
#define PRIME_WMMSE_H

#include "bands.h"
#include "transforms.h"

typedef struct {
    double *weight, *power, *re, *im, *column, *rhs, *forward, *solution; /* [bins] four times, then [2048] */
    scratch_d scratch;
} wmmse_space;

/* Levinson's recursion for a symmetric Toeplitz matrix (Golub & Van Loan, Matrix Computations, 4.7.3). forward: the
   solution of the Yule-Walker system of each order. */
static void levinson(const double *column, const double *rhs, double *RESTRICT forward, double *RESTRICT solution)
{
    double beta = column[0];
    double *reverse = forward + N_TAPS; /* forward backwards, so that both loops run upwards */
    solution[0] = rhs[0] / beta;
    for (int k = 1; k < N_TAPS; k++) {
        /* forward y of order k - 1 solves T y = -r; reflection alpha extends it */
        double sums[8] = {0}, dot = 0, mu = 0;
        for (int i = 0; i + 8 <= k - 1; i += 8)
            for (int j = 0; j < 8; j++)
                sums[j] += column[1 + i + j] * reverse[N_TAPS - (k - 1) + i + j];
        for (int i = (k - 1) / 8 * 8; i < k - 1; i++)
            dot += column[1 + i] * reverse[N_TAPS - (k - 1) + i];
        for (int j = 0; j < 8; j++)
            dot += sums[j], sums[j] = 0;
        double alpha = -(column[k] + dot) / beta;
        beta *= 1 - alpha * alpha;
        /* y := y + alpha * reversed y, then alpha; both orders are kept */
        int m = k - 1;
        double *back = reverse + N_TAPS - m; /* back[i] = forward[m - 1 - i] */
        for (int i = 0; i < m; i++) {
            double f = forward[i], b = back[i];
            forward[i] = f + alpha * b;
            back[i] = b + alpha * f;
        }
        forward[m] = alpha;
        back[-1] = alpha;
        back -= 1; /* now of order k: back[i] = forward[k - 1 - i] */
        for (int i = 0; i + 8 <= k; i += 8)
            for (int j = 0; j < 8; j++)
                sums[j] += solution[i + j] * column[k - i - j];
        for (int i = k / 8 * 8; i < k; i++)
            mu += solution[i] * column[k - i];
        for (int j = 0; j < 8; j++)
            mu += sums[j];
        mu = (rhs[k] - mu) / beta;
        for (int i = 0; i < k; i++)
            solution[i] += mu * back[i];
        solution[k] = mu;
    }
}

/* The weight of each bin, and the start of the sums over conditions. psd: on the design grid. */
static void begin_wmmse(const band_edges *bands, wmmse_space *s, const float *psd)
{
    double sum = 0, *weight = s->weight;
    int low = bands->edge[NR_FIRST], high = bands->edge[NR_FIRST + NR_COUNT];
    memset(weight, 0, N_BINS * sizeof(double));
    for (int b = NR_FIRST; b < NR_FIRST + NR_COUNT; b++)
        for (int k = bands->edge[b]; k < bands->edge[b + 1]; k++)
            sum += weight[k] = (double)psd[k] / (bands->edge[b + 1] - bands->edge[b]);
    double mean = sum / (high - low), scale = 1 / (mean > 2.2250738585072014e-308 ? mean : 2.2250738585072014e-308);
    for (int k = 0; k < N_BINS; k++)
        weight[k] *= scale, s->power[k] = s->re[k] = s->im[k] = 0;
}

/* Adds a condition's normal equations, times its share. */
static void add_to_wmmse(wmmse_space *s, double share, const float *pr, const float *pi, const float *sr, const float *si)
{
    for (int k = 0; k < N_BINS; k++) {
        double w = s->weight[k], a = pr[k], b = pi[k], x = sr[k], y = si[k];
        s->power[k] += share * (w * (x * x + y * y));
        s->re[k] += share * (w * (x * a + y * b));
        s->im[k] += share * (w * (x * b - y * a));
    }
}

static void solve_wmmse(const real_plan_d *plan, wmmse_space *s, float *taps)
{
    double power_sum = 0;
    for (int k = 0; k < N_BINS; k++)
        power_sum += s->power[k];
    irfft_d(plan, s->scratch, s->power, NULL, s->column, N_TAPS);
    irfft_d(plan, s->scratch, s->re, s->im, s->rhs, N_TAPS);
    for (int k = 0; k < N_TAPS; k++)
        s->column[k] *= DESIGN_N_FFT / 2, s->rhs[k] *= DESIGN_N_FFT / 2;
    s->column[0] += WMMSE_REGULARISATION * power_sum;
    if (!(s->column[0] > 0)) /* no secondary path in any band: the least filter is none */
        s->column[0] = 1;
    levinson(s->column, s->rhs, s->forward, s->solution);
    for (int k = 0; k < N_TAPS; k++)
        taps[k] = (float)s->solution[k];
}

#endif
