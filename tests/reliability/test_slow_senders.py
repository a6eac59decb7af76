"""The short form of `benchmarks.reliability.slow_senders`."""

from benchmarks.reliability import slow_senders
from tests.service import models


def test_who_drips_is_shown_out_and_the_others_are_served() -> None:
    limits = ("--device", "cpu", "--threads", "1", "--receive-timeout-s", "0.5")
    outcome = slow_senders.run(models.checkpoint(1), 60, 100, 0.1, *limits)
    assert not outcome.mistakes
    assert outcome.meanwhile["server"]["n"] == 100
    assert {"head: 408", "body: 408", "nothing: 0"} <= set(outcome.ended)
