"""The short form of `benchmarks.reliability.sigterm`."""

from pathlib import Path

from benchmarks.reliability import sigterm
from tests.reliability.long_forms import outcome_of


def test_nothing_that_was_taken_is_dropped(tmp_path: Path) -> None:
    outcome = outcome_of(sigterm.main, tmp_path, "--rounds", "2", "--clients", "3", "--at-once", "2")
    assert not outcome["mistakes"]
    assert outcome["n_rounds"] == 2
    assert outcome["answers"]["200"] > 0
    assert outcome["n_not_accepted"] == 2 * 3  # every client was told the end
