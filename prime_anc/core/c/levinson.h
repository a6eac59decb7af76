/* Solution of symmetric Toeplitz systems of 2048 unknowns by Levinson's recursion in double precision
   (prime_anc/method/updates/toeplitz.py, solve_directly). */
#ifndef PRIME_LEVINSON_H
#define PRIME_LEVINSON_H

#include "method.h"
#include "transforms.h"

#define LEVINSON_ROOM (N_TAPS + 64) /* size of an array, zero-padded */

static inline double sum_d(vd8 a) { return ((a[0] + a[4]) + (a[1] + a[5])) + ((a[2] + a[6]) + (a[3] + a[7])); }

/* The elements one place further down: the last of `before`, then all but the last of `now`. */
#define ONE_BEHIND(before, now) __builtin_shufflevector(before, now, 7, 8, 9, 10, 11, 12, 13, 14)

/* Levinson's recursion (Golub & Van Loan, Matrix Computations, 4.7.3), two orders in one pass over memory. With y the
   solution of the Yule-Walker system of order m = k - 1, z its reverse, x the solution of order k, and the reflection
   coefficients alpha and next,

       y' = (y + alpha z, alpha),         z' = (alpha, z + alpha y),         x' = (x + mu z', mu),
       y" = (y' + next z', next),         z" = (next, z' + next y'),         x" = (x' + nu z", nu).

   alpha and mu need sums of order m; the pass also takes those that next and nu need. It works on whole vectors of
   eight over the zero padding; elements beyond the ends are added afterwards. t, rhs: [2048], zero-padded;
   space: [4 LEVINSON_ROOM]; x: [LEVINSON_ROOM]. */
static void levinson(const double *RESTRICT t, const double *RESTRICT rhs, double *RESTRICT space, double *RESTRICT x)
{
    double *backwards = space, *y = space + LEVINSON_ROOM, *z = space + 4 * LEVINSON_ROOM - 32;
    memset(space, 0, 4 * LEVINSON_ROOM * sizeof(double));
    memset(x, 0, LEVINSON_ROOM * sizeof(double));
    for (int k = 0; k < N_TAPS; k++)
        backwards[N_TAPS + 8 - k] = t[k];
    double beta = t[0];
    x[0] = rhs[0] / beta;
    /* sums over i of t[i + 1] z[i], t[i + 2] z[i], t[i + 2] y[i], t[k - i] x[i], t[k + 1 - i] x[i] */
    double sum[5] = {0, 0, 0, t[1] * x[0], t[2] * x[0]};
    for (int k = 1; k < N_TAPS; k += 2) {
        int m = k - 1;
        double alpha = -(t[k] + sum[0]) / beta, next = 0, nu = 0;
        beta *= 1 - alpha * alpha;
        double mu = (rhs[k] - sum[3]) / beta;
        if (k + 1 < N_TAPS) {
            next = -(t[k + 1] + alpha * t[1] + sum[1] + alpha * sum[2]) / beta;
            beta *= 1 - next * next;
            nu = (rhs[k + 1] - sum[4] - mu * (t[1] + sum[2] + alpha * (sum[1] + t[k + 1]))) / beta;
        }
        vd8 sums[5] = {0}, y_below = {0}, z_below = {0}, new_below = {0};
        z_below[7] = alpha, new_below[7] = next;
        const double *t_back = backwards + N_TAPS + 8 - (k + 2);
        for (int i = 0; i < m + 2; i += 8) {
            vd8 y0 = load_d(y + i), z0 = load_d(z + i), t2 = load_d(t + i + 2);
            vd8 y1 = y0 + alpha * z0, z1 = ONE_BEHIND(z_below, z0) + alpha * ONE_BEHIND(y_below, y0);
            vd8 y2 = y1 + next * z1, z2_above = z1 + next * y1, z2 = ONE_BEHIND(new_below, z2_above);
            vd8 x2 = load_d(x + i) + mu * z1 + nu * z2;
            store_d(y + i, y2), store_d(z + i - 1, z2_above), store_d(x + i, x2);
            sums[0] += load_d(t + i + 1) * z2, sums[1] += t2 * z2, sums[2] += t2 * y2;
            sums[3] += load_d(t_back + i) * x2, sums[4] += load_d(t_back + i - 1) * x2;
            y_below = y0, z_below = z0, new_below = z2_above;
        }
        for (int s = 0; s < 5; s++)
            sum[s] = sum_d(sums[s]);
        double z_end = next * alpha, x_end = mu + nu * z_end;
        y[m] += alpha, y[m + 1] += next, z[m - 1] += z_end, x[m + 1] += x_end, x[m + 2] += nu;
        z -= 2;
        z[0] = next;
        sum[0] += t[m + 2] * z_end, sum[1] += t[m + 3] * z_end, sum[2] += t[m + 2] * alpha + t[m + 3] * next;
        sum[3] += t[2] * x_end + t[1] * nu, sum[4] += t[3] * x_end + t[2] * nu;
    }
}

#undef ONE_BEHIND

/* Work space of solve_directly. */
typedef struct {
    double *re, *im;                           /* [bins] */
    double *column, *rhs, *solution, *levinson; /* [LEVINSON_ROOM], the last one four times */
    scratch_d scratch;
} direct_space;

/* Solves T x = b; T's first column and b are the first samples of the inverse transforms of symbol and (re, im), on
   every stride-th bin of the grid: zeros between them repeat the samples beyond the first. The solution of a singular
   system is not finite. */
static void solve_directly(const real_plan_d *grid, direct_space *s, const float *symbol, const float *re,
                           const float *im, int stride, float *x)
{
    int n_bins = grid->n / 2 + 1;
    memset(s->re, 0, (size_t)n_bins * sizeof(double)), memset(s->im, 0, (size_t)n_bins * sizeof(double));
    for (int k = 0; k < n_bins; k += stride)
        s->re[k] = symbol[k / stride];
    irfft_d(grid, s->scratch, s->re, NULL, s->column, N_TAPS);
    for (int k = 0; k < n_bins; k += stride)
        s->re[k] = re[k / stride], s->im[k] = im[k / stride];
    irfft_d(grid, s->scratch, s->re, s->im, s->rhs, N_TAPS);
    levinson(s->column, s->rhs, s->levinson, s->solution);
    for (int k = 0; k < N_TAPS; k++)
        x[k] = (float)s->solution[k];
}

#endif
