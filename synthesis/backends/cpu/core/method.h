/* Constants of the method. Each is that of the Python module named beside it; tests/synthesis/backends/cpu holds
   them equal. */
#ifndef PRIME_METHOD_H
#define PRIME_METHOD_H

#define SAMPLE_RATE_HZ 48000
#define N_TAPS 2048
#define DESIGN_N_FFT 32768
#define N_BINS 16385

#define TINY 1.17549435e-38f /* smallest normal float32 */

/* octave_bands: 20 Hz to 20 kHz; the positions of the bands among these 31 */
#define FIRST_BAND 13
#define N_BANDS 31
#define NR_FIRST 4
#define NR_COUNT 21
#define AMP_FIRST 4
#define AMP_COUNT 23

/* path_ratio */
#define RATIO_REGULARISATION 1e-4
#define HELD_LOW_HZ 25.0
#define HELD_HIGH_HZ 9000.0
#define MAGNITUDE_FLOOR 1e-6
#define PHASE_FLOOR 1e-5
#define AUDIBLE_HZ 20000.0

/* toeplitz, fir_wiener */
#define TAPER 4.0
#define CEILING_SHARPNESS 10.0f
#define SYMBOL_DAMPING 1e-4
#define WIENER_ITERATIONS 4
#define DRIVE_LIMIT 0.6

/* profiles */
#define N_STEP_SCALES 3
#define SUFFICIENT_DECREASE 1e-5
#define DAMPING_FLOOR 1e-6
#define LEAST_CEILING 0.01
#define MOST_CEILING 1e6
#define MAX_UPDATES 8
#define MAX_CONDITIONS 16 /* of backends/base */
#define SILENCE 1e-12
#define UNKNOWN_WEIGHT 1.0
#define LOUDEST_UNKNOWN 0.1

/* wiener */
#define WMMSE_REGULARISATION 1e-4

/* conventions, prediction */
#define COHERENCE_FLOOR 1e-4f
#define END_OF_RESPONSE 1e-6f
#define LATE_FROM_SAMPLES 2048
#define COHERENCE_SHARE 0.8
#define MODEL_BOUND 2.0
#define INTERVAL_UNCERTAINTY_DB 1.0
#define INTERVAL_COHERENCE_DB 3.5
#define NATURAL_SPREAD 2.0
#define PLAUSIBLE_RANGE 100.0

/* plausibility */
#define SURPRISE 14.0
#define CONVINCING 60.0
#define REALIGN_BEYOND 3
#define MAX_DISTANCE 250.0

#define NEPER_PER_DB 0.11512925464970229

#endif
