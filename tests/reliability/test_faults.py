"""`benchmarks.reliability.faults`, which is short as it is."""

from benchmarks.reliability import faults
from tests.service import models


def test_whatever_breaks_the_old_model_goes_on_serving() -> None:
    outcome = faults.run(models.checkpoint(1), "--device", "cpu", "--threads", "1")
    assert not outcome.mistakes, outcome.faults
    assert set(faults.DAMAGES) < set(outcome.faults)
    assert outcome.n_answers > 0
