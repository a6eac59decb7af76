"""Power of the residual per band as a function of a smooth filter response, and the objective J of it.

Within a sub-band narrow enough for W to be constant, the power at the error microphone is a quadratic in W,

    sum_k psd_k |P_k - S_k W|^2 = A - 2 Re(conj(C) W) + D |W|^2 = A - |C|^2 / D + D |W - C / D|^2,

A = sum psd |P|^2, C = sum psd P conj(S), D = sum psd |S|^2: exact however rough P and S are. A few hundred sub-bands
stand for the 16385 bins. J is that of `prime_anc.method.updates.objective`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, band_membership
from prime_anc.method.conventions import BIN_HZ, DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidPaths
from prime_anc.method.profiles import FAST, SILENCE, RefinementProfile
from prime_anc.method.updates.expected_error import constant_shares, weighed
from prime_anc.method.updates.objective import objective

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

# Sub-bands of a third of an octave, 3 % wide: W turns by a fraction of a radian in one. Below 100 Hz every bin is a
# sub-band.
SUB_BANDS_PER_BAND = 8

# Share of the reference's power below which rounding in double precision lies.
ROUNDING = 1e-24

_IN_TARGET = np.isin(WIDE_BANDS, NR_BANDS)


@dataclass(frozen=True, eq=False)
class PathSpectra:
    """Paths of one condition on the design grid."""

    # P, complex [16385].
    primary: Complex
    # S, complex [16385].
    secondary: Complex
    # Weight in J, above 0.
    weight: float = 1.0
    # Unknown over known power of both paths per band, [2, 31]; None: zero.
    uncertainty: NDArray[np.floating] | None = None


@dataclass(frozen=True, eq=False)
class ResidualPower:
    """Quadratics in W per condition and sub-band, [n_conditions, n].

    All powers are relative to the total disturbance power, so the unit of the spectrum does not matter.
    """

    # Optimum C / D.
    optimum: Complex
    # Curvature D.
    curvature: Real
    # Least power A - |C|^2 / D, and what no filter changes.
    least: Real
    # Expected power per band with W = 0, [n_conditions, 31].
    disturbance: Real
    # Weights of the conditions, with sum one.
    share: Real
    # Sub-bands per band.
    per_band: int = SUB_BANDS_PER_BAND
    # Profile whose weights J has.
    profile: RefinementProfile = FAST

    @classmethod
    def of(
        cls,
        conditions: Sequence[PathSpectra],
        reference_psd: NDArray[np.floating],
        profile: RefinementProfile = FAST,
    ) -> ResidualPower:
        """Compute the quadratics of one or several conditions.

        Parameters
        ----------
        reference_psd
            Mean square of the reference per bin, [16385].
        profile
            `fast`, or that with other weights in J.

        Raises
        ------
        InvalidPaths
            A path has no power where the reference has any.
        """
        primary = np.stack([np.asarray(condition.primary, np.complex128) for condition in conditions])
        secondary = np.stack([np.asarray(condition.secondary, np.complex128) for condition in conditions])
        psd = np.asarray(reference_psd, np.float64)
        scale = np.abs(primary).max()
        if not scale > 0 or not np.abs(secondary).max() > 0:
            raise InvalidPaths("paths: all values are zero; measure them again")
        primary, level = primary / scale, np.abs(secondary).max()
        primary, secondary, (whole, constant) = expected(primary, secondary / level, conditions)
        first, band = sub_bands()
        power = psd * np.abs(primary) ** 2

        def sums(values: NDArray[np.generic]) -> NDArray[np.generic]:
            return np.add.reduceat(values, first, axis=-1)[..., :-1]

        totals = (power @ band_membership(WIDE_BANDS, DESIGN_N_FFT)).sum(-1)
        total = totals.mean()
        if not (totals > 0).all():
            raise InvalidPaths("primary: it has no power where the reference has any; measure it again", "primary")
        a, d = sums(power) / total, sums(psd * np.abs(secondary) ** 2) / total
        if not d.sum() * total > ROUNDING * psd.sum():
            raise InvalidPaths(
                "secondary: it has no power where the reference has any; measure it again", "secondary"
            )
        c = sums(psd * primary * secondary.conj()) / total
        optimum = np.divide(c, d, out=np.zeros_like(c), where=d > 0)
        weights = np.array([condition.weight for condition in conditions], np.float64)
        return cls(
            optimum=optimum * (scale / level),
            curvature=d * (level / scale) ** 2,
            least=np.maximum(a - np.abs(optimum) ** 2 * d, 0) + constant[:, band] * a,
            disturbance=whole * (power @ band_membership(WIDE_BANDS, DESIGN_N_FFT)) / total,
            share=weights / weights.sum(),
            profile=profile,
        )

    def below(self, highest_hz: float) -> ResidualPower:
        """Restrict the filter to frequencies below a limit; above it the disturbance remains."""
        is_played = centres_hz(self.per_band) < highest_hz
        return replace(
            self,
            optimum=np.where(is_played, self.optimum, 0),
            curvature=np.where(is_played, self.curvature, 0),
            least=np.where(is_played, self.least, self.least + self.curvature * np.abs(self.optimum) ** 2),
        )

    def halved(self) -> ResidualPower:
        """Join neighbouring sub-bands of a band in pairs: coarser, and twice as fast."""
        fine, coarse = sub_bands(self.per_band)[0], sub_bands(self.per_band // 2)[0]
        first = np.searchsorted(fine, coarse[:-1])
        curvature, matched = (
            np.add.reduceat(item, first, axis=-1) for item in (self.curvature, self.curvature * self.optimum)
        )
        least = np.add.reduceat(self.least + self.curvature * np.abs(self.optimum) ** 2, first, axis=-1)
        optimum = np.divide(matched, curvature, out=np.zeros_like(matched), where=curvature > 0)
        return replace(
            self,
            optimum=optimum,
            curvature=curvature,
            least=np.maximum(least - np.abs(optimum) ** 2 * curvature, 0),
            per_band=self.per_band // 2,
        )

    def in_bands(self, response: Complex) -> Real:
        """Compute band powers E of a response at `centres_hz`, complex [..., n] -> [..., n_conditions, 31]."""
        fine = self.least + self.curvature * np.abs(response[..., None, :] - self.optimum) ** 2
        power: Real = fine @ _to_bands(self.per_band)
        return power

    def objective(self, power: Real) -> tuple[Real, Real]:
        """Compute J of band powers [..., n_conditions, 31], and its slopes dJ / dl."""
        log_ratio = np.log((power + SILENCE) / (self.disturbance + SILENCE))
        return objective(log_ratio, self.share, self.profile)

    def noise_reduction_db(self, power: Real) -> Real:
        """Average the noise reduction (dB) over the conditions and, by J's weights, from 50 Hz to 5 kHz."""
        reduction = 10 * np.log10((self.disturbance + SILENCE) / (power + SILENCE))
        weights = 1.0 if self.profile.band_weights is None else np.array(self.profile.band_weights)[_IN_TARGET]
        mean: Real = (self.share * (weights * reduction[..., _IN_TARGET]).mean(-1)).sum(-1)
        return mean


def expected(
    primary: Complex, secondary: Complex, conditions: Sequence[PathSpectra]
) -> tuple[Complex, Complex, tuple[Real, Real]]:
    """Return the conditions' paths `weighed` by their uncertainty, and the `constant_shares` of their error."""
    none = np.zeros((2, len(WIDE_BANDS)))
    uncertainty = [none if item.uncertainty is None else item.uncertainty for item in conditions]
    unknown = np.stack(uncertainty).astype(np.float64)
    return *weighed(primary, secondary, unknown[:, 1]), constant_shares(unknown[:, 0], unknown[:, 1])


@cache
def sub_bands(per_band: int = SUB_BANDS_PER_BAND) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first bin of each sub-band, ending with the bin after the last, and its band (0 to 30).

    Parameters
    ----------
    per_band
        SUB_BANDS_PER_BAND, or that divided by a power of two, which joins pairs of finer sub-bands.
    """
    if per_band < SUB_BANDS_PER_BAND:
        first, band = sub_bands(2 * per_band)
        position = np.arange(len(band)) - np.searchsorted(band, band)
        kept = position % 2 == 0
        return np.concatenate((first[:-1][kept], first[-1:])), band[kept]
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    bins = [np.flatnonzero(column) for column in membership.T]
    parts = [np.array_split(bin_, min(per_band, len(bin_))) for bin_ in bins]
    firsts = [part[0] for item in parts for part in item]
    return np.array([*firsts, bins[-1][-1] + 1]), np.repeat(np.arange(len(parts)), [len(part) for part in parts])


@cache
def centres_hz(per_band: int = SUB_BANDS_PER_BAND) -> Real:
    """Return the mean frequency (Hz) of each sub-band, [n]."""
    first, _ = sub_bands(per_band)
    centres: Real = (first[:-1] + first[1:] - 1) / 2 * BIN_HZ
    return centres


@cache
def _to_bands(per_band: int) -> Real:
    """Return the membership of sub-bands in bands, 0 or 1, [n, 31]."""
    _, band = sub_bands(per_band)
    return (band[:, None] == np.arange(len(WIDE_BANDS))).astype(np.float64)


def spread(slope_over_power: Real, per_band: int = SUB_BANDS_PER_BAND) -> Real:
    """Expand values per band [..., 31] to sub-bands [..., n]."""
    _, band = sub_bands(per_band)
    return slope_over_power[..., band]


def on_bins(per_band: Real) -> Real:
    """Expand values per band [..., 31] to bins of the design grid [..., 16385], 0 outside the bands."""
    bins: Real = per_band @ band_membership(WIDE_BANDS, DESIGN_N_FFT).T
    assert bins.shape[-1] == N_BINS
    return bins
