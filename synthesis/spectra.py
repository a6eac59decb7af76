"""Small operations on spectra in torch: frequencies, and sums onto coarser grids."""

from functools import cache

import torch
from torch import Tensor

from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ


def frequencies_hz(n_fft: int = DESIGN_N_FFT) -> Tensor:
    """Bin frequencies in Hz of the one-sided spectrum of an `n_fft`-point transform, float64 [n_fft // 2 + 1]."""
    return torch.arange(n_fft // 2 + 1, dtype=torch.float64) * (SAMPLE_RATE_HZ / n_fft)


def collected(power: Tensor, stride: int) -> Tensor:
    """Power per bin [..., n_bins] on a grid coarser by the even number `stride`: [..., (n_bins - 1) / stride + 1].

    Each bin's power goes to the nearest coarse bin, half to each where two are equally near.
    """
    spans = power[..., 1:].unflatten(-1, (-1, stride)) @ _shares(stride, power.dtype, str(power.device))
    below, above = spans.unbind(-1)
    return torch.cat((power[..., :1] + below[..., :1], below[..., 1:] + above[..., :-1], above[..., -1:]), dim=-1)


@cache  # never freed: recorded CUDA graphs read the tensor in place
def _shares(stride: int, dtype: torch.dtype, device: str) -> Tensor:
    """Of the coarse bins below and above in each of the `stride` bins that end at the latter: [stride, 2]."""
    with torch.inference_mode(False):  # the first caller may be in inference mode, the next one training
        offset = torch.arange(1, stride + 1)
        above = torch.where(offset * 2 == stride, 0.5, (offset * 2 > stride).to(dtype))
        return torch.stack((1 - above, above), dim=-1).to(device, dtype)
