"""Quotas: so many requests at once, so many in the long run, each key by itself."""

from contextlib import suppress

import pytest

from service.admission.quotas import Quotas
from service.errors import Problem


class Clock:
    """A clock that the test turns."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def n_taken(quotas: Quotas, key: str, n_tries: int) -> int:
    """How many of so many requests at one moment are let through."""
    taken = 0
    for _ in range(n_tries):
        with suppress(Problem):
            quotas.take(key)
            taken += 1
    return taken


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    quotas = Quotas(per_s=10.0, burst=5, clock=clock)
    assert n_taken(quotas, "key", 9) == 5
    clock.now_s += 0.25
    assert n_taken(quotas, "key", 9) == 2
    clock.now_s += 0.05
    assert n_taken(quotas, "key", 9) == 1
    clock.now_s += 1000
    assert n_taken(quotas, "key", 9) == 5


def test_refused_requests_cost_nothing() -> None:
    clock = Clock()
    quotas = Quotas(per_s=1.0, burst=1, clock=clock)
    assert n_taken(quotas, "key", 100) == 1
    clock.now_s += 1.0
    assert n_taken(quotas, "key", 100) == 1


def test_keys_do_not_know_of_each_other() -> None:
    quotas = Quotas(per_s=1.0, burst=2, clock=Clock())
    assert [n_taken(quotas, key, 3) for key in ("one", "two")] == [2, 2]


def test_the_refusal_says_when_to_come_back() -> None:
    clock = Clock()
    quotas = Quotas(per_s=0.1, burst=1, clock=clock)
    quotas.take("key")
    with pytest.raises(Problem) as refused:
        quotas.take("key")
    assert refused.value.code == "over-quota"
    assert refused.value.headers == {"Retry-After": "10"}
    clock.now_s += 10
    quotas.take("key")


def test_a_request_for_several_takes_as_many() -> None:
    clock = Clock()
    quotas = Quotas(per_s=1.0, burst=20, clock=clock)
    quotas.take("key", 16)
    with pytest.raises(Problem) as refused:
        quotas.take("key", 16)
    assert refused.value.headers == {"Retry-After": "12"}
    assert n_taken(quotas, "key", 9) == 4  # a refusal costs nothing
    clock.now_s += 16
    quotas.take("key", 16)


def test_what_it_holds_already_counts_once_and_is_given_back() -> None:
    clock = Clock()
    quotas = Quotas(per_s=1.0, burst=20, clock=clock)
    quotas.take("key")
    quotas.take("key", 16, held=1)
    quotas.take("key")
    with pytest.raises(Problem) as refused:
        quotas.take("key", 16, held=1)
    assert refused.value.headers == {"Retry-After": "12"}
    clock.now_s += 12  # as was advised
    quotas.take("key")
    quotas.take("key", 16, held=1)
    assert n_taken(quotas, "key", 9) == 0


def test_more_than_a_burst_waits_for_a_full_bucket_and_is_paid_for() -> None:
    clock = Clock()
    quotas = Quotas(per_s=1.0, burst=5, clock=clock)
    quotas.take("key", 16)
    clock.now_s += 11
    assert n_taken(quotas, "key", 9) == 0
    clock.now_s += 5
    quotas.take("key", 16)


def test_no_quota_is_no_limit() -> None:
    assert n_taken(Quotas(None, 1), "key", 1000) == 1000
