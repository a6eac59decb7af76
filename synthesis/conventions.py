"""Constants that every part of the method shares, and the grids derived from them."""

import torch
from torch import Tensor

SAMPLE_RATE_HZ = 48_000
N_TAPS = 2048
"""Taps of a control filter: real, causal, e = d - s * w * x."""

DESIGN_N_FFT = 32_768
"""Points of the grid on which filters are designed and predicted (1.46 Hz apart)."""

N_BINS = DESIGN_N_FFT // 2 + 1
"""Bins of a one-sided spectrum on the design grid: 0 Hz to 24 kHz inclusive."""

STAGES = ("decode", "queue", "path_ratio", "generate", "reconstruct", "refine", "predict", "encode")
"""What a request goes through, in order; the names of timings, histograms and benchmark columns alike."""


def frequencies_hz(
    n_fft: int = DESIGN_N_FFT, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> Tensor:
    """Bin frequencies in Hz of the one-sided spectrum of an `n_fft`-point transform: [n_fft // 2 + 1]."""
    return torch.arange(n_fft // 2 + 1, dtype=dtype, device=device) * (SAMPLE_RATE_HZ / n_fft)
