"""Designs that a trained generator is compared with, each from the same estimates.

Every one has a `name` and `design(paths) -> ControlFilter`.
"""

from training.baselines.analytic import ProjectedRatio, RatioBase
from training.baselines.fomaml import Fomaml
from training.baselines.generative import GenerativeFixedFilter
from training.baselines.iterative_fir import IterativeFir
from training.baselines.selective import SelectiveFixedFilter
from training.baselines.wmmse import SupportSharedWmmse, Wmmse, WmmseFast, WmmsePcg

__all__ = [
    "Fomaml",
    "GenerativeFixedFilter",
    "IterativeFir",
    "ProjectedRatio",
    "RatioBase",
    "SelectiveFixedFilter",
    "SupportSharedWmmse",
    "Wmmse",
    "WmmseFast",
    "WmmsePcg",
]
