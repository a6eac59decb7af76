"""Minimum-phase reconstruction: magnitude kept, phase minimal, response causal."""

import numpy as np
import torch

from synthesis.arrays import minimum_phase_fir


def test_zeros_outside_unit_circle_are_reflected_inside() -> None:
    # (1 - 0.5 z^-1)(1 + 1.25 z^-1)(1 + 0.6 z^-2) times z^-3: one zero outside, and a pure delay.
    mixed = np.convolve(np.convolve([1, -0.5], [1, 1.25]), [1, 0, 0.6])
    minimum = np.convolve(np.convolve([1, -0.5], [1.25, 1]), [1, 0, 0.6])
    magnitude = np.abs(np.fft.rfft(np.pad(mixed, (3, 0)), 4096))
    taps = minimum_phase_fir(torch.from_numpy(np.log(magnitude))[None], 5)[0].numpy()
    # The nearest zero (0.8) makes cepstral aliasing of order 0.8^4096: below rounding.
    np.testing.assert_allclose(taps, minimum, atol=1e-12)
    assert np.all(np.abs(np.roots(taps)) < 1)
