"""The regularised path ratio and the magnitude base taken from it: theory (2), (3); paper, Eq. 4."""

from __future__ import annotations

import math
from typing import get_args

from array_api_compat import array_namespace

from synthesis.arrays import Array, floored_log, squared_magnitude
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.generator_config import Base

# eps over the largest |S|.
REGULARISATION = 1e-4

# Outside these the held-band base keeps the value at the edge. Beyond the scored bands the ratio is large and steep
# (on measured earphones 33 dB more at 0 Hz than at 25 Hz), and its minimum-phase response longer than 2048 taps.
HELD_LOW_HZ, HELD_HIGH_HZ = 25.0, 9000.0


def regularised_ratio(primary: Array, secondary: Array) -> Array:
    """Return W_reg = P S* / (|S|^2 + eps^2), theory (2), of spectra, complex [..., n_bins]."""
    xp = array_namespace(primary, secondary)
    power = squared_magnitude(secondary)
    epsilon_squared = REGULARISATION**2 * xp.max(power, axis=-1, keepdims=True)
    return primary * xp.conj(secondary) / (power + epsilon_squared)


def log_base_magnitude(w_reg: Array, base: Base) -> Array:
    """Return the natural log of the magnitude base, theory (3).

    Parameters
    ----------
    w_reg
        Of `regularised_ratio`, complex [..., n_bins].
    base
        `full_band` is |W_reg|; `held_band` is constant below 25 Hz and above 9 kHz.

    Returns
    -------
    Array
        [..., n_bins].

    Raises
    ------
    InvalidOption
        For another base.
    """
    if base not in get_args(Base):
        raise InvalidOption(f"base: {base!r} does not exist; use one of {', '.join(get_args(Base))}", field="base")
    xp = array_namespace(w_reg)
    log_magnitude = floored_log(xp.abs(w_reg))
    if base == "full_band":
        return log_magnitude
    n_bins = w_reg.shape[-1]
    spacing_hz = SAMPLE_RATE_HZ / (2 * (n_bins - 1))
    low, high = math.ceil(HELD_LOW_HZ / spacing_hz), math.floor(HELD_HIGH_HZ / spacing_hz)
    held = xp.clip(xp.arange(n_bins, device=w_reg.device), min=low, max=high)
    return log_magnitude[..., held]
