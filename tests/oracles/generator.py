"""Twin of the generator's forward pass: convolution, group norm and SiLU written out in NumPy.

The layout (paper: 151,401 parameters): stem conv(12 -> 40, 9), norm, SiLU; five residual blocks of two
conv(40 -> 40, 9) with dilations 1, 2, 4, 8, 16 (conv, norm, SiLU, conv, norm, add, SiLU); head
conv(40 -> 40, 1), norm, SiLU, conv(40 -> n_outputs, 1). Parameters are handed over as a flat list in that order, so
that no layer name is shared.
"""

from collections.abc import Iterator

import numpy as np

DILATIONS = (1, 2, 4, 8, 16)
N_GROUPS = 8


def convolution(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, dilation: int = 1) -> np.ndarray:
    """Zero-padded correlation: y[o, t] = b[o] + sum_ij weight[o, i, j] x[i, t + (j - half) dilation]."""
    n_taps, n = weight.shape[2], x.shape[1]
    half = (n_taps // 2) * dilation
    padded = np.pad(x, ((0, 0), (half, half)))
    y = np.repeat(bias[:, None], n, axis=1)
    for j in range(n_taps):
        y = y + weight[:, :, j] @ padded[:, j * dilation : j * dilation + n]
    return y


def group_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Zero mean, unit variance over each of eight groups of channels and frequency; then scale and shift."""
    groups = x.reshape(N_GROUPS, -1)
    groups = (groups - groups.mean(1, keepdims=True)) / np.sqrt(groups.var(1, keepdims=True) + 1e-5)
    return groups.reshape(x.shape) * scale[:, None] + shift[:, None]


def silu(x: np.ndarray) -> np.ndarray:
    """x / (1 + exp(-x))."""
    return x / (1 + np.exp(-x))


def forward(features: np.ndarray, parameters: list[np.ndarray], head_norm: bool = True) -> np.ndarray:
    """g_theta of one case: [12, n] -> [n_outputs, n]; `parameters` layer by layer, weight before bias."""
    remaining: Iterator[np.ndarray] = iter(parameters)

    def conv(x: np.ndarray, dilation: int = 1) -> np.ndarray:
        return convolution(x, next(remaining), next(remaining), dilation)

    def norm(x: np.ndarray) -> np.ndarray:
        return group_norm(x, next(remaining), next(remaining))

    x = silu(norm(conv(features)))
    for dilation in DILATIONS:
        y = silu(norm(conv(x, dilation)))
        x = silu(x + norm(conv(y, dilation)))
    x = conv(x)
    x = silu(norm(x) if head_norm else x)
    x = conv(x)
    assert next(remaining, None) is None, "more parameters than the layout has"
    return x


def bounded(g: np.ndarray, bound_db: float) -> np.ndarray:
    """Delta = (bound ln 10 / 20) tanh(g), natural log (paper, Eq. 5)."""
    return bound_db * np.log(10) / 20 * np.tanh(g)
