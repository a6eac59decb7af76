"""A generator's group norm over channels side by side, and the SiLU after it, in two launches; PyTorch's operators
are the reference.

In a residual block what the block was given is added before the SiLU. The generator is that on every bin of the
Fourier grid, whose rows are too long for one program: each program takes some points, all channels of them. The
first kernel leaves its sums, the second adds up everybody's, in one order, and writes its own points. All is
computed in float32, whatever the rows are in.
"""

from __future__ import annotations

from copy import deepcopy

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from synthesis.channels_last import WrittenOutNorm
from synthesis.generator import Generator

POINTS = 256
"""That a program takes."""

N_WARPS = {"_sums": 8, "_standardised": 8}

_kernel = triton.jit(
    do_not_specialize=["n_points", "n_parts"],
    do_not_specialize_on_alignment=["hidden", "sums", "weight", "bias", "carried", "made"],
)
"""One variant for each width of a generator."""


@_kernel
def _sums(hidden, sums, n_points, CHANNELS: tl.constexpr, PLACES: tl.constexpr, POINTS: tl.constexpr):
    """Of program (item, part), by channel: of its points' values and of their squares, [2, places]."""
    item, part = tl.program_id(0), tl.program_id(1)
    point, channel = part * POINTS + tl.arange(0, POINTS), tl.arange(0, PLACES)
    inside = (point < n_points)[:, None] & (channel < CHANNELS)[None, :]
    place = hidden + (item * n_points + point)[:, None] * CHANNELS + channel[None, :]
    values = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    sums += (item * tl.num_programs(1) + part) * 2 * PLACES + channel
    tl.store(sums, tl.sum(values, axis=0))
    tl.store(sums + PLACES, tl.sum(values * values, axis=0))


@_kernel
def _standardised(
    hidden, sums, weight, bias, carried, made, eps, n_points, n_parts, CHANNELS: tl.constexpr, EACH: tl.constexpr,
    PLACES: tl.constexpr, PARTS: tl.constexpr, POINTS: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """Of program (item, part): its points, in groups of EACH channels, through SiLU. ADDS: after `carried`."""
    item, own = tl.program_id(0), tl.program_id(1)
    part, channel = tl.arange(0, PARTS), tl.arange(0, PLACES)
    of_part = sums + ((item * n_parts + part) * 2 * PLACES)[:, None] + channel[None, :]
    there = (part < n_parts)[:, None] & (channel < CHANNELS)[None, :]
    total = tl.sum(tl.load(of_part, mask=there, other=0.0), axis=0)
    squares = tl.sum(tl.load(of_part + PLACES, mask=there, other=0.0), axis=0)
    together = (channel // EACH)[:, None] == (channel // EACH)[None, :]
    mean = tl.sum(tl.where(together, total[None, :], 0.0), axis=1) / (EACH * n_points)
    variance = tl.sum(tl.where(together, squares[None, :], 0.0), axis=1) / (EACH * n_points) - mean * mean
    given = channel < CHANNELS
    scale = tl.load(weight + channel, mask=given, other=0.0).to(tl.float32) / tl.sqrt(
        tl.maximum(variance, 0.0) + eps
    )
    shift = tl.load(bias + channel, mask=given, other=0.0).to(tl.float32) - mean * scale
    point = own * POINTS + tl.arange(0, POINTS)
    inside = (point < n_points)[:, None] & given[None, :]
    place = (item * n_points + point)[:, None] * CHANNELS + channel[None, :]
    values = tl.load(hidden + place, mask=inside, other=0.0).to(tl.float32)
    values = values * scale[None, :] + shift[None, :]
    if ADDS:
        values += tl.load(carried + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(made + place, values / (1 + tl.exp(-values)), mask=inside)


class FusedNorm(WrittenOutNorm):
    """A norm and the SiLU after it, by the kernels."""

    def __init__(self, norm: WrittenOutNorm) -> None:
        """norm: whose weights are taken over."""
        nn.Module.__init__(self)
        self.weight, self.bias = norm.weight, norm.bias
        self.n_groups, self.eps = norm.n_groups, norm.eps

    def forward(self, hidden: Tensor, carried: Tensor | None = None) -> Tensor:
        """silu(norm(hidden) + carried): [batch, channels, n] each, the order in memory [batch, n, channels]."""
        batch, n_channels, n_points = hidden.shape
        points = hidden.transpose(1, 2).contiguous()
        added = points if carried is None else carried.transpose(1, 2).contiguous()
        n_parts, places = triton.cdiv(n_points, POINTS), triton.next_power_of_2(n_channels)
        sums = points.new_empty(batch, n_parts, 2, places, dtype=torch.float32)
        made = torch.empty_like(points)
        widths = {"CHANNELS": n_channels, "PLACES": places, "POINTS": POINTS}
        _sums[(batch, n_parts)](points, sums, n_points, **widths, num_warps=N_WARPS["_sums"])
        _standardised[(batch, n_parts)](
            points,
            sums,
            self.weight,
            self.bias,
            added,
            made,
            self.eps,
            n_points,
            n_parts,
            EACH=n_channels // self.n_groups,
            PARTS=triton.next_power_of_2(n_parts),
            ADDS=carried is not None,
            **widths,
            num_warps=N_WARPS["_standardised"],
        )
        return made.transpose(1, 2)


def for_kernels(generator: Generator) -> Generator:
    """A copy whose written-out norms are made by kernels; the generator itself where it has none."""
    if not any(isinstance(each, WrittenOutNorm) for each in generator.modules()):
        return generator
    copy = deepcopy(generator)
    _swap(copy)
    return copy


def _swap(parent: nn.Module) -> None:
    for name, child in parent.named_children():
        if isinstance(child, WrittenOutNorm):
            setattr(parent, name, FusedNorm(child))
        else:
            _swap(child)
