"""Constants of the whole method."""

from typing import Final

SAMPLE_RATE_HZ: Final = 48_000
# Taps of a control filter: real, causal, e = d - s * w * x.
N_TAPS = 2048

# Points of the grid for design and prediction, and their distance.
DESIGN_N_FFT = 32_768
BIN_HZ = SAMPLE_RATE_HZ / DESIGN_N_FFT

# Bins of a one-sided spectrum on the design grid: 0 Hz to 24 kHz inclusive.
N_BINS = DESIGN_N_FFT // 2 + 1

# Range of a reference spectrum's total: powers beyond leave the range of float32.
MIN_TOTAL_PSD, MAX_TOTAL_PSD = 1e-30, 1e30

# Lengths of estimated impulse responses, and of exported filters at most.
PRIMARY_TAPS, SECONDARY_TAPS = 8192, 4096
MAX_TAPS = 4096

# Coherences below are equivalent: the unknown is 20 dB above the path. A bin of none is no band of none.
COHERENCE_FLOOR = 0.01

# Stages of a request, in order; common names of timings, histograms and benchmark columns.
STAGES = ("decode", "queue", "path_ratio", "generate", "reconstruct", "refine", "predict", "encode")
# Those from spectra in memory to taps, whose sum is `core`.
CORE_STAGES = ("path_ratio", "generate", "reconstruct", "refine")
