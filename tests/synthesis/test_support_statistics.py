"""Traits of secondary paths: the twin agrees, and wrong wiring and leaks stand out from measured ears."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.signal import butter, lfilter

from synthesis.support_statistics import learn_support_statistics, polarity, secondary_traits
from tests.oracles import measured
from tests.oracles import support_statistics as oracle
from tests.synthesis.cases import decaying_noise


@pytest.fixture
def secondary() -> np.ndarray:
    """Four random responses that begin with sample 5."""
    return decaying_noise(np.random.default_rng(9), 4, delay=5, length=2048, decay=200.0)


@pytest.mark.parametrize("delayed_samples", [0.0, 7.0])
def test_traits_equal_the_twin(secondary: np.ndarray, delayed_samples: float) -> None:
    found = secondary_traits(secondary, delayed_samples)
    for row, response in enumerate(secondary):
        low_level_db, delay, direction = oracle.traits(response, delayed_samples)
        # The same float64 sums in another order; the direction's magnitude is about one.
        assert found.low_level_db[row] == pytest.approx(low_level_db, abs=1e-9)
        assert found.delay_samples[row] == delay
        assert found.direction[row] == pytest.approx(direction, abs=1e-12)


def test_float32_is_enough(secondary: np.ndarray) -> None:
    single = secondary_traits(secondary.astype(np.float32))
    double = secondary_traits(secondary)
    for found, expected in zip(single, double, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_gain_leaves_every_trait_and_a_delay_all_but_itself(secondary: np.ndarray) -> None:
    plain = secondary_traits(secondary)
    louder = secondary_traits(3 * secondary)
    later = secondary_traits(np.pad(secondary, ((0, 0), (11, 0))), 11.0)
    for found, shift in ((louder, 0), (later, 11)):
        np.testing.assert_allclose(found.low_level_db, plain.low_level_db, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.delay_samples, plain.delay_samples + shift)
        np.testing.assert_allclose(found.direction, plain.direction, rtol=0, atol=1e-12)


def test_one_ear_is_its_own_mean(secondary: np.ndarray) -> None:
    one = secondary[:1]
    statistics, traits = learn_support_statistics(one), secondary_traits(one)
    assert statistics.n_ears == 1
    assert statistics.low_level_db.mean == pytest.approx(traits.low_level_db[0])
    assert statistics.delay_samples.mean == traits.delay_samples[0]
    assert statistics.polarity.mean == pytest.approx(abs(traits.direction[0]))
    assert {statistics.polarity.sd, statistics.low_level_db.sd, statistics.delay_samples.sd} == {0.0}


def test_statistics_are_means_and_deviations_over_the_ears(secondary: np.ndarray) -> None:
    statistics = learn_support_statistics(secondary)
    low, delay, direction = zip(*(oracle.traits(each) for each in secondary), strict=True)
    phase = float(np.angle(np.sum(direction)))
    expected: list[tuple[object, Sequence[float]]] = [
        (statistics.low_level_db, low),
        (statistics.delay_samples, delay),
        (statistics.polarity, [(each * np.exp(-1j * phase)).real for each in direction]),
    ]
    assert statistics.phase_rad == pytest.approx(phase)
    for found, values in expected:
        assert (found.mean, found.sd) == pytest.approx((np.mean(values), np.std(values)))  # type: ignore[attr-defined]


def test_measured_ears_agree_and_faults_stand_out(ears: list[measured.Ear]) -> None:
    """What verdicts rest on, each ear judged by the ears of the other persons."""
    secondary = np.array([ear.estimated_secondary for ear in ears])
    leaking = lfilter(*butter(2, 500, "highpass", fs=48_000), secondary)
    listeners = np.array([ear.name.split("-")[0] for ear in ears])
    for listener in set(listeners):
        own = listeners == listener
        statistics = learn_support_statistics(secondary[~own])
        traits = secondary_traits(secondary[own])
        along = polarity(traits.direction, statistics.phase_rad)
        assert along.min() > 0.6
        assert np.abs(traits.delay_samples - statistics.delay_samples.mean).max() < 1
        # The loosest fit lies 11 dB below the others, an open ear 25 dB, and the simulated leak more than 18 dB.
        assert (traits.low_level_db - statistics.low_level_db.mean).min() > -11.5
        leak = secondary_traits(leaking[own])
        assert (leak.low_level_db - statistics.low_level_db.mean).max() < -18
