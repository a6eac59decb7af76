"""The short form of `benchmarks.reliability.fuzz`."""

from pathlib import Path
from random import Random

from benchmarks.reliability import fuzz
from service.errors import Problem
from service.formats import wire
from tests.reliability.long_forms import outcome_of
from tests.service import models


def test_whatever_comes_is_read_or_refused(tmp_path: Path) -> None:
    outcome = outcome_of(fuzz.main, tmp_path, "--bodies", "400", "--examples", "3", "--seed", "1")
    assert not outcome["mistakes"], outcome["found"]
    assert outcome["schemathesis"] == 0
    assert outcome["n_bodies"] == 400
    assert {"200", "400", "422"} <= set(outcome["statuses"])


def test_mutants_reach_every_check() -> None:
    """Else the long form would show little: each way to refuse a body is met, and some bodies stay good."""
    draw, bodies, met = Random(0), fuzz.good_bodies(models.checkpoint(1).golden), set()
    for _ in range(3000):
        try:
            wire.decode(fuzz.mutated(draw.choice(bodies), draw))
            met.add("read")
        except Problem as problem:
            met.add(problem.code)
    assert met >= {"read", "bad-magic", "bad-version", "bad-flags", "bad-length", "bad-checksum", "wrong-rate"}
    assert "unusable-paths" in met
