"""Gauss-Newton refinement of the taps against the estimated paths (Section 3.2 of the paper).

J (`synthesis.objective`) with a penalty on |W| above its ceiling falls by damped Gauss-Newton steps: theory (13) to
(17). With c_b = (dJ/dl_b) / E_b, r_k the reference power and f_k the Fourier vector of bin k, the normal matrix
2 Re sum_k c_b(k) r_k |S_k|^2 f_k f_k^H is symmetric Toeplitz: one inverse transform gives its first column, another the
right-hand side, and every product with it needs only 2 n_taps points. The sum of such matrices over conditions is
Toeplitz too.

The batch dimension of the paths is that of the conditions if they have weights; otherwise the filters of a batch are
independent. In the matrix, an unknown band of a condition weighs v_t / max(E_tb, D_tb), so that no step makes it louder
unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from synthesis.arrays import squared_magnitude
from synthesis.bands import AMP_BANDS, band_matrix, columns
from synthesis.grids import collected
from synthesis.objective import objective
from synthesis.paths import AcousticPaths
from synthesis.predict import HIGH_BANDS
from synthesis.profiles import (
    BUDGET,
    CONVERGED,
    DAMPING_FLOOR,
    FAST,
    LEAST_CEILING,
    LOUDEST_UNKNOWN,
    MAX_UPDATES,
    MOST_CEILING,
    NO_DECREASE,
    SILENCE,
    STEP_SCALES,
    SUFFICIENT_DECREASE,
    VERDICTS,
    RefinementProfile,
)
from synthesis.start.fir_wiener import DRIVE_LIMIT
from synthesis.start.path_ratio import regularised_ratio
from synthesis.toeplitz import solve_toeplitz


@dataclass(frozen=True)
class Refinement:
    """Refined taps and the record of their updates.

    taps: [batch, n_taps]. objective: J before and after each update, [batch, n_updates + 1]; step_scale and
    pcg_residual: [batch, n_updates]; entries after an item stopped are NaN. n_applied: updates that changed the
    item, [batch]. stopped: index into VERDICTS, [batch]: `budget` (all requested updates were applied),
    `converged` (the best trial step lowered J by less than 1e-5 max(|J|, 1)), `no_decrease` (no trial step did).
    """

    taps: Tensor
    objective: Tensor
    step_scale: Tensor
    pcg_residual: Tensor
    n_applied: Tensor
    stopped: Tensor

    def verdict(self, item: int) -> dict[str, int | str | list[float]]:
        """The record of one item as plain Python values; lists hold applied updates only."""
        applied = int(self.n_applied[item])
        return {
            "applied": applied,
            "stopped": VERDICTS[int(self.stopped[item])],
            "objective": self.objective[item, : applied + 1].tolist(),
            "step_scale": self.step_scale[item, :applied].tolist(),
            "pcg_residual": self.pcg_residual[item, :applied].tolist(),
        }


class TapObjective:
    """J and its normal equations for one batch of estimated paths, or for one filter of several conditions.

    All powers are divided by the total disturbance power: J does not change, and float32 does not overflow.
    """

    def __init__(
        self,
        paths: AcousticPaths,
        reference_psd: Tensor,
        profile: RefinementProfile,
        max_gain_db: Tensor | float | None,
        shares: Tensor | None = None,
        unknown: Tensor | None = None,
    ) -> None:
        """reference_psd: mean square per bin, [n_bins] or [batch, n_bins]. max_gain_db: scalar or [batch, 1]; None:
        no ceiling. shares: weights of the conditions, [n_conditions], of sum one; `paths` are then those of the
        conditions, and taps, responses and J have a batch of one. unknown: whether nothing is known of each of the
        31 bands, [batch, 31]; None: of none."""
        self.shares = shares
        bands = profile.risk_bands
        self.unknown = None if unknown is None else unknown[:, columns(bands)]
        self._profile, self._alone = profile, reference_psd.new_ones(1)
        self.membership = band_matrix(bands, paths.n_fft, reference_psd)
        primary_power, secondary_power = squared_magnitude(paths.primary), squared_magnitude(paths.secondary)
        power = reference_psd * primary_power
        # Keeps the weights finite if the primary path has no power in any band, or in any bin of this grid.
        loudest = reference_psd.sum(-1, keepdim=True) * primary_power.amax(-1, keepdim=True)
        tiny = torch.finfo(power.dtype).tiny
        total = torch.maximum((power @ self.membership).sum(-1, keepdim=True), SILENCE * loudest).clamp_min(tiny)
        self.weight = torch.where(total > tiny, reference_psd / total, 0.0)
        self.disturbance = (power / total) @ self.membership + SILENCE
        per_octave, self.scales = _constants(paths.n_bins, power.dtype, str(power.device))

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
        """E_b of a residual spectrum, [..., n_bins] -> [..., n_bands]."""
        return (self.weight * squared_magnitude(residual)) @ self.membership + SILENCE

    def overshoot(self, response: Tensor) -> Tensor:
        """[|W| / ceiling - 1]_+ per bin."""
        assert self.ceiling is not None
        return (response.abs() / self.ceiling - 1).clamp_min(0)

    def value(self, band_power: Tensor, response: Tensor) -> Tensor:
        """J, from E_b [..., n_bands] and W [..., n_bins]: [...]. With conditions, from [..., n_conditions, n_bands]
        and [..., 1, n_bins]: [..., 1]."""
        value, _ = self._without_penalty(band_power)
        if self.ceiling is not None:
            value = value + (self.ceiling_weight * self.overshoot(response).square()).sum(-1)
        return value

    def band_weight(self, band_power: Tensor) -> Tensor:
        """c_b = (dJ/dl_b) / E_b, [batch, n_bands]: positive, or zero for an unknown band that is not louder."""
        _, slope = self._without_penalty(band_power)
        return slope / band_power

    def _without_penalty(self, band_power: Tensor) -> tuple[Tensor, Tensor]:
        """J and its slopes dJ/dl_b, without the penalty on |W|."""
        log_ratio = torch.log(band_power / self.disturbance)
        if self.shares is not None:
            value, slope = objective(log_ratio, self.shares, self._profile, self.unknown)
            return value.unsqueeze(-1), slope
        unknown = None if self.unknown is None else self.unknown.unsqueeze(-2)
        value, slope = objective(log_ratio.unsqueeze(-2), self._alone, self._profile, unknown)
        return value, slope.squeeze(-2)

    def _share(self) -> Tensor | float:
        """Weight of each condition in J, [n_conditions, 1]; 1 of a filter that has but one."""
        return 1.0 if self.shares is None else self.shares.unsqueeze(-1)

    def normal_equations(
        self, paths: AcousticPaths, residual: Tensor, response: Tensor, band_power: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the undamped normal equations: theory (15).

        The symbol of the matrix is real, the spectrum of the negative gradient of J complex, [batch, n_bins] each.
        Their inverse transforms start with the matrix's first column and the negative gradient.

        The weights vanish at 0 Hz and at Nyquist, so 2 Re sum_k over one-sided bins is n_fft times the inverse
        transform. The penalty's residual is the excess of |W| over the ceiling. Where there is one, its square is
        replaced by |W - ceiling * W0 / |W0||^2, with W0 the current filter: that is an upper bound, and keeps the
        matrix Toeplitz.
        """
        per_band = self.band_weight(band_power)
        weight = held = self.weight * (per_band @ self.membership.T)
        if self.unknown is not None:
            still = self._share() / torch.maximum(band_power, self.disturbance)
            held = self.weight * (torch.where(self.unknown, still, per_band) @ self.membership.T)
        symbol = held * squared_magnitude(paths.secondary)
        descent = weight * paths.secondary.conj() * residual
        if self.shares is not None:
            symbol, descent = symbol.sum(0, keepdim=True), descent.sum(0, keepdim=True)
        if self.ceiling is not None:
            overshoot = self.overshoot(response)
            symbol = symbol + self.ceiling_weight / self.ceiling**2 * (overshoot > 0)
            # W / |W| * overshoot / ceiling; wherever it is not zero, |W| is above the ceiling.
            excess = response * (overshoot / response.abs().clamp_min(torch.finfo(symbol.dtype).tiny))
            descent = descent - self.ceiling_weight / self.ceiling * excess
        return symbol * paths.n_fft, descent * paths.n_fft


@cache  # never freed: recorded CUDA graphs read these tensors in place
def _constants(n_bins: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """Weights of the bins in the penalty on |W|, [n_bins]; STEP_SCALES, [3, 1, 1]."""
    with torch.inference_mode(False):  # the first caller may be in inference mode, the next one training
        # Every octave has the same total weight, as in a mean over bands. 0 Hz and Nyquist are excluded so that
        # sums over one-sided bins are exact transforms.
        per_octave = torch.zeros(n_bins, dtype=torch.float64)
        per_octave[1:-1] = 1 / torch.arange(1, n_bins - 1, dtype=torch.float64)
        scales = torch.tensor(STEP_SCALES, dtype=torch.float64)[:, None, None]
        return (per_octave / per_octave.sum()).to(device, dtype), scales.to(device, dtype)


def _drive_ceiling(primary_power: Tensor, secondary_power: Tensor) -> Tensor:
    """Largest |W| that keeps the loudspeaker's sound below the disturbance in the bands above the scored ones,
    from |P|^2 and |S|^2: [batch, n_bins], infinite in all other bins.

    The ratio of the paths is taken per band; per bin it would follow the noise of the estimates.
    """
    n_fft = 2 * (primary_power.shape[-1] - 1)
    membership = band_matrix(HIGH_BANDS, n_fft, primary_power)
    primary, secondary = primary_power @ membership, secondary_power @ membership
    ratio = (primary / secondary.clamp_min(torch.finfo(primary.dtype).tiny)).sqrt()
    ceiling = (DRIVE_LIMIT * ratio).clamp(LEAST_CEILING, MOST_CEILING)
    return torch.where(membership.sum(-1) > 0, ceiling @ membership.T, torch.inf)


def _root_mean_square(spectrum: Tensor, bins: Tensor) -> Tensor:
    return ((squared_magnitude(spectrum) @ bins) / bins.sum()).sqrt().unsqueeze(-1)


class GaussNewtonState:
    """A batch of filters between updates: taps, response, residual, band powers and J.

    An update works in place and never copies a value to the host, so that a CUDA graph of one update can be
    replayed. Items that have stopped take steps of length zero.
    """

    def __init__(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        reference_psd: Tensor,
        *,
        profile: RefinementProfile = FAST,
        max_gain_db: Tensor | float | None = 30.0,
        most_updates: int = MAX_UPDATES,
        shares: Tensor | None = None,
        unknown: Tensor | None = None,
    ) -> None:
        """Arguments as for `refine`. unknown: as for `TapObjective`. most_updates: largest number of calls of
        `update`."""
        paths, reference_psd = _on_grid(paths, reference_psd, min(profile.n_fft, paths.n_fft))
        self._paths, self._profile = paths, profile
        self._objective = TapObjective(paths, reference_psd, profile, max_gain_db, shares, unknown)
        self._cap = _step_cap(paths, profile, shares)
        self._taps = taps.clone()
        self._response = torch.fft.rfft(taps, n=paths.n_fft)
        self._residual = paths.primary - paths.secondary * self._response
        self._band_power = self._objective.band_power(self._residual)
        self._value = self._objective.value(self._band_power, self._response)
        self._stopped = torch.full_like(self._value, BUDGET, dtype=torch.int64)
        self._n_applied = torch.zeros_like(self._stopped)
        # J, step scale and solver residual of each update, the latest last.
        self._history = self._value.new_full((len(taps), 3, most_updates + 1), torch.nan)
        self._history[:, 0, -1] = self._value

    def update(self) -> None:
        """Apply one update, theory (15) to (17), to every item that has not stopped."""
        objective, profile, paths = self._objective, self._profile, self._paths
        symbol, descent = objective.normal_equations(paths, self._residual, self._response, self._band_power)
        solution = solve_toeplitz(
            damped(symbol, profile),
            descent,
            self._taps.shape[-1],
            n_iterations=profile.n_iterations,
            tolerance=profile.tolerance,
            preconditioned=profile.preconditioner == "gohberg_semencul",
        )
        # A solution that is not finite becomes a zero step: the item keeps its filter and stops.
        step = torch.nan_to_num(solution.value, nan=0.0, posinf=0.0, neginf=0.0)
        step_response = torch.fft.rfft(step, n=paths.n_fft)
        if self._cap is not None:
            rms = _root_mean_square(step_response, self._cap.bins)
            shrink = (self._cap.limit / rms.clamp_min(1e-30)).clamp_max(1.0)
            step, step_response = step * shrink, step_response * shrink
        change = paths.secondary * step_response
        trials = _trial_values(objective, self._band_power, self._residual, change, self._response, step_response)
        decrease = torch.nan_to_num(self._value.unsqueeze(-1) - trials, nan=-torch.inf)
        enough = decrease >= SUFFICIENT_DECREASE * self._value.abs().clamp_min(1.0).unsqueeze(-1)
        active = self._stopped == BUDGET
        accepted = active & enough.any(-1)
        verdict = torch.where(decrease.amax(-1) > 0, CONVERGED, NO_DECREASE)
        first = enough.to(torch.uint8).argmax(-1)
        scale = torch.where(accepted, torch.pow(0.5, first.to(trials.dtype)), 0.0)

        self._stopped.copy_(torch.where(active & ~accepted, verdict, self._stopped))
        self._n_applied += accepted
        # A rejected step may hold infinities, and 0 * inf is NaN: it is replaced by zeros, not scaled by zero.
        step, step_response, change = (
            torch.where(accepted.unsqueeze(-1), scale.unsqueeze(-1) * each, 0.0)
            for each in (step, step_response, change)
        )
        self._taps += step
        self._response += step_response
        self._residual -= change
        self._band_power.copy_(objective.band_power(self._residual))
        value = objective.value(self._band_power, self._response)
        self._value.copy_(torch.where(accepted, value, self._value))
        latest = torch.where(accepted, torch.stack((value, scale, solution.residual)), torch.nan)
        self._history.copy_(torch.cat((self._history[..., 1:], latest.T.unsqueeze(-1)), -1))

    def is_loud_unseen(self) -> bool:
        """Whether an unknown band of any item is louder than it may become."""
        objective = self._objective
        if objective.unknown is None:
            return False
        log_ratio = torch.log(self._band_power / objective.disturbance)
        return bool((log_ratio[objective.unknown.expand_as(log_ratio)] > LOUDEST_UNKNOWN).any())

    def result(self) -> Refinement:
        """The refinement so far. Histories have `most_updates` columns, the latest update last; unused leading
        columns are NaN. The next update overwrites these tensors."""
        objective, step_scale, pcg_residual = self._history.unbind(1)
        return Refinement(
            taps=self._taps,
            objective=objective,
            step_scale=step_scale[:, 1:],
            pcg_residual=pcg_residual[:, 1:],
            n_applied=self._n_applied,
            stopped=self._stopped,
        )


def refine(
    paths: AcousticPaths,
    taps: Tensor,
    reference_psd: Tensor,
    *,
    n_updates: int,
    profile: RefinementProfile = FAST,
    max_gain_db: Tensor | float | None = 30.0,
    shares: Tensor | None = None,
) -> Refinement:
    """Up to `n_updates` damped Gauss-Newton updates of `taps` [batch, n_taps] on estimated paths.

    reference_psd: mean square per bin on the paths' grid. max_gain_db: ceiling on |W| (ignored by profiles without
    a penalty on |W|; None: no ceiling). shares: as for `TapObjective`; taps are then [1, n_taps], and the paths
    those of the conditions. Backtracking tries the steps 1, 1/2 and 1/4 and accepts the first that lowers J
    sufficiently.
    """
    state = GaussNewtonState(
        paths,
        taps,
        reference_psd,
        profile=profile,
        max_gain_db=max_gain_db,
        most_updates=n_updates,
        shares=shares,
    )
    for _ in range(n_updates):
        state.update()
    return state.result()


@dataclass(frozen=True)
class _StepCap:
    limit: Tensor
    bins: Tensor


def _step_cap(paths: AcousticPaths, profile: RefinementProfile, shares: Tensor | None) -> _StepCap | None:
    """Upper limit on the RMS of a step's frequency response over the 23 bands: a fraction of the RMS of the
    regularised path ratio, averaged over conditions. It does not depend on the current filter. None if the profile
    has no cap."""
    if profile.step_cap is None:
        return None
    bins = band_matrix(AMP_BANDS, paths.n_fft, paths.primary.real).sum(-1)
    rms = _root_mean_square(regularised_ratio(paths.primary, paths.secondary), bins)
    if shares is not None:
        rms = (shares.unsqueeze(-1) * rms).sum(0, keepdim=True)
    return _StepCap(profile.step_cap * rms, bins)


def _on_grid(paths: AcousticPaths, reference_psd: Tensor, n_fft: int) -> tuple[AcousticPaths, Tensor]:
    """Paths and reference on a coarser grid: spectra are decimated, reference power is summed."""
    stride = paths.n_fft // n_fft
    if stride == 1:
        return paths, reference_psd
    sampled = AcousticPaths(paths.primary[..., ::stride].contiguous(), paths.secondary[..., ::stride].contiguous())
    return sampled, collected(reference_psd, stride)


def damped(symbol: Tensor, profile: RefinementProfile) -> Tensor:
    """The symbol of the damped normal matrix: theory (16).

    The damping is 0.002 max(h, 1e-6) + 1e-6 in the paper, with h the mean diagonal. A Toeplitz matrix has a
    constant diagonal, the mean of its symbol over all n_fft bins; the symbol is zero at 0 Hz and at Nyquist.
    """
    diagonal = symbol.sum(-1, keepdim=True) / (symbol.shape[-1] - 1)
    return symbol + (profile.damping * diagonal.clamp_min(1e-6) + DAMPING_FLOOR)


def _trial_values(
    objective: TapObjective,
    band_power: Tensor,
    residual: Tensor,
    change: Tensor,
    response: Tensor,
    step_response: Tensor,
) -> Tensor:
    """J at each of STEP_SCALES, [batch, 3]. E_b is quadratic in the step scale, so no transform is needed."""
    cross = (objective.weight * (residual.conj() * change).real) @ objective.membership
    square = (objective.weight * squared_magnitude(change)) @ objective.membership
    scales = objective.scales
    band_powers = (band_power + scales * (scales * square - 2 * cross)).clamp_min(SILENCE)
    return objective.value(band_powers, response + scales * step_response).T
