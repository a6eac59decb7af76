"""What holds for every path, coherence and reference spectrum, however it was sent.

All checks raise Problem and name the field, what was found and what was expected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.designs import Float32, Path
from service.errors import Problem
from synthesis.conventions import N_BINS, N_TAPS, SAMPLE_RATE_HZ

GRIDS = (4096, 8192, 16_384, 32_768, 65_536)
"""Fourier grids that a spectrum may lie on."""

MAX_RESPONSE_SAMPLES = 32_768

_N_BINS = tuple(n_fft // 2 + 1 for n_fft in GRIDS)


def check_rate(rate: float) -> None:
    """The only sample rate is 48 kHz."""
    if rate != SAMPLE_RATE_HZ:
        raise Problem("wrong-rate", f"sample_rate: found {rate} Hz, expected {SAMPLE_RATE_HZ} Hz", "sample_rate")


def check_finite(values: NDArray[Any], field: str) -> None:
    """No NaN and no infinity after the cast to float32."""
    finite = np.isfinite(values)
    if not finite.all():
        first = int(np.argmin(finite))
        raise Problem(
            "unusable-paths" if field.startswith(("primary", "secondary")) else "invalid-field",
            f"{field}: found {int((~finite).sum())} values that are NaN or infinite in float32, the first at "
            f"index {first}; expected finite numbers only",
            field,
        )


def check_path(path: Path, name: str, part: str | None = None) -> None:
    """A legal length, finite numbers, some energy. part: the field inside the path that holds the numbers."""
    field = f"{name}.{part}" if part else name
    if np.iscomplexobj(path):
        check_n_bins(len(path), field)
    elif not 1 <= len(path) <= MAX_RESPONSE_SAMPLES:
        raise Problem(
            "unusable-paths",
            f"{field}: found an impulse response of {len(path)} samples, expected 1 to {MAX_RESPONSE_SAMPLES}",
            field,
        )
    check_finite(path, field)
    if not path.any():
        raise Problem("unusable-paths", f"{name}: found an all-zero path, expected some energy", name)


def check_n_bins(n_bins: int, field: str) -> None:
    """A one-sided spectrum has n_fft / 2 + 1 bins of a legal grid."""
    if n_bins not in _N_BINS:
        raise Problem(
            "unusable-paths",
            f"{field}: found {n_bins} bins, expected n_fft / 2 + 1 of a power-of-two grid from {GRIDS[0]} to "
            f"{GRIDS[-1]}: one of {', '.join(map(str, _N_BINS))}",
            field,
        )


def check_pair(primary: Path, secondary: Path) -> None:
    """Two spectra lie on one grid."""
    if np.iscomplexobj(primary) and np.iscomplexobj(secondary) and len(primary) != len(secondary):
        raise Problem(
            "unequal-grids",
            f"secondary: found {len(secondary)} bins, expected the {len(primary)} of primary",
            "secondary",
        )


def grid_bins(n_bins: int | None) -> int:
    """Bins that coherence and reference_psd have: the spectra's, or the design grid's without a spectrum."""
    return N_BINS if n_bins is None else n_bins


def spectrum_bins(primary: Path, secondary: Path) -> int | None:
    """Bins of the spectra of a request; None where both paths are impulse responses."""
    for path in (primary, secondary):
        if np.iscomplexobj(path):
            return len(path)
    return None


def check_grid(values: Float32, n_bins: int, field: str) -> None:
    """A quantity per bin lies on the grid of the request."""
    if len(values) != n_bins:
        raise Problem(
            "unequal-grids",
            f"{field}: found {len(values)} bins, expected {n_bins}, the grid of the spectra (the design grid of "
            f"{N_BINS} bins where both paths are impulse responses)",
            field,
        )


def check_together(
    primary: Path, secondary: Path, coherence: Float32 | None, reference_psd: Float32 | None
) -> None:
    """What concerns several quantities at once, and those that lie on the paths' grid."""
    check_pair(primary, secondary)
    n_bins = grid_bins(spectrum_bins(primary, secondary))
    if coherence is not None:
        check_grid(coherence, n_bins, "coherence")
        check_coherence(coherence)
    if reference_psd is not None:
        check_grid(reference_psd, n_bins, "reference_psd")
        check_reference_psd(reference_psd)


def check_coherence(coherence: Float32) -> None:
    """Finite and from 0 to 1."""
    check_finite(coherence, "coherence")
    low, high = float(coherence.min()), float(coherence.max())
    if low < 0 or high > 1:
        raise Problem(
            "out-of-range", f"coherence: found values from {low:.4g} to {high:.4g}, expected 0 to 1", "coherence"
        )


def check_reference_psd(psd: Float32) -> None:
    """Finite, nowhere negative, not all zero."""
    check_finite(psd, "reference_psd")
    if float(psd.min()) < 0 or not psd.any():
        raise Problem(
            "out-of-range",
            f"reference_psd: found values from {float(psd.min()):.4g} to {float(psd.max()):.4g}, expected a mean "
            "square per bin: nowhere negative and not all zero",
            "reference_psd",
        )


def check_taps(taps: Float32) -> None:
    """2048 finite taps."""
    if len(taps) != N_TAPS:
        raise Problem("invalid-field", f"fir: found {len(taps)} taps, expected {N_TAPS}", "fir")
    check_finite(taps, "fir")
