"""Methods to compare a trained generator with; all design from the same estimated paths.

Each has a `name` and `design(paths) -> ControlFilter`.
"""

from training.baselines.analytic import RatioBase, Start
from training.baselines.fomaml import Fomaml
from training.baselines.generative import GenerativeFixedFilter
from training.baselines.iterative_fir import IterativeFir
from training.baselines.selective import SelectiveFixedFilter
from training.baselines.wmmse import SupportSharedWmmse, Wmmse, WmmseFast, WmmsePcg

__all__ = [
    "Fomaml",
    "GenerativeFixedFilter",
    "IterativeFir",
    "RatioBase",
    "SelectiveFixedFilter",
    "Start",
    "SupportSharedWmmse",
    "Wmmse",
    "WmmseFast",
    "WmmsePcg",
]
