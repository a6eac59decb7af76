"""Numbers without a usable result are rejected, and answers hold only documented nulls."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
from jsonschema import Draft202012Validator

# The service runs with NumPy's warnings as they are: an overflow is no exception.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


NOISE = np.random.default_rng(0).standard_normal(4096)
DECAY = np.exp(-np.arange(400) / 40)
PATHS = {
    "ear": 0.3 * DECAY,
    "pulse": [1.0],
    "constant": np.ones(32_768),
    "alternating": np.tile([1.0, -1.0], 16_384),
    "loud": 3e38 * DECAY,
    "quiet": 1e-38 * DECAY,
    "denormal": [1e-45, 0, -1e-45],
    "late": np.r_[np.zeros(32_767), 1.0],
    "noise": NOISE,
}
TARGETS: tuple[dict[str, Any], ...] = (
    {"form": "fir", "n_taps": 2},
    {"form": "fir", "n_taps": 64, "number_format": "q1.15"},
    {"form": "sos", "n_sections": 1},
)


def response(samples: Any) -> dict[str, Any]:
    return {"impulse_response": np.asarray(samples, float).tolist()}


def takes(*rows: tuple[float, float, float]) -> dict[str, Any]:
    """A calibration whose takes have these gains and factors of x and e."""
    x = np.resize(NOISE, 12_000)
    e = np.convolve(x, DECAY)[: len(x)]
    sounds = [{"gain": gain, "x": (of_x * x).tolist(), "e": (of_e * e).tolist()} for gain, of_x, of_e in rows]
    return {"takes": sounds, "sample_rate": 48_000}


def hostile_bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """JSON requests with valid numbers: paths of all kinds and calibrations of all levels."""
    draw = Random(2)
    for primary, secondary in draw.sample(list(product(PATHS, repeat=2)), 24):
        paths = {"primary": response(PATHS[primary]), "secondary": response(PATHS[secondary])}
        body = {**paths, "sample_rate": 48_000}
        taps = response(10.0 ** draw.randint(-9, 9) * NOISE[:2048])["impulse_response"]
        feedback = response(PATHS[draw.choice(list(PATHS))])
        yield draw.choice(
            (
                ("/refine?k=1", body),
                ("/evaluate", body | {"fir": taps, "feedback": feedback}),
                ("/export", body | {"fir": taps, "target": draw.choice(TARGETS)}),
            )
        )
    for _ in range(4):
        for span, of_x in ((30, 10.0 ** draw.randint(-30, 30)), (5, 1.0)):
            gain, *levels = draw.choice([0.35, -1, 1e3, 1e-6]), *(10.0 ** draw.randint(-span, span) for _ in "01")
            yield "/calibrate", takes((0, 1, levels[0]), (gain, of_x, levels[1]))


async def test_answers_hold_documented_nulls_only(bundled_client: httpx.AsyncClient) -> None:
    statuses, schema = [], (await bundled_client.get("/openapi.json")).json()
    for path, body in hostile_bodies():
        answer = await bundled_client.post(path, json=body)
        statuses.append((path, answer.status_code))
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        if answer.status_code == 200:
            content = schema["paths"][path.partition("?")[0]]["post"]["responses"]["200"]["content"]
            of_answer = content["application/json"]["schema"] | {"components": schema["components"]}
            errors = Draft202012Validator(of_answer).iter_errors(answer.json())
            assert not [f"{error.json_path}: {error.message[:200]}" for error in errors]
    for path in ("/refine?k=1", "/evaluate", "/export", "/calibrate"):
        assert {(path, 200), (path, 422)} <= set(statuses)
