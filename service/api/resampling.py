"""Resamples the spectra, coherence and reference spectrum of a request to the design grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.api.validation import Path
from synthesis.backends.base import Complex64, Condition, DesignInput, Float32
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidPaths
from synthesis.gain_curve import GainCurve

MAX_DISCARDED_ENERGY = 1e-4
"""Largest fraction of an impulse response's energy that resampling may discard: -40 dB."""


class PathsOfCondition(NamedTuple):
    """One condition as it was sent; fields as of `Condition`."""

    primary: Path
    secondary: Path
    coherence: Float32 | None = None
    feedback: Path | None = None
    weight: float = 1.0
    label: str = ""
    uncertainty: Float32 | None = None


def joint_input(
    conditions: Sequence[PathsOfCondition],
    reference_psd: Float32 | None,
    max_gain_db: float | GainCurve,
    **options: Any,
) -> DesignInput:
    """A `DesignInput` from all conditions that one filter shall serve, on the grid of a request, which `validation`
    has checked. options: further fields of `DesignInput`.

    Raises InvalidPaths if a spectrum's impulse response is too long for the design grid, with the condition's name
    where there are several.
    """
    fields = []
    for n, each in enumerate(conditions):
        try:
            fields.append(_fields(each))
        except InvalidPaths as error:
            if len(conditions) == 1:
                raise
            name = f"conditions.{n}"
            raise InvalidPaths(f"{name}: {error}", f"{name}.{error.field}") from None
    first, *others = fields
    return DesignInput(
        **first,
        reference_psd=None if reference_psd is None else _psd(reference_psd),
        max_gain_db=max_gain_db,
        others=tuple(Condition(**each) for each in others),
        **options,
    )


def _fields(sent: PathsOfCondition) -> dict[str, Any]:
    return sent._asdict() | {
        "primary": _path(sent.primary, "primary"),
        "secondary": _path(sent.secondary, "secondary"),
        "coherence": None if sent.coherence is None else _coherence(sent.coherence),
        "uncertainty": None if sent.uncertainty is None else sent.uncertainty.reshape(2, -1),
        "feedback": None if sent.feedback is None else _path(sent.feedback, "feedback"),
    }


def n_points(path: Path) -> int:
    """Samples of an impulse response, or points of a spectrum's grid."""
    return 2 * (len(path) - 1) if np.iscomplexobj(path) else len(path)


def _path(path: Path, name: str) -> Path:
    """An impulse response unchanged; a spectrum resampled by zero-padding its impulse response, which is exact, or
    by truncating it, which is refused if more than -40 dB of the energy would be lost."""
    if not np.iscomplexobj(path) or len(path) == N_BINS:
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
        spectrum: Complex64 = np.fft.rfft(kept, DESIGN_N_FFT).astype(np.complex64)
    return spectrum


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
