"""Per-query weighted least squares, alone or refined in the paper's profile."""

from dataclasses import dataclass

from torch import Tensor

from synthesis.gauss_newton import PAPER, refine
from synthesis.paths import AcousticPaths, ControlFilter
from synthesis.wiener import design_wmmse


@dataclass(frozen=True)
class Wmmse:
    """Direct double-precision Toeplitz solve, then `n_updates` Gauss-Newton updates of the `paper` profile.

    reference_psd: mean square per bin, [n_bins], in the paths' real type.
    """

    reference_psd: Tensor
    n_updates: int = 0

    @property
    def name(self) -> str:
        """`wmmse`; with updates, the reports add their number."""
        return "wmmse"

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        taps = design_wmmse(paths, self.reference_psd)
        if self.n_updates:
            taps = refine(paths, taps, self.reference_psd, n_updates=self.n_updates, profile=PAPER).taps
        return ControlFilter(taps)
