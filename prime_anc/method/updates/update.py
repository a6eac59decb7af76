"""Gauss-Newton updates of the taps on estimated paths (Section 3.2 of the paper): theory (13) to (17).

Damped Gauss-Newton steps lower J (`method.objective`) and a penalty on |W| above its ceiling. The normal matrix,
2 Re sum_k r_k s_b / E_b |S_k|^2 phi_k phi_k^H with the slope s_b of the band of bin k and the Fourier vector phi_k, and
its sum over conditions are symmetric Toeplitz: an inverse transform gives the first column, another the right-hand
side, and products need 2 n_taps points.

With weights of conditions the paths of a batch are the conditions of one filter; without, each has its filter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from prime_anc.method.arrays import squared_magnitude
from prime_anc.method.bands import AMP_BANDS, band_matrix, collected
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.profiles import (
    BUDGET,
    CONVERGED,
    DAMPING_FLOOR,
    FAST,
    FIRST_UPDATES,
    MAX_UPDATES,
    MOST_RESIDUAL,
    N_ROUNDS,
    NO_DECREASE,
    SMALL_DECREASE,
    STEP_SCALES,
    STOP_REASONS,
    SUFFICIENT_DECREASE,
    RefinementProfile,
    settling,
    shows_far,
)
from prime_anc.method.start.features import regularised_ratio
from prime_anc.method.updates.expected_error import weighed
from prime_anc.method.updates.tap_objective import TapObjective
from prime_anc.method.updates.toeplitz import solve_directly, solve_toeplitz


@dataclass(frozen=True)
class Refinement:
    """Updated taps and the record of their updates; entries after an item stopped are NaN."""

    # [batch, n_taps].
    taps: Tensor
    # J before the first and after each update, [batch, n_updates + 1].
    objective: Tensor
    # Accepted fraction per step, [batch, n_updates].
    step_scale: Tensor
    # Relative residual of the step's linear system, [batch, n_updates].
    pcg_residual: Tensor
    # Updates that changed the item, [batch].
    n_applied: Tensor
    # Index of STOP_REASONS, whose meaning `RefinementRecord` states, [batch].
    stopped: Tensor

    def padded(self, n: int) -> Refinement:
        """Return a copy with room for n more updates."""
        objective, step_scale, pcg_residual = (
            torch.nn.functional.pad(item, (0, n), value=torch.nan)
            for item in (self.objective, self.step_scale, self.pcg_residual)
        )
        return replace(self, objective=objective, step_scale=step_scale, pcg_residual=pcg_residual)

    def record(self, item: int) -> dict[str, int | str | list[float]]:
        """Return one item's record as Python values; lists hold applied updates only."""
        applied = int(self.n_applied[item])
        return {
            "applied": applied,
            "stopped": STOP_REASONS[int(self.stopped[item])],
            "objective": self.objective[item, : applied + 1].tolist(),
            "step_scale": self.step_scale[item, :applied].tolist(),
            "pcg_residual": self.pcg_residual[item, :applied].tolist(),
        }


def _root_mean_square(spectrum: Tensor, bins: Tensor) -> Tensor:
    return ((squared_magnitude(spectrum) @ bins) / bins.sum()).sqrt().unsqueeze(-1)


class GaussNewtonState:
    """A batch of filters between steps: taps, response, residual, band powers and J, all updated in place.

    Items that have stopped take steps of length zero.
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
        uncertainty: Tensor | None = None,
    ) -> None:
        """Evaluate J of the taps.

        Parameters as for `refine`; `most_updates` is the largest number of calls of `update`.
        """
        paths, reference_psd = _on_grid(paths, reference_psd, min(profile.n_fft, paths.n_fft))
        self._cap = _step_cap(paths, profile, shares)
        if uncertainty is not None:
            paths = AcousticPaths(*weighed(paths.primary, paths.secondary, uncertainty[..., 1, :]))
        self._paths, self._profile = paths, profile
        self._objective = TapObjective(paths, reference_psd, profile, max_gain_db, shares, uncertainty)
        self._taps = taps.clone()
        self._response = torch.fft.rfft(taps, n=paths.n_fft)
        self._residual = paths.primary - paths.secondary * self._response
        self._band_power = self._objective.band_power(self._residual)
        self._value = self._objective.value(self._band_power, self._response)
        self._stopped = torch.full_like(self._value, BUDGET, dtype=torch.int64)
        self._n_applied = torch.zeros_like(self._stopped)
        # Whether J is so far from its minimum that `refine` continues by direct solutions, [batch].
        self.is_far = torch.zeros_like(self._stopped, dtype=torch.bool)
        # J, step scale and solver residual of each update, the latest last.
        self._history = self._value.new_full((len(taps), 3, most_updates + 1), torch.nan)
        self._history[:, 0, -1] = self._value

    def update(self) -> None:
        """Update all items that have not stopped and are not far from the minimum: theory (15) to (17).

        Only direct solutions copy anything to the host: a CUDA graph can replay all others.
        """
        objective, profile, paths = self._objective, self._profile, self._paths
        solution, solver_residual = self._solve()
        running = (self._stopped == BUDGET) & ~self.is_far
        if profile.settles and profile.preconditioner != "exact":
            self.is_far |= running & (solver_residual > MOST_RESIDUAL)
            running = running & ~self.is_far
        # A solution that is not finite becomes a zero step: the item keeps its filter and stops.
        step = torch.nan_to_num(solution, nan=0.0, posinf=0.0, neginf=0.0)
        step_response = torch.fft.rfft(step, n=paths.n_fft)
        if self._cap is not None:
            rms = _root_mean_square(step_response, self._cap.bins)
            shrink = (self._cap.limit / rms.clamp_min(1e-30)).clamp_max(1.0)
            step, step_response = step * shrink, step_response * shrink
        change = paths.secondary * step_response
        decrease = self._value.unsqueeze(-1) - self._trials(step_response, change)
        decrease = torch.nan_to_num(decrease, nan=-torch.inf)
        enough = decrease >= SUFFICIENT_DECREASE * self._value.abs().clamp_min(1.0).unsqueeze(-1)
        accepted = running & enough.any(-1)
        reason = torch.where(decrease.amax(-1) > 0, CONVERGED, NO_DECREASE)
        # As STEP_SCALES: the first that lowers J enough.
        scale = torch.pow(0.5, enough.to(torch.uint8).argmax(-1, keepdim=True).to(step.dtype))

        self._stopped.copy_(torch.where(running & ~accepted, reason, self._stopped))
        self._n_applied += accepted
        # A rejected step may hold infinities, and 0 * inf is NaN: it is replaced by zeros, not scaled by zero.
        chosen = accepted.unsqueeze(-1)
        self._residual -= torch.where(chosen, scale * change, 0.0)
        self._taps += torch.where(chosen, scale * step, 0.0)
        self._response += torch.where(chosen, scale * step_response, 0.0)
        self._band_power.copy_(objective.band_power(self._residual))
        value = objective.value(self._band_power, self._response)
        if profile.settles and profile.preconditioner != "exact":
            before = self._history[:, 0, -2] - self._value if self._history.shape[-1] > 1 else torch.nan
            self.is_far |= accepted & shows_far(self._value - value, before)
        self._value.copy_(torch.where(accepted, value, self._value))
        latest = torch.where(chosen, torch.stack((value, scale[:, 0], solver_residual), -1), torch.nan)
        self._history.copy_(torch.cat((self._history[..., 1:], latest.unsqueeze(-1)), -1))

    def _trials(self, step_response: Tensor, change: Tensor) -> Tensor:
        """Compute J of all trial steps, [batch, 3]; change: S D, by which a step D reduces the residual."""
        objective = self._objective
        cross = objective.in_bands((self._residual.conj() * change).real)
        square = objective.in_bands(squared_magnitude(change))
        values = []
        for scale in STEP_SCALES:
            power = torch.maximum(self._band_power + scale * (scale * square - 2 * cross), objective.constant)
            values.append(objective.value(power, self._response + scale * step_response))
        return torch.stack(values, -1)

    def _solve(self) -> tuple[Tensor, Tensor]:
        """Solve the damped normal equations, theory (15), (16); also the solver's relative residuals, [batch]."""
        profile = self._profile
        symbol, descent = self._objective.normal_equations(
            self._paths, self._residual, self._response, self._band_power
        )
        system = damped(symbol, profile.damping), descent, self._taps.shape[-1]
        if profile.preconditioner == "exact":
            return solve_directly(*system).to(self._taps), torch.zeros_like(self._value)
        found = solve_toeplitz(
            *system,
            n_iterations=profile.n_iterations,
            tolerance=profile.tolerance,
            preconditioned=profile.preconditioner == "gohberg_semencul",
        )
        return found.value, found.residual

    def result(self) -> Refinement:
        """Return the updates so far: views that the next update overwrites.

        The latest update is in the last of `most_updates` columns; unused first columns are NaN.
        """
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
    uncertainty: Tensor | None = None,
) -> Refinement:
    """Update taps by damped Gauss-Newton steps on estimated paths: theory (15) to (17).

    Parameters
    ----------
    paths
        Paths of the items or, with `shares`, of the conditions.
    taps
        First taps, [batch, n_taps]; with `shares` [1, n_taps].
    reference_psd
        Mean square per bin on the paths' grid, [n_bins] or [batch, n_bins].
    n_updates
        Largest number of updates.
    profile
        Settings. If it settles, items far from the minimum, or still running after FIRST_UPDATES, continue by
        direct solutions.
    max_gain_db
        Ceiling on |W|, a number or [batch, 1]; None: no ceiling. Profiles without a penalty ignore it.
    shares, uncertainty
        As for `TapObjective`.

    Returns
    -------
    Refinement
        Taps and record.
    """
    n_steps = min(n_updates, FIRST_UPDATES) if profile.settles else n_updates
    given: dict[str, Any] = {"max_gain_db": max_gain_db, "shares": shares, "uncertainty": uncertainty}
    state = GaussNewtonState(paths, taps, reference_psd, profile=profile, most_updates=n_steps, **given)
    for _ in range(n_steps):
        state.update()
    found = state.result()
    if n_steps < n_updates:
        found = found.padded(n_updates - n_steps)
    is_left = (found.stopped == BUDGET) & (state.is_far | (found.n_applied < n_updates))
    for item in is_left.nonzero().flatten().tolist():
        one = slice(item, item + 1)
        if shares is None:
            psd = reference_psd if reference_psd.ndim == 1 else reference_psd[one]
            system = paths[one], found.taps[one], psd
            if isinstance(max_gain_db, Tensor) and max_gain_db.ndim:
                given["max_gain_db"] = max_gain_db[one]
            if uncertainty is not None:
                given["uncertainty"] = uncertainty[one]
        else:
            system = paths, found.taps, reference_psd
        exact = settling(profile)
        _settle(found, item, n_updates, GaussNewtonState(*system, profile=exact, most_updates=1, **given))
    return found


def _settle(found: Refinement, item: int, n_updates: int, state: GaussNewtonState) -> None:
    """Continue an item's updates by direct solutions, and write the result in its place.

    An update has up to N_ROUNDS steps, and ends with one that lowers J by at most SMALL_DECREASE. If the item's last
    update has shown that J is far from its minimum, that update continues first.
    """
    applied = int(found.n_applied[item])
    before, *decreases = (torch.nan, *-found.objective[item, : applied + 1].diff())
    is_open = applied > 0 and bool(shows_far(decreases[-1], (before, *decreases)[-2]))
    value = state.result().objective[0, -1].clone()
    for number in range(applied if is_open else applied + 1, n_updates + 1):
        for _ in range(1 if number == applied else 0, N_ROUNDS):
            state.update()
            latest = state.result()
            if int(latest.stopped[0]) != BUDGET:
                break
            found.objective[item, number] = latest.objective[0, -1]
            found.step_scale[item, number - 1] = latest.step_scale[0, -1]
            found.pcg_residual[item, number - 1] = latest.pcg_residual[0, -1]
            found.n_applied[item] = number
            decrease, value = value - latest.objective[0, -1], latest.objective[0, -1].clone()
            if decrease <= SMALL_DECREASE:
                break
        if int(found.n_applied[item]) < number:
            found.stopped[item] = latest.stopped[0]
            break
    found.taps[item] = state.result().taps[0]


@dataclass(frozen=True)
class _StepCap:
    limit: Tensor
    bins: Tensor


def _step_cap(paths: AcousticPaths, profile: RefinementProfile, shares: Tensor | None) -> _StepCap | None:
    """Limit the RMS of a step's response over the 23 bands to a fraction of the regularised path ratio's RMS.

    Of several conditions, to their weighted mean. None if the profile has no cap.
    """
    if profile.step_cap is None:
        return None
    bins = band_matrix(AMP_BANDS, paths.n_fft, paths.primary.real).sum(-1)
    rms = _root_mean_square(regularised_ratio(paths.primary, paths.secondary), bins)
    if shares is not None:
        rms = (shares.unsqueeze(-1) * rms).sum(0, keepdim=True)
    return _StepCap(profile.step_cap * rms, bins)


def _on_grid(paths: AcousticPaths, reference_psd: Tensor, n_fft: int) -> tuple[AcousticPaths, Tensor]:
    """Bring paths and reference to a coarser grid: spectra are decimated, reference power is summed."""
    stride = paths.n_fft // n_fft
    if stride == 1:
        return paths, reference_psd
    sampled = AcousticPaths(paths.primary[..., ::stride].contiguous(), paths.secondary[..., ::stride].contiguous())
    return sampled, collected(reference_psd, stride)


def damped(symbol: Tensor, damping: float) -> Tensor:
    """Damp the normal matrix, given by its symbol [batch, n_bins]: theory (16).

    The diagonal of a Toeplitz matrix is the mean of its symbol over all n_fft bins; at 0 Hz and Nyquist it is zero.
    """
    diagonal = symbol.sum(-1, keepdim=True) / (symbol.shape[-1] - 1)
    return symbol + (damping * diagonal.clamp_min(1e-6) + DAMPING_FLOOR)
