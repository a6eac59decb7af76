"""Constants that every part of the method shares."""

SAMPLE_RATE_HZ = 48_000
N_TAPS = 2048
"""Taps of a control filter: real, causal, e = d - s * w * x."""

DESIGN_N_FFT = 32_768
"""Points of the grid on which filters are designed and predicted (1.46 Hz apart)."""

N_BINS = DESIGN_N_FFT // 2 + 1
"""Bins of a one-sided spectrum on the design grid: 0 Hz to 24 kHz inclusive."""

MIN_TOTAL_PSD, MAX_TOTAL_PSD = 1e-30, 1e30
"""Of a reference spectrum: powers beyond leave the range of float32."""

COHERENCE_FLOOR = 1e-4
"""A bin of lower coherence says nothing more: (1 - c) / c is already 40 dB above the path."""

STAGES = ("decode", "queue", "path_ratio", "generate", "reconstruct", "refine", "predict", "encode")
"""What a request goes through, in order; the names of timings, histograms and benchmark columns alike."""
