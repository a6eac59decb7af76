/* Sizes, which must equal Python's, and the method's constants, which Python passes (library.py). */
#ifndef PRIME_METHOD_H
#define PRIME_METHOD_H

#define SAMPLE_RATE_HZ 48000
#define N_TAPS 2048
#define DESIGN_N_FFT 32768
#define N_BINS 16385

#define TINY 1.17549435e-38f /* smallest normal float32 */

/* One-third octaves from 20 Hz to 20 kHz; the positions of the scored bands among these 31. */
#define FIRST_BAND 13
#define N_BANDS 31
#define NR_FIRST 4
#define NR_COUNT 21
#define AMP_FIRST 4
#define AMP_COUNT 23

#define N_STEP_SCALES 3 /* 0.5^i */
#define MAX_UPDATES 8
#define MAX_CONDITIONS 16
#define N_LENGTHS 7 /* response lengths, 128 to 8192 samples, with tabulated figures */

#define N_SIZES 13
static const int sizes[N_SIZES] = {SAMPLE_RATE_HZ, N_TAPS,   DESIGN_N_FFT, N_BINS,        FIRST_BAND,  N_BANDS,        NR_FIRST,
                                   NR_COUNT,       AMP_FIRST, AMP_COUNT,    N_STEP_SCALES, MAX_UPDATES, MAX_CONDITIONS};

/* Constants of the Python modules, under the same names and documented there. */
typedef struct {
    int sizes[N_SIZES];
    int wiener_iterations, late_from_samples, realign_beyond, direct_plane_iterations, first_updates, n_rounds;
    int least_samples, long_samples, rising_first;
    float ceiling_sharpness, coherence_floor, end_of_response;
    double ratio_regularisation, held_low_hz, held_high_hz, magnitude_floor, phase_floor, audible_hz, neper_per_db;
    double taper, symbol_damping, drive_limit, wmmse_regularisation;
    double sufficient_decrease, damping_floor, least_ceiling, most_ceiling, silence, louder_weight, louder_sharpness;
    double guard, large_decrease, slow_decrease, slow_share, small_decrease, most_residual, direct_damping;
    double coherence_share, model_bound, natural_spread, most_uncertain, silent_uncertainty, doubt, aligned, plausible_range;
    double interval_uncertainty_db, interval_coherence_db, widest_uncertainty_db, widest_coherence_db, cost_share, believed_db, most_unknown, cut_db[N_LENGTHS], model_interval_db[N_LENGTHS];
    double surprise, convincing, max_distance;
    double silent, stationary, rising_db, lacked, rising_interval_db, response_interval_db[N_LENGTHS], smallest_share;
} prime_constants;

static prime_constants constant;

#endif
