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
from synthesis.generator import Generator, GeneratorConfig
from synthesis.gpu.served import POINTS_OF_A_NORM

ALIGNED = 16
"""Bytes that rows begin at multiples of, where a row is so long: a thread moves as many at once."""

POINTS = POINTS_OF_A_NORM
"""That a program takes: of the design grid's 16,385 as many parts as an H200 has multiprocessors."""

MOST_CHANNELS = 128
"""That a program holds beside them; the norms of wider generators stay written out."""

N_WARPS = {"_sums": 4, "_standardised": 4}

_kernel = triton.jit(
    do_not_specialize=["n_points", "n_parts"],
    do_not_specialize_on_alignment=["hidden", "sums", "weight", "bias", "carried", "made"],
)
"""One variant for each width of a generator."""


@triton.jit
def _by_group(channels, member):
    """Sums over each group's channels: [places] -> [groups]."""
    return tl.sum(tl.where(member, channels[:, None], 0.0), axis=0)


@triton.jit
def _by_channel(groups, member):
    """Each channel's group's value: [groups] -> [places]."""
    return tl.sum(tl.where(member, groups[None, :], 0.0), axis=1)


@_kernel
def _sums(
    hidden, sums, n_points, CHANNELS: tl.constexpr, EACH: tl.constexpr, GROUPS: tl.constexpr, PLACES: tl.constexpr,
    POINTS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Of program (item, part), by group of EACH channels: its points' mean and squares about it, [2, groups]."""
    item, part = tl.program_id(0), tl.program_id(1)
    point, channel, group = part * POINTS + tl.arange(0, POINTS), tl.arange(0, PLACES), tl.arange(0, GROUPS)
    member = (channel // EACH)[:, None] == group[None, :]
    inside = (point < n_points)[:, None] & (channel < CHANNELS)[None, :]
    place = (item * n_points + point)[:, None] * CHANNELS + channel[None, :]
    values = tl.load(tl.multiple_of(hidden + place, (1, ALIGNED)), mask=inside, other=0.0).to(tl.float32)
    mean = _by_group(tl.sum(values, axis=0), member) / (EACH * tl.minimum(n_points - part * POINTS, POINTS))
    centred = tl.where(inside, values - _by_channel(mean, member)[None, :], 0.0)
    sums += (item * tl.num_programs(1) + part) * 2 * GROUPS + group
    tl.store(sums, mean)
    tl.store(sums + GROUPS, _by_group(tl.sum(centred * centred, axis=0), member))


@_kernel
def _standardised(
    hidden, sums, weight, bias, carried, made, eps, n_points, n_parts, CHANNELS: tl.constexpr, EACH: tl.constexpr,
    GROUPS: tl.constexpr, PLACES: tl.constexpr, PARTS: tl.constexpr, POINTS: tl.constexpr, ADDS: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """Of program (item, part): its points, in groups of EACH channels, through SiLU. ADDS: after `carried`."""
    item, own = tl.program_id(0), tl.program_id(1)
    part, channel, group = tl.arange(0, PARTS), tl.arange(0, PLACES), tl.arange(0, GROUPS)
    member = (channel // EACH)[:, None] == group[None, :]
    of_part = sums + ((item * n_parts + part) * 2 * GROUPS)[:, None] + group[None, :]
    there = (part < n_parts)[:, None]
    of_part = tl.multiple_of(of_part, (1, 4 * GROUPS))
    means = tl.load(of_part, mask=there, other=0.0)
    squares = tl.load(tl.multiple_of(of_part + GROUPS, (1, 4 * GROUPS)), mask=there, other=0.0)
    length = tl.maximum(tl.minimum(n_points - part * POINTS, POINTS), 0).to(tl.float32)[:, None]
    mean = tl.sum(means * length, axis=0) / n_points
    # Squares about each part's own mean, and those of the means: no digits are lost where the level is many times
    # the deviation (Chan, Golub & LeVeque 1983).
    off = means - mean[None, :]
    variance = tl.sum(squares / EACH + length * off * off, axis=0) / n_points
    given = channel < CHANNELS
    scale = _by_channel(1 / tl.sqrt(variance + eps), member)
    scale *= tl.load(weight + channel, mask=given, other=0.0).to(tl.float32)
    shift = tl.load(bias + channel, mask=given, other=0.0).to(tl.float32)
    point = own * POINTS + tl.arange(0, POINTS)
    inside = (point < n_points)[:, None] & given[None, :]
    place = (item * n_points + point)[:, None] * CHANNELS + channel[None, :]
    values = tl.load(tl.multiple_of(hidden + place, (1, ALIGNED)), mask=inside, other=0.0).to(tl.float32)
    values = (values - _by_channel(mean, member)[None, :]) * scale[None, :] + shift[None, :]
    if ADDS:
        values += tl.load(tl.multiple_of(carried + place, (1, ALIGNED)), mask=inside, other=0.0).to(tl.float32)
    tl.store(
        tl.multiple_of(made + place, (1, ALIGNED)), values / (1 + tl.exp(tl.minimum(-values, 80.0))), mask=inside
    )


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
        points = _own(hidden)
        added = points if carried is None else _own(carried)
        n_parts, groups = triton.cdiv(n_points, POINTS), triton.next_power_of_2(self.n_groups)
        sums = points.new_empty(batch, n_parts, 2, groups, dtype=torch.float32)
        made = torch.empty_like(points)
        widths = {
            "CHANNELS": n_channels,
            "EACH": n_channels // self.n_groups,
            "GROUPS": groups,
            "PLACES": triton.next_power_of_2(n_channels),
            "POINTS": POINTS,
            "ALIGNED": ALIGNED if n_channels * points.element_size() % ALIGNED == 0 else 1,
        }
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
            PARTS=triton.next_power_of_2(n_parts),
            ADDS=carried is not None,
            **widths,
            num_warps=N_WARPS["_standardised"],
        )
        return made.transpose(1, 2)


def suited(config: GeneratorConfig) -> bool:
    """Whether the kernels hold the norms of a generator's layout."""
    return config.kind == "prime" and config.n_channels <= MOST_CHANNELS


def _own(hidden: Tensor) -> Tensor:
    """[batch, channels, n] -> [batch, n, channels] as it lies, or a copy where that is not aligned."""
    points = hidden.transpose(1, 2).contiguous()
    return points if points.data_ptr() % ALIGNED == 0 else points.clone()


def for_kernels(generator: Generator) -> Generator:
    """A copy whose written-out norms are made by kernels; the generator itself where it has none, or too wide."""
    if not any(isinstance(each, WrittenOutNorm) for each in generator.modules()) or not suited(generator.config):
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
