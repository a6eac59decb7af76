"""The method from start to end in torch: path ratio, generate, reconstruct, refine. Differentiable throughout."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from synthesis.arrays import floored_log, minimum_phase_fir
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidPaths, NonFiniteFilter
from synthesis.generator_config import NEPER_PER_DB
from synthesis.methods import STARTS
from synthesis.options import DEFAULT_MAX_GAIN_DB
from synthesis.paths import AcousticPaths
from synthesis.profiles import FAST, MAX_UPDATES, PROFILES, RefinementProfile, on_design_grid
from synthesis.start.features import log_base_magnitude, path_features, regularised_ratio
from synthesis.start.fir_wiener import CEILING_SHARPNESS, drive_ceiling, fir_wiener, starting_weight
from synthesis.start.generator import Generator
from synthesis.start.wiener import design_wmmse
from synthesis.types import DesignOptions
from synthesis.update import GaussNewtonState, Refinement, refine


@dataclass(frozen=True)
class PathRatio:
    """Inputs of a generator."""

    # Log A_base, natural, [batch, bins of the generator's Fourier grid].
    log_base: Tensor
    # Natural log |P| and log |S| on the generator's grid, [batch, 2, n_points].
    log_paths: Tensor
    # The twelve channels on the generator's grid, [batch, 12, n_points].
    features: Tensor


def extract_features(generator: Generator, paths: AcousticPaths) -> PathRatio:
    """Compute the magnitude base, theory (3), and pooled conditioning features of paths on the design grid."""
    coarse = _on_generator_grid(generator, paths)
    w_reg = regularised_ratio(coarse.primary, coarse.secondary)
    log_base = log_base_magnitude(w_reg, generator.config.base)
    log_paths = floored_log(torch.stack((coarse.primary, coarse.secondary), dim=1).abs())
    features = path_features(coarse.primary, coarse.secondary, w_reg, log_base)
    pooled = generator.grid.pool(torch.cat((log_paths, features), dim=1))
    return PathRatio(log_base, pooled[:, :2], pooled[:, 2:])


def synthesize_fir(
    generator: Generator,
    paths: AcousticPaths,
    log_paths: Tensor,
    correction: Tensor,
    log_ceiling: Tensor | None,
    shares: Tensor | None = None,
) -> Tensor:
    """Compute taps [batch, 2048] of the finite Wiener filter with corrected weight and penalty.

    Parameters
    ----------
    paths
        Paths on the design grid.
    log_paths, correction
        From `PathRatio` and `Synthesizer.generate`.
    log_ceiling
        Natural log of the largest |W| allowed, scalar or [batch, 1]; None: only the loudspeaker's limit.
    shares
        As for `fir_wiener`.
    """
    grid = generator.grid
    log_terms = starting_weight(log_paths, grid.points_hz) + 2 * correction
    log_weight, log_penalty = grid.spread(log_terms).unbind(1)
    ceiling = grid.spread(drive_ceiling(log_paths, grid.points_hz))
    if log_ceiling is not None:
        ceiling = torch.minimum(ceiling, log_ceiling)
    coarse = _on_generator_grid(generator, paths)
    return fir_wiener(coarse.primary, coarse.secondary, log_weight, log_penalty, ceiling, shares).value


class Synthesizer(nn.Module):
    """A generator with the data for refining its filters.

    Buffers: reference_psd, mean square per bin of the design grid, [16385]; band_uncertainty, [2, 31], from
    `learn_uncertainty`. Paths are on the design grid of 32768 points. In all methods max_gain_db is the largest |W|, a
    number or [batch, 1], None for no limit; reference_psd, [16385] or [batch, 16385], replaces the buffer; shares are
    the weights of conditions, [n_conditions], with sum one, of one filter: the batch of paths is the conditions, and
    that of taps is one.
    """

    reference_psd: Tensor
    band_uncertainty: Tensor

    def __init__(self, generator: Generator, reference_psd: Tensor, band_uncertainty: Tensor) -> None:
        """Share the generator, without copying it."""
        super().__init__()
        self.generator = generator
        self.register_buffer("reference_psd", reference_psd)
        self.register_buffer("band_uncertainty", band_uncertainty)

    def path_ratio(self, paths: AcousticPaths) -> PathRatio:
        """Compute the magnitude base, theory (3), and pooled conditioning features."""
        return extract_features(self.generator, paths)

    def generate(self, features: Tensor) -> Tensor:
        """Compute the corrections Delta, natural log, on the generator's grid, theory (4): [batch, n_outputs,
        n_points].
        """
        correction: Tensor = self.generator(features)
        return correction

    def reconstruct(
        self,
        paths: AcousticPaths,
        ratio: PathRatio,
        correction: Tensor | None,
        max_gain_db: Tensor | float | None = None,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Compute taps [batch, 2048] from a generator's corrections; without corrections, the ratio-base FIR.

        |W| is bent below the ceiling with the phase that keeps the response causal and short. For several conditions
        a finite Wiener filter sums their normal equations, a ratio averages their log magnitudes.
        """
        # In the magnitude's precision, so that a number and a tensor of it give the same taps; a number stays on the
        # host, since kernels take it as an argument even in a recorded graph.
        log_ceiling = (
            None if max_gain_db is None else torch.as_tensor(max_gain_db, dtype=ratio.log_base.dtype) * NEPER_PER_DB
        )
        if correction is not None and self.generator.config.realisation == "fir_wiener":
            return synthesize_fir(self.generator, paths, ratio.log_paths, correction, log_ceiling, shares)
        log_magnitude = ratio.log_base
        if correction is not None:
            log_magnitude = log_magnitude + self.generator.grid.spread(correction[:, 0])
        if shares is not None:
            log_magnitude = (shares.unsqueeze(-1) * log_magnitude).sum(0, keepdim=True)
        if log_ceiling is not None:
            excess = log_magnitude - log_ceiling
            log_magnitude = log_magnitude - nn.functional.softplus(excess, beta=CEILING_SHARPNESS)
        return minimum_phase_fir(log_magnitude)

    def refining(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        profile: RefinementProfile = FAST,
        max_gain_db: Tensor | float | None = DEFAULT_MAX_GAIN_DB,
        reference_psd: Tensor | None = None,
        most_updates: int = MAX_UPDATES,
        shares: Tensor | None = None,
        unknown: Tensor | None = None,
    ) -> GaussNewtonState:
        """Return the state before the first of at most `most_updates` Gauss-Newton updates against the estimated paths.

        Parameters
        ----------
        profile
            `fine` for paths that the grid of `fast` does not resolve.
        unknown
            Unknown bands, [batch, 31]; the updates are then made on the paths' grid.
        """
        return GaussNewtonState(
            paths,
            taps,
            self.reference_psd if reference_psd is None else reference_psd,
            profile=profile if unknown is None else on_design_grid(profile),
            max_gain_db=max_gain_db,
            most_updates=most_updates,
            shares=shares,
            unknown=unknown,
        )

    def refine(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        n_updates: int,
        profile: RefinementProfile = FAST,
        max_gain_db: Tensor | float | None = DEFAULT_MAX_GAIN_DB,
        reference_psd: Tensor | None = None,
        shares: Tensor | None = None,
        unknown: Tensor | None = None,
    ) -> Refinement:
        """Make up to `n_updates` Gauss-Newton updates of `taps`.

        Parameters
        ----------
        unknown
            As for `refining`, with paths of one filter. Further, unrecorded updates then reduce unknown bands that
            became louder.
        """
        found = refine(
            paths,
            taps,
            self.reference_psd if reference_psd is None else reference_psd,
            n_updates=n_updates,
            profile=profile if unknown is None else on_design_grid(profile),
            max_gain_db=max_gain_db,
            shares=shares,
            unknown=unknown,
        )
        if unknown is None:
            return found
        for _ in range(MAX_UPDATES):
            state = self.refining(paths, found.taps, profile, max_gain_db, reference_psd, 1, shares, unknown)
            if not state.is_loud_unseen():
                break
            state.update()
            if not bool(state.result().n_applied.any()):
                break
            found = replace(found, taps=state.result().taps)
        return found

    def initial_filter(
        self,
        paths: AcousticPaths,
        method: str = "prime",
        max_gain_db: Tensor | float | None = DEFAULT_MAX_GAIN_DB,
        reference_psd: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Compute taps [batch, 2048] of one of METHODS, before any update.

        The ceiling affects `prime` and `ratio_base`; the others are defined without one.
        """
        if method == "wmmse":
            return design_wmmse(
                paths, self.reference_psd if reference_psd is None else reference_psd, shares=shares
            )
        if method in STARTS:
            return start_filter(paths, method, shares)
        ratio = self.path_ratio(paths)
        correction = self.generate(ratio.features) if method == "prime" else None
        return self.reconstruct(paths, ratio, correction, max_gain_db, shares)

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
        """Design a control filter from estimated paths.

        Raises
        ------
        InvalidOption
            The method, profile or number of updates does not exist.
        InvalidPaths
            The paths are unusable.
        NonFiniteFilter
            The taps are not finite.
        """
        DesignOptions(method, n_updates, profile)  # checks them
        if paths.validate().n_fft != DESIGN_N_FFT:
            raise InvalidPaths(f"primary: it has {paths.n_bins} bins; give {N_BINS}", field="primary")
        taps = self.initial_filter(paths, method, max_gain_db, reference_psd)
        refinement = self.refine(paths, taps, n_updates, PROFILES[profile], max_gain_db, reference_psd)
        if not bool(torch.isfinite(refinement.taps).all()):
            raise NonFiniteFilter(
                f"control filter: method {method!r} gave NaN or infinite taps; scale the paths so that their "
                "squares fit into the precision"
            )
        return refinement


def start_filter(paths: AcousticPaths, method: str, shares: Tensor | None = None) -> Tensor:
    """Make taps [batch, 2048] of one of STARTS on the host, without gradient; their mean over conditions."""
    pairs = zip(paths.primary.cpu().numpy(), paths.secondary.cpu().numpy(), strict=True)
    taps = torch.from_numpy(np.stack([STARTS[method](*pair) for pair in pairs])).to(paths.primary.real)
    return taps if shares is None else (shares.unsqueeze(-1) * taps).sum(0, keepdim=True)


def _on_generator_grid(generator: Generator, paths: AcousticPaths) -> AcousticPaths:
    """Take every n-th bin: the same transforms, sampled less densely."""
    stride = DESIGN_N_FFT // generator.config.n_fft
    return AcousticPaths(paths.primary[..., ::stride].contiguous(), paths.secondary[..., ::stride].contiguous())
