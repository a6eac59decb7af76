"""The twelve channels equal the twin's, and are invariant to scale and delay."""

import numpy as np
import pytest
import torch

from synthesis.paths import AcousticPaths
from synthesis.start.features import (
    N_CHANNELS,
    log_base_magnitude,
    path_features,
    regularised_ratio,
    unit_phase,
)
from tests.oracles import features as oracle
from tests.oracles import path_ratio as ratio_oracle
from tests.synthesis.cases import Case


def features_of(paths: AcousticPaths, base: str = "held_band") -> torch.Tensor:
    w_reg = regularised_ratio(paths.primary, paths.secondary)
    return path_features(paths.primary, paths.secondary, w_reg, log_base_magnitude(w_reg, base))  # type: ignore[arg-type]


def assert_equals_the_twin(case: Case, base: str, atol: float) -> None:
    found = features_of(case.paths(), base)
    assert found.shape == (len(case.primary), N_CHANNELS, case.n_bins)
    for row, (p, s) in enumerate(zip(case.primary, case.secondary, strict=True)):
        ratio = ratio_oracle.regularised_ratio(p, s)
        expected = oracle.twelve_channels(
            p, s, ratio, ratio_oracle.floored_log(ratio_oracle.base_magnitude(ratio, base))
        )
        np.testing.assert_allclose(found[row].numpy(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("base", ["full_band", "held_band"])
def test_equals_twin_on_random_paths(small_case: Case, base: str) -> None:
    assert_equals_the_twin(small_case, base, atol=1e-11)


def test_vanishing_bins_stay_finite(dtype: torch.dtype, small_case: Case) -> None:
    paths = small_case.paths(dtype)
    primary, secondary = paths.primary.clone(), paths.secondary.clone()
    primary[0, 100:200] = 0
    secondary[1, 300:301] = 0
    found = features_of(AcousticPaths(primary, secondary))
    assert torch.isfinite(found).all()
    assert not unit_phase(primary)[0, 100:200].any()
