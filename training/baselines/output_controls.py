"""Output controls (Table 2 of the paper): the generator's trunk with other ways to build the filter.

    log A = b log A_base + (12 ln 10 / 20) g,    b = 1 ("skip") or 0 ("no skip"), g unbounded,

with minimum phase, or minimum phase + pi tanh(v), v a second output. In place of the correction penalty stands
the mean of (log|W| - log A_base)^2, W the realised filter's response.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from prime_anc.method.arrays import floored_log, minimum_phase_response
from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.start.features import NEPER_PER_DB, GeneratorConfig
from prime_anc.method.start.generator import Generator
from training.baselines.network_training import N_STATISTICS, PathInputs
from training.trainer import FilterNetwork, NetworkOutput, full_precision

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


def output_control(control: str, n_fft: int = DESIGN_N_FFT) -> OutputControlNetwork:
    """Build one of OUTPUT_CONTROLS on a data set's Fourier grid."""
    has_skip, has_phase = control.startswith("skip"), control.endswith("phase")
    return OutputControlNetwork(GeneratorConfig.prime(n_fft), has_skip=has_skip, has_phase=has_phase)


def _phase_factor(v: Tensor) -> Tensor:
    """Compute exp(i pi tanh v), and 1 at both ends, where a real filter's response is real: [batch, n_bins]."""
    offset = nn.functional.pad(math.pi * torch.tanh(v[..., 1:-1]), (1, 1))
    return torch.polar(torch.ones_like(offset), offset)
