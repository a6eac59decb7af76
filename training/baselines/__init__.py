"""Designs that a trained generator is compared with, each from the same estimates.

Every one has a `name` and `design(paths) -> ControlFilter`.
"""

from training.baselines.analytic import ProjectedRatio, RatioBase
from training.baselines.wmmse import Wmmse

__all__ = ["ProjectedRatio", "RatioBase", "Wmmse"]
