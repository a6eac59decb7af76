"""Several generators of one layout as one program: weights are stacked, and each operation computes all models.

`torch.func.vmap` turns the one generator's operations into batched ones. A convolution would become a grouped one,
for which fast kernels exist only in some shapes; here it becomes a batched matrix product of unfolded rows, which
every device does well. Channels come last in it, so that rows stay aligned whatever the number of bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import pad

from synthesis.generator import Generator


class GeneratorGroup:
    """The generators of M models and their stacked weights; model j's weights are views of row j."""

    def __init__(self, generators: Sequence[Generator]) -> None:
        """generators: of one configuration, on one device; from here on their weights live in `stacked`."""
        self.generators = tuple(generators)
        self.stacked: dict[str, Tensor] = {}
        for name, _ in self.generators[0].named_parameters():
            own = [each.get_parameter(name) for each in self.generators]
            self.stacked[name] = nn.Parameter(torch.stack([each.detach() for each in own]))
            for row, each in zip(self.stacked[name].detach(), own, strict=True):
                each.data = row
        self._layout = with_unfolded_convolutions(self.generators[0])

    def __len__(self) -> int:
        """M."""
        return len(self.generators)

    def __call__(self, features: Tensor) -> Tensor:
        """What each generator makes of its own features: [M, batch, 12, n_points] -> [M, batch, ...]."""
        if len(self) == 1:
            weights = {name: each[0] for name, each in self.stacked.items()}
            return functional_call(self.generators[0], weights, (features[0],))[None]

        def one(weights: dict[str, Tensor], own: Tensor) -> Tensor:
            return functional_call(self._layout, weights, (own,))

        return vmap(one)(self.stacked, features)


def with_unfolded_convolutions(generator: Generator) -> Generator:
    """A copy whose convolutions are `UnfoldedConv1d`, with the same names for the same weights."""
    copy = deepcopy(generator)
    for parent in list(copy.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv1d):
                setattr(parent, name, UnfoldedConv1d(child))
    return copy


class UnfoldedConv1d(nn.Module):
    """A zero-padded convolution that keeps the length, as one matrix product."""

    def __init__(self, convolution: nn.Conv1d) -> None:
        """convolution: odd kernel, stride 1, one group, padded to equal length; its weights are shared."""
        super().__init__()
        assert convolution.bias is not None
        self.weight, self.bias = convolution.weight, convolution.bias
        self.dilation = int(convolution.dilation[0])

    def forward(self, hidden: Tensor) -> Tensor:
        """[batch, channels in, n] -> [batch, channels out, n]; under autocast in its precision."""
        weight = self.weight
        if torch.is_autocast_enabled(hidden.device.type):
            precision = torch.get_autocast_dtype(hidden.device.type)
            hidden, weight = hidden.to(precision), weight.to(precision)
        product: Tensor = UnfoldedProduct.apply(hidden.transpose(1, 2), weight, self.dilation)
        return (product + self.bias.to(product.dtype)).transpose(1, 2)


class UnfoldedProduct(torch.autograd.Function):
    """y[l, o] = sum_{c, k} W[o, c, k] x[l + (k - (K - 1) / 2) dilation, c], zero beyond both ends.

    Keeps x, not its K times larger unfolding, for the backward pass; sums in the matrix product's precision.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, dilation: int) -> Tensor:
        """x: [batch, n, c]. weight: [o, c, K], in x's type. Returns [batch, n, o]."""
        return _unfolded(x, weight.shape[-1], dilation).matmul(_as_matrix(weight)).view(*x.shape[:2], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        """Keep what the derivatives are made of."""
        x, weight, ctx.dilation = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """By x: the same product with the kernel turned round. By the weight: unfolded rows times the gradient."""
        x, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        n_taps = weight.shape[-1]
        turned = weight.flip(-1).transpose(0, 1)
        by_x = _unfolded(gradient, n_taps, ctx.dilation).matmul(_as_matrix(turned)).view(x.shape)
        flat = gradient.reshape(-1, gradient.shape[-1])
        by_matrix = _unfolded(x, n_taps, ctx.dilation).transpose(0, 1).matmul(flat)
        return by_x, by_matrix.view(n_taps, x.shape[-1], -1).permute(2, 1, 0), None


def _unfolded(x: Tensor, n_taps: int, dilation: int) -> Tensor:
    """The rows that meet the kernel's taps, side by side: [batch, n, c] -> [batch n, n_taps c]."""
    reach = (n_taps // 2) * dilation
    padded = pad(x, (0, 0, reach, reach))
    return padded.unfold(1, x.shape[1], dilation).permute(0, 3, 1, 2).reshape(-1, n_taps * x.shape[-1])


def _as_matrix(weight: Tensor) -> Tensor:
    """[o, c, K] -> [K c, o]."""
    return weight.permute(2, 1, 0).reshape(-1, weight.shape[0])
