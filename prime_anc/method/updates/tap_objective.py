"""J of a filter's taps (`method.objective` and a penalty on |W| above its ceiling), and its normal equations."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from prime_anc.method.arrays import squared_magnitude
from prime_anc.method.bands import band_matrix, columns
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.predict import HIGH_BANDS
from prime_anc.method.profiles import GUARD, LEAST_CEILING, MOST_CEILING, SILENCE, RefinementProfile
from prime_anc.method.start.fir_wiener import DRIVE_LIMIT
from prime_anc.method.updates.expected_error import constant_shares
from prime_anc.method.updates.objective import objective


class TapObjective:
    """J and its normal equations, for a filter per item of a batch or for one filter of several conditions.

    Powers are relative to the total disturbance, which does not change J and keeps float32 from overflowing.
    """

    def __init__(
        self,
        paths: AcousticPaths,
        reference_psd: Tensor,
        profile: RefinementProfile,
        max_gain_db: Tensor | float | None,
        shares: Tensor | None = None,
        uncertainty: Tensor | None = None,
    ) -> None:
        """Compute what does not depend on the filter.

        Parameters
        ----------
        paths
            Paths of the items or, with `shares`, of the conditions, `weighed` by their uncertainty.
        reference_psd
            Mean square per bin, [n_bins] or [batch, n_bins].
        profile
            Settings of the updates.
        max_gain_db
            Ceiling on |W|, a number or [batch, 1]; None: no ceiling.
        shares
            Weights of the conditions, of sum one, [n_conditions]; responses and J then have a batch of one.
        uncertainty
            u_p and u_s, [batch or conditions, 2, 31]; None: zero.
        """
        self.shares = shares
        bands = profile.risk_bands
        self._profile, self._alone = profile, reference_psd.new_ones(1)
        self.membership = band_matrix(bands, paths.n_fft, reference_psd)
        primary_power, secondary_power = squared_magnitude(paths.primary), squared_magnitude(paths.secondary)
        power = reference_psd * primary_power
        # Finite weights even if the primary path has no power in any band or bin of this grid.
        loudest = reference_psd.sum(-1, keepdim=True) * primary_power.amax(-1, keepdim=True)
        tiny = torch.finfo(power.dtype).tiny
        total = torch.maximum((power @ self.membership).sum(-1, keepdim=True), SILENCE * loudest).clamp_min(tiny)
        self.weight = torch.where(total > tiny, reference_psd / total, 0.0)
        in_bands: Tensor = (power / total) @ self.membership
        self.disturbance, self.constant = in_bands + SILENCE, torch.full_like(in_bands, SILENCE)
        if uncertainty is not None:
            whole, constant = constant_shares(*uncertainty[..., columns(bands)].unbind(-2))
            self.disturbance, self.constant = whole * in_bands + SILENCE, constant * in_bands + SILENCE
        per_octave = _per_octave(paths.n_bins, power.dtype, str(power.device))

        self.ceiling: Tensor | None = None
        if profile.ceiling_weight > 0:
            self.ceiling = _drive_ceiling(primary_power, secondary_power)
            if max_gain_db is not None:
                requested = torch.as_tensor(10 ** (max_gain_db / 20), dtype=power.dtype)
                self.ceiling = torch.minimum(self.ceiling, requested)
            if shares is not None:
                self.ceiling = self.ceiling.amin(0, keepdim=True)
            self.ceiling_weight = profile.ceiling_weight * per_octave

    def band_power(self, residual: Tensor) -> Tensor:
        """Compute E_b of a residual of the weighed paths, [..., n_bins] -> [..., n_bands]."""
        return self.in_bands(squared_magnitude(residual)) + self.constant

    def in_bands(self, power: Tensor) -> Tensor:
        """Sum power per bin under the reference, relative to the total disturbance, [..., n_bins] -> [..., n_bands]."""
        return (self.weight * power) @ self.membership

    def overshoot(self, response: Tensor) -> Tensor:
        """Compute [|W| / ceiling - 1]_+ per bin."""
        assert self.ceiling is not None
        return (response.abs() / self.ceiling - 1).clamp_min(0)

    def value(self, band_power: Tensor, response: Tensor) -> Tensor:
        """Compute J, [...], from E_b [..., n_bands] and W [..., n_bins].

        With conditions from [..., n_conditions, n_bands] and [..., 1, n_bins]: [..., 1].
        """
        value, _ = self._without_penalty(band_power)
        if self.ceiling is not None:
            value = value + (self.ceiling_weight * self.overshoot(response).square()).sum(-1)
        return value

    def band_weight(self, band_power: Tensor) -> Tensor:
        """Compute c_b = (dJ/dl_b) / E_b, [batch, n_bands]: positive."""
        _, slope = self._without_penalty(band_power)
        return slope / band_power

    def _without_penalty(self, band_power: Tensor) -> tuple[Tensor, Tensor]:
        """Compute J and its slopes dJ/dl_b, without the penalty on |W|."""
        log_ratio = torch.log(band_power / self.disturbance)
        if self.shares is not None:
            value, slope = objective(log_ratio, self.shares, self._profile)
            return value.unsqueeze(-1), slope
        value, slope = objective(log_ratio.unsqueeze(-2), self._alone, self._profile)
        return value, slope.squeeze(-2)

    def normal_equations(
        self, paths: AcousticPaths, residual: Tensor, response: Tensor, band_power: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the undamped normal equations: theory (15).

        Weights are zero at 0 Hz and Nyquist, so that 2 Re sum_k over one-sided bins is n_fft times the inverse
        transform.

        Returns
        -------
        symbol, descent
            Spectra, [batch, n_bins], whose inverse transforms start with the matrix' first column (real) and the
            negative gradient (complex).
        """
        weight = self.weight * (self.band_weight(band_power) @ self.membership.T)
        symbol = weight * squared_magnitude(paths.secondary)
        descent = weight * paths.secondary.conj() * residual
        if self.shares is not None:
            symbol, descent = symbol.sum(0, keepdim=True), descent.sum(0, keepdim=True)
        if self.ceiling is not None:
            stiffness, excess = self.penalty_terms(response)
            symbol, descent = symbol + stiffness, descent - excess
        return symbol * paths.n_fft, descent * paths.n_fft

    def penalty_terms(self, response: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the penalty adds to the symbol, real, and takes from the descent, complex, [batch, n_bins].

        The square of the excess of |W| over the ceiling is bounded by |W - ceiling W0 / |W0||^2, W0 the current filter,
        which keeps the matrix Toeplitz. Below the ceiling |W - W0|^2 bounds it, of which GUARD is enough.
        """
        assert self.ceiling is not None
        overshoot = self.overshoot(response)
        stiffness = self.ceiling_weight / self.ceiling**2 * torch.where(overshoot > 0, 1.0, GUARD)
        # W / |W| * overshoot / ceiling; wherever it is not zero, |W| is above the ceiling.
        excess = response * (overshoot / response.abs().clamp_min(torch.finfo(overshoot.dtype).tiny))
        return stiffness, self.ceiling_weight / self.ceiling * excess


@cache  # never freed: recorded CUDA graphs read these tensors in place
def _per_octave(n_bins: int, dtype: torch.dtype, device: str) -> Tensor:
    """Return the weights of the bins in the penalty on |W|, [n_bins]."""
    with torch.inference_mode(False):  # the first caller may be in inference mode, the next one training
        # All octaves have the same weight. 0 Hz and Nyquist have none, so that sums over one-sided bins are transforms.
        per_octave = torch.zeros(n_bins, dtype=torch.float64)
        per_octave[1:-1] = 1 / torch.arange(1, n_bins - 1, dtype=torch.float64)
        return (per_octave / per_octave.sum()).to(device, dtype)


def _drive_ceiling(primary_power: Tensor, secondary_power: Tensor) -> Tensor:
    """Compute the |W| that keeps the loudspeaker below the disturbance above 8.9 kHz, from |P|^2 and |S|^2.

    [batch, n_bins], infinite in the other bins. The paths' ratio is that of bands: per bin it would follow the noise of
    the estimates.
    """
    n_fft = 2 * (primary_power.shape[-1] - 1)
    membership = band_matrix(HIGH_BANDS, n_fft, primary_power)
    primary, secondary = primary_power @ membership, secondary_power @ membership
    ratio = (primary / secondary.clamp_min(torch.finfo(primary.dtype).tiny)).sqrt()
    ceiling = (DRIVE_LIMIT * ratio).clamp(LEAST_CEILING, MOST_CEILING)
    return torch.where(membership.sum(-1) > 0, ceiling @ membership.T, torch.inf)
