"""Output controls (Table 2 of the paper): the generator's trunk with other ways to build the filter.

    log A = b log A_base + (12 ln 10 / 20) g,    b = 1 ("skip") or 0 ("no skip"), g unbounded,

with minimum phase, or minimum phase + pi tanh(v), v a second output. In place of the correction penalty stands
the mean of (log|W| - log A_base)^2, W the realised filter's response.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from synthesis.arrays import floored_log, minimum_phase_response
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.generator_config import NEPER_PER_DB, GeneratorConfig
from synthesis.paths import AcousticPaths
from synthesis.start.generator import Generator
from training.baselines.network_training import (
    N_STATISTICS,
    FilterNetwork,
    NetworkMethod,
    NetworkOutput,
    PathInputs,
    ReportUpdate,
    full_precision,
    train_network,
)
from training.config import TrainingConfig
from training.objective import Objective
from training.training_set import TrainingSet

OUTPUT_CONTROLS = ("skip_mp", "skip_mp_phase", "no_skip_mp", "no_skip_mp_phase")


class OutputControlNetwork(FilterNetwork):
    """The paper's trunk, a head that also reads six statistics, and one of four outputs.

    With equal seeds the trunk starts from the generator's weights. The last layer starts at zero: untrained, "skip" is
    the ratio base and "no skip" a magnitude of one.
    """

    def __init__(self, config: GeneratorConfig, *, has_skip: bool, has_phase: bool) -> None:
        """Build from the standard generator's configuration: grid, base, trunk and scale of g."""
        super().__init__()
        self.config = config
        self.has_skip = has_skip
        self.has_phase = has_phase
        width = config.n_channels
        standard = Generator(config)
        self.trunk = nn.Sequential(standard.stem, standard.blocks)
        last = nn.Conv1d(width, 2 if has_phase else 1, 1)
        nn.init.zeros_(last.weight)
        assert last.bias is not None
        nn.init.zeros_(last.bias)
        self.head = nn.Sequential(
            nn.Conv1d(width + N_STATISTICS, width, 1), nn.GroupNorm(config.n_groups, width), nn.SiLU(), last
        )

    def forward(self, paths: AcousticPaths) -> NetworkOutput:
        """Compute taps [batch, 2048] and log|W| - log A_base [batch, n_bins]."""
        inputs = PathInputs.read(paths, self.config.n_fft, self.config.base)
        hidden = self.trunk(inputs.features)
        with full_precision(hidden):
            scale = inputs.statistics[..., None].expand(-1, -1, hidden.shape[-1])
            outputs = self.head(torch.cat((hidden.float(), scale), 1))
        log_magnitude = self.config.bound_db * NEPER_PER_DB * outputs[:, 0]
        if self.has_skip:
            log_magnitude = inputs.log_base + log_magnitude
        response = minimum_phase_response(log_magnitude)
        if self.has_phase:
            response = response * _phase_factor(outputs[:, 1])
        taps = torch.fft.irfft(response)[..., :N_TAPS]
        realised = floored_log(torch.fft.rfft(taps, n=self.config.n_fft).abs())
        return NetworkOutput(taps, realised - inputs.log_base)


@dataclass(frozen=True)
class OutputControl(NetworkMethod):
    """One of OUTPUT_CONTROLS."""

    network: OutputControlNetwork

    @classmethod
    def fit(
        cls,
        training_set: TrainingSet,
        objective: Objective,
        config: TrainingConfig,
        *,
        control: str,
        seed: int,
        n_fft: int = DESIGN_N_FFT,
        state_file: Path | None = None,
        progress: ReportUpdate | None = None,
    ) -> Self:
        """Train on the device that holds the training set; see `train_network` for resuming and errors.

        Parameters
        ----------
        config
            Configuration of the PRIME model to compare with.
        control
            One of OUTPUT_CONTROLS.
        n_fft
            Points of the data set's Fourier grid.
        """
        if control not in OUTPUT_CONTROLS:
            raise ValueError(f"output control: found {control!r}, expected one of {', '.join(OUTPUT_CONTROLS)}")
        torch.manual_seed(seed)
        network = OutputControlNetwork(
            GeneratorConfig.prime(n_fft),
            has_skip=control.startswith("skip"),
            has_phase=control.endswith("phase"),
        )
        method = cls(control, network.to(training_set.primary_estimates.device))
        train_network(method, training_set, objective, config, seed=seed, state_file=state_file, progress=progress)
        return method


def _phase_factor(v: Tensor) -> Tensor:
    """Compute exp(i pi tanh v), and 1 at both ends, where a real filter's response is real: [batch, n_bins]."""
    offset = nn.functional.pad(math.pi * torch.tanh(v[..., 1:-1]), (1, 1))
    return torch.polar(torch.ones_like(offset), offset)
