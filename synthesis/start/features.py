"""The path ratio, its magnitude base, and the twelve channels that the generator reads: theory (2), (3); paper, 2.2."""

from __future__ import annotations

import math
from typing import get_args

from array_api_compat import array_namespace

from synthesis.arrays import Array, floored_log, minimum_phase_response, squared_magnitude
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.generator_config import N_FEATURES, Base

# eps over the largest |S|.
REGULARISATION = 1e-4

# Outside these the held-band base keeps the value at the edge. Beyond the scored bands the ratio is large and steep
# (on measured earphones 33 dB more at 0 Hz than at 25 Hz), and its minimum-phase response longer than 2048 taps.
HELD_LOW_HZ, HELD_HIGH_HZ = 25.0, 9000.0

N_CHANNELS = N_FEATURES
CHANNELS = (
    "log_ratio",
    "frequency",
    "ratio_re",
    "ratio_im",
    "mismatch_re",
    "mismatch_im",
    "log_primary",
    "log_secondary",
    "primary_re",
    "primary_im",
    "secondary_re",
    "secondary_im",
)

# Over a path's largest magnitude: audible bins below it have a phase that fades with their magnitude, which float32
# transforms hardly resolve.
PHASE_FLOOR = 1e-5
# Converters' filters leave nothing above, and the generator is trained with what rounding makes of that.
AUDIBLE_HZ = 20_000.0


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


def unit_phase(spectrum: Array) -> Array:
    """Return spectrum / |spectrum|, and 0 where the magnitude vanishes: complex, same shape."""
    xp = array_namespace(spectrum)
    magnitude = xp.abs(spectrum)
    return spectrum / xp.clip(magnitude, min=float(xp.finfo(magnitude.dtype).smallest_normal))


def path_phase(path: Array) -> Array:
    """Compute the unit phase of a path, which fades where the path is all but silent.

    Parameters
    ----------
    path
        One-sided spectra, complex [..., n_bins].

    Returns
    -------
    Array
        path / max(|path|, PHASE_FLOOR max |path|) in bins up to AUDIBLE_HZ, path / |path| above: same shape.
    """
    xp = array_namespace(path)
    magnitude = xp.abs(path)
    tiny = float(xp.finfo(magnitude.dtype).smallest_normal)
    n_bins = path.shape[-1]
    n_audible = int(2 * (n_bins - 1) * AUDIBLE_HZ / SAMPLE_RATE_HZ) // 8 * 8
    floor = PHASE_FLOOR * xp.max(magnitude, axis=-1, keepdims=True)
    least = xp.where(xp.arange(n_bins, device=path.device) < n_audible, floor, tiny)
    return path / xp.clip(xp.maximum(magnitude, least), min=tiny)


def standardised(values: Array) -> Array:
    """Return zero mean and unit SD across frequency, per row; a constant row becomes zeros."""
    xp = array_namespace(values)
    centred = values - xp.mean(values, axis=-1, keepdims=True)
    deviation = xp.sqrt(xp.mean(centred**2, axis=-1, keepdims=True))
    return centred / xp.clip(deviation, min=1e-6)


def path_features(primary: Array, secondary: Array, w_reg: Array, log_base: Array) -> Array:
    """Compute the conditioning channels of the generator.

    Six of the ratio: standardised log |W_reg|; frequency in [-1, 1]; its phase u, that of P over that of S; the
    mismatch u u_MP*, u_MP the unit phase of the minimum-phase base. Six of the paths: standardised log |P| and
    log |S| and their phases (`path_phase`). Only log magnitudes are standardised, across frequency, per path.

    Parameters
    ----------
    primary, secondary, w_reg
        Spectra, complex [batch, n_bins].
    log_base
        Of `log_base_magnitude`, [batch, n_bins].

    Returns
    -------
    Array
        Real [batch, 12, n_bins], in the order of CHANNELS.
    """
    xp = array_namespace(primary, secondary, w_reg, log_base)
    # Side by side: on a GPU an operation costs the same for one spectrum and for four.
    spectra = xp.stack((w_reg, primary, secondary, minimum_phase_response(log_base)), axis=1)
    phases, logs = path_phase(spectra[:, 1:3]), standardised(floored_log(xp.abs(spectra[:, :3])))
    primary_phase, secondary_phase = phases[:, 0], phases[:, 1]
    ratio_phase = primary_phase * xp.conj(secondary_phase)
    mismatch = ratio_phase * xp.conj(unit_phase(spectra[:, 3]))
    frequency = xp.linspace(-1, 1, log_base.shape[-1], dtype=log_base.dtype, device=log_base.device)
    return xp.stack(
        (
            logs[:, 0],
            xp.broadcast_to(frequency, log_base.shape),
            ratio_phase.real,
            ratio_phase.imag,
            mismatch.real,
            mismatch.imag,
            logs[:, 1],
            logs[:, 2],
            primary_phase.real,
            primary_phase.imag,
            secondary_phase.real,
            secondary_phase.imag,
        ),
        axis=1,
    )
