"""Estimates of how long a design takes: from what was seen, and sensible about what was not."""

import pytest

from service.admission.design_times import N_REMEMBERED, DesignTimes, RecentTimes
from service.designs import Recipe


@pytest.fixture
def times() -> DesignTimes:
    """`prime` takes 10 ms and 5 ms for each update of `fast`; a batch of 4 takes 24 ms and 8 ms."""
    times = DesignTimes()
    times.observe(Recipe(n_updates=0), 1, 0.010, 0.0)
    times.observe(Recipe(n_updates=2), 1, 0.020, 0.010)
    times.observe(Recipe(n_updates=1), 4, 0.032, 0.008)
    return times


def test_every_number_of_updates_is_known_from_a_few(times: DesignTimes) -> None:
    for k in range(9):
        assert times.expected_s(Recipe(n_updates=k)) == pytest.approx(0.010 + 0.005 * k)


def test_a_size_that_has_not_run_counts_as_single_ears(times: DesignTimes) -> None:
    assert times.expected_s(Recipe(n_updates=1), 2) == pytest.approx(2 * 0.015)
    assert times.expected_s(Recipe(n_updates=1), 4) == pytest.approx(0.032)
    assert times.expected_s(Recipe(n_updates=1), 5) == pytest.approx(0.032 + 0.015)
    assert times.expected_s(Recipe(n_updates=1), 48) == pytest.approx(48 * 0.015)


@pytest.mark.parametrize(
    ("n_ears", "expected"), [(1, 0.010), (3, 0.024), (4, 0.024), (35, 0.240 + 0.024), (64, 0.480)]
)
def test_where_rows_to_spare_take_no_time_a_batch_is_its_size(n_ears: int, expected: float) -> None:
    times = DesignTimes(spares_rows=True)
    for size, spent_s in ((1, 0.010), (4, 0.024), (32, 0.240)):
        times.observe(Recipe(), size, spent_s, 0.0)
    assert times.expected_s(Recipe(), n_ears) == pytest.approx(expected)


def test_an_unknown_method_is_let_in() -> None:
    assert DesignTimes().expected_s(Recipe(method="wmmse"), 3) == 0
    assert DesignTimes().most_updates(Recipe(method="wmmse", n_updates=3), 1, 0.0) == 3


@pytest.mark.parametrize(
    ("available_ms", "expected"), [(9.9, None), (10.1, 0), (15.1, 1), (24.9, 2), (25.1, 3), (1000, 3)]
)
def test_the_most_updates_that_fit(times: DesignTimes, available_ms: float, expected: int | None) -> None:
    assert times.most_updates(Recipe(n_updates=3), 1, available_ms / 1e3) == expected


def test_a_stall_changes_nothing_and_a_new_pace_is_learned() -> None:
    times = RecentTimes()
    for _ in range(N_REMEMBERED):
        times.observe(0.01)
    times.observe(5.0)
    assert (times.expected_s, times.least_s) == (0.01, 0.01)
    for _ in range(N_REMEMBERED):
        times.observe(0.03)
    assert times.expected_s == 0.03
