"""The log-frequency generator for one ear, its convolutions as matrix products (`synthesis.generator`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import nn

from synthesis.cpu.transforms import Real
from synthesis.generator import NEPER_PER_DB, Generator, ResidualBlock

Layer = Callable[[Real], Real]


class CpuGenerator:
    """Weights in the layout of the products, and the buffers between them. For one thread."""

    def __init__(self, generator: Generator) -> None:
        """generator: its weights are copied."""
        config = generator.config
        n = generator.grid.n_points
        self._bound = np.float32(config.bound_db * NEPER_PER_DB)
        self._stem = [_layer(each, n) for each in generator.stem]
        self._blocks = [
            [
                _layer(each, n)
                for each in (block.first, block.first_norm, nn.SiLU(), block.second, block.second_norm)
            ]
            for block in generator.blocks
            if isinstance(block, ResidualBlock)
        ]
        self._head = [_layer(each, n) for each in generator.head]

    @np.errstate(over="ignore")  # of silu
    def __call__(self, features: Real) -> Real:
        """Delta, [n_outputs, n_points], from pooled features [12, n_points]."""
        hidden = _through(self._stem, features)
        for block in self._blocks:
            inner = _through(block, hidden)
            inner += hidden
            hidden = silu(inner)
        return self._bound * np.tanh(_through(self._head, hidden))


def _layer(module: nn.Module, n: int) -> Layer:
    if isinstance(module, nn.Conv1d):
        return _Convolution(module, n)
    if isinstance(module, nn.GroupNorm):
        return _Norm(module, n)
    assert isinstance(module, nn.SiLU)
    return silu


def _through(layers: list[Layer], hidden: Real) -> Real:
    for layer in layers:
        hidden = layer(hidden)
    return hidden


class _Convolution:
    """A zero-padded, dilated convolution that keeps the length: [channels in, n] -> [channels out, n]."""

    def __init__(self, layer: nn.Conv1d, n: int) -> None:
        assert layer.bias is not None
        weight = layer.weight.detach().float().cpu().numpy()
        n_out, n_in, n_taps = weight.shape
        bias = layer.bias.detach().float().cpu().numpy()[:, None]
        self._matrix = np.hstack((weight.transpose(0, 2, 1).reshape(n_out, n_taps * n_in), bias))
        dilation = layer.dilation[0]
        reach = dilation * (n_taps // 2)
        padded = np.zeros((n_in, n + 2 * reach), np.float32)
        self._inside = padded[:, reach : reach + n]
        row, column = padded.strides
        # [taps, channels in, n]: the padded rows, each tap's shifted by the dilation.
        self._shifted = np.lib.stride_tricks.as_strided(
            padded, (n_taps, n_in, n), (dilation * column, row, column), writeable=False
        )
        self._columns = np.ones((n_taps * n_in + 1, n), np.float32)  # the last row takes the bias
        self._unfolded = self._columns[:-1].reshape(n_taps, n_in, n)

    def __call__(self, hidden: Real) -> Real:
        self._inside[...] = hidden
        np.copyto(self._unfolded, self._shifted)
        return self._matrix @ self._columns


class _Norm:
    """Group normalisation in place."""

    def __init__(self, layer: nn.GroupNorm, n: int) -> None:
        self._eps = layer.eps
        self._grouped = (layer.num_groups, layer.num_channels // layer.num_groups, n)
        n_each = self._grouped[1] * n
        self._average = np.full(n_each, 1 / n_each, np.float32)
        self._scale = layer.weight.detach().float().cpu().numpy().reshape(*self._grouped[:2], 1).copy()
        self._shift = layer.bias.detach().float().cpu().numpy().reshape(*self._grouped[:2], 1).copy()

    def __call__(self, hidden: Real) -> Real:
        # Means as matrix products: NumPy's own reductions would take half of the network's time.
        groups = hidden.reshape(self._grouped[0], -1)
        groups -= (groups @ self._average)[:, None]
        variance = np.square(groups) @ self._average
        channels = hidden.reshape(self._grouped)
        channels *= self._scale / np.sqrt(variance + self._eps)[:, None, None]
        channels += self._shift
        return hidden


def silu(hidden: Real) -> Real:
    """x / (1 + exp(-x)), in place. Below -88 the exponential overflows, and x / inf is the right zero."""
    divisor = np.exp(-hidden)
    divisor += 1
    hidden /= divisor
    return hidden
