"""The short form of `benchmarks.reliability.hot_swap`."""

from pathlib import Path

from benchmarks.reliability import hot_swap
from tests.reliability.long_forms import outcome_of


def test_a_model_swapped_under_load_answers_under_its_own_name(tmp_path: Path) -> None:
    n_swaps = 4
    outcome = outcome_of(hot_swap.main, tmp_path, "--swaps", str(n_swaps), "--clients", "2")
    assert not outcome["mistakes"]
    assert outcome["n_swaps"] == n_swaps
    assert outcome["n_answers"] > n_swaps
    assert outcome["answers_by_digest"] > n_swaps // 2  # answered by most of them, not by the first alone
