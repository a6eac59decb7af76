"""Powers of filters per band, from which `synthesis.predict` predicts, on NumPy and torch arrays alike."""

from __future__ import annotations

from array_api_compat import array_namespace

from synthesis.arrays import Array, squared_magnitude
from synthesis.bands import WIDE_BANDS, band_matrix
from synthesis.conventions import COHERENCE_FLOOR
from synthesis.predict import END_OF_RESPONSE, LATE_FROM_SAMPLES

# -60 dB: a response with a smaller late share was cut, and a smaller uncertainty is not credible.
SMALLEST_SHARE = 1e-6


def band_sums(
    primary: Array,
    secondary: Array,
    taps: Array,
    reference_psd: Array,
    coherence: Array | None = None,
    *,
    is_true: bool = False,
) -> Array:
    """Sum what filters leave over the bands.

    Parameters
    ----------
    primary, secondary
        P and S, complex [batch or 1, n_bins].
    taps
        [batch, n_taps].
    reference_psd
        One-sided, mean square per bin, [n_bins] or [batch, n_bins].
    coherence
        Of the calibration, [batch, n_bins]; None: unknown.
    is_true
        Whether the paths are exact, so that sums which only serve their uncertainty are zero.

    Returns
    -------
    Array
        [batch, N_SUMS] for `synthesis.predict.predict`.
    """
    xp = array_namespace(primary, secondary, taps, reference_psd)
    n_fft = 2 * (primary.shape[-1] - 1)
    membership = band_matrix(WIDE_BANDS, n_fft, reference_psd)
    response = xp.fft.rfft(taps, n=n_fft)
    played = secondary * response
    error = primary - played
    cross = reference_psd * xp.conj(error) * played
    power = reference_psd * squared_magnitude(primary)
    gain = squared_magnitude(response)
    powers = [
        power,
        reference_psd * squared_magnitude(error),
        reference_psd * squared_magnitude(played),
        cross.real,
        cross.imag,
    ]
    if is_true:
        powers += [xp.zeros_like(power)] * 2
        length = xp.zeros_like(gain[..., 0])
    else:
        heard = xp.fft.irfft(primary, n=n_fft)
        powers.append(xp.zeros_like(power) if coherence is None else _unexplained(power, coherence))
        powers.append(reference_psd * squared_magnitude(_late(heard)))
        lag = xp.arange(1, n_fft + 1, dtype=power.dtype, device=power.device)
        magnitude = xp.abs(heard)
        is_heard = magnitude > END_OF_RESPONSE * xp.max(magnitude, axis=-1, keepdims=True)
        length = xp.max(lag * is_heard, axis=-1)
    summed = xp.broadcast_arrays(*(each @ membership for each in powers))
    rest = xp.broadcast_arrays(xp.max(gain, axis=-1), xp.sum(reference_psd * gain, axis=-1), length)
    return xp.concat((*summed, xp.stack(rest, axis=-1)), axis=-1)


def band_uncertainty(primary: Array, coherence: Array, reference_psd: Array) -> Array:
    """Divide the power that a coherence leaves unexplained by the explained, per band of the 31: [batch, 31]."""
    power = reference_psd * squared_magnitude(primary)
    return _band_ratio(_unexplained(power, coherence), power)


def late_share(primary: Array, reference_psd: Array) -> Array:
    """Share of the primary response's power from sample 2048 on, per band of the 31: [batch, 31]."""
    xp = array_namespace(primary, reference_psd)
    late = _late(xp.fft.irfft(primary, n=2 * (primary.shape[-1] - 1)))
    return _band_ratio(reference_psd * squared_magnitude(late), reference_psd * squared_magnitude(primary))


def learn_uncertainty(primary: Array, coherence: Array, reference_psd: Array) -> Array:
    """Learn from support listeners what to expect of estimates whose calibration tells no coherence.

    Parameters
    ----------
    primary, coherence
        Of the support's ears, [batch, n_bins].
    reference_psd
        [n_bins].

    Returns
    -------
    Array
        [2, 31]: typical uncertainty T and typical uncertainty per late share r. Both are geometric means over the
        batch, because the shares of single ears span 10 dB and more.
    """
    xp = array_namespace(primary, coherence, reference_psd)
    uncertainty = xp.clip(band_uncertainty(primary, coherence, reference_psd), min=SMALLEST_SHARE)
    share = xp.clip(late_share(primary, reference_psd), min=SMALLEST_SHARE)
    return xp.exp(xp.mean(xp.log(xp.stack((uncertainty, uncertainty / share))), axis=1))


def _late(response: Array) -> Array:
    """Spectrum of what arrives from LATE_FROM_SAMPLES on."""
    xp = array_namespace(response)
    early, late = response[..., :LATE_FROM_SAMPLES], response[..., LATE_FROM_SAMPLES:]
    return xp.fft.rfft(xp.concat((xp.zeros_like(early), late), axis=-1))


def _unexplained(power: Array, coherence: Array) -> Array:
    known = array_namespace(coherence).clip(coherence, min=COHERENCE_FLOOR, max=1)
    return (1 - known) / known * power


def _band_ratio(part: Array, whole: Array) -> Array:
    xp = array_namespace(part, whole)
    membership = band_matrix(WIDE_BANDS, 2 * (whole.shape[-1] - 1), whole)
    return (part @ membership) / xp.clip(whole @ membership, min=float(xp.finfo(whole.dtype).smallest_normal))
