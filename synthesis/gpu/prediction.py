"""What a filter will do, in four launches instead of seventy; three with a coherence.

The mathematics is that of `synthesis.noise_reduction` and `synthesis.estimate_uncertainty` on the design grid. Of
the primary estimate only the first 2048 samples are made, by `_early`; the late part's spectrum is the path's less
theirs. `_responses` transforms them and the taps. As in `synthesis.gpu.refinement` a program of `_powers` is one
band of one ear, and `_figures` reads all of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.estimate_uncertainty import LATE_FROM_SAMPLES, NO_LATE_PART, PLAUSIBLE_RANGE
from synthesis.gpu.fft import inverse, offsets, product, stored_bins
from synthesis.gpu.refinement import (
    N_POINTS,
    N_SEGMENTS,
    grid_constants,
    segment_bins,
    squared,
    store_transform,
    transform,
    unpacked,
)
from synthesis.gpu.toeplitz import packed_spectrum, transform_constants
from synthesis.noise_reduction import COHERENCE_FLOOR, HIGH_BANDS, LOW_BANDS, Prediction
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import predicted

assert LATE_FROM_SAMPLES == N_TAPS, "one transform serves taps and early samples"

_ALL = tl.constexpr(64)


def _ends(bands: tuple[int, ...]) -> tuple[tl.constexpr, tl.constexpr]:
    """First and last segment."""
    return tl.constexpr(bands[0] - WIDE_BANDS[0] + 1), tl.constexpr(bands[-1] - WIDE_BANDS[0] + 1)


_N_BANDS, _N_SCORED = tl.constexpr(len(WIDE_BANDS)), tl.constexpr(len(AMP_BANDS))
_FIRST_SCORED, _LAST_SCORED = _ends(AMP_BANDS)
_FIRST_TARGET, _LAST_TARGET = _ends(NR_BANDS)
_FIRST_LOW, _LAST_LOW = _ends(LOW_BANDS)
_FIRST_HIGH, _LAST_HIGH = _ends(HIGH_BANDS)
_DECIBELS = tl.constexpr(10 / math.log(10))
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
_SILENCE = tl.constexpr(1e-12)
_COHERENCE_FLOOR, _NO_LATE_PART, _RANGE = (
    tl.constexpr(each) for each in (COHERENCE_FLOOR, NO_LATE_PART, PLAUSIBLE_RANGE)
)
# Rows of `bands`, [5, 64] of an ear: power of the disturbance and the residual, of what the estimate does not
# explain or of its late part, of the loudspeaker's signal, and the largest |W|^2.
_DISTURBANCE, _RESIDUAL, _UNKNOWN, _CONTROL, _GAIN, _N_BAND_ROWS = (tl.constexpr(row) for row in range(6))
# Places in `found`, [30] of an ear: the fields of `Prediction`, side by side.
_MEAN, _AMPLIFIED, _WIDELY, _LOW, _HIGH, _LARGEST, _RMS, _N_FIGURES = (
    tl.constexpr(len(AMP_BANDS) + each) for each in range(8)
)

_WIDE, _ONE = 8, 1
N_WARPS = {"_early": _WIDE, "_responses": _WIDE, "_powers": _WIDE, "_figures": _ONE}
"""Of each kernel, in the order of their launches."""

_kernel = triton.jit(
    do_not_specialize=["psd_stride"],
    do_not_specialize_on_alignment=[
        *("primary", "secondary", "psd", "coherence", "taps", "early", "packed", "twiddle", "constants", "edges"),
        *("bands", "learned", "found"),
    ],
)
"""One variant of each kernel for either basis."""


@_kernel
def _early(primary, twiddle, constants, early, TAPS: tl.constexpr, POINTS: tl.constexpr, PARTS: tl.constexpr):
    """Program (item, p): what bins p, p + PARTS, p + 2 PARTS, ... of the packed spectrum give to the first
    samples, x[2 n] and x[2 n + 1]: a transform of 4096 points, turned by e^(2 pi i p n / HALF)."""
    item, part = tl.program_id(0), tl.program_id(1)
    HALF: tl.constexpr = PARTS * POINTS
    bins = PARTS * stored_bins(POINTS // 16) + part
    own, mirror = primary + 2 * (item * (HALF + 1) + bins), primary + 2 * (item * (HALF + 1) + HALF - bins)
    # A real sequence has no imaginary part at 0 Hz and at Nyquist.
    k_re, k_im = tl.load(own), tl.where(bins == 0, 0.0, tl.load(own + 1))
    h_re, h_im = tl.load(mirror), tl.where(bins == 0, 0.0, tl.load(mirror + 1))
    turn_re, turn_im = tl.load(constants + bins), -tl.load(constants + HALF + 1 + bins)
    re, im = packed_spectrum(k_re, k_im, h_re, h_im, turn_re, turn_im)
    re, im = inverse(re / HALF, im / HALF, twiddle, POINTS // 16)
    place = offsets(POINTS // 16)
    kept = place < TAPS // 2
    turn_re = tl.load(constants + 2 * part * place, mask=kept, other=0.0)
    turn_im = -tl.load(constants + HALF + 1 + 2 * part * place, mask=kept, other=0.0)
    re, im = product(re, im, turn_re, turn_im)
    early += (item * PARTS + part) * TAPS + place
    tl.store(early, re, mask=kept)
    tl.store(early + TAPS // 2, im, mask=kept)


@_kernel
def _responses(
    taps, early, twiddle, constants, packed, TAPS: tl.constexpr, POINTS: tl.constexpr, PARTS: tl.constexpr
):
    """Program (item, p, 0): of the taps, as `synthesis.gpu.refinement.transform`; (item, p, 1): of the samples that
    `_early` made."""
    item, part, which = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    place = offsets(POINTS // 16)
    given = place < TAPS // 2
    if which == 0:
        samples = taps + item * TAPS + 2 * place
        re, im = tl.load(samples, mask=given, other=0.0), tl.load(samples + 1, mask=given, other=0.0)
    else:
        samples = early + item * PARTS * TAPS + place
        re = tl.load(samples, mask=given, other=0.0)
        im = tl.load(samples + TAPS // 2, mask=given, other=0.0)
        for share in tl.static_range(1, PARTS):
            re += tl.load(samples + share * TAPS, mask=given, other=0.0)
            im += tl.load(samples + share * TAPS + TAPS // 2, mask=given, other=0.0)
    packed += (2 * item + which) * 2 * PARTS * POINTS
    store_transform(re, im, twiddle, constants, packed, part, given, POINTS, PARTS)


@_kernel
def _powers(
    primary, secondary, psd, coherence, packed, constants, edges, bands, psd_stride,
    COHERENT: tl.constexpr, N_BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (item, segment): its rows of `bands`."""
    item, segment = tl.program_id(0), tl.program_id(1)
    place, inside = segment_bins(edges, segment, BLOCK)
    weight = tl.load(psd + item * psd_stride + place, mask=inside, other=0.0)
    primary += 2 * (item * N_BINS + place)
    secondary += 2 * (item * N_BINS + place)
    p_re, p_im = tl.load(primary, mask=inside, other=0.0), tl.load(primary + 1, mask=inside, other=0.0)
    s_re, s_im = tl.load(secondary, mask=inside, other=0.0), tl.load(secondary + 1, mask=inside, other=0.0)
    packed += item * (2 if COHERENT else 4) * (N_BINS - 1)
    power = weight * squared(p_re, p_im)
    if COHERENT:
        known = tl.load(coherence + item * N_BINS + place, mask=inside, other=1.0)
        known = tl.where(known < _COHERENCE_FLOOR, _COHERENCE_FLOOR, tl.where(known > 1, 1.0, known))
        unknown = (1 - known) / known * power
    else:
        e_re, e_im = unpacked(packed + 2 * (N_BINS - 1), constants, place, inside, N_BINS)
        unknown = weight * squared(p_re - e_re, p_im - e_im)
    w_re, w_im = unpacked(packed, constants, place, inside, N_BINS)
    y_re, y_im = product(s_re, s_im, w_re, w_im)
    gain = squared(w_re, w_im)
    bands += item * _N_BAND_ROWS * _ALL + segment
    tl.store(bands + _DISTURBANCE * _ALL, tl.sum(power))
    tl.store(bands + _RESIDUAL * _ALL, tl.sum(weight * squared(p_re - y_re, p_im - y_im)))
    tl.store(bands + _UNKNOWN * _ALL, tl.sum(unknown))
    tl.store(bands + _CONTROL * _ALL, tl.sum(weight * gain))
    tl.store(bands + _GAIN * _ALL, tl.max(gain))


@triton.jit
def _level_db(ratio):
    """NaN where it is."""
    return tl.log(tl.where(ratio < _TINY, _TINY, ratio)) * _DECIBELS


@triton.jit
def _change_db(error, disturbance, FIRST: tl.constexpr, LAST: tl.constexpr):
    segment = tl.arange(0, _ALL)
    chosen = (segment >= FIRST) & (segment <= LAST)
    return _level_db(tl.sum(tl.where(chosen, error, 0.0)) / tl.sum(tl.where(chosen, disturbance, 0.0)))


@_kernel
def _figures(bands, learned, found, COHERENT: tl.constexpr):
    """Program (item): the figures of what the bands hold."""
    item = tl.program_id(0)
    bands += item * _N_BAND_ROWS * _ALL
    found += item * _N_FIGURES
    segment = tl.arange(0, _ALL)
    is_band = (segment >= 1) & (segment <= _N_BANDS)
    disturbance = tl.load(bands + _DISTURBANCE * _ALL + segment, mask=is_band, other=0.0)
    error = tl.load(bands + _RESIDUAL * _ALL + segment, mask=is_band, other=0.0)
    unknown = tl.load(bands + _UNKNOWN * _ALL + segment, mask=is_band, other=0.0)
    if not COHERENT:
        typical = tl.load(learned + segment - 1, mask=is_band, other=0.0)
        per_share = tl.load(learned + _N_BANDS + segment - 1, mask=is_band, other=0.0)
        share = unknown / tl.maximum(disturbance, _TINY)
        scaled = tl.minimum(tl.maximum(per_share * share, typical / _RANGE), typical * _RANGE)
        unknown = tl.where(share > _NO_LATE_PART, scaled, typical) * disturbance
    disturbance += unknown
    error += unknown
    floor = tl.maximum(tl.max(disturbance) * _SILENCE, _TINY)
    disturbance += floor
    error += floor
    reduction = _level_db(disturbance / error)
    scored = (segment >= _FIRST_SCORED) & (segment <= _LAST_SCORED)
    target = (segment >= _FIRST_TARGET) & (segment <= _LAST_TARGET)
    louder = tl.where(reduction > 0, 0.0, -reduction)
    tl.store(found + segment - _FIRST_SCORED, reduction, mask=scored)
    tl.store(found + _MEAN, tl.sum(tl.where(target, reduction, 0.0)) / (_LAST_TARGET - _FIRST_TARGET + 1))
    tl.store(found + _AMPLIFIED, tl.sum(tl.where(scored, louder, 0.0)) / _N_SCORED)
    tl.store(found + _WIDELY, tl.sum(tl.where(is_band, louder, 0.0)) / _N_BANDS)
    tl.store(found + _LOW, _change_db(error, disturbance, _FIRST_LOW, _LAST_LOW))
    tl.store(found + _HIGH, _change_db(error, disturbance, _FIRST_HIGH, _LAST_HIGH))
    given = segment <= _N_BANDS + 1
    control = tl.sum(tl.load(bands + _CONTROL * _ALL + segment, mask=given, other=0.0))
    largest = tl.max(tl.load(bands + _GAIN * _ALL + segment, mask=given, other=0.0))
    # A maximum passes over what is no number, a sum does not.
    tl.store(found + _LARGEST, _level_db(tl.where(control == control, largest, control)))
    tl.store(found + _RMS, tl.sqrt(control))


def predict(
    paths: AcousticPaths, taps: Tensor, learned: Tensor, coherence: Tensor | None, reference_psd: Tensor
) -> Prediction:
    """As `synthesis.synthesizer.predicted`, without derivatives. In kernels: 2048 taps on the design grid, in
    float32; for any other the reference."""
    if taps.shape[-1] != N_TAPS or taps.dtype != torch.float32 or paths.n_fft != DESIGN_N_FFT:
        return predicted(paths, taps, learned, coherence, reference_psd)
    batch, n_bins, coherent = len(taps), paths.n_bins, coherence is not None
    n_parts = (n_bins - 1) // N_POINTS
    constants, edges = grid_constants(DESIGN_N_FFT, taps.device)
    twiddle = transform_constants(taps.device)[1]
    primary, secondary = (
        torch.view_as_real(each.resolve_conj().contiguous()) for each in (paths.primary, paths.secondary)
    )
    taps, psd = taps.contiguous(), reference_psd.contiguous()
    if coherent:
        packed = taps.new_empty(batch, 2, n_bins - 1)
        transform(taps, constants, packed)
    else:
        packed, early = taps.new_empty(batch, 2, 2, n_bins - 1), taps.new_empty(batch, n_parts, N_TAPS)
        sizes: dict[str, Any] = {"TAPS": N_TAPS, "POINTS": N_POINTS, "PARTS": n_parts, "num_warps": _WIDE}
        _early[(batch, n_parts)](primary, twiddle, constants, early, **sizes)
        _responses[(batch, n_parts, 2)](taps, early, twiddle, constants, packed, **sizes)
    bands = taps.new_empty(batch, _N_BAND_ROWS.value, _ALL.value)
    _powers[(batch, N_SEGMENTS)](
        primary,
        secondary,
        psd,
        psd if coherence is None else coherence.contiguous(),
        packed,
        constants,
        edges,
        bands,
        psd.shape[-1] if psd.ndim == 2 else 0,
        COHERENT=coherent,
        N_BINS=n_bins,
        BLOCK=(n_bins - 1) // 4,
        num_warps=_WIDE,
    )
    found = taps.new_empty(batch, _N_FIGURES.value)
    _figures[(batch,)](bands, learned.contiguous(), found, COHERENT=coherent, num_warps=_ONE)
    return Prediction(found[:, : _MEAN.value], *found[:, _MEAN.value :].unbind(1))
