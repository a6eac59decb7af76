"""The short form of `benchmarks.reliability.sigterm`."""

from benchmarks.reliability import sigterm
from tests.service import models


def test_nothing_that_was_taken_is_dropped() -> None:
    outcome = sigterm.run(models.checkpoint(1), 2, 3, "--device", "cpu", "--threads", "1")
    assert not outcome.mistakes
    assert outcome.n_rounds == 2
    assert outcome.answers[200] > 0
    assert outcome.n_not_accepted == 2 * 3  # every client was told the end
