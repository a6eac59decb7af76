"""Path-conditioned E2E-CFG (Section 3.2 of the paper): a convolutional Transformer that predicts taps directly.

Strided convolutions turn eight path channels into tokens of 64 bins each, a Transformer encoder processes them,
and a head computes 2048 taps from their mean and from six statistics that keep the amplitude scale. The paper gives
the ingredients; the sizes are this project's.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.start.features import CHANNELS
from training.baselines.network_training import N_STATISTICS, PathInputs
from training.trainer import FilterNetwork, NetworkOutput, full_precision

LEARNING_RATE = 5e-4

# Six channels of the paths, and two for the target magnitude and the frequency.
CHANNELS_READ = (
    "log_primary",
    "log_secondary",
    "primary_re",
    "primary_im",
    "secondary_re",
    "secondary_im",
    "log_ratio",
    "frequency",
)

STRIDE = 4
KERNEL_SIZE = 9
N_HEADS = 4
N_LAYERS = 3
# Channels after a reduction of the points by four; the last is the width of a token.
WIDTHS = (32, 64, 128)
FEEDFORWARD_WIDTH = 256
HEAD_WIDTH = 512


class E2eCfgNetwork(FilterNetwork):
    """Estimated paths -> taps. The last layer is initialised to zero, so that an untrained network outputs zero
    taps."""

    def __init__(self, n_fft: int = DESIGN_N_FFT) -> None:
        """n_fft: points of the Fourier grid that the paths are read on."""
        super().__init__()
        self.n_fft = n_fft
        width = WIDTHS[-1]
        stages = pairwise((len(CHANNELS_READ), *WIDTHS))
        self.stages = nn.Sequential(*(_stage(n_in, n_out) for n_in, n_out in stages))
        n_tokens = n_fft // 2 // STRIDE ** len(WIDTHS) + 1
        self.position = nn.Parameter(0.02 * torch.randn(n_tokens, width))
        # No dropout: its random state would have to be saved for resuming.
        layer = nn.TransformerEncoderLayer(
            width,
            N_HEADS,
            FEEDFORWARD_WIDTH,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, N_LAYERS, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        last = nn.Linear(HEAD_WIDTH, N_TAPS)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.head = nn.Sequential(nn.Linear(width + N_STATISTICS, HEAD_WIDTH), nn.SiLU(), last)

    def forward(self, paths: AcousticPaths) -> NetworkOutput:
        """Compute taps [batch, 2048]; there is no correction to penalise."""
        inputs = PathInputs.read(paths, self.n_fft)
        channels = inputs.features[:, [CHANNELS.index(name) for name in CHANNELS_READ]]
        tokens = self.stages(channels).transpose(1, 2) + self.position
        read = self.encoder(tokens).mean(1)
        with full_precision(read):
            summary = torch.cat((read.float(), inputs.statistics), -1)
            # The mean over hidden units instead of the sum: one update then changes a tap by about the learning rate,
            # as Adam on the taps would, instead of hundreds of times as much.
            taps: Tensor = self.head(summary) / self.head[-1].in_features
        return NetworkOutput(taps, torch.zeros_like(taps[:, :1]))


def _stage(n_in: int, n_out: int) -> nn.Sequential:
    """Reduce the points by four: [batch, n_in, 4 n + 1] -> [batch, n_out, n + 1]."""
    return nn.Sequential(
        nn.Conv1d(n_in, n_out, KERNEL_SIZE, stride=STRIDE, padding=KERNEL_SIZE // 2),
        nn.GroupNorm(8, n_out),
        nn.SiLU(),
    )
