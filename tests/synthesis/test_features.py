"""The twelve channels: against the twin, and what they must not depend on."""

import numpy as np
import pytest
import torch

from synthesis.features import CHANNELS, N_CHANNELS, path_features, standardised, unit_phase
from synthesis.path_ratio import log_base_magnitude, regularised_ratio
from synthesis.paths import AcousticPaths
from tests.oracles import features as oracle
from tests.oracles import path_ratio as ratio_oracle
from tests.synthesis.cases import Case


def features_of(paths: AcousticPaths, base: str = "held_band") -> torch.Tensor:
    w_reg = regularised_ratio(paths)
    return path_features(paths, w_reg, log_base_magnitude(w_reg, base))  # type: ignore[arg-type]


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
def test_equals_the_twin_on_random_paths(small_case: Case, base: str) -> None:
    assert_equals_the_twin(small_case, base, atol=1e-11)


@pytest.mark.parametrize("base", ["full_band", "held_band"])
def test_equals_the_twin_on_measured_paths(measured_case: Case, base: str) -> None:
    # Phases of a base spanning 60 dB, by Hilbert transform there and by folded cepstrum here.
    four = Case(measured_case.primary[:4], measured_case.secondary[:4], measured_case.reference_psd)
    assert_equals_the_twin(four, base, atol=1e-10)


def test_channels_are_normalised(small_case: Case) -> None:
    found = features_of(small_case.paths())
    for name in ("log_ratio", "log_primary", "log_secondary"):
        channel = found[:, CHANNELS.index(name)]
        assert channel.mean(-1).abs().max().item() < 1e-12
        torch.testing.assert_close(
            channel.square().mean(-1), torch.ones(3, dtype=torch.float64), rtol=1e-12, atol=0
        )
    for name in ("ratio", "mismatch", "primary", "secondary"):
        real, imaginary = (found[:, CHANNELS.index(f"{name}_{part}")] for part in ("re", "im"))
        torch.testing.assert_close(real**2 + imaginary**2, torch.ones_like(real), rtol=1e-12, atol=0)
    frequency = found[:, CHANNELS.index("frequency")]
    assert (frequency[:, 0] == -1).all()
    assert (frequency[:, -1] == 1).all()
    assert frequency.diff(dim=-1).min().item() > 0


def test_levels_of_the_paths_do_not_matter_and_signs_do(small_case: Case) -> None:
    paths = small_case.paths()
    plain = features_of(paths)
    torch.testing.assert_close(
        features_of(AcousticPaths(7 * paths.primary, 0.2 * paths.secondary)), plain, rtol=0, atol=1e-11
    )
    flipped = features_of(AcousticPaths(-paths.primary, paths.secondary))
    turned = [
        CHANNELS.index(f"{name}_{part}") for name in ("ratio", "mismatch", "primary") for part in ("re", "im")
    ]
    kept = [channel for channel in range(N_CHANNELS) if channel not in turned]
    torch.testing.assert_close(flipped[:, turned], -plain[:, turned], rtol=0, atol=1e-12)
    torch.testing.assert_close(flipped[:, kept], plain[:, kept], rtol=0, atol=1e-12)


def test_each_row_stands_alone(small_case: Case) -> None:
    paths = small_case.paths()
    together = features_of(paths)
    for row in range(3):
        torch.testing.assert_close(features_of(paths[row : row + 1])[0], together[row], rtol=0, atol=1e-12)


def test_vanishing_bins_stay_finite(dtype: torch.dtype, small_case: Case) -> None:
    paths = small_case.paths(dtype)
    primary, secondary = paths.primary.clone(), paths.secondary.clone()
    primary[0, 100:200] = 0
    secondary[1, 300:301] = 0
    found = features_of(AcousticPaths(primary, secondary))
    assert torch.isfinite(found).all()
    assert not unit_phase(primary)[0, 100:200].any()


def test_a_constant_row_is_standardised_to_zeros(dtype: torch.dtype) -> None:
    # The mean of equal numbers is off by rounding, which the floor on the deviation divides by.
    found = standardised(torch.full((1, 1000), 2.0, dtype=dtype))
    assert found.abs().max().item() < 1e-3
