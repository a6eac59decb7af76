"""`python -m benchmarks.same_answers`: one ear through everything, and what is a mistake."""

from pathlib import Path

import pytest

from benchmarks import results, same_answers
from benchmarks.same_answers import TOLERANCES, Outcome


def test_an_ear_is_beside_the_reference_in_a_batch_and_hopeless(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
    file = tmp_path / "same_answers.json"
    assert same_answers.main(("--quick", "--device", "cpu", "--out", str(file))) == 0
    (row,) = results.read(file)["rows"]
    assert row["mistakes"] == {}
    assert (row["n_ears"], row["batches"], row["hopeless"]) == (1, {"2": 2}, ["60 dB notch"])
    assert set(row["largest"]) == {"k=0", "k=1"}
    for largest in row["largest"].values():
        assert set(largest) == {"torch_taps", *TOLERANCES}
        assert 0 < largest["taps"][0] < TOLERANCES["taps"]


@pytest.mark.parametrize("figure", TOLERANCES)
def test_a_difference_beyond_its_tolerance_is_a_mistake(figure: str) -> None:
    outcome, most = Outcome(), TOLERANCES[figure]
    outcome.saw("left", [{figure: most}, {figure: most / 2}])
    assert not outcome.mistakes
    outcome.saw("right", [{figure: 0.0}, {figure: most + 1}])
    outcome.saw("other", [{figure: float("nan")}, {figure: 0.0}])
    assert outcome.mistakes == {f"{figure}: right, k=1": 1, f"{figure}: other, k=0": 1}
    assert outcome.largest["k=1"][figure] == (most + 1, "right")
    assert outcome.n_ears == 3
