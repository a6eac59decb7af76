/* Solves symmetric positive-definite Toeplitz systems of 2048 unknowns directly, or by conjugate gradients with an
   approximate inverse from the Gohberg-Semencul formula as preconditioner (prime_anc/method/updates/toeplitz.py).

   A product needs a linear convolution of 2048 samples, computed as a circular one of 4096. A vector is stored as its
   1024 even samples followed by its 1024 odd samples. Taken as real and imaginary parts, and padded with zeros to 2048
   complex points, these are the input of a real transform of 4096 points without any packing; inner products do not
   depend on the order. Let E and O be the spectra of the even and odd samples of v, He and Ho those of a filter h, and
   D = exp(-2 pi i k / 2048) a delay by one pair of samples. Then

       convolution h * v:    even samples He E + D Ho O,    odd samples Ho E + He O,
       correlation:          even samples He* E + Ho* O,    odd samples D* Ho* E + He* O.

   One pass over the pairs of bins (k, 2048 - k) separates E and O, multiplies, and packs the result. */
#ifndef PRIME_TOEPLITZ_H
#define PRIME_TOEPLITZ_H

#include "method.h"
#include "minimum_phase.h"
#include "transforms.h"

/* ----- directly, by Levinson's recursion in double precision ----- */

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

/* ----- by conjugate gradients ----- */

#define PAIRS (N_TAPS / 2)
#define POINTS N_TAPS           /* complex points of the transforms */
#define COEFFICIENTS (PAIRS + 8) /* bins 0 to 1024, padded to whole vectors */
#define ROOM (POINTS + 16)

typedef struct {
    fft_plan_f plan;
    real_plan_f embedding;
    float delay_r[COEFFICIENTS], delay_i[COEFFICIENTS]; /* D */
    float turn_r[COEFFICIENTS], turn_i[COEFFICIENTS];   /* square root of D: exp(-2 pi i k / 4096) */
    float taper[N_TAPS];
} toeplitz_plan;

typedef struct {
    float zr[ROOM], zi[ROOM];
    float ur[ROOM], ui[ROOM];
    float vr[ROOM], vi[ROOM];
    float sr[ROOM], si[ROOM]; /* scratch space of the transforms */
    /* the matrix as a filter: He = a, which is real, and D Ho = br + i bi = Ho* */
    float a[COEFFICIENTS], br[COEFFICIENTS], bi[COEFFICIENTS];
    /* spectra of the even and odd samples of the generating polynomial (prime_anc/method/updates/toeplitz.py) */
    float er[COEFFICIENTS], ei[COEFFICIENTS], or[COEFFICIENTS], oi[COEFFICIENTS];
    float first; /* first sample of the polynomial, with the scale of its spectra */
    float value[N_TAPS], residual[N_TAPS], direction[N_TAPS], rhs[N_TAPS];
    float samples[2 * N_TAPS], spectrum_r[2 * N_TAPS + 16], spectrum_i[2 * N_TAPS + 16];
} toeplitz_space;

static void toeplitz_plan_init(toeplitz_plan *plan)
{
    plan->plan = fft_plan_of_f(POINTS);
    plan->embedding = real_plan_of_f(2 * N_TAPS);
    for (int k = 0; k < COEFFICIENTS; k++) {
        plan->delay_r[k] = (float)cos(2 * M_PI * k / POINTS);
        plan->delay_i[k] = (float)-sin(2 * M_PI * k / POINTS);
        plan->turn_r[k] = (float)cos(M_PI * k / POINTS);
        plan->turn_i[k] = (float)-sin(M_PI * k / POINTS);
    }
    for (int k = 0; k < N_TAPS; k++)
        plan->taper[k] = (float)exp(-constant.taper * k / N_TAPS);
}

/* Separates E and O in bins k to k + 7 of a packed spectrum z = E + i O, whose bin 2048 is a copy of bin 0. */
#define SEPARATE(E, O, z_r, z_i, k)                                                                                    \
    v8 E##r, E##i, O##r, O##i;                                                                                         \
    {                                                                                                                  \
        v8 ar = load8((z_r) + (k)), ai = load8((z_i) + (k));                                                           \
        v8 br = reversed8(load8((z_r) + POINTS - (k)-7)), bi = reversed8(load8((z_i) + POINTS - (k)-7));               \
        E##r = (ar + br) * 0.5f, E##i = (ai - bi) * 0.5f, O##r = (ai + bi) * 0.5f, O##i = (br - ar) * 0.5f;            \
    }

/* The inverse of SEPARATE: z[k] = E + i O, z[2048 - k] = E* + i O*. */
#define JOIN(z_r, z_i, k, Er, Ei, Or, Oi)                                                                              \
    store8((z_r) + (k), (Er) - (Oi)), store8((z_i) + (k), (Ei) + (Or));                                                \
    store8((z_r) + POINTS - (k)-7, reversed8((Er) + (Oi))), store8((z_i) + POINTS - (k)-7, reversed8((Or) - (Ei)));

static void forward_product(const toeplitz_plan *plan, toeplitz_space *s, half filled, const float *in_r,
                            const float *in_i, float *zr, float *zi)
{
    fft_f(&plan->plan, filled, WHOLE, in_r, in_i, zr, zi, s->sr, s->si);
    zr[POINTS] = zr[0], zi[POINTS] = zi[0];
}

static void inverse_product(const toeplitz_plan *plan, toeplitz_space *s, half wanted, float *zr, float *zi)
{
    fft_f(&plan->plan, WHOLE, wanted, zi, zr, zi, zr, s->si, s->sr);
}

/* Computes T v for a vector in the order above; even samples of the product in s->ur, odd samples in s->ui. */
static void multiply(const toeplitz_plan *plan, toeplitz_space *RESTRICT s, const float *vector)
{
    forward_product(plan, s, FIRST_HALF, vector, vector + PAIRS, s->zr, s->zi);
    for (int k = 0; k <= PAIRS; k += WIDTH) {
        SEPARATE(E, O, s->zr, s->zi, k)
        v8 a = load8(s->a + k), br = load8(s->br + k), bi = load8(s->bi + k);
        v8 er = a * Er + br * Or - bi * Oi, ei = a * Ei + br * Oi + bi * Or;
        v8 or = br * Er + bi * Ei + a * Or, oi = br * Ei - bi * Er + a * Oi;
        JOIN(s->ur, s->ui, k, er, ei, or, oi)
    }
    inverse_product(plan, s, FIRST_HALF, s->ur, s->ui);
}

/* Approximates T^-1 v by (L(a) L(a)^T - L(b) L(b)^T) v, with a the generating polynomial and b = (0, a[n-1], ..., a[1]).
   L(a)^T v is the first half of a correlation with a. L(b)^T v is the second half of a convolution with a; it stays in
   the second half, so that the second product needs no shift. Even samples of the result in s->zr, odd in s->zi. */
static void precondition(const toeplitz_plan *plan, toeplitz_space *RESTRICT s, const float *vector)
{
    forward_product(plan, s, FIRST_HALF, vector, vector + PAIRS, s->zr, s->zi);
    for (int k = 0; k <= PAIRS; k += WIDTH) {
        SEPARATE(E, O, s->zr, s->zi, k)
        v8 ar = load8(s->er + k), ai = load8(s->ei + k), cr = load8(s->or + k), ci = load8(s->oi + k);
        v8 dr = load8(plan->delay_r + k), di = load8(plan->delay_i + k);
        v8 dcr = dr * cr - di * ci, dci = dr * ci + di * cr; /* D Ao */
        v8 er = ar * Er + ai * Ei + cr * Or + ci * Oi, ei = ar * Ei - ai * Er + cr * Oi - ci * Or;
        v8 or = dcr * Er + dci * Ei + ar * Or + ai * Oi, oi = dcr * Ei - dci * Er + ar * Oi - ai * Or;
        JOIN(s->ur, s->ui, k, er, ei, or, oi)
        er = ar * Er - ai * Ei + dcr * Or - dci * Oi, ei = ar * Ei + ai * Er + dcr * Oi + dci * Or;
        or = cr * Er - ci * Ei + ar * Or - ai * Oi, oi = cr * Ei + ci * Er + ar * Oi + ai * Or;
        JOIN(s->vr, s->vi, k, er, ei, or, oi)
    }
    inverse_product(plan, s, FIRST_HALF, s->ur, s->ui);
    inverse_product(plan, s, SECOND_HALF, s->vr, s->vi);
    forward_product(plan, s, FIRST_HALF, s->ur, s->ui, s->ur, s->ui);
    forward_product(plan, s, SECOND_HALF, s->vr, s->vi, s->vr, s->vi);
    v8 first = splat8(s->first);
    for (int k = 0; k <= PAIRS; k += WIDTH) {
        SEPARATE(E, O, s->ur, s->ui, k)
        SEPARATE(F, P, s->vr, s->vi, k)
        v8 ar = load8(s->er + k), ai = load8(s->ei + k), cr = load8(s->or + k), ci = load8(s->oi + k);
        v8 dr = load8(plan->delay_r + k), di = load8(plan->delay_i + k);
        v8 dcr = dr * cr - di * ci, dci = dr * ci + di * cr, rest = ar - first;
        v8 er = ar * Er - ai * Ei + dcr * Or - dci * Oi - (rest * Fr + ai * Fi + cr * Pr + ci * Pi);
        v8 ei = ar * Ei + ai * Er + dcr * Oi + dci * Or - (rest * Fi - ai * Fr + cr * Pi - ci * Pr);
        v8 or = cr * Er - ci * Ei + ar * Or - ai * Oi - (dcr * Fr + dci * Fi + rest * Pr + ai * Pi);
        v8 oi = cr * Ei + ci * Er + ar * Oi + ai * Or - (dcr * Fi - dci * Fr + rest * Pi - ai * Pr);
        JOIN(s->zr, s->zi, k, er, ei, or, oi)
    }
    inverse_product(plan, s, FIRST_HALF, s->zr, s->zi);
}

/* Computes the eigenvalues of the circulant matrix of size 4096 that has T as its upper left block, from the first column of T. */
static void set_matrix(const toeplitz_plan *plan, toeplitz_space *s, const float *column)
{
    scratch_f scratch = {s->zr, s->zi, s->sr, s->si};
    memcpy(s->samples, column, N_TAPS * sizeof(float));
    s->samples[N_TAPS] = 0;
    for (int k = 1; k < N_TAPS; k++)
        s->samples[2 * N_TAPS - k] = column[k];
    rfft_f(&plan->embedding, scratch, s->samples, 2 * N_TAPS, s->spectrum_r, s->spectrum_i);
    const float scale = 0.5f / POINTS;
    for (int k = 0; k < COEFFICIENTS; k++) {
        float here = s->spectrum_r[k], there = s->spectrum_r[POINTS - k], b = (here - there) * scale;
        s->a[k] = (here + there) * scale;
        s->br[k] = b * plan->turn_r[k], s->bi[k] = b * plan->turn_i[k];
    }
}

/* Computes the spectra of the generating polynomial: the impulse response of 1 / F, with F the minimum-phase factor of the symbol
   |F|^2, cut after 2048 samples and tapered. phase->log_gain: -0.5 times the symbol's log, padded to a whole vector. */
static void set_preconditioner(const toeplitz_plan *plan, toeplitz_space *s, phase_space *phase, const real_plan_f *grid)
{
    minimum_phase_response(grid, phase, phase->response_r, phase->response_i);
    irfft_f(grid, phase->scratch, phase->response_r, phase->response_i, s->samples, N_TAPS);
    const float scale = 1.0f / POINTS;
    for (int k = 0; k < PAIRS; k++) {
        s->vr[k] = s->samples[2 * k] * plan->taper[2 * k] * scale;
        s->vi[k] = s->samples[2 * k + 1] * plan->taper[2 * k + 1] * scale;
    }
    s->first = s->vr[0];
    forward_product(plan, s, FIRST_HALF, s->vr, s->vi, s->zr, s->zi);
    for (int k = 0; k <= PAIRS; k += WIDTH) {
        SEPARATE(E, O, s->zr, s->zi, k)
        store8(s->er + k, Er), store8(s->ei + k, Ei), store8(s->or + k, Or), store8(s->oi + k, Oi);
    }
}

/* Improves x [2048] by conjugate gradients on T x = b, T and the preconditioner M being set: at most n_iterations,
   fewer where |r| <= tolerance |b|, r = b - T x, or |M^-1 r|, which is about x's error, <= error |x|. is_zero: x is not
   read, and taken for zero. Returns |r| / |b|; *is_near: whether the error is so small. */
static float conjugate_gradients(const toeplitz_plan *plan, toeplitz_space *s, const float *rhs, int preconditioned,
                                 int n_iterations, float tolerance, float error, int is_zero, float *x, int *is_near)
{
    *is_near = 0;
    for (int k = 0; k < PAIRS; k++)
        s->residual[k] = rhs[2 * k], s->residual[PAIRS + k] = rhs[2 * k + 1];
    float norm = dot_product(s->residual, s->residual, N_TAPS), remaining = norm, previous = 1;
    memset(s->value, 0, sizeof s->value);
    memset(s->direction, 0, sizeof s->direction);
    if (!is_zero) {
        for (int k = 0; k < PAIRS; k++)
            s->value[k] = x[2 * k], s->value[PAIRS + k] = x[2 * k + 1];
        multiply(plan, s, s->value);
        for (int k = 0; k < PAIRS; k++)
            s->residual[k] -= s->ur[k], s->residual[PAIRS + k] -= s->ui[k];
        remaining = dot_product(s->residual, s->residual, N_TAPS);
    }
    for (int iteration = 0; iteration < n_iterations && !(remaining <= tolerance * tolerance * norm); iteration++) {
        const float *even = s->residual, *odd = s->residual + PAIRS;
        if (preconditioned) {
            precondition(plan, s, s->residual);
            even = s->zr, odd = s->zi;
        }
        if (error > 0) {
            float squares = dot_product(even, even, PAIRS) + dot_product(odd, odd, PAIRS);
            if ((*is_near = squares <= error * error * dot_product(s->value, s->value, N_TAPS)))
                break;
        }
        float energy = dot_product(s->residual, even, PAIRS) + dot_product(s->residual + PAIRS, odd, PAIRS);
        float share = energy / previous;
        for (int k = 0; k < PAIRS; k++) {
            s->direction[k] = s->direction[k] * share + even[k];
            s->direction[PAIRS + k] = s->direction[PAIRS + k] * share + odd[k];
        }
        multiply(plan, s, s->direction);
        float curvature = dot_product(s->direction, s->ur, PAIRS) + dot_product(s->direction + PAIRS, s->ui, PAIRS);
        /* The iteration ends if the matrix or the preconditioner turns out not to be positive definite. NaN is passed
           on to the solution, so that the caller rejects it. */
        if (!(energy > TINY && curvature > TINY)) {
            if (isnan(energy) || isnan(curvature))
                s->value[0] = NAN;
            break;
        }
        float step = energy / curvature;
        for (int k = 0; k < N_TAPS; k++)
            s->value[k] += step * s->direction[k];
        for (int k = 0; k < PAIRS; k++) {
            s->residual[k] -= step * s->ur[k];
            s->residual[PAIRS + k] -= step * s->ui[k];
        }
        remaining = dot_product(s->residual, s->residual, N_TAPS);
        previous = energy;
    }
    for (int k = 0; k < PAIRS; k++)
        x[2 * k] = s->value[k], x[2 * k + 1] = s->value[PAIRS + k];
    return sqrtf(remaining / (norm > TINY ? norm : TINY));
}

/* Solves T x = b with T[m, n] = t[|m - n|], t the inverse transform of the symbol on the grid. symbol: real, positive,
   [n_bins], padded with positive values to a whole vector. rhs: b, [2048]. x: [2048]. Returns |b - T x| / |b|. */
static float solve_toeplitz(const toeplitz_plan *plan, toeplitz_space *s, phase_space *phase, const real_plan_f *grid,
                            const float *symbol, const float *rhs, int preconditioned, int n_iterations,
                            float tolerance, float *x)
{
    int is_near;
    irfft_f(grid, phase->scratch, symbol, NULL, s->rhs, N_TAPS);
    set_matrix(plan, s, s->rhs);
    if (preconditioned) {
        for (int k = 0; k < grid->n / 2 + 1; k += WIDTH)
            store8(phase->log_gain + k, log8(at_least8(load8(symbol + k), splat8(TINY))) * -0.5f);
        set_preconditioner(plan, s, phase, grid);
    }
    return conjugate_gradients(plan, s, rhs, preconditioned, n_iterations, tolerance, 0, 1, x, &is_near);
}

#undef SEPARATE
#undef JOIN

#endif
