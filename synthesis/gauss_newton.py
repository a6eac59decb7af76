"""Gauss-Newton refinement of the taps against the estimated paths (Section 3.2 of the paper).

The objective is the mean log residual over the target bands plus a smooth worst-band risk,

    J(w) = mean_{50:5k} l_b + rho tau (logsumexp_b(l_b / tau) - log n_b) + ceiling,   l_b = ln(E_b / D_b),

E_b and D_b the reference-weighted residual and disturbance power of band b. With c_b = (dJ/dl_b) / E_b, the
normal matrix 2 Re sum_k c_b(k) w_k |S_k|^2 f_k f_k^H is symmetric Toeplitz: one inverse transform gives its
first column, another the right-hand side, and every product with it needs only 2 n_taps points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, Protocol

import torch
from torch import Tensor

from synthesis.conventions import DESIGN_N_FFT
from synthesis.fir_wiener import DRIVE_LIMIT
from synthesis.noise_reduction import HIGH_BANDS
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, band_matrix
from synthesis.path_ratio import regularised_ratio
from synthesis.paths import AcousticPaths
from synthesis.spectra import collected, squared_magnitude
from synthesis.toeplitz import ToeplitzSolver, solve_toeplitz

TEMPERATURE = 1.0
STEP_SCALES = (1.0, 0.5, 0.25)
"""Backtracking trials: the i-th is 0.5**i."""
SUFFICIENT_DECREASE = 1e-5
DAMPING_FLOOR = 1e-6
LEAST_CEILING, MOST_CEILING = 0.01, 1e6
"""Of |W|: a band without any disturbance must not turn the penalty into a division by zero, nor one without any
secondary path into infinity."""
MAX_UPDATES = 8
SILENCE = 1e-12
"""Band power over the total below which a band counts as silent, so that ln(E / D) stays finite."""


@dataclass(frozen=True)
class RefinementProfile:
    """How the updates are made.

    n_fft: points of the grid that J is evaluated on, at most the paths' own. risk_bands: bands of the worst-band
    risk; risk_weight: rho. damping: over the normal matrix' diagonal. preconditioner: of the conjugate gradients.
    `diagonal` is a scalar for a Toeplitz matrix, and a scalar leaves every iterate unchanged, so it is applied as
    none. n_iterations: of the conjugate gradients. step_cap: largest RMS of a response step over the RMS of the
    ratio base, both over the 23 bands; None: no cap. ceiling_weight: of the penalty on |W| above the ceiling, which
    is the asked-for one or, above the scored bands, what keeps the loudspeaker below the disturbance.
    """

    name: str
    n_fft: int
    risk_bands: tuple[int, ...]
    risk_weight: float
    damping: float
    preconditioner: Literal["diagonal", "gohberg_semencul"]
    n_iterations: int
    step_cap: float | None
    ceiling_weight: float
    tolerance: float = 1e-6


PAPER = RefinementProfile(
    "paper",
    DESIGN_N_FFT,
    AMP_BANDS,
    risk_weight=0.05,
    damping=2e-3,
    preconditioner="diagonal",
    n_iterations=16,
    step_cap=10 ** (1 / 20) - 1,
    ceiling_weight=0.0,
)
# Eight times the paper's risk weight. From trained starts of two splits (16 held-out ears each), NR / AMP after one
# and three updates: 23.11 / 0.013 and 23.15 / 0.021 dB at 0.2, 23.08 / 0.005 and 23.13 / 0.006 at 0.5, 23.05 /
# 0.001 and 23.12 / 0.001 at 0.8. Half of the paper's damping, at 0.4: 23.12 / 0.007 and 23.17 / 0.010 instead of
# 23.09 / 0.007 and 23.14 / 0.009; a quarter gains as much again and costs float32 a digit. Six iterations instead
# of four: + 0.01 dB.
FAST = RefinementProfile(
    "fast",
    8192,
    WIDE_BANDS,
    risk_weight=0.4,
    damping=1e-3,
    preconditioner="gohberg_semencul",
    n_iterations=4,
    step_cap=None,
    ceiling_weight=30.0,
)
FINE = replace(FAST, name="fine", n_fft=16_384)
"""FAST for paths that nothing has smoothed to the resolution of 8192 points: their residual varies between two of
those, where updates do not see it. On 32,768 points no filter came out better (windows of 16,384 and 32,768, whole
responses or cut, and true paths: within 0.03 dB of noise reduction)."""
PROFILES = {each.name: each for each in (PAPER, FAST, FINE)}


def suited_profile(name: str, n_samples: int) -> str:
    """`fine` in the place of `fast` where the paths are finer than its grid, any other profile as it is.

    n_samples: of the longer response as it was given; of a spectrum, the points of its grid; of a calibrated path,
    the window, however few samples of the response were kept.
    """
    return FINE.name if name == FAST.name and n_samples > FAST.n_fft else name


# Verdicts, as stored per item.
_BUDGET, _CONVERGED, _NO_DECREASE = 0, 1, 2
VERDICTS = ("budget", "converged", "no_decrease")


@dataclass(frozen=True)
class Refinement:
    """Refined taps and how they came about.

    taps: [batch, n_taps]. objective: J before and after each update, [batch, n_updates + 1]; step_scale and
    pcg_residual: [batch, n_updates]; entries after an item stopped are NaN. n_applied: updates that changed the
    item, [batch]. stopped: index into VERDICTS, [batch]: `budget` all asked-for updates were applied,
    `converged` the best trial lowered J by less than 1e-5 max(|J|, 1), `no_decrease` no trial lowered J.
    """

    taps: Tensor
    objective: Tensor
    step_scale: Tensor
    pcg_residual: Tensor
    n_applied: Tensor
    stopped: Tensor

    def verdict(self, item: int) -> dict[str, int | str | list[float]]:
        """One item's account in plain values, lists cut to what was applied."""
        applied = int(self.n_applied[item])
        return {
            "applied": applied,
            "stopped": VERDICTS[int(self.stopped[item])],
            "objective": self.objective[item, : applied + 1].tolist(),
            "step_scale": self.step_scale[item, :applied].tolist(),
            "pcg_residual": self.pcg_residual[item, :applied].tolist(),
        }


class Updates(Protocol):
    """Updates of a batch of filters, made one at a time."""

    def update(self) -> None:
        """One update of every item that has not stopped."""

    def result(self) -> Refinement:
        """Where the items stand, until the next update: a column for each update that there may be, the latest
        last, NaN in those before the first."""


class BeginUpdates(Protocol):
    """What `Refining` does when it is made, however it is done."""

    def __call__(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        reference_psd: Tensor,
        *,
        profile: RefinementProfile,
        max_gain_db: Tensor | float | None,
        solve: ToeplitzSolver,
        most_updates: int,
    ) -> Updates:
        """Begin."""
        ...


class TapObjective:
    """J for one batch of estimated paths, with what its derivatives need.

    All powers are scaled to a total disturbance of one, which J does not notice and float32 is grateful for.
    """

    def __init__(
        self,
        paths: AcousticPaths,
        reference_psd: Tensor,
        profile: RefinementProfile,
        max_gain_db: Tensor | float | None,
    ) -> None:
        """reference_psd: mean square per bin, [n_bins] or [batch, n_bins]. max_gain_db: scalar or [batch, 1]."""
        bands = profile.risk_bands
        self.risk_weight = profile.risk_weight
        self.membership = band_matrix(bands, paths.n_fft, reference_psd.dtype, reference_psd.device)
        primary_power, secondary_power = squared_magnitude(paths.primary), squared_magnitude(paths.secondary)
        power = reference_psd * primary_power
        # A primary path that is silent in every band must not turn the reference into infinite weights, nor one
        # that is silent at every point of this grid.
        loudest = reference_psd.sum(-1, keepdim=True) * primary_power.amax(-1, keepdim=True)
        tiny = torch.finfo(power.dtype).tiny
        total = torch.maximum((power @ self.membership).sum(-1, keepdim=True), SILENCE * loudest).clamp_min(tiny)
        self.weight = torch.where(total > tiny, reference_psd / total, 0.0)
        self.disturbance = (power / total) @ self.membership + SILENCE
        self.in_target, per_octave, self.scales = _constants(bands, paths.n_bins, power.dtype, str(power.device))

        self.ceiling: Tensor | None = None
        if profile.ceiling_weight > 0:
            self.ceiling = _drive_ceiling(primary_power, secondary_power)
            if max_gain_db is not None:
                asked = torch.as_tensor(10 ** (max_gain_db / 20), dtype=power.dtype)
                self.ceiling = torch.minimum(self.ceiling, asked)
            self.ceiling_weight = profile.ceiling_weight * per_octave

    def band_power(self, residual: Tensor) -> Tensor:
        """E_b of a residual spectrum, [..., n_bins] -> [..., n_bands]."""
        return (self.weight * squared_magnitude(residual)) @ self.membership + SILENCE

    def overshoot(self, response: Tensor) -> Tensor:
        """[|W| / ceiling - 1]_+ per bin."""
        assert self.ceiling is not None
        return (response.abs() / self.ceiling - 1).clamp_min(0)

    def value(self, band_power: Tensor, response: Tensor) -> Tensor:
        """J, from E_b [..., n_bands] and W [..., n_bins]: [...]."""
        log_ratio = torch.log(band_power / self.disturbance)
        n_bands = band_power.shape[-1]
        risk = TEMPERATURE * (torch.logsumexp(log_ratio / TEMPERATURE, -1) - math.log(n_bands))
        value = log_ratio @ self.in_target + self.risk_weight * risk
        if self.ceiling is not None:
            value = value + (self.ceiling_weight * self.overshoot(response).square()).sum(-1)
        return value

    def band_weight(self, band_power: Tensor) -> Tensor:
        """c_b = (dJ/dl_b) / E_b, [batch, n_bands], positive."""
        log_ratio = torch.log(band_power / self.disturbance)
        return (self.in_target + self.risk_weight * torch.softmax(log_ratio / TEMPERATURE, -1)) / band_power

    def normal_equations(
        self, paths: AcousticPaths, residual: Tensor, response: Tensor, band_power: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The undamped normal matrix' symbol, real, and the spectrum of minus the gradient of J, complex: their
        inverse transforms hold the matrix' first column and the gradient. [batch, n_bins] each.

        The weights vanish at 0 Hz and at Nyquist, so 2 Re sum_k over one-sided bins is n_fft times the
        inverse transform. The ceiling's residual is the excess of |W|, linearised towards
        ceiling * W / |W|: a majoriser that is Toeplitz again.
        """
        weight = self.weight * (self.band_weight(band_power) @ self.membership.T)
        symbol = weight * squared_magnitude(paths.secondary)
        descent = weight * paths.secondary.conj() * residual
        if self.ceiling is not None:
            overshoot = self.overshoot(response)
            symbol = symbol + self.ceiling_weight / self.ceiling**2 * (overshoot > 0)
            # W / |W| * overshoot / ceiling; wherever it is not zero, |W| is above the ceiling.
            excess = response * (overshoot / response.abs().clamp_min(torch.finfo(symbol.dtype).tiny))
            descent = descent - self.ceiling_weight / self.ceiling * excess
        return symbol * paths.n_fft, descent * paths.n_fft


@cache  # for good: graphs that were captured read it where it lies
def _constants(
    bands: tuple[int, ...], n_bins: int, dtype: torch.dtype, device: str
) -> tuple[Tensor, Tensor, Tensor]:
    """What no path changes: shares of the bands in the mean log residual, [n_bands]; of the bins in the ceiling's
    penalty, [n_bins]; STEP_SCALES, [3, 1, 1]."""
    with torch.inference_mode(False):  # whoever asks first may be serving, whoever asks next training
        in_target = torch.zeros(len(bands), dtype=torch.float64)
        in_target[bands.index(NR_BANDS[0]) : bands.index(NR_BANDS[-1]) + 1] = 1 / len(NR_BANDS)
        # Every octave counts alike, as it does in the bands; 0 Hz and Nyquist are left out so that one-sided sums
        # are exact transforms.
        per_octave = torch.zeros(n_bins, dtype=torch.float64)
        per_octave[1:-1] = 1 / torch.arange(1, n_bins - 1, dtype=torch.float64)
        scales = torch.tensor(STEP_SCALES, dtype=torch.float64)[:, None, None]
        shares = in_target, per_octave / per_octave.sum(), scales
        return tuple(each.to(device, dtype) for each in shares)  # type: ignore[return-value]


def _drive_ceiling(primary_power: Tensor, secondary_power: Tensor) -> Tensor:
    """Largest |W| that keeps the loudspeaker below the disturbance in the bands above the scored ones, from |P|^2
    and |S|^2: [batch, n_bins], infinite elsewhere.

    The paths' ratio is taken band by band: bin by bin it would follow the estimates' noise.
    """
    n_fft = 2 * (primary_power.shape[-1] - 1)
    membership = band_matrix(HIGH_BANDS, n_fft, primary_power.dtype, primary_power.device)
    primary, secondary = primary_power @ membership, secondary_power @ membership
    ratio = (primary / secondary.clamp_min(torch.finfo(primary.dtype).tiny)).sqrt()
    ceiling = (DRIVE_LIMIT * ratio).clamp(LEAST_CEILING, MOST_CEILING)
    return torch.where(membership.sum(-1) > 0, ceiling @ membership.T, torch.inf)


def _root_mean_square(spectrum: Tensor, active: Tensor) -> Tensor:
    return ((squared_magnitude(spectrum) @ active) / active.sum()).sqrt().unsqueeze(-1)


class Refining:
    """`Updates` by torch's operators.

    An update overwrites the tensors that it reads and never reads a value back, so that one recorded update can be
    replayed any number of times: an item that has stopped takes steps of length zero.
    """

    def __init__(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        reference_psd: Tensor,
        *,
        profile: RefinementProfile = FAST,
        max_gain_db: Tensor | float | None = 30.0,
        solve: ToeplitzSolver = solve_toeplitz,
        most_updates: int = MAX_UPDATES,
    ) -> None:
        """Arguments as of `refine`. No more than `most_updates` updates may follow."""
        paths, reference_psd = _on_grid(paths, reference_psd, min(profile.n_fft, paths.n_fft))
        self._paths, self._profile, self._solve = paths, profile, solve
        self._objective = TapObjective(paths, reference_psd, profile, max_gain_db)
        self._cap = _step_cap(paths, profile)
        self._taps = taps.clone()
        self._response = torch.fft.rfft(taps, n=paths.n_fft)
        self._residual = paths.primary - paths.secondary * self._response
        self._band_power = self._objective.band_power(self._residual)
        self._value = self._objective.value(self._band_power, self._response)
        self._stopped = torch.full_like(self._value, _BUDGET, dtype=torch.int64)
        self._n_applied = torch.zeros_like(self._stopped)
        # J, the step's scale and the solver's residual, the latest update last.
        self._history = self._value.new_full((len(taps), 3, most_updates + 1), torch.nan)
        self._history[:, 0, -1] = self._value

    def update(self) -> None:
        """One update of every item that has not stopped."""
        objective, profile, paths = self._objective, self._profile, self._paths
        symbol, descent = objective.normal_equations(paths, self._residual, self._response, self._band_power)
        solution = self._solve(
            damped(symbol, profile),
            descent,
            self._taps.shape[-1],
            n_iterations=profile.n_iterations,
            tolerance=profile.tolerance,
            preconditioned=profile.preconditioner == "gohberg_semencul",
        )
        # A solve that ended in NaN or infinity is no step: the item keeps its filter and stops.
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
        active = self._stopped == _BUDGET
        accepted = active & enough.any(-1)
        verdict = torch.where(decrease.amax(-1) > 0, _CONVERGED, _NO_DECREASE)
        first = enough.to(torch.uint8).argmax(-1)
        scale = torch.where(accepted, torch.pow(0.5, first.to(trials.dtype)), 0.0)

        self._stopped.copy_(torch.where(active & ~accepted, verdict, self._stopped))
        self._n_applied += accepted
        # A step that was not accepted may have overflowed: no multiple of it, not even by zero, is added.
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
        made = torch.where(accepted, torch.stack((value, scale, solution.residual)), torch.nan)
        self._history.copy_(torch.cat((self._history[..., 1:], made.T.unsqueeze(-1)), -1))

    def result(self) -> Refinement:
        """Where the items stand, in the tensors that the next update overwrites."""
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
    solve: ToeplitzSolver = solve_toeplitz,
) -> Refinement:
    """Up to `n_updates` damped Gauss-Newton updates of `taps` [batch, n_taps] on estimated paths.

    reference_psd: mean square per bin on the paths' grid. max_gain_db: ceiling on |W| (only in profiles that
    weigh it; None: no ceiling). Backtracking over 1, 1/2, 1/4 accepts the first scale that lowers J enough.
    """
    refining = Refining(
        paths,
        taps,
        reference_psd,
        profile=profile,
        max_gain_db=max_gain_db,
        solve=solve,
        most_updates=n_updates,
    )
    for _ in range(n_updates):
        refining.update()
    return refining.result()


@dataclass(frozen=True)
class _StepCap:
    limit: Tensor
    bins: Tensor


def _step_cap(paths: AcousticPaths, profile: RefinementProfile) -> _StepCap | None:
    """The largest response-step RMS: a share of the query ratio base's over the 23 bands, for every start."""
    if profile.step_cap is None:
        return None
    bins = band_matrix(AMP_BANDS, paths.n_fft, paths.primary.real.dtype, paths.primary.device).sum(-1)
    return _StepCap(profile.step_cap * _root_mean_square(regularised_ratio(paths), bins), bins)


def _on_grid(paths: AcousticPaths, reference_psd: Tensor, n_fft: int) -> tuple[AcousticPaths, Tensor]:
    """Paths and reference on a coarser grid: spectra are sampled, the reference's power is collected."""
    stride = paths.n_fft // n_fft
    if stride == 1:
        return paths, reference_psd
    sampled = AcousticPaths(paths.primary[..., ::stride].contiguous(), paths.secondary[..., ::stride].contiguous())
    return sampled, collected(reference_psd, stride)


def damped(symbol: Tensor, profile: RefinementProfile) -> Tensor:
    """The symbol of the damped normal matrix. The damping, 0.002 max(h, 1e-6) + 1e-6 in the paper, follows the mean
    diagonal h, which is constant here: the symbol's mean over all bins, of which both ends are zero."""
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
    """J at each of STEP_SCALES, [batch, 3]. E_b is quadratic in the scale, so trials need no transform."""
    cross = (objective.weight * (residual.conj() * change).real) @ objective.membership
    square = (objective.weight * squared_magnitude(change)) @ objective.membership
    scales = objective.scales
    band_powers = (band_power + scales * (scales * square - 2 * cross)).clamp_min(SILENCE)
    return objective.value(band_powers, response + scales * step_response).T
