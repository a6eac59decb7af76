"""What designs are expected to take, from what the last ones took."""

import pytest

from service.engine.latency import N_REMEMBERED, LatencyEstimator
from synthesis.backends import DesignOptions

START_S, UPDATE_S = 1.0, 0.5


@pytest.fixture
def latency() -> LatencyEstimator:
    """Knows a start by `prime` and an update in `fast`, from one batch of two ears with two updates."""
    latency = LatencyEstimator()
    latency.observe(DesignOptions(n_updates=2), 2, 2 * (START_S + 2 * UPDATE_S), 4 * UPDATE_S)
    return latency


def test_one_observation_serves_every_number_of_updates(latency: LatencyEstimator) -> None:
    for k in (0, 1, 8):
        assert latency.expected_s(DesignOptions(n_updates=k)) == pytest.approx(START_S + k * UPDATE_S)
    # Methods share the updates, and profiles the starts.
    assert latency.expected_s(DesignOptions("wmmse", 2)) == pytest.approx(2 * UPDATE_S)
    assert latency.expected_s(DesignOptions(n_updates=2, profile="paper")) == START_S
    assert latency.expected_s(None) == 0.0  # evaluations have estimates of their own


@pytest.mark.parametrize(("ear_s", "n_updates"), [(0.5, 0), (1.0, 0), (1.9, 1), (2.1, 2), (9.0, 3)])
def test_a_time_leaves_so_many_updates(latency: LatencyEstimator, ear_s: float, n_updates: int) -> None:
    assert latency.most_updates(DesignOptions(n_updates=3), ear_s) == n_updates


def test_rare_stalls_change_nothing_and_a_slower_machine_is_noticed(latency: LatencyEstimator) -> None:
    for spent_s in [START_S] * 10 + [100 * START_S] * 2:
        latency.observe(DesignOptions(), 1, spent_s, 0.0)
    assert latency.start_s(DesignOptions()) == START_S
    for _ in range(N_REMEMBERED):
        latency.observe(DesignOptions(), 1, 3 * START_S, 0.0)
    assert latency.start_s(DesignOptions()) == 3 * START_S


def test_what_is_forgotten_is_unknown_in_the_end(latency: LatencyEstimator) -> None:
    latency.observe(DesignOptions(), 1, 3 * START_S, 0.0)
    latency.forget_slowest(DesignOptions())
    assert latency.start_s(DesignOptions()) == START_S
    for _ in range(2):
        latency.forget_slowest(DesignOptions())
        assert latency.start_s(DesignOptions()) == 0.0
