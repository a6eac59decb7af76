"""The twelve channels equal the twin's; limits of the regularised ratio (Eq. 4) and of its logarithm."""

import numpy as np
import pytest
import torch

from prime_anc.method.arrays import floored_log
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.start.features import (
    N_CHANNELS,
    log_base_magnitude,
    path_features,
    regularised_ratio,
    unit_phase,
)
from tests.method.cases import Case
from tests.oracles import features as oracle
from tests.oracles import path_ratio as ratio_oracle


def features_of(paths: AcousticPaths, base: str = "held_band") -> torch.Tensor:
    w_reg = regularised_ratio(paths.primary, paths.secondary)
    return path_features(paths.primary, paths.secondary, w_reg, log_base_magnitude(w_reg, base))


@pytest.mark.parametrize("base", ["full_band", "held_band"])
def test_equals_twin_on_random_paths(small_case: Case, base: str) -> None:
    found = features_of(small_case.paths(), base)
    assert found.shape == (len(small_case.primary), N_CHANNELS, small_case.n_bins)
    for row, (p, s) in enumerate(zip(small_case.primary, small_case.secondary, strict=True)):
        ratio = ratio_oracle.regularised_ratio(p, s)
        log_base = ratio_oracle.floored_log(ratio_oracle.base_magnitude(ratio, base))
        expected = oracle.twelve_channels(p, s, ratio, log_base)
        np.testing.assert_allclose(found[row].numpy(), expected, rtol=0, atol=1e-11)


def test_vanishing_bins_stay_finite(dtype: torch.dtype, small_case: Case) -> None:
    paths = small_case.paths(dtype)
    primary, secondary = paths.primary.clone(), paths.secondary.clone()
    primary[0, 100:200] = 0
    secondary[1, 300:301] = 0
    found = features_of(AcousticPaths(primary, secondary))
    assert torch.isfinite(found).all()
    assert not unit_phase(primary)[0, 100:200].any()


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
