"""Request bodies as clients write them."""

import base64
from typing import Any

import numpy as np

from service.designs import Ear
from synthesis.conventions import DESIGN_N_FFT

Json = dict[str, Any]


def as_responses(ear: Ear, **more: object) -> Json:
    """A JSON request with impulse responses."""
    return {
        "primary": {"impulse_response": ear.primary.tolist()},
        "secondary": {"impulse_response": ear.secondary.tolist()},
        "sample_rate": 48_000,
        **more,
    }


def spectra(ear: Ear, n_fft: int = DESIGN_N_FFT) -> tuple[np.ndarray, np.ndarray]:
    """The ear's paths as complex64 spectra."""
    primary, secondary = (np.fft.rfft(each, n_fft).astype(np.complex64) for each in (ear.primary, ear.secondary))
    return primary, secondary


def as_lists(ear: Ear, n_fft: int = DESIGN_N_FFT, **more: object) -> Json:
    """A JSON request with spectra as lists of numbers."""
    primary, secondary = ({"real": each.real.tolist(), "imag": each.imag.tolist()} for each in spectra(ear, n_fft))
    return {"primary": primary, "secondary": secondary, "sample_rate": 48_000, **more}


def as_base64(ear: Ear, n_fft: int = DESIGN_N_FFT, **more: object) -> Json:
    """A JSON request with spectra in base64."""
    primary, secondary = ({"complex64": base64.b64encode(each.tobytes()).decode()} for each in spectra(ear, n_fft))
    return {"primary": primary, "secondary": secondary, "sample_rate": 48_000, **more}
