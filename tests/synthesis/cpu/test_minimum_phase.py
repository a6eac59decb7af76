"""The minimum phase of a log magnitude against the reference."""

import numpy as np
import pytest
import torch

from synthesis.cpu.minimum_phase import MinimumPhase, unit
from synthesis.cpu.transforms import RealTransform
from synthesis.minimum_phase import minimum_phase_response


@pytest.mark.parametrize("n_fft", [4096, 8192])
def test_the_phase_is_the_references(n_fft: int) -> None:
    rng = np.random.default_rng(1)
    smooth = rng.standard_normal(6) @ np.cos(np.outer(np.arange(6), np.linspace(0, np.pi, n_fft // 2 + 1)))
    minimum_phase = MinimumPhase(RealTransform(n_fft))
    for log_magnitude in (smooth, 5 * smooth, rng.standard_normal(n_fft // 2 + 1)):
        single = log_magnitude.astype(np.float32)
        expected = torch.angle(minimum_phase_response(torch.from_numpy(single).double())).numpy()
        found = minimum_phase.phase(single)
        # Radians, from log magnitudes of up to 15 nepers in single precision.
        np.testing.assert_allclose(np.exp(1j * found), np.exp(1j * expected), rtol=0, atol=1e-5)
        np.testing.assert_allclose(unit(found), np.exp(1j * expected), rtol=0, atol=1e-5)


def test_a_flat_magnitude_has_no_phase() -> None:
    assert not MinimumPhase(RealTransform(4096)).phase(np.full(2049, 3.0, np.float32)).any()
