"""Acoustic paths on the design grid, and the control filter designed for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.errors import InvalidPaths


@dataclass(frozen=True)
class AcousticPaths:
    """The two paths of a batch of ears, as one-sided spectra on one Fourier grid.

    Both are transforms of causal impulse responses at 48 kHz.
    """

    # Outer to error microphone, P, complex [batch, n_bins], dimensionless.
    primary: Tensor
    # Loudspeaker to error microphone, S, complex [batch, n_bins], dimensionless.
    secondary: Tensor

    @classmethod
    def from_impulse_responses(cls, primary: Tensor, secondary: Tensor, n_fft: int = DESIGN_N_FFT) -> AcousticPaths:
        """Transform causal impulse responses, real [batch, n <= n_fft].

        Raises
        ------
        InvalidPaths
            A response is longer than the grid.
        """
        spectra = {}
        for name, response in (("primary", primary), ("secondary", secondary)):
            if response.ndim != 2 or not 0 < response.shape[-1] <= n_fft:
                raise InvalidPaths(
                    f"{name}: the shape of its impulse responses is {tuple(response.shape)}; "
                    f"give [batch, 1 to {n_fft} samples]",
                    field=name,
                )
            spectra[name] = torch.fft.rfft(response, n=n_fft)
        return cls(**spectra)

    @staticmethod
    def stack(paths: Sequence[AcousticPaths]) -> AcousticPaths:
        """Join several batches into one, in order."""
        return AcousticPaths(
            torch.cat([path.primary for path in paths]), torch.cat([path.secondary for path in paths])
        )

    @property
    def n_bins(self) -> int:
        """Return the number of bins of a one-sided spectrum."""
        return self.primary.shape[-1]

    @property
    def n_fft(self) -> int:
        """Return the number of points of the Fourier grid."""
        return 2 * (self.n_bins - 1)

    @property
    def batch_size(self) -> int:
        """Return the number of ears."""
        return self.primary.shape[0]

    def __getitem__(self, index: slice | list[int]) -> AcousticPaths:
        """Select some of the ears as a batch."""
        return AcousticPaths(self.primary[index], self.secondary[index])

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> AcousticPaths:
        """Convert to the complex type of the real `dtype`, on `device`."""
        complex_type = torch.complex128 if dtype == torch.float64 else torch.complex64
        return AcousticPaths(
            self.primary.to(device=device, dtype=complex_type),
            self.secondary.to(device=device, dtype=complex_type),
        )

    def validate(self) -> AcousticPaths:
        """Return self, or raise InvalidPaths: unequal or wrong shapes, NaN or infinity, an all-zero path."""
        for name, spectrum in (("primary", self.primary), ("secondary", self.secondary)):
            if spectrum.ndim != 2 or not spectrum.is_complex():
                raise InvalidPaths(
                    f"{name}: its shape is {tuple(spectrum.shape)} and its type {spectrum.dtype}; "
                    "give complex spectra [batch, n_bins]",
                    field=name,
                )
            finite = torch.isfinite(torch.view_as_real(spectrum))
            if not bool(finite.all()):
                raise InvalidPaths(
                    f"{name}: {int((~finite).sum())} of its values are NaN or infinite; measure the path again",
                    field=name,
                )
            if not bool((spectrum.abs().amax(-1) > 0).all()):
                raise InvalidPaths(f"{name}: it is all zero; measure the path again", field=name)
        if self.primary.shape != self.secondary.shape:
            raise InvalidPaths(
                f"secondary: its shape is {tuple(self.secondary.shape)}; "
                f"give it that of primary, {tuple(self.primary.shape)}",
                field="secondary",
            )
        return self


@dataclass(frozen=True)
class ControlFilter:
    """Causal finite impulse responses at 48 kHz, e = d - s * w * x."""

    # Real [batch, 2048].
    taps: Tensor

    def response(self, n_fft: int = DESIGN_N_FFT) -> Tensor:
        """Compute the frequency response W, complex [batch, n_fft // 2 + 1]."""
        return torch.fft.rfft(self.taps, n=n_fft)
