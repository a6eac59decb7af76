"""The twelve channels that the generator reads: theory, "Features and correction"; Section 2.2 of the paper."""

import torch
from torch import Tensor

from synthesis.arrays import floored_log
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.generator_config import N_FEATURES
from synthesis.minimum_phase import minimum_phase_response
from synthesis.paths import AcousticPaths

N_CHANNELS = N_FEATURES
CHANNELS = (
    "log_ratio",
    "frequency",
    "ratio_re",
    "ratio_im",
    "mismatch_re",
    "mismatch_im",
    "log_primary",
    "log_secondary",
    "primary_re",
    "primary_im",
    "secondary_re",
    "secondary_im",
)


PHASE_FLOOR = 1e-5
"""Of a path's largest magnitude: audible bins below it have a phase that fades with their magnitude, which float32
transforms hardly resolve."""
AUDIBLE_HZ = 20_000.0
"""Converters' filters leave nothing above, and the generator is trained with what rounding makes of that."""


def unit_phase(spectrum: Tensor) -> Tensor:
    """spectrum / |spectrum|, and 0 where the magnitude vanishes: complex, same shape."""
    magnitude = spectrum.abs()
    return spectrum / magnitude.clamp_min(torch.finfo(magnitude.dtype).tiny)


def path_phase(path: Tensor) -> Tensor:
    """Compute the unit phase of a path, which fades where the path is all but silent.

    Parameters
    ----------
    path
        One-sided spectra, complex [..., n_bins].

    Returns
    -------
    Tensor
        path / max(|path|, PHASE_FLOOR max |path|) in bins up to AUDIBLE_HZ, path / |path| above: same shape.
    """
    magnitude = path.abs()
    n_bins = path.shape[-1]
    n_audible = int(2 * (n_bins - 1) * AUDIBLE_HZ / SAMPLE_RATE_HZ) // 8 * 8
    floor = PHASE_FLOOR * magnitude.amax(-1, keepdim=True)
    audible = torch.arange(n_bins, device=path.device) < n_audible
    least = torch.where(audible, floor, torch.finfo(magnitude.dtype).tiny)
    return path / torch.maximum(magnitude, least).clamp_min(torch.finfo(magnitude.dtype).tiny)


def standardised(values: Tensor) -> Tensor:
    """Zero mean and unit SD across frequency, per row; a constant row becomes zeros."""
    centred = values - values.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    return centred / deviation.clamp_min(1e-6)


def path_features(paths: AcousticPaths, w_reg: Tensor, log_base: Tensor) -> Tensor:
    """Conditioning channels of the generator: real [batch, 12, n_bins], in the order of CHANNELS.

    Six of the ratio: standardised log |W_reg|; frequency in [-1, 1]; its phase u, that of P over that of S; the
    mismatch u u_MP*, u_MP the unit phase of the minimum-phase base. Six of the paths: standardised log |P| and
    log |S| and their phases (`path_phase`). Only log magnitudes are standardised, across frequency, per path.
    """
    # Side by side: on a GPU an operation costs the same for one spectrum and for four.
    spectra = torch.stack((w_reg, paths.primary, paths.secondary, minimum_phase_response(log_base)), dim=1)
    primary_phase, secondary_phase = path_phase(spectra[:, 1:3]).unbind(1)
    ratio_phase, base_phase = primary_phase * secondary_phase.conj(), unit_phase(spectra[:, 3])
    log_ratio, log_primary, log_secondary = standardised(floored_log(spectra[:, :3].abs())).unbind(1)
    mismatch = ratio_phase * base_phase.conj()
    frequency = torch.linspace(-1, 1, paths.n_bins, dtype=log_base.dtype, device=log_base.device)
    return torch.stack(
        (
            log_ratio,
            frequency.expand_as(log_base),
            ratio_phase.real,
            ratio_phase.imag,
            mismatch.real,
            mismatch.imag,
            log_primary,
            log_secondary,
            primary_phase.real,
            primary_phase.imag,
            secondary_phase.real,
            secondary_phase.imag,
        ),
        dim=1,
    )
