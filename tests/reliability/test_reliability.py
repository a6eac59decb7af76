"""Short forms of the reliability commands, on one shared service."""

import asyncio

from benchmarks.reliability import hot_swap, overload, sigterm, soak
from benchmarks.reliability.service_process import MODEL, ServiceTarget
from tests.reliability.conftest import SERVICE
from tests.service import models


def test_requests_beyond_capacity_are_shed(target: ServiceTarget) -> None:
    outcome = overload.Overload()
    asyncio.run(overload.run(target, for_s=2, n_alone=30, outcome=outcome))
    assert not outcome.mistakes
    assert set(outcome.statuses) == {200, 503}
    assert outcome.recovered["server"]["n"] == 30


def test_every_kind_of_request_gets_answer(target: ServiceTarget) -> None:
    """Too short to judge memory, but it is sampled."""
    outcome = soak.Soak()
    asyncio.run(soak.run(target, 230, 4, outcome))
    assert not outcome.mistakes
    assert outcome.n_requests == outcome.statuses.total() == 230
    assert {statuse.split(":")[0] for statuse in outcome.statuses} == set(soak.kinds(target.checkpoint.golden))
    assert min(resident for _, resident in outcome.resident_bytes) > 0


def test_swapped_model_answers_under_digest(target: ServiceTarget) -> None:
    outcome = hot_swap.HotSwap()
    hot_swap.run(target, models.checkpoint(2, std=0.1), n_swaps=4, n_clients=2, outcome=outcome)
    assert not outcome.mistakes
    assert outcome.n_swaps == 4
    assert outcome.n_digests > 2
    assert target.store.resolve(MODEL).version == 5


def test_nothing_that_was_accepted_is_dropped_at_end() -> None:
    outcome = sigterm.Sigterm()
    sigterm.run(models.checkpoint(1), 1, 3, 1, outcome, *SERVICE)
    assert not outcome.mistakes
    assert outcome.n_rounds == 1
    assert outcome.answers[200] > 0
    assert outcome.n_not_accepted == 3
