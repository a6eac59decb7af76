"""Predicted effect of a filter, with the uncertainty of the estimated paths.

Refinement cancels the estimate's own error together with the noise, so a prediction from estimates alone is
6 to 11 dB too good. The coherence c of reference and error during calibration tells how much of the error
microphone's power the estimate cannot explain; (1 - c) / c w |P|^2 is added per bin to the power with and
without the filter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from synthesis.arrays import squared_magnitude
from synthesis.conventions import COHERENCE_FLOOR
from synthesis.errors import InvalidOption
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, columns
from synthesis.paths import AcousticPaths
from synthesis.prediction import END_OF_RESPONSE, HIGH_BANDS, LATE_FROM_SAMPLES, LOW_BANDS, SILENCE
from synthesis.spectra import band_matrix


@dataclass(frozen=True)
class Prediction:
    """Figures of a batch of filters, each [batch] unless said otherwise.

    noise_reduction_db: per AMP band, [batch, 23], positive is quieter; mean_noise_reduction_db: over the 21 NR
    bands. amplification_db: mean over the 23 bands of the amount by which they get louder, >= 0;
    wide_amplification_db: the same over 31 bands, 20 Hz to 20 kHz. out_of_band_low_db (17.8 to 44.7 Hz) and
    out_of_band_high_db (8.9 to 22.4 kHz): change of level, positive is louder. max_gain_db: largest |W|.
    control_rms: RMS of the loudspeaker signal w * x, in the unit of x.
    """

    noise_reduction_db: Tensor
    mean_noise_reduction_db: Tensor
    amplification_db: Tensor
    wide_amplification_db: Tensor
    out_of_band_low_db: Tensor
    out_of_band_high_db: Tensor
    max_gain_db: Tensor
    control_rms: Tensor


def level_db(ratio: Tensor) -> Tensor:
    """10 log10 of a power ratio, floored at the type's smallest number."""
    return 10 * torch.log10(ratio.clamp_min(torch.finfo(ratio.dtype).tiny))


def band_uncertainty(paths: AcousticPaths, coherence: Tensor, reference_psd: Tensor) -> Tensor:
    """Unexplained power over explained power in each of the 31 bands, [batch, 31].

    Averaged over support listeners it replaces the coherence where none is given.
    """
    membership = band_matrix(WIDE_BANDS, paths.n_fft, reference_psd.dtype, reference_psd.device)
    power = reference_psd * squared_magnitude(paths.primary)
    tiny = torch.finfo(power.dtype).tiny
    return (_unexplained(power, coherence) @ membership) / (power @ membership).clamp_min(tiny)


def _unexplained(power: Tensor, coherence: Tensor) -> Tensor:
    known = coherence.clamp(COHERENCE_FLOOR, 1)
    return (1 - known) / known * power


def predict(
    paths: AcousticPaths,
    taps: Tensor,
    reference_psd: Tensor,
    *,
    coherence: Tensor | None = None,
    uncertainty: Tensor | None = None,
) -> Prediction:
    """Predict the figures of `taps` [batch, n_taps] on estimated paths.

    reference_psd: one-sided, mean square per bin, [n_bins] or [batch, n_bins]. Exactly one of `coherence`
    (of x and e_0 per bin, [batch, n_bins]) and `uncertainty` (of `band_uncertainty`, [31] or [batch, 31]) states
    how uncertain the estimates are; zeros as uncertainty mean that the paths are the true ones.
    Raises InvalidOption when both or neither is given.
    """
    if (coherence is None) == (uncertainty is None):
        raise InvalidOption("prediction: give exactly one of coherence and uncertainty", "coherence")
    membership = band_matrix(WIDE_BANDS, paths.n_fft, reference_psd.dtype, reference_psd.device)
    response = torch.fft.rfft(taps, n=paths.n_fft)
    power = reference_psd * squared_magnitude(paths.primary)
    residual = reference_psd * squared_magnitude(paths.primary - paths.secondary * response)
    disturbance_bands = power @ membership
    if coherence is not None:
        unknown = _unexplained(power, coherence) @ membership
    else:
        assert uncertainty is not None
        unknown = uncertainty * disturbance_bands
    return figures(
        disturbance_bands + unknown,
        residual @ membership + unknown,
        max_gain_db=level_db(squared_magnitude(response).amax(-1)),
        control_rms=(reference_psd * squared_magnitude(response)).sum(-1).sqrt(),
    )


def band_sums(
    paths: AcousticPaths, taps: Tensor, reference_psd: Tensor, coherence: Tensor | None, *, is_true: bool = False
) -> Tensor:
    """What `synthesis.prediction.predict` is told of each of the taps [batch, 2048]: [batch, N_SUMS].

    coherence: [batch, n_bins]; None: none. is_true: the paths are exact, so what only tells of uncertainty is 0.
    """
    membership = band_matrix(WIDE_BANDS, paths.n_fft, reference_psd.dtype, reference_psd.device)
    response = torch.fft.rfft(taps, n=paths.n_fft)
    played = paths.secondary * response
    error = paths.primary - played
    cross = reference_psd * error.conj() * played
    power = reference_psd * squared_magnitude(paths.primary)
    powers = [
        power,
        reference_psd * squared_magnitude(error),
        reference_psd * squared_magnitude(played),
        cross.real,
        cross.imag,
    ]
    length = torch.zeros_like(power[..., 0])
    if is_true:
        powers += [torch.zeros_like(power)] * 2
    else:
        heard = torch.fft.irfft(paths.primary, n=paths.n_fft)
        powers.append(torch.zeros_like(power) if coherence is None else _unexplained(power, coherence))
        late = torch.fft.rfft(torch.nn.functional.pad(heard[..., LATE_FROM_SAMPLES:], (LATE_FROM_SAMPLES, 0)))
        powers.append(reference_psd * squared_magnitude(late))
        lag = torch.arange(1, paths.n_fft + 1, dtype=power.dtype, device=power.device)
        is_heard = heard.abs() > END_OF_RESPONSE * heard.abs().amax(-1, keepdim=True)
        length = (lag * is_heard).amax(-1)
    gain = squared_magnitude(response)
    rest = torch.stack((gain.amax(-1), (reference_psd * gain).sum(-1), length), dim=-1)
    return torch.cat((*(each @ membership for each in powers), rest), dim=-1)


def figures(disturbance: Tensor, error: Tensor, max_gain_db: Tensor, control_rms: Tensor) -> Prediction:
    """Figures from the power in the 31 bands without and with the filter, [batch, 31] each.

    Both powers are raised by the strongest band's power less 120 dB, so that a silent band scores 0 dB.
    """
    floor = (SILENCE * disturbance.amax(-1, keepdim=True)).clamp_min(torch.finfo(disturbance.dtype).tiny)
    disturbance, error = disturbance + floor, error + floor
    reduction = level_db(disturbance / error)
    scored = reduction[..., columns(AMP_BANDS)]

    def change_db(bands: tuple[int, ...]) -> Tensor:
        chosen = columns(bands)
        return level_db(error[..., chosen].sum(-1) / disturbance[..., chosen].sum(-1))

    return Prediction(
        noise_reduction_db=scored,
        mean_noise_reduction_db=reduction[..., columns(NR_BANDS)].mean(-1),
        amplification_db=(-scored).clamp_min(0).mean(-1),
        wide_amplification_db=(-reduction).clamp_min(0).mean(-1),
        out_of_band_low_db=change_db(LOW_BANDS),
        out_of_band_high_db=change_db(HIGH_BANDS),
        max_gain_db=max_gain_db,
        control_rms=control_rms,
    )
