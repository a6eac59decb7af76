/* J in the plane of an update's step and the step before it (prime_anc/method/step_plane.py). */
#ifndef PRIME_STEP_PLANE_H
#define PRIME_STEP_PLANE_H

#include "tap_objective.h"

#define RIDGE 1e-6 /* relative regularisation of the 2 x 2 matrices, for parallel steps */

/* Prepares the band powers in the plane of the two steps whose responses are in s; those of the step before are known
   (`move_to`). */
static void begin_plane(const refinement_profile *profile, const band_edges *bands, refinement_space *s)
{
    float *cross = s->descent_r, *square = s->descent_i, *product = s->power;
    for (int t = 0; t < s->n_conditions; t++) {
        condition_space *c = &s->conditions[t];
        for (int k = 0; k < end_of_bands(profile, bands); k += WIDTH) {
            v8 sr = load8(c->sr + k), si = load8(c->si + k), dr = load8(s->dr + k), di = load8(s->di + k);
            v8 cr = sr * dr - si * di, ci = sr * di + si * dr, w = load8(c->weight + k);
            store8(c->cr + k, cr), store8(c->ci + k, ci);
            store8(cross + k, w * (load8(c->er + k) * cr + load8(c->ei + k) * ci));
            store8(square + k, w * squared8(cr, ci));
            if (s->has_last) {
                v8 lr = load8(c->lr + k), li = load8(c->li + k);
                store8(product + k, w * (lr * cr + li * ci));
            }
        }
        band_sums(bands, profile->first_band, profile->n_bands, cross, c->cross[0]);
        band_sums(bands, profile->first_band, profile->n_bands, square, c->square[0]);
        if (s->has_last)
            band_sums(bands, profile->first_band, profile->n_bands, product, c->product);
    }
}

/* What the penalty adds to the squares, the product and the cross terms. */
static void penalty_in_plane(int n_bins, const refinement_space *s, double share[5])
{
    v8 sums[5] = {splat8(0), splat8(0), splat8(0), splat8(0), splat8(0)};
    for (int k = 0; k < n_bins; k += WIDTH) {
        v8 stiffness = load8(s->stiffness + k), excess = load8(s->excess + k);
        v8 dr = load8(s->dr + k), di = load8(s->di + k);
        v8 er = excess * load8(s->wr + k), ei = excess * load8(s->wi + k);
        sums[0] += stiffness * squared8(dr, di), sums[3] -= er * dr + ei * di;
        if (s->has_last) {
            v8 lr = load8(s->lr + k), li = load8(s->li + k);
            sums[1] += stiffness * squared8(lr, li), sums[2] += stiffness * (dr * lr + di * li);
            sums[4] -= er * lr + ei * li;
        }
    }
    for (int i = 0; i < 5; i++)
        share[i] = sum8(sums[i]);
}

/* Finds the point of about the lowest J: theory (17). */
static void lowest_in_plane(const refinement_profile *profile, int n_bins, const refinement_space *s, double *x,
                            double *y)
{
    double penalty[5] = {0};
    slopes slope;
    if (profile->ceiling_weight > 0)
        penalty_in_plane(n_bins, s, penalty);
    *x = 1, *y = 0;
    for (int i = 0; i < profile->plane_iterations; i++) {
        double a = penalty[0], b = penalty[1], c = penalty[2], p = penalty[3], q = penalty[4];
        value_at(profile, s, *x, *y, 0, slope);
        for (int t = 0; t < s->n_conditions; t++)
            for (int n = 0; n < profile->n_bands; n++) {
                const condition_space *condition = &s->conditions[t];
                double weight = slope[t][n] / power_at(s, condition, n, *x, *y);
                a += weight * condition->square[0][n], p += weight * condition->cross[0][n];
                if (s->has_last) {
                    b += weight * condition->square[1][n], c += weight * condition->product[n];
                    q += weight * condition->cross[1][n];
                }
            }
        a *= 1 + RIDGE, b *= 1 + RIDGE;
        double determinant = a * b - c * c;
        if (determinant > 0) {
            *x = (b * p - c * q) / determinant, *y = (a * q - c * p) / determinant;
        } else { /* a line, if there is no step before */
            *x = a > 0 ? p / a : 1, *y = 0;
        }
    }
}

#undef RIDGE

#endif
