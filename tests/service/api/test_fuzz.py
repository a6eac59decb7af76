"""Any input is read or rejected with a problem, and no NaN passes."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import orjson

from prime_anc.client import wire
from prime_anc.requests.bodies import DesignBody, EvaluateBody
from prime_anc.requests.errors import RequestError
from prime_anc.requests.reading import body_fields, validate_object
from service.api.reading import parse_tensors
from service.errors import HttpProblem, to_problem
from tests.service.bodies import read_json

FIELDS = sorted({*DesignBody.model_fields, *EvaluateBody.model_fields} - {"primary", "secondary"})
LEAVES = (
    *(None, True, 0, -1, 2**63, -(2**63), 0.5, -0.0, 1e-320, 1e39, -1e308, "", "\0", "é", "1"),
    *(48_000, "prime", "plus", "fast", "ears"),
)
FORMS = ("impulse_response", "real", "imag", "complex64", "x")


def value(draw: Random, depth: int = 0) -> Any:
    """Draw a document of JSON: lists of numbers more often than others."""
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind < 4:
        return draw.choice(LEAVES)
    if kind < 6:
        return [draw.choice((draw.uniform(-1, 1), 1e40, -3, 0)) for _ in range(draw.randrange(7))]
    inner = [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return inner if kind == 6 else {draw.choice((*FORMS, *FIELDS, "é")): item for item in inner}


def path(draw: Random) -> Any:
    """Draw a path that has its usual form more often than not."""
    good = {"impulse_response": [draw.uniform(-1, 1) for _ in range(draw.randrange(1, 7))]}
    return draw.choice((good, good, good, good | {draw.choice(FORMS): value(draw)}, value(draw)))


def outcome(read: Callable[[], Any]) -> HttpProblem | None:
    """Return the problem of a request, or None if its arrays are finite; any other exception fails the test."""
    try:
        body = read()
    except RequestError as error:
        return to_problem(error)
    for array in (body.primary, body.secondary, body.coherence, body.reference_psd):
        assert array is None or np.isfinite(array).all()
    return None


def test_json_of_any_content_is_answered() -> None:
    draw, outcomes = Random(0), Counter[str]()
    for _ in range(1000):
        body = {"primary": path(draw), "secondary": path(draw), "sample_rate": 48_000}
        body |= {draw.choice(FIELDS): value(draw) for _ in range(draw.randrange(3))}
        content = orjson.dumps(body if draw.random() < 0.9 else value(draw))
        problem = outcome(lambda content=content: read_json(draw.choice((DesignBody, EvaluateBody)), content))
        if problem:
            assert 400 <= problem.status < 500
            assert orjson.loads(problem.response().body)["detail"] == problem.detail
        outcomes["refused" if problem else "read"] += 1
    assert min(outcomes.values()) > 20


def read_tensors(body: bytes | bytearray) -> DesignBody:
    return validate_object(DesignBody, body_fields(parse_tensors(body), DesignBody))


def test_binary_of_any_numbers_is_answered() -> None:
    """Well-formed bodies of any float32, including NaN and infinity, shortened or with a flipped bit."""
    draw, outcomes = Random(0), Counter[str]()
    for _ in range(300):
        primary = np.float32(
            [draw.choice((draw.uniform(-1, 1), 0.0, 3e38, 1e-45)) for _ in range(draw.randrange(1, 9))]
        )
        if draw.random() < 0.2:
            primary[draw.randrange(len(primary))] = draw.choice((np.nan, np.inf))
        body = bytearray(wire.encode(primary, np.ones(3, np.float32)))
        cut = draw.choice((0, 0, 1, 9))
        body = body[: len(body) - cut]
        is_flipped = draw.random() < 0.5
        if is_flipped:
            body[draw.randrange(len(body))] ^= 1 << draw.randrange(8)
        problem = outcome(lambda body=body: read_tensors(body))
        assert problem is None or problem.status in (400, 422)
        assert not problem or cut or is_flipped or not np.isfinite(primary).all() or not primary.any()
        assert problem or not cut
        outcomes["refused" if problem else "read"] += 1
    assert min(outcomes.values()) > 50
