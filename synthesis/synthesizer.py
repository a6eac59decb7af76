"""The recipe: ratio, generate, reconstruct, refine, predict.

There is one recipe and two ways to run it. Training runs it eagerly and differentiates it; the service records
its stages once and replays them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidOption, InvalidPaths, NonFiniteFilter
from synthesis.estimate_uncertainty import expected_uncertainty
from synthesis.features import path_features
from synthesis.fir_wiener import CEILING_SHARPNESS, drive_ceiling, fir_wiener, starting_weight
from synthesis.gauss_newton import MAX_UPDATES, PROFILES, BeginUpdates, Refinement, Refining, Updates
from synthesis.generator import NEPER_PER_DB, Generator
from synthesis.minimum_phase import minimum_phase_fir
from synthesis.noise_reduction import Prediction, predict
from synthesis.path_ratio import floored_log, log_base_magnitude, projected_ratio_fir, regularised_ratio
from synthesis.paths import AcousticPaths
from synthesis.toeplitz import ToeplitzSolver, solve_toeplitz
from synthesis.wiener import design_wmmse

METHODS = ("prime", "ratio_base", "projected_ratio", "wmmse")

DEFAULT_MAX_GAIN_DB = 30.0
"""Ceiling on |W|. Every good design asks for 24 to 38 dB below 50 Hz, where the secondary path rolls off."""


@dataclass(frozen=True)
class PathRatio:
    """What the paths say before a generator is asked.

    log_base: log A_base, natural, [batch, bins of the generator's Fourier grid]. On the generator's own grid:
    log_paths, natural log |P| and log |S|, [batch, 2, n_points], and features, the twelve channels,
    [batch, 12, n_points].
    """

    log_base: Tensor
    log_paths: Tensor
    features: Tensor


def on_generator_grid(generator: Generator, paths: AcousticPaths) -> AcousticPaths:
    """Every n-th bin: the same transforms, sampled less densely."""
    stride = DESIGN_N_FFT // generator.config.n_fft
    return AcousticPaths(paths.primary[..., ::stride].contiguous(), paths.secondary[..., ::stride].contiguous())


class Read(Protocol):
    """What `read_paths` does, however it is done."""

    def __call__(self, generator: Generator, paths: AcousticPaths) -> PathRatio:
        """Read."""
        ...


def read_paths(generator: Generator, paths: AcousticPaths) -> PathRatio:
    """Magnitude base (Eq. 4) and pooled conditioning features of paths on the design grid."""
    coarse = on_generator_grid(generator, paths)
    w_reg = regularised_ratio(coarse)
    log_base = log_base_magnitude(w_reg, generator.config.base)
    log_paths = floored_log(torch.stack((coarse.primary, coarse.secondary), dim=1).abs())
    features = path_features(coarse, w_reg, log_base)
    pooled = generator.grid.pool(torch.cat((log_paths, features), dim=1))
    return PathRatio(log_base, pooled[:, :2], pooled[:, 2:])


class Realise(Protocol):
    """What `realised_wiener` does, however it is done."""

    def __call__(
        self,
        generator: Generator,
        paths: AcousticPaths,
        log_paths: Tensor,
        correction: Tensor,
        log_ceiling: Tensor | None,
        solve: ToeplitzSolver,
    ) -> Tensor:
        """Realise."""
        ...


def realised_wiener(
    generator: Generator,
    paths: AcousticPaths,
    log_paths: Tensor,
    correction: Tensor,
    log_ceiling: Tensor | None,
    solve: ToeplitzSolver,
) -> Tensor:
    """Taps [batch, 2048] of the finite Wiener filter whose weight and penalty a generator has corrected.

    paths: on the design grid. log_paths, correction: of `PathRatio` and `Synthesizer.generate`. log_ceiling:
    natural log of the largest |W| asked for, scalar or [batch, 1].
    """
    grid = generator.grid
    log_terms = starting_weight(log_paths, grid.points_hz) + 2 * correction
    log_weight, log_penalty = grid.spread(log_terms).unbind(1)
    ceiling = grid.spread(drive_ceiling(log_paths, grid.points_hz))
    if log_ceiling is not None:
        ceiling = ceiling.clamp_max(log_ceiling) if log_ceiling.ndim == 0 else torch.minimum(ceiling, log_ceiling)
    return fir_wiener(on_generator_grid(generator, paths), log_weight, log_penalty, ceiling, solve).value


class Predict(Protocol):
    """What `predicted` does, however it is done."""

    def __call__(
        self, paths: AcousticPaths, taps: Tensor, learned: Tensor, coherence: Tensor | None, reference_psd: Tensor
    ) -> Prediction:
        """Predict."""
        ...


def predicted(
    paths: AcousticPaths, taps: Tensor, learned: Tensor, coherence: Tensor | None, reference_psd: Tensor
) -> Prediction:
    """Figures of the taps; without a coherence, with the uncertainty that support listeners taught: [2, 31]."""
    uncertainty = expected_uncertainty(paths, learned, reference_psd) if coherence is None else None
    return predict(paths, taps, reference_psd, coherence=coherence, uncertainty=uncertainty)


class Synthesizer(nn.Module):
    """A generator with what its filters are refined and predicted against.

    Buffers: reference_psd, mean square per bin of the design grid, [16385]; band_uncertainty, [2, 31], what
    `estimate_uncertainty.learn_uncertainty` took from the support listeners. Paths come on the design grid of
    32768 points; a generator on a coarser grid reads every n-th bin, which is the same transform sampled less
    densely.
    """

    reference_psd: Tensor
    band_uncertainty: Tensor

    def __init__(self, generator: Generator, reference_psd: Tensor, band_uncertainty: Tensor) -> None:
        """The generator is shared, not copied."""
        super().__init__()
        self.generator = generator
        self.solve: ToeplitzSolver = solve_toeplitz
        self.begin_updates: BeginUpdates = Refining
        self.read: Read = read_paths
        self.realise: Realise = realised_wiener
        self.foresee: Predict = predicted
        self.register_buffer("reference_psd", reference_psd)
        self.register_buffer("band_uncertainty", band_uncertainty)

    def path_ratio(self, paths: AcousticPaths) -> PathRatio:
        """Magnitude base (Eq. 4) and pooled conditioning features."""
        return self.read(self.generator, paths)

    def generate(self, features: Tensor) -> Tensor:
        """The corrections Delta, natural log, on the generator's own grid: [batch, n_outputs, n_points] (Eq. 5)."""
        correction: Tensor = self.generator(features)
        return correction

    def reconstruct(
        self,
        paths: AcousticPaths,
        ratio: PathRatio,
        correction: Tensor | None,
        max_gain_db: Tensor | float | None = None,
    ) -> Tensor:
        """Taps [batch, 2048] from a generator's corrections; no correction gives the ratio-base FIR.

        max_gain_db, a scalar or [batch, 1]: a ceiling that |W| bends below, with the phase that keeps the
        response causal and short.
        """
        # In the magnitude's own precision, so that a number and a tensor of it give the same taps; a number
        # stays on the host, from where a kernel takes it as an argument even while a graph is recorded.
        log_ceiling = (
            None if max_gain_db is None else torch.as_tensor(max_gain_db, dtype=ratio.log_base.dtype) * NEPER_PER_DB
        )
        grid = self.generator.grid
        if correction is not None and self.generator.config.realisation == "fir_wiener":
            return self.realise(self.generator, paths, ratio.log_paths, correction, log_ceiling, self.solve)
        log_magnitude = ratio.log_base if correction is None else ratio.log_base + grid.spread(correction[:, 0])
        if log_ceiling is not None:
            excess = log_magnitude - log_ceiling
            log_magnitude = log_magnitude - nn.functional.softplus(excess, beta=CEILING_SHARPNESS)
        return minimum_phase_fir(log_magnitude)

    def refining(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        profile: str = "fast",
        max_gain_db: Tensor | float | None = DEFAULT_MAX_GAIN_DB,
        reference_psd: Tensor | None = None,
        most_updates: int = MAX_UPDATES,
    ) -> Updates:
        """Gauss-Newton updates against the estimated paths: none made yet, at most `most_updates` to come.

        profile: a name of PROFILES; on the design grid paths no longer show how fine they are, `suited_profile` is
        told. reference_psd None: the checkpoint's own.
        """
        return self.begin_updates(
            paths,
            taps,
            self.reference_psd if reference_psd is None else reference_psd,
            profile=PROFILES[profile],
            max_gain_db=max_gain_db,
            solve=self.solve,
            most_updates=most_updates,
        )

    def refine(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        n_updates: int,
        profile: str = "fast",
        max_gain_db: Tensor | float | None = DEFAULT_MAX_GAIN_DB,
        reference_psd: Tensor | None = None,
    ) -> Refinement:
        """The same with `n_updates` made."""
        refining = self.refining(paths, taps, profile, max_gain_db, reference_psd, n_updates)
        for _ in range(n_updates):
            refining.update()
        return refining.result()

    def predict(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        coherence: Tensor | None = None,
        reference_psd: Tensor | None = None,
    ) -> Prediction:
        """Figures of the taps; without a coherence, with the uncertainty learned from support listeners."""
        psd = self.reference_psd if reference_psd is None else reference_psd
        return self.foresee(paths, taps, self.band_uncertainty, coherence, psd)

    def initial_filter(
        self,
        paths: AcousticPaths,
        method: str = "prime",
        max_gain_db: Tensor | float | None = DEFAULT_MAX_GAIN_DB,
        reference_psd: Tensor | None = None,
    ) -> Tensor:
        """Taps [batch, 2048] of one of METHODS, before any update.

        The ceiling shapes `prime` and `ratio_base`; `projected_ratio` and `wmmse` are defined without one.
        """
        if method == "wmmse":
            return design_wmmse(paths, self.reference_psd if reference_psd is None else reference_psd)
        if method == "projected_ratio":
            return projected_ratio_fir(regularised_ratio(paths))
        ratio = self.path_ratio(paths)
        correction = self.generate(ratio.features) if method == "prime" else None
        return self.reconstruct(paths, ratio, correction, max_gain_db)

    def design(
        self,
        paths: AcousticPaths,
        n_updates: int = 0,
        *,
        method: str = "prime",
        profile: str = "fast",
        max_gain_db: Tensor | float | None = DEFAULT_MAX_GAIN_DB,
        reference_psd: Tensor | None = None,
    ) -> Refinement:
        """A control filter from estimated paths, start to end.

        Raises InvalidOption for a method, profile or number of updates that does not exist, InvalidPaths for
        unusable paths and NonFiniteFilter where the design did not end in finite taps.
        """
        check_options(method=method, profile=profile, n_updates=n_updates)
        if paths.validate().n_fft != DESIGN_N_FFT:
            raise InvalidPaths(
                f"primary: found {paths.n_bins} bins, expected the design grid's {N_BINS}", field="primary"
            )
        taps = self.initial_filter(paths, method, max_gain_db, reference_psd)
        refinement = self.refine(paths, taps, n_updates, profile, max_gain_db, reference_psd)
        if not bool(torch.isfinite(refinement.taps).all()):
            raise NonFiniteFilter(f"control filter: found NaN or infinite taps from method {method!r}")
        return refinement


def check_options(*, method: str, profile: str, n_updates: int) -> None:
    """Raise InvalidOption unless the method and profile exist and 0 <= n_updates <= 8."""
    if method not in METHODS:
        raise InvalidOption(f"method: found {method!r}, expected one of {', '.join(METHODS)}", "method")
    if profile not in PROFILES:
        raise InvalidOption(f"profile: found {profile!r}, expected one of {', '.join(PROFILES)}", "profile")
    if not 0 <= n_updates <= MAX_UPDATES:
        raise InvalidOption(f"k: found {n_updates} updates, expected 0 to {MAX_UPDATES}", "k")
