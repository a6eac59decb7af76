"""The twelve channels that the generator reads (Section 2.2 of the paper)."""

import torch
from torch import Tensor

from synthesis.generator_config import N_FEATURES
from synthesis.minimum_phase import minimum_phase_response
from synthesis.path_ratio import floored_log
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


def unit_phase(spectrum: Tensor) -> Tensor:
    """spectrum / |spectrum|, and 0 where the magnitude vanishes: complex, same shape."""
    magnitude = spectrum.abs()
    return spectrum / magnitude.clamp_min(torch.finfo(magnitude.dtype).tiny)


def standardised(values: Tensor) -> Tensor:
    """Zero mean and unit SD across frequency, per row; a constant row becomes zeros."""
    centred = values - values.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    return centred / deviation.clamp_min(1e-6)


def path_features(paths: AcousticPaths, w_reg: Tensor, log_base: Tensor) -> Tensor:
    """Conditioning channels of the generator: real [batch, 12, n_bins], in the order of CHANNELS.

    Six of the ratio: standardised log |W_reg|; frequency in [-1, 1]; u = W_reg / |W_reg|; the phase mismatch
    u u_MP*, u_MP the unit phase of the minimum-phase base. Six of the paths: standardised log |P| and log |S|
    and their unit phases. Only log magnitudes are standardised, across frequency, per path.
    """
    # Side by side: on a GPU an operation costs the same for one spectrum and for four.
    spectra = torch.stack((w_reg, paths.primary, paths.secondary, minimum_phase_response(log_base)), dim=1)
    ratio_phase, primary_phase, secondary_phase, base_phase = unit_phase(spectra).unbind(1)
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
