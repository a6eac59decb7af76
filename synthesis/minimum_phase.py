"""Minimum-phase responses by the real cepstrum (Oppenheim & Schafer, Discrete-Time Signal Processing, ch. 13).

The cepstrum of a magnitude is even; a minimum-phase signal has a causal one. Folding the anticausal half onto
the causal half keeps log |A| and turns the phase into its Hilbert partner.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from synthesis.arrays import Array, complex_exponential
from synthesis.conventions import N_TAPS


def minimum_phase_response(log_magnitude: Array) -> Array:
    """Return the spectrum of a given magnitude that has minimum phase: mp in the theory.

    Parameters
    ----------
    log_magnitude
        Natural logarithm of the magnitude, real [..., n_bins], on a one-sided grid of 2 (n_bins - 1) points.

    Returns
    -------
    Array
        Complex [..., n_bins].
    """
    xp = array_namespace(log_magnitude)
    cepstrum = xp.fft.irfft(log_magnitude)
    half = cepstrum.shape[-1] // 2
    # c[0] and c[half] belong to both halves and stay; 1 .. half-1 take their mirror images' share.
    folded = xp.concat((cepstrum[..., :1], 2 * cepstrum[..., 1:half], cepstrum[..., half : half + 1]), axis=-1)
    return complex_exponential(xp.fft.rfft(folded, n=cepstrum.shape[-1]))


def minimum_phase_fir(log_magnitude: Array, n_taps: int = N_TAPS) -> Array:
    """Return samples 0 to n_taps - 1 of the minimum-phase response, theory (5), real [..., n_taps]."""
    xp = array_namespace(log_magnitude)
    return xp.fft.irfft(minimum_phase_response(log_magnitude))[..., :n_taps]
