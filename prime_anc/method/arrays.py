"""Operations beyond the array API, for functions that run on NumPy and torch arrays alike.

Minimum-phase responses are made by the real cepstrum (Oppenheim & Schafer, Discrete-Time Signal Processing, ch. 13).
The cepstrum of a magnitude is even; a minimum-phase signal has a causal one. Folding the anticausal half onto the
causal half keeps log |A| and turns the phase into its Hilbert partner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace as compatible_namespace
from array_api_compat import is_torch_namespace
from numpy.typing import NDArray

from prime_anc.method.conventions import COHERENCE_FLOOR, N_TAPS

# Smallest magnitude inside a logarithm, over the path's largest: -120 dB keeps dead bands finite.
MAGNITUDE_FLOOR = 1e-6
# Smallest magnitude inside a logarithm: single precision's least normal number, in double precision too.
TINY = 2.0**-126
# Double precision's least normal number, for quotients of powers.
SMALLEST = float(np.finfo(np.float64).tiny)

Real = NDArray[np.floating]
Complex = NDArray[np.complexfloating]
# A real or complex array of NumPy or torch. The arrays of one call are of one kind, also that returned.
Array = Any


def array_namespace(*arrays: Array) -> Any:
    """Return the namespace of the array API that arrays of one kind belong to: NumPy itself, or torch's.

    `array_api_compat.numpy` holds the same and loads all of NumPy, for a tenth of the time in which a service starts.
    """
    return np if isinstance(arrays[0], np.ndarray | np.generic) else compatible_namespace(*arrays)


def shared(make: Callable[..., Any], given: tuple[Any, ...], like: Array) -> Array:
    """Return make(*given), a NumPy array, as an array of the kind, precision and device of the real `like`.

    It is made once, shared between callers and must not be written to.
    """
    return _shared(make, given, array_namespace(like), like.dtype, str(like.device))


@cache  # never freed: recorded CUDA graphs read the tensors in place
def _shared(make: Callable[..., Any], given: tuple[Any, ...], xp: Any, dtype: Any, device: str) -> Array:
    values = make(*given)
    if not is_torch_namespace(xp):
        return values.astype(dtype)
    with xp.inference_mode(False):  # the first caller may be in inference mode, the next one training
        return xp.asarray(values.copy()).to(device, dtype)


def complex_exponential(exponent: Array) -> Array:
    """Exponentiate a complex array, several times faster than torch on a CPU."""
    xp = array_namespace(exponent)
    if is_torch_namespace(xp):
        return xp.polar(xp.exp(exponent.real), exponent.imag)
    return xp.exp(exponent)


def squared_magnitude(spectrum: Array) -> Array:
    """Compute |X|^2 without the square root of `abs`, by which its derivative would divide: real, same shape."""
    return spectrum.real**2 + spectrum.imag**2


def unexplained_power(power: Array, coherence: Array) -> Array:
    """Compute the power at the error microphone that x does not explain: (1 - c) / c of the explained one."""
    known = array_namespace(coherence).clip(coherence, min=COHERENCE_FLOOR, max=1)
    return (1 - known) / known * power


def level_db(ratio: Array) -> Array:
    """Compute 10 log10 of power ratios, floored at the type's smallest normal number."""
    xp = array_namespace(ratio)
    return 10 * xp.log10(xp.clip(ratio, min=float(xp.finfo(ratio.dtype).smallest_normal)))


def softplus(value: Array) -> Array:
    """Compute ln(1 + e^x), a smooth maximum of zero and x."""
    xp = array_namespace(value)
    return xp.logaddexp(xp.zeros_like(value), value)


def floored_log(magnitude: Array) -> Array:
    """Compute the natural log of magnitudes [..., n_bins], floored 120 dB below the row's largest."""
    xp = array_namespace(magnitude)
    floor = MAGNITUDE_FLOOR * xp.max(magnitude, axis=-1, keepdims=True)
    return xp.log(xp.clip(xp.maximum(magnitude, floor), min=TINY))


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
