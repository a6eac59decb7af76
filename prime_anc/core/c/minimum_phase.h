/* The phase of a minimum-phase response from its log magnitude, by the real cepstrum (prime_anc/method/arrays.py). */
#ifndef PRIME_MINIMUM_PHASE_H
#define PRIME_MINIMUM_PHASE_H

#include "method.h"
#include "transforms.h"

typedef struct {
    scratch_f scratch;
    float *log_gain;                /* [bins of the largest grid], filled by the caller */
    float *cepstrum;                /* [points of the largest grid] */
    float *phase_r, *phase;         /* the phase in radians */
    float *response_r, *response_i; /* [bins] */
} phase_space;

/* Fills space->phase for the log magnitude (natural) in space->log_gain. */
static void minimum_phase(const real_plan_f *grid, phase_space *space)
{
    int n = grid->n, half_n = n / 2;
    end_with_zeros(space->log_gain, half_n + 1);
    irfft_f(grid, space->scratch, space->log_gain, NULL, space->cepstrum, half_n);
    /* c[0] and c[n / 2] belong to both halves of the even cepstrum; the sine series of the rest is the phase. */
    space->cepstrum[0] = 0;
    for (int k = 1; k < half_n; k++)
        space->cepstrum[k] *= 2;
    rfft_f(grid, space->scratch, space->cepstrum, half_n, space->phase_r, space->phase);
}

/* Computes the response exp(log_gain + i phase). */
static void minimum_phase_response(const real_plan_f *grid, phase_space *space, float *response_r, float *response_i)
{
    minimum_phase(grid, space);
    for (int k = 0; k < grid->n / 2 + 1; k += WIDTH) {
        v8 gain = exp8(load8(space->log_gain + k)), sine, cosine;
        sincos8(load8(space->phase + k), &sine, &cosine);
        store8(response_r + k, gain * cosine), store8(response_i + k, gain * sine);
    }
}

#endif
