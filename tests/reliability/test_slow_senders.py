"""The short form of `benchmarks.reliability.slow_senders`."""

from pathlib import Path

from benchmarks.reliability import slow_senders
from tests.reliability.long_forms import outcome_of


def test_who_drips_is_shown_out_and_the_others_are_served(tmp_path: Path) -> None:
    limits = ("--sockets", "60", "--requests", "600", "--drip-every-s", "0.1", "--receive-timeout-s", "1")
    outcome = outcome_of(slow_senders.main, tmp_path, *limits, "--niceness", "0")
    assert not outcome["mistakes"]
    assert outcome["meanwhile"]["server"]["n"] == 600
    assert {"head: 408", "body: 408", "nothing: 0"} <= set(outcome["ended"])
