"""The paths of a request, and what is given per bin beside them: checks, and the way to the design grid.

For every request format. Each check raises a HttpProblem that names the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from service.api.numbers import check_finite
from service.errors import HttpProblem
from synthesis.bands import WIDE_BANDS
from synthesis.conventions import DESIGN_N_FFT, MAX_TOTAL_PSD, MIN_TOTAL_PSD, N_BINS, N_TAPS, SAMPLE_RATE_HZ
from synthesis.design import MAX_LEVEL_DIFFERENCE_DB, level_db
from synthesis.errors import InvalidPaths
from synthesis.gain_curve import GainCurve
from synthesis.methods import spectrum
from synthesis.predict import END_OF_RESPONSE
from synthesis.profiles import profile_for_resolution
from synthesis.types import Complex64, Float32, Path, Paths, Problem

if TYPE_CHECKING:
    from service.api.request_types import ConditionBody

GRIDS = (4096, 8192, 16_384, 32_768, 65_536)
"""Numbers of points of the Fourier grids that a spectrum may use."""

N_UNCERTAINTY = 2 * len(WIDE_BANDS)
"""Values of an uncertainty: 31 bands of the primary path, then of the secondary path."""

MAX_RESPONSE_SAMPLES = 32_768

MAX_DISCARDED_ENERGY = 1e-4
"""Largest fraction of an impulse response's energy that resampling may discard: -40 dB."""

MAX_IMAGINARY = 0.03
"""Largest imaginary part at 0 Hz and at Nyquist, where a transform is real, over the largest magnitude: a delay by
a fraction of a sample leaves up to 0.005 at Nyquist, where measured paths are small."""

MAX_EFFECT_DB = 90.0
"""Largest level of a filter's sound over that of the noise, and largest below it: of the paths alone up to 100 dB
are accepted."""

_N_BINS = tuple(n_fft // 2 + 1 for n_fft in GRIDS)


def check_rate(rate: float) -> None:
    """The sample rate must be 48 kHz."""
    if rate != SAMPLE_RATE_HZ:
        raise HttpProblem(
            "wrong-rate", f"sample_rate: {rate} Hz is not supported; send {SAMPLE_RATE_HZ} Hz", "sample_rate"
        )


def check_path(path: Path, name: str, part: str | None = None) -> None:
    """A path must have a valid length and be finite and not all zero. part: field of the path with the numbers."""
    field = f"{name}.{part}" if part else name
    if is_spectrum(path):
        check_n_bins(len(path), field)
    elif not 1 <= len(path) <= MAX_RESPONSE_SAMPLES:
        raise HttpProblem(
            "unusable-paths",
            f"{field}: an impulse response of {len(path)} samples; send 1 to {MAX_RESPONSE_SAMPLES}",
            field,
        )
    check_finite(path, field)
    if not path.any():
        raise HttpProblem("unusable-paths", f"{name}: the path is zero everywhere; check the measurement", name)
    if is_spectrum(path) and path.imag[[0, -1]].any():
        imaginary, largest = np.abs(path.imag[[0, -1]]), np.abs(path).max()
        if imaginary.max() > MAX_IMAGINARY * largest:
            place = 0 if imaginary[0] > imaginary[1] else len(path) - 1
            raise HttpProblem(
                "unusable-paths",
                f"{field}: bin {place}, at {'0 Hz' if place == 0 else 'Nyquist'}, has an imaginary part of "
                f"{path.imag[place]:.3g}, which no impulse response has; send bins 0 to n_fft / 2 of its transform",
                field,
            )


def is_spectrum(path: NDArray[Any]) -> bool:
    """Whether a path is a spectrum, not an impulse response."""
    return path.dtype.kind == "c"


def check_n_bins(n_bins: int, field: str) -> None:
    """A one-sided spectrum must have n_fft / 2 + 1 bins of one of GRIDS."""
    if n_bins not in _N_BINS:
        raise HttpProblem(
            "unusable-paths",
            f"{field}: a spectrum of {n_bins} bins; send n_fft / 2 + 1 bins of a power-of-two grid from {GRIDS[0]} "
            f"to {GRIDS[-1]}: {', '.join(map(str, _N_BINS))}",
            field,
        )


def check_pair(primary: Path, other: Path, name: str = "secondary") -> None:
    """Two spectra must have the same grid. name: of the other path."""
    if is_spectrum(primary) and is_spectrum(other) and len(primary) != len(other):
        raise HttpProblem(
            "unequal-grids",
            f"{name}: {len(other)} bins, but primary has {len(primary)}; send both on the same grid",
            name,
        )


def n_grid_bins(primary: Path, secondary: Path) -> int:
    """Required bins of coherence and reference_psd: those of the spectra, or of the design grid without spectra."""
    return next((len(path) for path in (primary, secondary) if is_spectrum(path)), N_BINS)


def check_grid(values: Float32, n_bins: int, field: str) -> None:
    """A quantity per bin must have the grid of the request."""
    if len(values) != n_bins:
        raise HttpProblem(
            "unequal-grids",
            f"{field}: {len(values)} bins; send {n_bins}, the grid of the spectra (the design grid of {N_BINS} "
            "bins if both paths are impulse responses)",
            field,
        )


def check_together(
    primary: Path,
    secondary: Path,
    coherence: Float32 | None,
    reference_psd: Float32 | None,
    uncertainty: Float32 | None = None,
) -> None:
    """Check the grids of all quantities, and the values of all but the paths."""
    check_pair(primary, secondary)
    n_bins = n_grid_bins(primary, secondary)
    if coherence is not None:
        check_grid(coherence, n_bins, "coherence")
        check_coherence(coherence)
    if reference_psd is not None:
        check_grid(reference_psd, n_bins, "reference_psd")
        check_reference_psd(reference_psd)
    if uncertainty is not None:
        check_uncertainty(uncertainty)


def check_uncertainty(uncertainty: Float32) -> None:
    """An uncertainty has 62 finite values, none negative."""
    if len(uncertainty) != N_UNCERTAINTY:
        found = f"uncertainty: {len(uncertainty)} values; send {N_UNCERTAINTY}, as /calibrate answers them"
        raise HttpProblem("invalid-field", found, "uncertainty")
    check_finite(uncertainty, "uncertainty")
    if float(uncertainty.min()) < 0:
        found = f"uncertainty: {float(uncertainty.min()):.4g} is negative; send ratios of powers"
        raise HttpProblem("out-of-range", found, "uncertainty")


def check_coherence(coherence: Float32) -> None:
    """The coherence must be finite and from 0 to 1."""
    check_finite(coherence, "coherence")
    low, high = float(coherence.min()), float(coherence.max())
    if low < 0 or high > 1:
        raise HttpProblem(
            "out-of-range", f"coherence: values from {low:.4g} to {high:.4g}; send 0 to 1", "coherence"
        )


def check_reference_psd(psd: Float32) -> None:
    """The reference spectrum must be finite, not negative and not all zero."""
    check_finite(psd, "reference_psd")
    total = float(psd.sum(dtype=np.float64))
    if psd.any() and not MIN_TOTAL_PSD <= total <= MAX_TOTAL_PSD:
        found = (
            f"reference_psd: its power is {total:.3g}; scale it, which changes no filter, to {MIN_TOTAL_PSD:g} to "
        )
        raise HttpProblem("out-of-range", f"{found}{MAX_TOTAL_PSD:g}", "reference_psd")
    if float(psd.min()) < 0 or not psd.any():
        raise HttpProblem(
            "out-of-range",
            f"reference_psd: values from {float(psd.min()):.4g} to {float(psd.max()):.4g}; send a mean square per "
            "bin, nowhere negative and not all zero",
            "reference_psd",
        )


def check_taps(taps: Float32) -> None:
    """A filter must have 2048 finite taps."""
    if len(taps) != N_TAPS:
        raise HttpProblem("invalid-field", f"fir: {len(taps)} taps; send {N_TAPS}", "fir")
    check_finite(taps, "fir")


def check_some_taps(taps: Float32) -> None:
    """A filter that is verified, or in whose place another is designed, must do something."""
    if not taps.any():
        raise HttpProblem("invalid-field", "fir: all taps are zero; send the filter of a design", "fir")


def check_effect(taps: Float32, problem: Problem, *, may_be_none: bool = False) -> None:
    """What a filter makes the loudspeaker play must be of the noise's order. may_be_none: or far below it."""
    filtered = np.fft.rfft(taps.astype(np.float64), DESIGN_N_FFT)
    for each in problem.conditions:
        heard_db = level_db(each.primary)
        if abs(level_db(each.secondary) - heard_db) > MAX_LEVEL_DIFFERENCE_DB:
            continue  # the paths themselves are refused
        with np.errstate(over="ignore"):
            played = (spectrum(each.secondary) * filtered).astype(np.complex64)
        effect_db = level_db(played) - heard_db
        if not effect_db <= MAX_EFFECT_DB or (effect_db < -MAX_EFFECT_DB and not may_be_none):
            word = "below" if effect_db < 0 else "above"
            raise HttpProblem(
                "out-of-range",
                f"fir: what the loudspeaker plays of it is {abs(effect_db):.0f} dB {word} the noise on these "
                "paths; send the taps of a design, in its scale, and the paths that they were designed for",
                "fir",
            )


def joint_problem(
    conditions: Sequence[ConditionBody],
    reference_psd: Float32 | None,
    max_gain_db: float | GainCurve,
    **options: Any,
) -> Problem:
    """A `Problem` from all conditions that one filter shall serve, on the design grid. They have been checked.
    options: further fields of `Problem`.

    Raises InvalidPaths if a spectrum's impulse response is too long for the design grid, with the condition's name
    where there are several.
    """
    options |= {"max_gain_db": max_gain_db, "reference_psd": None if reference_psd is None else _psd(reference_psd)}
    if len(conditions) == 1:
        return Problem((_resampled(conditions[0]),), **options)
    return Problem(tuple(_named(*each) for each in enumerate(conditions)), **options)


def _named(n: int, sent: ConditionBody) -> Paths:
    """As `_resampled`, of one condition among several."""
    try:
        return _resampled(sent)
    except InvalidPaths as error:
        name = f"conditions.{n}"
        raise InvalidPaths(f"{name}: {error}", f"{name}.{error.field}") from None


def _resampled(sent: ConditionBody) -> Paths:
    """One condition on the design grid."""
    return Paths(
        _path(sent.primary, "primary"),
        _path(sent.secondary, "secondary"),
        None if sent.coherence is None else _coherence(sent.coherence),
        uncertainty=None if sent.uncertainty is None else sent.uncertainty.reshape(2, -1),
        feedback=None if sent.feedback is None else _path(sent.feedback, "feedback"),
        weight=sent.weight,
        label=sent.label,
    )


def resolved_profile(name: str, paths: Sequence[Path]) -> str:
    """Choose `fine` instead of `fast` where a path is too long for the grid of `fast`.

    Parameters
    ----------
    name
        The profile asked for.
    paths
        As they were sent. Zeros at the end of a response do not count, nor does it matter whether a response or its
        transform was sent.

    Returns
    -------
    str
        As `profile_for_resolution`.
    """
    for path in paths:
        if (suited := profile_for_resolution(name, 2 * _response_length(path))) != name:
            return suited
    return name


def _response_length(path: Path) -> int:
    """Samples of the response up to the last above END_OF_RESPONSE of its largest."""
    response = np.abs(np.fft.irfft(path) if is_spectrum(path) else path)
    above = np.flatnonzero(response > END_OF_RESPONSE * response.max())
    return int(above[-1]) + 1 if len(above) else 0


def _path(path: Path, name: str) -> Path:
    """An impulse response unchanged; a spectrum resampled by zero-padding its impulse response, which is exact, or
    by truncating it, which is refused if more than -40 dB of the energy would be lost."""
    if not is_spectrum(path) or len(path) == N_BINS:
        return path
    response = np.fft.irfft(path.astype(np.complex128))  # in float64: squares of large float32 values overflow
    kept = response[:DESIGN_N_FFT]
    total, discarded = float(np.sum(response**2)), float(np.sum(response[DESIGN_N_FFT:] ** 2))
    if discarded > MAX_DISCARDED_ENERGY * total:
        raise InvalidPaths(
            f"{name}: resampling the spectrum to {DESIGN_N_FFT} points would discard more than -40 dB of its "
            "impulse response's energy; send a shorter response",
            name,
        )
    with np.errstate(over="ignore"):  # infinities are refused later, with other unusable paths
        resampled: Complex64 = np.fft.rfft(kept, DESIGN_N_FFT).astype(np.complex64)
    return resampled


def _coherence(coherence: Float32) -> Float32:
    """Interpolated linearly over frequency."""
    if len(coherence) == N_BINS:
        return coherence
    found = np.interp(np.linspace(0, 1, N_BINS), np.linspace(0, 1, len(coherence)), coherence)
    return found.astype(np.float32)


def _psd(psd: Float32) -> Float32:
    """The same noise power on the design grid.

    Each bin spreads its power evenly over its width (half a width at 0 Hz and at Nyquist), and each bin of the
    design grid sums what falls into its width: total power is kept, no bin is negative, and white noise stays
    white.
    """
    if len(psd) == N_BINS:
        return psd
    cumulative = np.concatenate(([0.0], np.cumsum(psd, dtype=np.float64)))
    collected = np.diff(np.interp(_bin_edges(N_BINS), _bin_edges(len(psd)), cumulative))
    return collected.astype(np.float32)


def _bin_edges(n_bins: int) -> NDArray[np.float64]:
    """Edges of the bins of a one-sided spectrum, 0 to 1 from 0 Hz to Nyquist: [n_bins + 1]."""
    return np.clip((np.arange(n_bins + 1) - 0.5) / (n_bins - 1), 0, 1)
