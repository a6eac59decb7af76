"""The short form of `benchmarks.reliability.hot_swap`."""

from benchmarks.reliability import hot_swap
from tests.service import models


def test_a_model_swapped_under_load_answers_under_its_own_name() -> None:
    n_swaps = 4
    outcome = hot_swap.run(models.checkpoint(1), n_swaps, 2, "--device", "cpu", "--threads", "1")
    assert not outcome.mistakes
    assert outcome.n_swaps == n_swaps
    assert outcome.n_answers > n_swaps
    assert len(outcome.answers_by_digest) > n_swaps // 2  # answered by most of them, not by the first alone
