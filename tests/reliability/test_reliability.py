"""A short form of the load program."""

import asyncio

from benchmarks.reliability import overload
from benchmarks.reliability.service_process import ServiceTarget


def test_requests_beyond_capacity_are_shed(target: ServiceTarget) -> None:
    outcome = overload.Overload()
    asyncio.run(overload.run(target, for_s=2, n_alone=30, outcome=outcome))
    assert not outcome.mistakes
    assert set(outcome.statuses) == {200, 503}
    assert outcome.recovered["server"]["n"] == 30
