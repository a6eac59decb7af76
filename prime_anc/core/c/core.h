/* The core's sizes, structures and functions. Python reads this file too (prime_anc/core/library.py): declarations
   alone, without macros. Spectra are on the design grid, interleaved, [N_BINS]. */
#ifndef PRIME_CORE_H
#define PRIME_CORE_H

enum { SAMPLE_RATE_HZ = 48000, N_TAPS = 2048, DESIGN_N_FFT = 32768, N_BINS = 16385 };
/* One-third octaves from 20 Hz to 20 kHz; positions of the scored bands among these. */
enum { FIRST_BAND = 13, N_BANDS = 31, NR_FIRST = 4, NR_COUNT = 21, AMP_FIRST = 4, AMP_COUNT = 23 };
enum { N_STEP_SCALES = 3 /* 0.5^i */, MAX_UPDATES = 8, MAX_CONDITIONS = 16 };
enum { N_LENGTHS = 7 }; /* response lengths, 128 to 8192 samples, with tabulated figures */

enum { FAULT_NONE, FAULT_PRIMARY, FAULT_SECONDARY };
enum { METHOD_PRIME, METHOD_RATIO_BASE, METHOD_WMMSE };
enum { TIME_PATH_RATIO, TIME_GENERATE, TIME_RECONSTRUCT, N_TIMES }; /* stages of a start */
enum { DIAGONAL, GOHBERG_SEMENCUL, EXACT }; /* preconditioners */
enum { STOPPED_BY_BUDGET, STOPPED_CONVERGED, STOPPED_WITHOUT_DECREASE };
/* From what the uncertainty of paths is known: BASES of Python. */
enum { OF_TRUE_PATHS, OF_CALIBRATION, OF_COHERENCE, OF_MODEL, OF_RESPONSE };

/* Constants of Python's modules, documented there under these names in capitals. */
typedef struct {
    int wiener_iterations, first_updates, n_rounds;
    int least_samples, long_samples, rising_first;
    float ceiling_sharpness, coherence_floor, end_of_response;
    double ratio_regularisation, held_low_hz, held_high_hz, magnitude_floor, phase_floor, audible_hz, neper_per_db;
    double taper, symbol_damping, drive_limit, wmmse_regularisation;
    double sufficient_decrease, damping_floor, least_ceiling, most_ceiling, silence, louder_weight, louder_sharpness;
    double guard, large_decrease, slow_decrease, slow_share, small_decrease, most_residual, direct_damping;
    double coherence_share, model_bound, natural_spread, most_uncertain, silent_uncertainty, doubt, aligned;
    double uncertainty_interval_db, coherence_interval_db, widest_uncertainty_db, widest_coherence_db;
    double cost_share, believed_db, cut_db[N_LENGTHS], model_interval_db[N_LENGTHS];
    double silent, stationary, rising_db, lacked, rising_interval_db, response_interval_db[N_LENGTHS], smallest_share;
} prime_constants;

/* Numbers of a model, which prime_model_create copies. weights: the generator's tensors in the order of its layers. The
   arrays of the grid and the start are those of features.h and fir_wiener.h, with n_bins = n_fft / 2 + 1. */
typedef struct {
    int n_fft, is_linear, is_held, is_fir_wiener, n_channels, kernel_size, n_groups, has_head_norm, n_points, n_blocks;
    const int *dilations;
    float bound;
    const float *weights;
    const int *pool_first, *pool_count, *lower;
    const float *pool_weights, *fraction, *frequency;
    const float *start_weight, *start_penalty, *start_ceiling, *start_average;
    const double *band_uncertainty; /* [31] */
} prime_parameters;

/* Paths as sent: responses, or spectra where the number of samples is 0; coherence may be NULL. */
typedef struct {
    const float *primary, *secondary, *coherence, *psd;
    int n_primary, n_secondary, is_device; /* whether the paths are like those of the model's listeners */
} prime_paths;

/* What is known of a pair of paths: u_p and u_s; half-width (dB) of the interval that the ends of the responses show; bands
   that no mean counts. */
typedef struct {
    float uncertainty[2 * N_BANDS];
    unsigned char silent[N_BANDS];
    int basis;
    double ends_interval;
} prime_knowledge;

/* What a filter is designed for: spectra of all conditions, their uncertainty [2][31], their weights, of sum one.
   max_gain_db NAN: no ceiling. */
typedef struct {
    const float *primary, *secondary, *uncertainty, *psd;
    const double *shares;
    int n_conditions;
    float max_gain_db;
} prime_problem;

/* Weights of ObjectiveProfile, in its order. */
typedef struct {
    double risk_weight;
    double band_weights[N_BANDS]; /* in J's mean, of mean one over its bands; 0: in no other */
    double max_louder_db; /* level by which a band may become louder; infinite: no limit */
} objective_weights;

typedef struct {
    int n_fft, first_band, n_bands, preconditioner, n_iterations, settles;
    double damping, step_cap /* 0: none */, ceiling_weight, tolerance;
    objective_weights weights;
} refinement_profile;

typedef struct {
    int applied, stopped;
    float objective[MAX_UPDATES + 1], step_scale[MAX_UPDATES], pcg_residual[MAX_UPDATES];
} refinement_record;

/* Fields of `Prediction`, in dB except control_rms. */
typedef struct {
    double band_reduction[N_BANDS], least_reduction[N_BANDS];
    double mean, interval, amplification, wide_amplification, low, high, level, a_weighted;
    double gain_sensitivity, delay_sensitivity, uncertainty_cost, max_gain, control_rms, nominal;
    int is_finite;
} prediction_figures;

enum { POWER_DISTURBANCE, POWER_RESIDUAL, POWER_CONTROL, POWER_IN_PHASE, POWER_QUADRATURE, N_POWERS };
enum { SUM_MAX_GAIN = 155 /* behind the powers per band */, SUM_CONTROL, N_SUMS };

typedef struct prime_model prime_model;
typedef struct prime_workspace prime_workspace;

/* Call once, before any other function but prime_level. */
void prime_init(const prime_constants *constants);
/* The x86-64 level (2, 3 or 4) that processor and operating system support; 0 on other architectures. */
int prime_level(void);
/* NULL where there is no memory. */
prime_model *prime_model_create(const prime_parameters *parameters);
void prime_model_free(prime_model *model);
prime_workspace *prime_workspace_create(const prime_model *model);
/* Makes room for designs of up to so many conditions; 0 where there is no memory, or for more than MAX_CONDITIONS. */
int prime_workspace_reserve(prime_workspace *workspace, int n_conditions);
void prime_workspace_free(prime_workspace *workspace);

/* Transforms one pair of paths; judges what is unknown of them, by the coherence or, without one, by the model's listeners or
   the ends of the responses. Returns which path is unusable. */
int prime_pose(const prime_model *model, prime_workspace *workspace, const prime_paths *paths, float *primary,
               float *secondary, prime_knowledge *known);
/* First taps [2048] of one filter for all conditions: theory (2) to (11). times_ms: [N_TIMES], NAN: not run. */
void prime_start(const prime_model *model, prime_workspace *workspace, const prime_problem *problem, int method,
                 float *taps, double *times_ms);
/* Up to n_updates updates of taps: theory (12) to (17). */
void prime_update(prime_workspace *workspace, const prime_problem *problem, const refinement_profile *profile,
                  int n_updates, float *taps, refinement_record *record);
/* Replaces taps by the best ones that keep a ceiling on |W|: theory (18). inverse_ceiling: 1 / c, [16385]; most: by how
   much the result may exceed it. profile: of the grid that the rounds work on, and of J. */
void prime_limit(prime_workspace *workspace, const prime_problem *problem, const refinement_profile *profile,
                 const float *inverse_ceiling, float most, float *taps);
/* Replaces taps of a good filter by about those of WMMSE, theory (11): within 0.05 dB of noise reduction. */
void prime_wiener(prime_workspace *workspace, const prime_problem *problem, float *taps);
/* Predicts a filter's effect on one pair of spectra: theory (21) to (23). n_taps = 0: the filter is a spectrum. sums: [N_SUMS]. */
void prime_predict(const prime_model *model, prime_workspace *workspace, const float *primary, const float *secondary,
                   const float *psd, const prime_knowledge *known, const float *filter, int n_taps, double *sums,
                   prediction_figures *figures);

#endif
