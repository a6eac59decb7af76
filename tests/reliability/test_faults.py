"""`benchmarks.reliability.faults`, which is short as it is."""

from pathlib import Path

from benchmarks.reliability import faults
from tests.reliability.long_forms import outcome_of


def test_whatever_breaks_the_old_model_goes_on_serving(tmp_path: Path) -> None:
    outcome = outcome_of(faults.main, tmp_path)
    assert not outcome["mistakes"], outcome["faults"]
    assert {*faults.DAMAGES, "a killed process that designs"} < set(outcome["faults"])
    assert outcome["n_answers"] > 0
