/* Interface to Python through ctypes; prime_anc/core/library.py mirrors these structures. */
#ifndef PRIME_CORE_H
#define PRIME_CORE_H

#include <stdint.h>

#include "beside.h"
#include "update.h"
#include "plausibility.h"
#include "predict.h"

enum { FAULT_NONE, FAULT_PRIMARY, FAULT_SECONDARY };
enum { METHOD_PRIME, METHOD_RATIO_BASE, METHOD_WMMSE, METHOD_GIVEN /* in result->taps */ };
enum { STAGE_DECODE, STAGE_PATH_RATIO, STAGE_GENERATE, STAGE_RECONSTRUCT, STAGE_REFINE, STAGE_PREDICT, N_STAGES };

/* Numbers of a model, which prime_model_create copies. weights: the generator's tensors in the order of its layers. The
   arrays of the grid and the start are those of features.h and fir_wiener.h, with n_bins = n_fft / 2 + 1. */
typedef struct {
    int32_t n_fft, is_linear, is_held, is_fir_wiener, n_channels, kernel_size, n_groups, has_head_norm, n_points, n_blocks;
    const int32_t *dilations;
    float bound;
    const float *weights;
    const int32_t *pool_first, *pool_count, *lower;
    const float *pool_weights, *fraction, *frequency;
    const float *start_weight, *start_penalty, *start_ceiling, *start_average;
    const float *reference_psd;    /* [16385] */
    const double *band_uncertainty; /* [2][31] */
    support_prior support; /* n_changes = 0: none */
} prime_parameters;

/* One pair of paths. n_primary: samples of an impulse response; 0: an interleaved spectrum of 16385 bins. coherence and psd
   may be NULL; max_gain_db NAN: no ceiling. With several conditions, psd and max_gain_db are those of the first.
   What is known, from prime_judge_paths or the caller: uncertainty, [2][31], and `assumed` of it by the design; basis and ends_interval as in `knowledge`;
   silent: bands that no mean counts, [31], or NULL.
   loop: S K of a controller (beside.h), whose loop the design closes, or NULL; controller: K without its delay; level: of
   K, over that of the paths. */
typedef struct {
    const float *primary, *secondary, *coherence, *psd, *uncertainty, *assumed, *loop, *controller;
    const unsigned char *silent;
    int32_t n_primary, n_secondary, basis;
    float max_gain_db, level;
    double ends_interval, share; /* weight of the condition; the shares of one filter add up to one */
} prime_input;

/* What prime_judge_paths finds: fields of prime_input, the number of silent bands, and how the paths compare with the
   support's; distance NAN: not compared. */
typedef struct {
    float uncertainty[2 * N_BANDS];
    unsigned char silent[N_BANDS];
    int32_t n_silent, basis;
    double ends_interval;
    path_explanation explanation;
} prime_judgement;

/* A filter. With a controller, the figures are of the loop that it closes; alone, both, playback_db: of the filter without
   it, of both together and of music, as the paths were sent. */
typedef struct {
    float taps[N_TAPS];
    refinement_record record;
    prediction_figures figures, alone, both;
    double playback_db[N_BANDS];
} prime_made;

typedef struct {
    prime_made made, rival; /* rival: WMMSE, if a design without updates is worse */
    double sums[N_SUMS];
    double times_ms[N_STAGES]; /* NAN: the stage did not run */
    double rival_mean_db, rival_max_gain_db; /* of WMMSE, the higher ones without and with updates; NAN: not found */
    int has_rival;
} prime_result;

typedef struct prime_model prime_model;
typedef struct prime_workspace prime_workspace;

#endif
