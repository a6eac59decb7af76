"""The regularised path ratio and the magnitude base taken from it (Eq. 4)."""

import math
from typing import get_args

import torch
from torch import Tensor

from synthesis.arrays import floored_log, squared_magnitude
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.generator_config import Base
from synthesis.paths import AcousticPaths

REGULARISATION = 1e-4
"""epsilon_S over the largest |S|."""

HELD_LOW_HZ = 25.0
HELD_HIGH_HZ = 9000.0
"""Outside these the held-band base keeps the value at the edge. Beyond the scored bands the ratio is large and
steep (on measured earphones 33 dB more at 0 Hz than at 25 Hz), and its minimum-phase response longer than 2048
taps."""


def regularised_ratio(paths: AcousticPaths) -> Tensor:
    """W_reg = P S* / (|S|^2 + eps^2), eps = 1e-4 max |S| (Eq. 4): complex [batch, n_bins]."""
    secondary = paths.secondary
    power = squared_magnitude(secondary)
    epsilon_squared = REGULARISATION**2 * power.amax(-1, keepdim=True)
    return paths.primary * secondary.conj() / (power + epsilon_squared)


def log_base_magnitude(w_reg: Tensor, base: Base) -> Tensor:
    """log A_base, natural, [batch, n_bins]: log |W_reg|, in the `held_band` variant constant below 25 Hz and
    above 9 kHz."""
    if base not in get_args(Base):
        raise InvalidOption(f"base: {base!r} does not exist; use one of {', '.join(get_args(Base))}", field="base")
    log_magnitude = floored_log(w_reg.abs())
    if base == "full_band":
        return log_magnitude
    n_bins = w_reg.shape[-1]
    spacing_hz = SAMPLE_RATE_HZ / (2 * (n_bins - 1))
    low, high = math.ceil(HELD_LOW_HZ / spacing_hz), math.floor(HELD_HIGH_HZ / spacing_hz)
    held = torch.arange(n_bins, device=w_reg.device).clamp(low, high)
    return log_magnitude[..., held]
