"""The two designs that need neither training nor a solve."""

from dataclasses import dataclass

from synthesis.minimum_phase import minimum_phase_fir
from synthesis.path_ratio import Base, log_base_magnitude, projected_ratio_fir, regularised_ratio
from synthesis.paths import AcousticPaths, ControlFilter


@dataclass(frozen=True)
class RatioBase:
    """Minimum-phase FIR of |W_reg| with no correction and no ceiling: the generator's starting point."""

    base: Base

    @property
    def name(self) -> str:
        """`ratio_base_full_band` or `ratio_base_held_band`."""
        return f"ratio_base_{self.base}"

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        return ControlFilter(minimum_phase_fir(log_base_magnitude(regularised_ratio(paths), self.base)))


@dataclass(frozen=True)
class ProjectedRatio:
    """Samples 0 to 2047 of the inverse transform of the complex W_reg."""

    name: str = "projected_ratio"

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        return ControlFilter(projected_ratio_fir(regularised_ratio(paths)))
