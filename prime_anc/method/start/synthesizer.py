"""The method from start to end in torch: first taps, updates. Differentiable throughout."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidPaths, NonFiniteFilter
from prime_anc.method.methods import STARTS, first_taps
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.profiles import PROFILES
from prime_anc.method.start.generator import Generator
from prime_anc.method.start.wiener import design_wmmse
from prime_anc.method.types import DesignOptions
from prime_anc.method.updates.update import Refinement, refine
from prime_anc.options import DEFAULT_MAX_GAIN_DB


class Synthesizer(nn.Module):
    """A generator with the data for refining its filters.

    Buffers: reference_psd, mean square per bin of the design grid, [16385]; band_uncertainty, [31], from
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
        ratio = self.generator.path_ratio(paths)
        correction = self.generator(ratio.features) if method == "prime" else None
        return self.generator.reconstruct(paths, ratio, correction, max_gain_db, shares)

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
        psd = self.reference_psd if reference_psd is None else reference_psd
        refinement = refine(
            paths, taps, psd, n_updates=n_updates, profile=PROFILES[profile], max_gain_db=max_gain_db
        )
        if not bool(torch.isfinite(refinement.taps).all()):
            raise NonFiniteFilter(
                f"control filter: method {method!r} gave NaN or infinite taps; scale the paths so that their "
                "squares fit into the precision"
            )
        return refinement


def start_filter(paths: AcousticPaths, method: str, shares: Tensor | None = None) -> Tensor:
    """Make taps [batch, 2048] of one of STARTS on the host, without gradient; their mean over conditions."""
    primary, secondary = paths.primary.cpu().numpy(), paths.secondary.cpu().numpy()
    if shares is not None:
        taps = first_taps(method, primary, secondary, shares.cpu().numpy())[None]
    else:
        taps = np.stack([STARTS[method](*pair) for pair in zip(primary, secondary, strict=True)])
    return torch.from_numpy(taps).to(paths.primary.real)
