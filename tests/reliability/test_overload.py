"""The short form of `benchmarks.reliability.overload`."""

from benchmarks.reliability import overload
from tests.service import models


def test_what_cannot_be_served_is_shed_and_the_rest_is_served() -> None:
    outcome = overload.run(models.checkpoint(1), 3.0, 30, "--device", "cpu", "--threads", "1")
    assert not outcome.mistakes
    assert set(outcome.statuses) == {200, 503}
    assert outcome.accepted["server"]["n"] == outcome.statuses[200]
    assert outcome.recovered["server"]["n"] == 30
