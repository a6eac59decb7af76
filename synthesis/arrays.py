"""Operations beyond the array API, for functions that run on NumPy and torch arrays alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from array_api_compat import array_namespace, is_torch_namespace

# Smallest magnitude inside a logarithm, over the path's largest: -120 dB keeps dead bands finite.
MAGNITUDE_FLOOR = 1e-6
# Smallest magnitude inside a logarithm: single precision's least normal number, in double precision too.
TINY = 2.0**-126

# A real or complex array of NumPy or torch. The arrays of one call are of one kind, also that returned.
Array = Any


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
