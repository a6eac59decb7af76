"""The short form of `benchmarks.reliability.soak`: too short to say anything of memory, but it is looked at."""

from benchmarks.reliability import soak
from tests.service import models


def test_every_kind_of_request_is_answered_as_it_should_be() -> None:
    outcome = soak.run(models.checkpoint(1), 230, 4, "--device", "cpu", "--threads", "1")
    assert not outcome.mistakes
    assert outcome.n_requests == sum(outcome.statuses.values()) == 230
    assert set(outcome.statuses) == {200, 400, 404, 422}
    assert len(outcome.resident_bytes) == 230
    assert min(outcome.resident_bytes) > 0
