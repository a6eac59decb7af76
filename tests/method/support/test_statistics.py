"""Traits of paths are those of every form and level; the statistics are their mean and covariance."""

import numpy as np
import pytest

from prime_anc.method.support.statistics import IS_PHASE, learn_support_statistics, path_traits, wrapped
from tests.method.cases import decaying_noise

Pair = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def pair() -> Pair:
    """Random responses [4, n] that begin with samples 7 and 5, and differ from one another by a fifth."""
    rng = np.random.default_rng(9)
    found = []
    for delay, length, decay in ((7, 4096, 200.0), (5, 2048, 60.0)):
        common, *single = decaying_noise(rng, 5, delay, length, decay)
        found.append(common + 0.2 * np.array(single))
    return found[0], found[1]


def test_traits_do_not_depend_on_form_of_paths(pair: Pair) -> None:
    primary, secondary = (item[0] for item in pair)
    expected = path_traits(primary, secondary, 5)
    for form in (lambda path: np.fft.rfft(path, 32_768), lambda path: np.pad(path, (0, 20_000))):
        # The kernel is stored in float32: 1e-7 of the largest band, of which the smallest is a hundredth.
        changed = wrapped(path_traits(form(primary), form(secondary), 5) - expected)
        np.testing.assert_allclose(changed, 0, atol=1e-4)


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_traits_hold_for_any_level(pair: Pair, factor: float) -> None:
    primary, secondary = (item[0].astype(np.float32) for item in pair)
    raised = path_traits(np.float32(factor) * primary, np.float32(factor) * secondary)
    moved = raised - path_traits(primary, secondary)
    np.testing.assert_allclose(moved, np.where(IS_PHASE, 0, np.log(factor)), atol=1e-4)


def test_statistics_are_mean_and_covariance_over_ears(pair: Pair) -> None:
    statistics = learn_support_statistics(*pair)
    assert (statistics.n_ears, statistics.delay_samples) == (4, 5)
    traits = np.array([path_traits(p, s, 5) for p, s in zip(*pair, strict=True)])
    aligned = traits[0] + wrapped(traits - traits[0])  # these ears' phases lie within half a turn of one another
    np.testing.assert_allclose(wrapped(np.array(statistics.mean) - aligned.mean(0)), 0, atol=1e-4)
    prior = np.diag(np.where(IS_PHASE, 0.25, 0.35) ** 2)
    expected = (4 * np.cov(aligned.T, bias=True) + prior) / 5
    np.testing.assert_allclose(statistics.covariance_matrix(), expected, atol=1e-4)
