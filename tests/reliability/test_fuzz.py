"""The short form of `benchmarks.reliability.fuzz`."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import orjson

from benchmarks.reliability import fuzz
from service.calibration import take_wire
from service.errors import Problem
from service.formats import open_inference, wire
from tests.reliability.long_forms import outcome_of
from tests.service import models


def test_whatever_comes_is_read_or_refused(tmp_path: Path) -> None:
    outcome = outcome_of(fuzz.main, tmp_path, "--bodies", "400", "--examples", "3", "--seed", "1")
    assert not outcome["mistakes"], outcome["found"]
    assert outcome["schemathesis"] == 0
    assert outcome["n_bodies"] == 400
    statuses = set(outcome["statuses"])
    assert {"paths: 200", "paths: 400", "paths: 422", "tensors: 200", "tensors: 400", "takes: 400"} <= statuses


def reached(decode: Callable[[bytes], object], form: fuzz.Form, n_mutants: int) -> set[str]:
    """What becomes of so many mutants: the codes of their refusals, or `read`."""
    draw, met = Random(0), set()
    for _ in range(n_mutants):
        try:
            decode(fuzz.mutated(draw.choice(form.bodies), draw, form))
            met.add("read")
        except Problem as problem:
            met.add(problem.code)
    return met


def test_mutants_reach_every_check() -> None:
    """Else the long form would show little: each way to refuse a body is met, and some bodies stay good."""
    forms = fuzz.forms(models.checkpoint(1).golden)
    header = {"read", "bad-magic", "bad-version", "bad-flags", "bad-length", "bad-checksum", "wrong-rate"}
    assert reached(wire.decode, forms["paths"], 3000) >= header | {"unusable-paths"}
    assert reached(take_wire.decode, forms["takes"], 3000) >= header | {"out-of-range"}


def test_what_is_mutated_would_be_taken_as_it_is() -> None:
    forms = fuzz.forms(models.checkpoint(1).golden)
    n_json = forms["tensors"].header_bytes
    asked = open_inference.read_request(orjson.loads(forms["tensors"].bodies[0][:n_json]))
    ear = open_inference.read_ear(asked, memoryview(forms["tensors"].bodies[0])[n_json:])
    assert ear.primary.size == 2049
    for body in forms["paths"].bodies:
        wire.decode(body)
    (body,) = forms["takes"].bodies
    assert len(take_wire.decode(body)) == 2
