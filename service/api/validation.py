"""Checks of paths, coherence and reference spectra, for every request format.

Each check raises a Problem that names the field.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import Problem
from synthesis.backends.base import Complex64, Float32
from synthesis.conventions import N_BINS, N_TAPS, SAMPLE_RATE_HZ
from synthesis.octave_bands import WIDE_BANDS

GRIDS = (4096, 8192, 16_384, 32_768, 65_536)
"""Numbers of points of the Fourier grids that a spectrum may use."""

N_UNCERTAINTY = 2 * len(WIDE_BANDS)
"""Values of an uncertainty: 31 bands of the primary path, then of the secondary path."""

MAX_RESPONSE_SAMPLES = 32_768

_N_BINS = tuple(n_fft // 2 + 1 for n_fft in GRIDS)

Path = Float32 | Complex64
"""One acoustic path as it was sent: complex64 is a one-sided spectrum, float32 a causal impulse response."""


def check_rate(rate: float) -> None:
    """The sample rate must be 48 kHz."""
    if rate != SAMPLE_RATE_HZ:
        raise Problem(
            "wrong-rate", f"sample_rate: {rate} Hz is not supported; send {SAMPLE_RATE_HZ} Hz", "sample_rate"
        )


def check_finite(values: NDArray[Any], field: str) -> None:
    """After the cast to float32 there must be no NaN or infinity."""
    finite = np.isfinite(values)
    if not finite.all():
        raise Problem(
            "unusable-paths" if field.startswith(("primary", "secondary", "feedback")) else "invalid-field",
            f"{field}: {int((~finite).sum())} values are NaN or infinite in float32, the first at index "
            f"{int(np.argmin(finite))}; send finite numbers",
            field,
        )


def check_path(path: Path, name: str, part: str | None = None) -> None:
    """A path must have a valid length and be finite and not all zero. part: field of the path with the numbers."""
    field = f"{name}.{part}" if part else name
    if np.iscomplexobj(path):
        check_n_bins(len(path), field)
    elif not 1 <= len(path) <= MAX_RESPONSE_SAMPLES:
        raise Problem(
            "unusable-paths",
            f"{field}: an impulse response of {len(path)} samples; send 1 to {MAX_RESPONSE_SAMPLES}",
            field,
        )
    check_finite(path, field)
    if not path.any():
        raise Problem("unusable-paths", f"{name}: the path is zero everywhere; check the measurement", name)


def check_n_bins(n_bins: int, field: str) -> None:
    """A one-sided spectrum must have n_fft / 2 + 1 bins of one of GRIDS."""
    if n_bins not in _N_BINS:
        raise Problem(
            "unusable-paths",
            f"{field}: a spectrum of {n_bins} bins; send n_fft / 2 + 1 bins of a power-of-two grid from {GRIDS[0]} "
            f"to {GRIDS[-1]}: {', '.join(map(str, _N_BINS))}",
            field,
        )


def check_pair(primary: Path, other: Path, name: str = "secondary") -> None:
    """Two spectra must have the same grid. name: of the other path."""
    if np.iscomplexobj(primary) and np.iscomplexobj(other) and len(primary) != len(other):
        raise Problem(
            "unequal-grids",
            f"{name}: {len(other)} bins, but primary has {len(primary)}; send both on the same grid",
            name,
        )


def n_grid_bins(primary: Path, secondary: Path) -> int:
    """Required bins of coherence and reference_psd: those of the spectra, or of the design grid without spectra."""
    return next((len(path) for path in (primary, secondary) if np.iscomplexobj(path)), N_BINS)


def check_grid(values: Float32, n_bins: int, field: str) -> None:
    """A quantity per bin must have the grid of the request."""
    if len(values) != n_bins:
        raise Problem(
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
        raise Problem("invalid-field", found, "uncertainty")
    check_finite(uncertainty, "uncertainty")
    if float(uncertainty.min()) < 0:
        found = f"uncertainty: {float(uncertainty.min()):.4g} is negative; send ratios of powers"
        raise Problem("out-of-range", found, "uncertainty")


def check_coherence(coherence: Float32) -> None:
    """The coherence must be finite and from 0 to 1."""
    check_finite(coherence, "coherence")
    low, high = float(coherence.min()), float(coherence.max())
    if low < 0 or high > 1:
        raise Problem("out-of-range", f"coherence: values from {low:.4g} to {high:.4g}; send 0 to 1", "coherence")


def check_reference_psd(psd: Float32) -> None:
    """The reference spectrum must be finite, not negative and not all zero."""
    check_finite(psd, "reference_psd")
    if float(psd.min()) < 0 or not psd.any():
        raise Problem(
            "out-of-range",
            f"reference_psd: values from {float(psd.min()):.4g} to {float(psd.max()):.4g}; send a mean square per "
            "bin, nowhere negative and not all zero",
            "reference_psd",
        )


def check_taps(taps: Float32) -> None:
    """A filter must have 2048 finite taps."""
    if len(taps) != N_TAPS:
        raise Problem("invalid-field", f"fir: {len(taps)} taps; send {N_TAPS}", "fir")
    check_finite(taps, "fir")
