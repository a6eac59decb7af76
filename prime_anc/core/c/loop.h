/* The loop S K of a controller alone, and its extremes (prime_anc/method/loop.py, judge_loop). */
#ifndef PRIME_LOOP_H
#define PRIME_LOOP_H

#include "beside.h"

/* controller: K on the design grid, interleaved, [16385]; between: K at `places`, n, by rising frequency in bins. */
typedef struct {
    const float *controller;
    const double *places, *between;
    int32_t n;
} inner_controller;

/* largest: |L| on the negative real axis; phase_margin: in rad, from -1 where |L| is one; peak, nearest: |L| and |1 + L|,
   at these places among bins and the controller's, by rising frequency. */
typedef struct {
    double largest, phase_margin, peak, nearest;
    int32_t stable, peak_at, nearest_at;
} loop_extremes;

/* Where a value is the largest, by lane. */
typedef struct {
    v8 most;
    v8i at;
} running_extreme;

static void note_extreme(running_extreme *e, v8 x, int k)
{
    v8i is_more = x > e->most;
    e->most = select8(is_more, x, e->most);
    e->at = (is_more & (k + (v8i){0, 1, 2, 3, 4, 5, 6, 7})) | (~is_more & e->at);
}

static int place_of(const running_extreme *e)
{
    float most = largest8(e->most);
    int at = INT32_MAX;
    for (int lane = 0; lane < WIDTH; lane++)
        if (e->most[lane] == most && e->at[lane] < at)
            at = e->at[lane];
    return at;
}

/* Adds what happens between two neighbouring points, from one of which to the other the loop turns and grows evenly;
   returns by how many turns 1 + L passes the negative axis. */
static int between_points(double ar, double ai, double br, double bi, loop_extremes *found)
{
    double here = ar * ar + ai * ai, there = br * br + bi * bi;
    int turns = 0, is_below = ai < 0, may_cross = is_below != (bi < 0) && fmax(here, there) > pow(fmin(found->largest, 1), 2);
    int is_one = (here - 1) * (there - 1) <= 0;
    if (ai == 0)
        found->largest = fmax(found->largest, -ar);
    if (bi == 0)
        found->largest = fmax(found->largest, -br);
    if (here == 0 || there == 0 || !(may_cross || is_one))
        return 0;
    double angle = atan2(bi * ar - br * ai, ar * br + ai * bi), from = atan2(-ai, -ar), rise = log(there / here);
    if (may_cross && (angle > 0) == !is_below) {
        double gain = sqrt(here) * exp(-from / angle * rise / 2);
        found->largest = fmax(found->largest, gain);
        turns = gain > 1 ? (is_below ? -1 : 1) : 0;
    }
    if (is_one) {
        double at = from - (rise != 0 ? log(here) / rise : 0) * angle;
        found->phase_margin = fmin(found->phase_margin, fabs(remainder(at, 2 * M_PI)));
    }
    return turns;
}

/* Judges a loop of n points; the rows hold zeros behind them. */
static void judge_points(const float *re, const float *im, int n, loop_extremes *found)
{
    running_extreme peak = {splat8(-1), {0}}, near = {splat8(-INFINITY), {0}};
    v8 lanes = splat8(0);
    int turns = 0, k = 0;
    *found = (loop_extremes){.phase_margin = M_PI};
    for (; k + WIDTH < n; k += WIDTH) {
        v8 a = load8(re + k), b = load8(im + k), c = load8(re + k + 1), d = load8(im + k + 1);
        v8 power = a * a + b * b, next = c * c + d * d;
        lanes += a + b;
        note_extreme(&peak, power, k), note_extreme(&near, -(power + 2 * a), k);
        v8i crosses = (b * d <= 0) | ((power - 1) * (next - 1) <= 0);
        if (__builtin_reduce_or(crosses))
            for (int i = k; i < k + WIDTH; i++)
                turns += between_points(re[i], im[i], re[i + 1], im[i + 1], found);
    }
    float sum = sum8(lanes);
    int peak_at = place_of(&peak), nearest_at = place_of(&near);
    for (; k < n; k++) {
        float power = re[k] * re[k] + im[k] * im[k], most = re[peak_at] * re[peak_at] + im[peak_at] * im[peak_at];
        sum += re[k] + im[k];
        if (power > most)
            peak_at = k;
        if (hypot(1 + (double)re[k], im[k]) < hypot(1 + (double)re[nearest_at], im[nearest_at]))
            nearest_at = k;
        if (k + 1 < n)
            turns += between_points(re[k], im[k], re[k + 1], im[k + 1], found);
    }
    found->peak_at = peak_at, found->peak = hypot(re[peak_at], im[peak_at]);
    found->nearest_at = nearest_at, found->nearest = hypot(1 + (double)re[nearest_at], im[nearest_at]);
    double ends = atan2(im[n - 1], 1 + (double)re[n - 1]) - atan2(im[0], 1 + (double)re[0]);
    found->stable = isfinite(sum) && found->nearest > 0 && fabs(ends + 2 * M_PI * turns) < M_PI / 2;
}

/* Computes L = S K of a space's S, on the bins into its row of L, and judges it there and at the controller's places.
   merged_r, merged_i: room for all of these. */
static void judge_inner(beside_space *s, const inner_controller *given, float *merged_r, float *merged_i,
                        loop_extremes *found)
{
    int n = 0, bin = 0;
    separate(given->controller, s->kr, s->ki);
    for (int k = 0; k < N_BINS; k += WIDTH) {
        v8 x = load8(s->sr + k), y = load8(s->si + k), a = load8(s->kr + k), b = load8(s->ki + k);
        store8(s->lr + k, x * a - y * b), store8(s->li + k, x * b + y * a);
    }
    for (int i = 0; i <= given->n; i++) {
        int below = i < given->n ? (int)given->places[i] : N_BINS - 1;
        if (below >= bin) {
            size_t bytes = sizeof(float) * (size_t)(below + 1 - bin);
            memcpy(merged_r + n, s->lr + bin, bytes), memcpy(merged_i + n, s->li + bin, bytes);
            n += below + 1 - bin, bin = below + 1;
        }
        if (i == given->n)
            break;
        double share = given->places[i] - below, a = given->between[2 * i], b = given->between[2 * i + 1];
        double x = s->sr[below] + share * (s->sr[below + 1] - s->sr[below]);
        double y = s->si[below] + share * (s->si[below + 1] - s->si[below]);
        merged_r[n] = (float)(x * a - y * b), merged_i[n] = (float)(x * b + y * a);
        n++;
    }
    end_with_zeros(merged_r, n), end_with_zeros(merged_i, n);
    judge_points(merged_r, merged_i, n, found);
}

#endif
