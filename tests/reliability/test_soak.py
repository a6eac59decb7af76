"""The short form of `benchmarks.reliability.soak`: too short to say anything of memory, but it is looked at."""

from benchmarks.reliability import soak
from tests.service import models


def test_every_kind_of_request_is_answered_as_it_should_be() -> None:
    """Not by its command, which would call a young process's growth a mistake."""
    outcome = soak.run(models.checkpoint(1), 230, 4, "--device", "cpu", "--threads", "1")
    assert not outcome.mistakes
    assert outcome.n_requests == sum(outcome.statuses.values()) == 230
    assert set(outcome.statuses) == {200, 400, 404, 422}
    assert set(outcome.asked) == set(soak.MIXTURE)
    asked, resident = zip(*outcome.resident_bytes, strict=True)
    assert asked == tuple(range(11, 231, 11))
    assert min(resident) > 0


def test_drift_is_from_the_second_tenth_to_the_last() -> None:
    """A start that grows fast, then 1 MB to each look; twenty looks."""
    resident = [100, 200, *(1000 + number for number in range(18))]
    outcome = soak.Outcome(resident_bytes=list(enumerate(each * 1_000_000 for each in resident)))
    outcome.measure_drift()
    assert outcome.drift_bytes == 16_000_000
    assert outcome.drift == 1016.5 / 1000.5 - 1
