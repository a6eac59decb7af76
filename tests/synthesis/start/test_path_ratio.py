"""Limits of the regularised ratio (Eq. 4) and of its logarithm; `test_features` compares them with the twin."""

import numpy as np
import pytest
import torch

from synthesis.arrays import floored_log
from synthesis.start.features import regularised_ratio


def test_regularisation_limits_ratio_and_halves_it_at_epsilon() -> None:
    secondary = torch.ones(1, 5, dtype=torch.complex128)
    secondary[0, 1] = 1e-4j  # |S| = eps: P S* / (2 eps^2), half of P / S
    secondary[0, 2] = 0
    secondary[0, 3] = 1e-6
    found = regularised_ratio(torch.ones_like(secondary), secondary)[0]
    assert found[0].item() == pytest.approx(1 / (1 + 1e-8), rel=1e-12)
    assert found[1].item() == pytest.approx(-0.5e4j, rel=1e-12)
    assert found[2].item() == 0
    # The largest gain that regularisation lets through is 1 / (2 eps), at |S| = eps.
    assert found.abs().max().item() <= 0.5e4 * (1 + 1e-12)


def test_log_is_floored_only_where_magnitudes_vanish(dtype: torch.dtype) -> None:
    magnitude = torch.tensor([[2.0, 1e-3, 1e-9, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=dtype)
    found = floored_log(magnitude)
    assert torch.isfinite(found).all()
    assert torch.equal(found[0, :2], magnitude[0, :2].log())
    # 120 dB below the row's largest.
    assert found[0, 2].item() == pytest.approx(np.log(2e-6), rel=1e-6)
    assert found[0, 2] == found[0, 3]
