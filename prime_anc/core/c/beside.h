/* Spectra of paths, and band sums of a filter that runs beside a controller (prime_anc/method/controller.py): theory (19). */
#ifndef PRIME_BESIDE_H
#define PRIME_BESIDE_H

#include "predict.h"
#include "transforms.h"

#define N_ERRORS 4 /* louder, quieter, later, earlier secondary path */

/* One condition. Spectra are interleaved, [16385]; feedback may be NULL. n_taps: of an impulse response; 0: a spectrum. */
typedef struct {
    const float *primary, *secondary, *feedback, *filter;
    const float *loop;       /* S K */
    const float *controller; /* K without its delay */
    const float *psd;
    float level; /* of the controller, over that of the paths */
    int32_t n_taps;
} beside_input;

/* Powers per band: of the disturbance; of what the filter leaves alone; both times what the loop of both leaves over
   what that of the filter leaves; means of |1 / (1 + L)|^2; with errors, in the bands of the mean. drive: of the loudspeaker. */
typedef struct {
    double before[N_BANDS], after[N_BANDS], passed[N_BANDS], remaining[N_BANDS], playback[N_BANDS];
    double off[N_ERRORS][NR_COUNT], drive;
} beside_sums;

/* Rows per bin: P, S, F, W, S K, K; then work space, the first for S W. */
typedef struct {
    float *pr, *pi, *sr, *si, *fr, *fi, *wr, *wi, *lr, *li, *kr, *ki, *yr, *yi;
    float *power, *residual, *left, *closed, *played;
} beside_space;

enum { BESIDE_ARRAYS = 19, BESIDE_ROW = N_BINS + 15 };

/* Floats of a space: its rows, and the transforms'. */
#define BESIDE_ROOM (BESIDE_ARRAYS * BESIDE_ROW + 2 * DESIGN_N_FFT)

static float later_r[N_BINS + WIDTH], later_i[N_BINS + WIDTH]; /* a delay of one sample */

static void beside_init(void)
{
    for (int k = 0; k < N_BINS; k++) {
        later_r[k] = (float)cos(2 * M_PI * k / DESIGN_N_FFT);
        later_i[k] = (float)-sin(2 * M_PI * k / DESIGN_N_FFT);
    }
}

static beside_space beside_space_in(float *room)
{
    float *row[BESIDE_ARRAYS];
    for (int i = 0; i < BESIDE_ARRAYS; i++)
        row[i] = room + i * BESIDE_ROW;
    return (beside_space){row[0], row[1],  row[2],  row[3],  row[4],  row[5],  row[6],  row[7], row[8],
                          row[9], row[10], row[11], row[12], row[13], row[14], row[15], row[16], row[17], row[18]};
}

static scratch_f scratch_in(float *room)
{
    float *rest = room + BESIDE_ARRAYS * BESIDE_ROW;
    const int half = DESIGN_N_FFT / 2;
    return (scratch_f){rest, rest + half, rest + 2 * half, rest + 3 * half};
}

static void separate(const float *RESTRICT spectrum, float *RESTRICT re, float *RESTRICT im)
{
    for (int k = 0; k < N_BINS; k++)
        re[k] = spectrum[2 * k], im[k] = spectrum[2 * k + 1];
    end_with_zeros(re, N_BINS), end_with_zeros(im, N_BINS);
}

static void interleave(const float *RESTRICT re, const float *RESTRICT im, float *RESTRICT spectrum)
{
    for (int k = 0; k < N_BINS; k++)
        spectrum[2 * k] = re[k], spectrum[2 * k + 1] = im[k];
}

/* Multiplies P and S by 1 / (1 + L): the paths of the loop that the controller closes. */
static void close_paths(const float *lr, const float *li, float *pr, float *pi, float *sr, float *si)
{
    v8 one = splat8(1);
    for (int k = 0; k < N_BINS; k += WIDTH) {
        v8 br = one + load8(lr + k), bi = load8(li + k), scale = one / (br * br + bi * bi);
        v8 cr = br * scale, ci = bi * scale, a = load8(pr + k), b = load8(pi + k), x = load8(sr + k), y = load8(si + k);
        store8(pr + k, a * cr + b * ci), store8(pi + k, b * cr - a * ci);
        store8(sr + k, x * cr + y * ci), store8(si + k, y * cr - x * ci);
    }
}

/* Sums over the rows of a space; it overwrites F and W. level: of K, over that of the paths. */
static void sum_beside(const band_edges *bands, beside_space *s, int has_feedback, const float *given_psd, float level,
                       beside_sums *sums)
{
    const int last = N_BINS - 1; /* in no band; behind it the caller's psd ends */
    v8 drive = splat8(0), one = splat8(1);
    for (int k = 0; k < last; k += WIDTH) {
        v8 pr = load8(s->pr + k), pi = load8(s->pi + k), x = load8(s->sr + k), y = load8(s->si + k);
        v8 wr = load8(s->wr + k), wi = load8(s->wi + k), psd = load8(given_psd + k);
        v8 ar = one, ai = splat8(0); /* 1 + W F */
        if (has_feedback) {
            v8 fr = load8(s->fr + k), fi = load8(s->fi + k);
            ar = one + (wr * fr - wi * fi), ai = wr * fi + wi * fr;
        }
        v8 yr = x * wr - y * wi, yi = x * wi + y * wr;                  /* S W */
        v8 qr = pr * ar - pi * ai, qi = pr * ai + pi * ar;              /* P (1 + W F) */
        v8 br = ar + load8(s->lr + k), bi = ai + load8(s->li + k);      /* 1 + L */
        v8 er = qr - yr, ei = qi - yi, alone = ar * ar + ai * ai, closed = one / (br * br + bi * bi);
        v8 kr = load8(s->kr + k) * level, ki = load8(s->ki + k) * level;
        v8 dr = wr + (pr * kr - pi * ki), di = wi + (pr * ki + pi * kr); /* W + P K */
        store8(s->power + k, psd * (pr * pr + pi * pi));
        store8(s->residual + k, psd * (er * er + ei * ei) / alone);
        store8(s->left + k, alone * closed);
        store8(s->closed + k, closed);
        drive += psd * (dr * dr + di * di) * closed;
        /* What the errors need: S W, P (1 + W F) in the place of F, 1 + L in that of W. */
        store8(s->yr + k, yr), store8(s->yi + k, yi), store8(s->wr + k, br), store8(s->wi + k, bi);
        if (has_feedback)
            store8(s->fr + k, qr), store8(s->fi + k, qi);
    }
    sums->drive = sum8(drive);
    band_sums(bands, 0, N_BANDS, s->power, sums->before);
    band_sums(bands, 0, N_BANDS, s->residual, sums->after);
    band_sums(bands, 0, N_BANDS, s->closed, sums->playback);
    for (int b = 0; b < N_BANDS; b++)
        sums->playback[b] /= bands->edge[b + 1] - bands->edge[b];
    for (int k = 0; k < last; k += WIDTH) {
        v8 left = load8(s->left + k);
        store8(s->power + k, load8(s->power + k) * left);
        store8(s->residual + k, load8(s->residual + k) * left);
    }
    band_sums(bands, 0, N_BANDS, s->power, sums->passed);
    band_sums(bands, 0, N_BANDS, s->residual, sums->remaining);
    const int first = bands->edge[NR_FIRST], end = bands->edge[NR_FIRST + NR_COUNT];
    const float *qr = has_feedback ? s->fr : s->pr, *qi = has_feedback ? s->fi : s->pi;
    const float louder = (float)pow(10, 1.0 / 20), levels[N_ERRORS] = {louder, 1 / louder, 1, 1}, turns[N_ERRORS] = {0, 0, 1, -1};
    for (int n = 0; n < N_ERRORS; n++) {
        for (int k = first; k < end; k += WIDTH) {
            v8 cr = turns[n] ? load8(later_r + k) : splat8(levels[n]), ci = turns[n] * load8(later_i + k);
            v8 x = load8(s->yr + k), y = load8(s->yi + k);
            v8 lr = load8(s->lr + k), li = load8(s->li + k), mr = cr - one;
            v8 er = load8(qr + k) - (cr * x - ci * y), ei = load8(qi + k) - (cr * y + ci * x);
            v8 br = load8(s->wr + k) + (mr * lr - ci * li), bi = load8(s->wi + k) + (mr * li + ci * lr);
            store8(s->played + k, load8(given_psd + k) * (er * er + ei * ei) / (br * br + bi * bi));
        }
        band_sums(bands, NR_FIRST, NR_COUNT, s->played, sums->off[n]);
    }
}

/* Predicts filter and controller by sums of both and the figures of the filter alone: theory (21). is_true: nothing is
   unknown. */
static void figures_beside(const beside_sums *sums, const prediction_figures *alone, int is_true,
                           prediction_figures *both, double *playback_db)
{
    double silence = silence_of(sums->before, (double[N_BANDS]){0}), off[N_ERRORS] = {0}, nominal = 0;
    double before_level[4] = {0}, after_level[4] = {0};
    *both = *alone;
    both->mean = both->amplification = both->wide_amplification = 0;
    for (int b = 0; b < N_BANDS; b++) {
        /* What is unknown of P follows from the prediction, and has the spectrum of P within a band. */
        double before = sums->before[b] + silence, ratio = pow(10, alone->band_reduction[b] / 10), unknown = 0;
        if (!is_true && fabs(ratio - 1) > 1e-3)
            unknown = fmin(fmax((before - ratio * sums->after[b]) / (ratio - 1), 0), constant.most_unknown * before);
        double of_unknown = unknown / before * sums->passed[b];
        double reduction = both->band_reduction[b] = decibels((before + unknown) / fmax(sums->remaining[b] + of_unknown, DBL_MIN));
        both->least_reduction[b] = decibels((before + constant.doubt * unknown) / fmax(doubtful(b, fmax(sums->remaining[b], 0), of_unknown, 0, sums->passed[b]), DBL_MIN));
        playback_db[b] = decibels(sums->playback[b]);
        both->wide_amplification += fmax(-reduction, 0) / N_BANDS;
        both->amplification += b >= AMP_FIRST && b < AMP_FIRST + AMP_COUNT ? fmax(-reduction, 0) / AMP_COUNT : 0;
        level_sums(b, before, before * pow(10, -reduction / 10), before_level, after_level);
        if (b < NR_FIRST || b >= NR_FIRST + NR_COUNT)
            continue;
        both->mean += reduction / NR_COUNT;
        nominal += decibels(before / fmax(sums->remaining[b], DBL_MIN)) / NR_COUNT;
        for (int n = 0; n < N_ERRORS; n++)
            off[n] += decibels((before + unknown) / fmax(sums->off[n][b - NR_FIRST] + of_unknown, DBL_MIN)) / NR_COUNT;
    }
    levels_of(before_level, after_level, both);
    both->gain_sensitivity = both->mean - fmin(off[0], off[1]);
    both->delay_sensitivity = both->mean - fmin(off[2], off[3]);
    both->control_rms = sqrt(sums->drive);
    both->nominal = nominal;
}

#endif
