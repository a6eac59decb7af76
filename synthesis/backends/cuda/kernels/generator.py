"""The forward pass of a generator on log-spaced points in one launch instead of forty-four.

The layers are those of `synthesis.generator`, one program per ear. The output of a layer stays in the program's
registers, [points, places of channels]; only what the next convolution reads goes through memory, because every
thread needs results of others. A convolution is a matrix product: the row of a point holds the inputs under the
convolution kernel, tap by tap, `COLUMNS` of them at a time. Tensor cores multiply each number as the sum of two
(`tf32x3`), which is as exact as float32, and accumulate in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from synthesis.backends.cuda.kernels.toeplitz import N_FFT
from synthesis.features import N_CHANNELS
from synthesis.generator import Generator
from synthesis.generator_config import N_OUTPUTS, NEPER_PER_DB, GeneratorConfig

_N_INPUTS = tl.constexpr(N_CHANNELS)
LEAST_POINTS, MOST_POINTS = 64, 128
LEAST_PLACES, MOST_PLACES = 16, 64
"""Sizes that a program supports, powers of two: points, and places of channels, which are the number of groups
times the channels per group, each rounded up to a power of two."""
COLUMNS = 32
"""Columns of the left matrix that are multiplied at a time. From 64 on registers spill."""
# Rows of a layer's vectors, each padded to all places.
_BIAS, _SCALE, _SHIFT, _N_VECTORS = (tl.constexpr(row) for row in range(4))

N_WARPS = {"_correct": LEAST_POINTS // 16}
"""For 64 points: one warp per 16 points."""

_kernel = triton.jit(
    do_not_specialize_on_alignment=[
        *("features", "matrices", "vectors", "last", "dilations", "between", "correction"),
    ],
)
"""One variant per layout of a generator."""


@triton.jit
def _convolved(
    source, matrix, vectors, dilation, STEP: tl.constexpr, ROW: tl.constexpr, INPUTS: tl.constexpr,
    KERNEL: tl.constexpr, N_POINTS: tl.constexpr, POINTS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Zero-padded convolution with bias; channel i of point n is read at `source` + STEP n + ROW i."""
    SIZE: tl.constexpr = KERNEL * INPUTS
    STORED: tl.constexpr = (SIZE + COLUMNS - 1) // COLUMNS * COLUMNS
    point, channel = tl.arange(0, POINTS), tl.arange(0, WIDTH)
    made = tl.zeros([POINTS, WIDTH], tl.float32)
    for first in range(0, STORED, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        at = point[:, None] + (column // INPUTS - KERNEL // 2)[None, :] * dilation
        inside = (at >= 0) & (at < N_POINTS) & (column < SIZE)[None, :]
        given = tl.load(source + STEP * at + (column % INPUTS)[None, :] * ROW, mask=inside, other=0.0)
        weight = tl.load(matrix + channel[None, :] * STORED + column[:, None])
        made = tl.dot(given, weight, made, input_precision="tf32x3")
    return made + tl.load(vectors + _BIAS * WIDTH + channel)[None, :]


@triton.jit
def _standardised(
    x, vectors, eps, N_POINTS: tl.constexpr, EACH: tl.constexpr, POINTS: tl.constexpr, GROUPS: tl.constexpr,
    ROOM: tl.constexpr,
):  # fmt: skip
    """Group norm; each group has EACH channels in ROOM places."""
    place = tl.arange(0, ROOM)
    given = (tl.arange(0, POINTS) < N_POINTS)[:, None, None] & (place < EACH)[None, None, :]
    x = tl.reshape(x, (POINTS, GROUPS, ROOM))
    mean = tl.sum(tl.sum(tl.where(given, x, 0.0), axis=2), axis=0) / (EACH * N_POINTS)
    x -= mean[None, :, None]
    variance = tl.sum(tl.sum(tl.where(given, x * x, 0.0), axis=2), axis=0) / (EACH * N_POINTS)
    channel = tl.arange(0, GROUPS)[:, None] * ROOM + place[None, :]
    scale = tl.load(vectors + _SCALE * GROUPS * ROOM + channel) / tl.sqrt(variance + eps)[:, None]
    x = x * scale[None, :, :] + tl.load(vectors + _SHIFT * GROUPS * ROOM + channel)[None, :, :]
    return tl.reshape(x, (POINTS, GROUPS * ROOM))


@triton.jit
def _silu(x):
    return x / (1 + tl.exp(-x))


@triton.jit
def _hand_over(
    x, target, N_POINTS: tl.constexpr, CHANNELS: tl.constexpr, EACH: tl.constexpr, POINTS: tl.constexpr,
    GROUPS: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Store the channels of all points, then a barrier: what follows may read those of other threads."""
    point, place = tl.arange(0, POINTS)[:, None], tl.arange(0, GROUPS * ROOM)[None, :]
    channel = place // ROOM * EACH + place % ROOM
    given = (point < N_POINTS) & (place % ROOM < EACH) & (channel < CHANNELS)
    tl.store(target + point * CHANNELS + channel, x, mask=given)
    tl.debug_barrier()


@_kernel
def _correct(
    features, matrices, vectors, last, dilations, between, correction, eps, bound, N_POINTS: tl.constexpr,
    CHANNELS: tl.constexpr, EACH: tl.constexpr, KERNEL: tl.constexpr, BLOCKS: tl.constexpr, OUTPUTS: tl.constexpr,
    POINTS: tl.constexpr, GROUPS: tl.constexpr, ROOM: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program (item): Delta, from the pooled features. between: scratch memory, [2, points, channels]; each of the
    two convolutions of a block writes into one half, so that none overwrites what is still read."""
    WIDTH: tl.constexpr = GROUPS * ROOM
    item = tl.program_id(0)
    features += item * _N_INPUTS * N_POINTS
    outer = between + item * 2 * N_POINTS * CHANNELS
    inner = outer + N_POINTS * CHANNELS
    STEM: tl.constexpr = (KERNEL * _N_INPUTS + COLUMNS - 1) // COLUMNS * COLUMNS * WIDTH
    LAYER: tl.constexpr = (KERNEL * CHANNELS + COLUMNS - 1) // COLUMNS * COLUMNS * WIDTH
    hidden = _convolved(
        features, matrices, vectors, 1, 1, N_POINTS, _N_INPUTS, KERNEL, N_POINTS, POINTS, WIDTH, COLUMNS
    )
    hidden = _silu(_standardised(hidden, vectors, eps, N_POINTS, EACH, POINTS, GROUPS, ROOM))
    _hand_over(hidden, outer, N_POINTS, CHANNELS, EACH, POINTS, GROUPS, ROOM)
    matrices += STEM
    vectors += _N_VECTORS * WIDTH
    for block in range(BLOCKS):
        dilation = tl.load(dilations + block)
        x = _convolved(
            outer, matrices, vectors, dilation, CHANNELS, 1, CHANNELS, KERNEL, N_POINTS, POINTS, WIDTH, COLUMNS
        )
        x = _silu(_standardised(x, vectors, eps, N_POINTS, EACH, POINTS, GROUPS, ROOM))
        _hand_over(x, inner, N_POINTS, CHANNELS, EACH, POINTS, GROUPS, ROOM)
        x = _convolved(
            inner, matrices + LAYER, vectors + _N_VECTORS * WIDTH, dilation, CHANNELS, 1, CHANNELS, KERNEL,
            N_POINTS, POINTS, WIDTH, COLUMNS,
        )  # fmt: skip
        x = _standardised(x, vectors + _N_VECTORS * WIDTH, eps, N_POINTS, EACH, POINTS, GROUPS, ROOM)
        hidden = _silu(hidden + x)
        _hand_over(hidden, outer, N_POINTS, CHANNELS, EACH, POINTS, GROUPS, ROOM)
        matrices += 2 * LAYER
        vectors += 2 * _N_VECTORS * WIDTH
    head = _silu(
        _convolved(outer, matrices, vectors, 0, CHANNELS, 1, CHANNELS, 1, N_POINTS, POINTS, WIDTH, COLUMNS)
    )
    point, channel = tl.arange(0, POINTS), tl.arange(0, WIDTH)
    for output in tl.static_range(OUTPUTS):
        weight = tl.load(last + output * (WIDTH + 1) + channel)
        g = tl.sum(head * weight[None, :], axis=1) + tl.load(last + output * (WIDTH + 1) + WIDTH)
        # tanh g, also where the exponential overflows.
        bounded = bound * (1 - 2 / (1 + tl.exp(2 * g)))
        tl.store(correction + (item * OUTPUTS + output) * N_POINTS + point, bounded, mask=point < N_POINTS)


class GeneratorKernel:
    """A generator in one launch. Holds copies of the weights, on the generator's device."""

    def __init__(self, generator: Generator) -> None:
        """generator: one that `is_supported`."""
        config, device = generator.config, next(generator.parameters()).device
        self._config, self._sizes = config, sizes(config)
        *stacked, last = (each for each in generator.modules() if isinstance(each, nn.Conv1d))
        norms = [each for each in generator.modules() if isinstance(each, nn.GroupNorm)]
        self._eps = norms[0].eps
        groups, each, room = (self._sizes[name] for name in ("GROUPS", "EACH", "ROOM"))
        channel = torch.arange(config.n_channels, device=device)
        places, width = channel // each * room + channel % each, groups * room
        with torch.no_grad():
            self._vectors = torch.zeros(len(stacked), _N_VECTORS.value, width, device=device)
            for rows, layer in zip(self._vectors, stacked, strict=True):
                assert layer.bias is not None
                rows[_BIAS.value, places] = layer.bias
            for rows, norm in zip(self._vectors, norms, strict=False):  # there is none in the head
                rows[_SCALE.value, places], rows[_SHIFT.value, places] = norm.weight, norm.bias
            self._last = torch.zeros(last.out_channels, width + 1, device=device)
            assert last.bias is not None
            self._last[:, places], self._last[:, width] = last.weight[..., 0], last.bias
            self._matrices = torch.cat([_rows(layer.weight, places, width) for layer in stacked])
        self._dilations = torch.tensor(config.dilations, dtype=torch.int32, device=device)

    def __call__(self, features: Tensor) -> Tensor:
        """As `Generator.forward`; features contiguous."""
        config, batch = self._config, len(features)
        between = features.new_empty(batch, 2, config.n_points, config.n_channels)
        correction = features.new_empty(batch, self._sizes["OUTPUTS"], config.n_points)
        _correct[(batch,)](
            features,
            self._matrices,
            self._vectors,
            self._last,
            self._dilations,
            between,
            correction,
            self._eps,
            config.bound_db * NEPER_PER_DB,
            **self._sizes,
            num_warps=self._sizes["POINTS"] // 16,
        )
        return correction


def is_supported(config: GeneratorConfig) -> bool:
    """Whether the kernels, including those of features and filters, support a generator's layout."""
    own = sizes(config)
    reads = config.kind == "prime-log" and config.n_fft == N_FFT and config.base == "held_band"
    fits = LEAST_POINTS <= config.n_points <= MOST_POINTS and own["GROUPS"] * own["ROOM"] <= MOST_PLACES
    return reads and fits and config.realisation == "fir_wiener" and not config.head_norm


def sizes(config: GeneratorConfig) -> dict[str, int]:
    """Compile-time constants of the kernel."""
    groups, each = triton.next_power_of_2(config.n_groups), config.n_channels // config.n_groups
    return {
        "N_POINTS": config.n_points,
        "CHANNELS": config.n_channels,
        "EACH": each,
        "KERNEL": config.kernel_size,
        "BLOCKS": len(config.dilations),
        "OUTPUTS": N_OUTPUTS[config.realisation],
        "POINTS": max(triton.next_power_of_2(config.n_points), LEAST_POINTS),
        "GROUPS": groups,
        "ROOM": max(triton.next_power_of_2(each), LEAST_PLACES // groups),
        "COLUMNS": COLUMNS,
    }


def _rows(weight: Tensor, places: Tensor, width: int) -> Tensor:
    """Weights [channels out, in, taps] as a flattened matrix: rows at the places of the output channels, inputs tap
    by tap, zero-padded to a multiple of COLUMNS."""
    size = weight[0].numel()
    rows = weight.new_zeros(width, size + -size % COLUMNS)
    rows[places, :size] = weight.transpose(1, 2).flatten(1)
    return rows.flatten()
