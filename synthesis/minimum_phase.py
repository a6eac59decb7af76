"""Minimum-phase responses by the real cepstrum (Oppenheim & Schafer, Discrete-Time Signal Processing, ch. 13).

The cepstrum of a magnitude is even; a minimum-phase signal has a causal one. Folding the anticausal half onto
the causal half keeps log |A| and turns the phase into its Hilbert partner.
"""

import torch
from torch import Tensor

from synthesis.conventions import N_TAPS
from synthesis.spectra import complex_exponential


def minimum_phase_response(log_magnitude: Tensor) -> Tensor:
    """Complex spectrum with the magnitude exp(log_magnitude) and minimum phase: [..., n_bins].

    log_magnitude: natural, real [..., n_bins] on a one-sided grid of 2 (n_bins - 1) points.
    """
    cepstrum = torch.fft.irfft(log_magnitude)
    half = cepstrum.shape[-1] // 2
    # c[0] and c[half] belong to both halves and stay; 1 .. half-1 take their mirror images' share.
    folded = torch.cat((cepstrum[..., :1], 2 * cepstrum[..., 1:half], cepstrum[..., half : half + 1]), dim=-1)
    return complex_exponential(torch.fft.rfft(folded, n=cepstrum.shape[-1]))


def minimum_phase_fir(log_magnitude: Tensor, n_taps: int = N_TAPS) -> Tensor:
    """Samples 0 to n_taps - 1 of the minimum-phase impulse response: real [..., n_taps]."""
    return torch.fft.irfft(minimum_phase_response(log_magnitude))[..., :n_taps]
