"""The short form of `benchmarks.reliability.overload`."""

from pathlib import Path

from benchmarks.reliability import overload
from tests.reliability.long_forms import outcome_of


def test_what_cannot_be_served_is_shed_and_the_rest_is_served(tmp_path: Path) -> None:
    outcome = outcome_of(overload.main, tmp_path, "--seconds", "3", "--alone", "30", "--niceness", "0")
    assert not outcome["mistakes"]
    assert set(outcome["statuses"]) == {"200", "503"}
    assert outcome["accepted"]["server"]["n"] == outcome["statuses"]["200"]
    assert outcome["recovered"]["server"]["n"] == 30
    assert outcome["shed"]["server"]["n"] == outcome["statuses"]["503"]


def test_times_are_judged_by_the_service_where_clients_share_its_cores() -> None:
    times = {"client": {"p99": 10.0}, "server": {"p99": 4.0}}
    outcome = overload.Outcome(2, times, accepted=times, shed=times, recovered=times)
    outcome.accepted = {"client": {"p99": 30.0}, "server": {"p99": 7.9}}
    overload.judge(outcome)
    assert not outcome.mistakes
    outcome.n_cores = 4
    overload.judge(outcome)
    assert sorted(each.split(":")[0] for each in outcome.mistakes) == ["accepted", "shed"]
