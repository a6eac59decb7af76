"""The short form of `benchmarks.reliability.overload`."""

from pathlib import Path

from benchmarks.reliability import overload
from tests.reliability.long_forms import outcome_of


def test_what_cannot_be_served_is_shed_and_the_rest_is_served(tmp_path: Path) -> None:
    outcome = outcome_of(overload.main, tmp_path, "--seconds", "3", "--alone", "30")
    assert not outcome["mistakes"]
    assert set(outcome["statuses"]) == {"200", "503"}
    assert outcome["accepted"]["server"]["n"] == outcome["statuses"]["200"]
    assert outcome["recovered"]["server"]["n"] == 30
