"""The generators: convolutional networks that correct what a filter is realised from (Eq. 5).

`prime` is the paper's, on the full linear grid; it corrects the log magnitude of the ratio base, which is then
given its minimum phase. `prime-log` is the same stack of layers on a few log-spaced frequencies; it corrects the
weight and the penalty of a finite causal Wiener filter (or, as a control, the ratio base as `prime` does). Both
predict g and return Delta = (bound ln 10 / 20) tanh(g).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor, nn

from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.features import N_CHANNELS
from synthesis.frequency_grid import LinearFrequencyGrid, LogFrequencyGrid
from synthesis.path_ratio import Base

NEPER_PER_DB = math.log(10) / 20

Realisation = Literal["minimum_phase", "fir_wiener"]
N_OUTPUTS = {"minimum_phase": 1, "fir_wiener": 2}
"""What a generator corrects: log A_base, or the log weight and log penalty of a finite Wiener filter."""


@dataclass(frozen=True)
class GeneratorConfig:
    """All that is needed to rebuild a generator beside its weights.

    realisation: how taps are made of a correction. n_fft: points of the Fourier grid that the paths are read on.
    bound_db: largest correction, either way. head_norm: a group norm inside the head (the paper's layout has one).
    n_points, low_hz, high_hz: the log-spaced grid of `prime-log`, unused by `prime`.
    """

    kind: Literal["prime", "prime-log"] = "prime-log"
    realisation: Realisation = "fir_wiener"
    n_fft: int = DESIGN_N_FFT
    base: Base = "held_band"
    bound_db: float = 40.0
    n_channels: int = 40
    kernel_size: int = 9
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16)
    n_groups: int = 8
    head_norm: bool = False
    n_points: int = 128
    low_hz: float = 20.0
    high_hz: float = 24_000.0

    def __post_init__(self) -> None:
        """Raise InvalidOption for a value that no generator can be built from."""
        checks = {
            "kind": self.kind in ("prime", "prime-log"),
            "realisation": self.realisation in N_OUTPUTS,
            "base": self.base in ("full_band", "held_band"),
            "n_fft": 4096 <= self.n_fft <= DESIGN_N_FFT and self.n_fft & (self.n_fft - 1) == 0,
            "bound_db": 0 < self.bound_db <= 120,
            "n_channels": 0 < self.n_channels <= 1024 and self.n_channels % self.n_groups == 0,
            "kernel_size": 0 < self.kernel_size <= 99 and self.kernel_size % 2 == 1,
            "dilations": 0 < len(self.dilations) <= 32 and all(0 < d <= 1024 for d in self.dilations),
            "n_points": 8 <= self.n_points <= 4096,
            "low_hz": 0 < self.low_hz < self.high_hz <= SAMPLE_RATE_HZ / 2,
        }
        for name, holds in checks.items():
            if not holds:
                raise InvalidOption(f"generator {name}: found {getattr(self, name)!r}, out of range", name)

    @classmethod
    def prime(cls, n_fft: int = DESIGN_N_FFT) -> GeneratorConfig:
        """The paper's generator: full linear grid, full-band base, +-12 dB, 151,401 parameters."""
        return cls(
            kind="prime",
            realisation="minimum_phase",
            n_fft=n_fft,
            base="full_band",
            bound_db=12.0,
            head_norm=True,
        )

    @classmethod
    def prime_log(cls, **changes: Any) -> GeneratorConfig:
        """This project's generator: 64 log-spaced frequencies, 24 channels, finite Wiener filter, +-40 dB.

        On two splits 128 points and 40 channels were better by 0.06 dB before updates and no better after one, at
        six times the arithmetic.
        """
        own: dict[str, Any] = {"kind": "prime-log", "n_fft": 8192, "n_channels": 24, "n_points": 64}
        return cls(**own | changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"dilations": list(self.dilations)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GeneratorConfig:
        """Rebuild from `to_dict`'s values; InvalidOption names a field that is unknown, missing or mistyped."""
        values = {"realisation": "minimum_phase", **values}  # the only one when checkpoints did not yet name it
        known: dict[str, type] = {each.name: type(each.default) for each in fields(cls)}
        if set(values) != set(known):
            raise InvalidOption(
                f"generator configuration: found unknown {sorted(set(values) - set(known))} and missing "
                f"{sorted(set(known) - set(values))}, expected exactly {sorted(known)}"
            )
        read: dict[str, Any] = {}
        for name, expected in known.items():
            value: Any = tuple(values[name]) if isinstance(values[name], list) else values[name]
            if expected is float and type(value) is int:
                value = float(value)
            mistyped = type(value) is not expected
            if mistyped or (isinstance(value, tuple) and {type(each) for each in value} != {int}):
                raise InvalidOption(f"generator {name}: found {value!r}, expected {expected.__name__}", name)
            read[name] = value
        return cls(**read)


class ResidualBlock(nn.Module):
    """conv, norm, SiLU, conv, norm, add, SiLU; both convolutions dilated and zero-padded to equal length."""

    def __init__(self, config: GeneratorConfig, dilation: int) -> None:
        """dilation: spacing of the kernel's taps, in grid points."""
        super().__init__()
        width, kernel = config.n_channels, config.kernel_size
        padding = dilation * (kernel // 2)
        self.first = nn.Conv1d(width, width, kernel, padding=padding, dilation=dilation)
        self.first_norm = nn.GroupNorm(config.n_groups, width)
        self.second = nn.Conv1d(width, width, kernel, padding=padding, dilation=dilation)
        self.second_norm = nn.GroupNorm(config.n_groups, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """[batch, n_channels, n_points] -> same."""
        inner = nn.functional.silu(self.first_norm(self.first(hidden)))
        return nn.functional.silu(hidden + self.second_norm(self.second(inner)))


class Generator(nn.Module):
    """Path features -> bounded corrections Delta, in nepers.

    The last layer starts at zero, so an untrained generator is the analytic filter that it corrects.
    """

    def __init__(self, config: GeneratorConfig) -> None:
        """Fresh weights from torch's default initialisation under the caller's seed."""
        super().__init__()
        self.config = config
        width = config.n_channels
        self.grid: LinearFrequencyGrid | LogFrequencyGrid = (
            LinearFrequencyGrid(config.n_fft)
            if config.kind == "prime"
            else LogFrequencyGrid(config.n_fft, config.n_points, config.low_hz, config.high_hz)
        )
        self.stem = nn.Sequential(
            nn.Conv1d(N_CHANNELS, width, config.kernel_size, padding=config.kernel_size // 2),
            nn.GroupNorm(config.n_groups, width),
            nn.SiLU(),
        )
        self.blocks = nn.Sequential(*(ResidualBlock(config, dilation) for dilation in config.dilations))
        head_norm = [nn.GroupNorm(config.n_groups, width)] if config.head_norm else []
        last = nn.Conv1d(width, N_OUTPUTS[config.realisation], 1)
        nn.init.zeros_(last.weight)
        assert last.bias is not None
        nn.init.zeros_(last.bias)
        self.head = nn.Sequential(nn.Conv1d(width, width, 1), *head_norm, nn.SiLU(), last)

    @property
    def n_parameters(self) -> int:
        """Trained numbers: 151,401 in the paper's layout."""
        return sum(each.numel() for each in self.parameters())

    def forward(self, pooled_features: Tensor) -> Tensor:
        """Delta on the generator's own grid, within +-bound_db ln 10 / 20.

        pooled_features: [batch, 12, grid.n_points] (`grid.pool`). Returns [batch, n_outputs, grid.n_points],
        n_outputs after N_OUTPUTS; `grid.spread` takes them to the Fourier grid.
        """
        g: Tensor = self.head(self.blocks(self.stem(pooled_features)))
        return self.config.bound_db * NEPER_PER_DB * torch.tanh(g.to(pooled_features.dtype))
