"""Methods that need neither training nor a linear solve."""

from dataclasses import dataclass

from synthesis.generator_config import Base
from synthesis.minimum_phase import minimum_phase_fir
from synthesis.path_ratio import log_base_magnitude, regularised_ratio
from synthesis.paths import AcousticPaths, ControlFilter
from synthesis.synthesizer import start_filter


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
class Start:
    """A design of `synthesis.methods.STARTS`, as every backend makes it."""

    name: str

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        return ControlFilter(start_filter(paths, self.name))
