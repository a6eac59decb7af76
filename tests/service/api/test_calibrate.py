"""POST /calibrate: forms of takes, the verdict, refusals, and the request to /refine that follows."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from model_store.store import ModelStore
from prime_anc.client import Take
from prime_anc.measure.calibration import calibrate
from prime_anc.measure.estimate import GainTake
from service.api.reading import parse_tensors
from tests.service.api.test_design import ask
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import BINARY_BODY, post_packed
from tests.service.conftest import connected
from tests.service.recordings import encoded, recordings

pytestmark = pytest.mark.anyio

MODEL = ModelStore("none").load("bose-qc20")


@pytest.fixture(scope="module")
def app(bundled_app: FastAPI) -> FastAPI:
    return bundled_app


@pytest.fixture(scope="module")
def takes() -> list[Take]:
    """Two takes of two seconds, of an ear without faults."""
    noise = np.random.default_rng(3).standard_normal(96_000)
    return recordings(noise, *(path.astype(float) for path in (MODEL.golden.primary, MODEL.golden.secondary)))


async def post(client: httpx.AsyncClient, takes: list[Take], query: str = "", **headers: str) -> httpx.Response:
    answer = await client.post(f"/calibrate{query}", content=encoded(takes), headers=BINARY_BODY | headers)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.fixture(scope="module")
async def calibrated(app: FastAPI, takes: list[Take]) -> dict[str, Any]:
    """The answer in JSON."""
    async with connected(app) as client:
        return (await post(client, takes)).json()


def as_float32(signal: np.ndarray) -> dict[str, str]:
    return {"float32": base64.b64encode(signal.astype("<f4").tobytes()).decode()}


async def test_answer_equals_estimate(calibrated: dict[str, Any], takes: list[Take]) -> None:
    found = calibrated
    signals = [GainTake(t.gain, t.x.astype(float), t.e.astype(float)) for t in takes]
    expected = calibrate(signals, prior=MODEL.parameters.path_prior)
    for name in ("primary", "secondary"):
        rounded = getattr(expected.estimate, name).astype(np.float32)
        assert np.array_equal(np.float32(found[name]["impulse_response"]), rounded)
        spectrum = np.frombuffer(base64.b64decode(found["spectra"][name]["complex64"]), "<c8")
        np.testing.assert_allclose(spectrum, np.fft.rfft(rounded, 32_768), atol=1e-6 * np.abs(spectrum).max())
    assert np.array_equal(np.float32(found["coherence"]), expected.estimate.coherence.astype(np.float32))
    verdict = found["verdict"]
    assert (verdict["passed"], verdict["not_judged"], verdict["model"]["name"]) == (True, [], "bose-qc20"), verdict


async def test_binary_answer_is_valid_request(
    client: httpx.AsyncClient, calibrated: dict[str, Any], takes: list[Take]
) -> None:
    answer = await post(client, takes, Accept="application/x-safetensors")
    assert answer.headers["x-verdict"] == "passed"
    assert "estimate;dur=" in answer.headers["server-timing"]
    paths, plain = parse_tensors(answer.content), calibrated
    assert np.array_equal(paths["primary"], np.float32(plain["primary"]["impulse_response"]))
    design = (await client.post("/refine?k=1", content=answer.content, headers=BINARY_BODY)).json()
    again = await ask(client, "/refine?k=1", plain)
    assert (design["fir"], design["prediction"]) == (again["fir"], again["prediction"])
    assert again["prediction"]["basis"] == "coherence"
    without = await ask(client, "/refine?k=1", plain | {"uncertainty": None})
    assert without["prediction"]["interval_db"] > again["prediction"]["interval_db"]


async def test_opposite_chain_sign_flips_filter(
    client: httpx.AsyncClient, calibrated: dict[str, Any], takes: list[Take]
) -> None:
    """With sign plus, gain g plays as gain -g with sign minus; the design has the declared sign."""
    turned = [Take(-t.gain, t.x, t.e) for t in takes]
    plus, minus = (await post(client, turned, "?sign=plus")).json(), calibrated
    assert plus["secondary"] == minus["secondary"]
    assert plus["verdict"]["passed"]
    designs = [await ask(client, "/refine", item) for item in (plus, minus)]
    assert np.array_equal(-np.array(designs[0]["fir"]), designs[1]["fir"])


def changed(body: dict[str, Any], take: int, **more: object) -> dict[str, Any]:
    """The body with fields of one take replaced."""
    listed = list(body["takes"])
    listed[take] = listed[take] | more
    return body | {"takes": listed}


async def test_every_bad_field_is_named(client: httpx.AsyncClient, takes: list[Take]) -> None:
    sent = [{"gain": t.gain, "x": as_float32(t.x[:4000]), "e": as_float32(t.e[:4000])} for t in takes]
    good = {"takes": sent, "sample_rate": 48_000}
    x, doubled = sent[0]["x"], as_float32(-2 * takes[1].x[:4000])
    short = as_float32(np.ones(100, np.float32))
    for body, code, field in (
        ({"sample_rate": 48_000}, "missing-field", "takes"),
        (good | {"sample_rate": 44_100}, "wrong-rate", "sample_rate"),
        (good | {"model": "nobody"}, "unknown-model", "model"),
        (good | {"takes": sent * 33}, "out-of-range", "takes"),
        (good | {"takes": [{"gain": 0, "e": x}, sent[1]]}, "missing-field", "takes.0.x"),
        (changed(good, 0, y=1), "unknown-field", "takes.0"),
        (changed(good, 1, gain=True), "invalid-field", "takes.1.gain"),
        (changed(good, 1, gain=-1e-7), "out-of-range", "takes.1.gain"),
        (changed(good, 0, x=short), "invalid-field", "takes.0"),
        (changed(good, 0, x=short, e=short), "out-of-range", "takes.0"),
        (changed(good, 0, x=as_float32(np.full(4000, np.nan))), "invalid-field", "takes.0.x"),
        (changed(good, 1, e=sent[0]["e"]), "unusable-paths", "takes"),
        (changed(good, 1, e=doubled), "invalid-field", "takes.1"),  # one microphone on both channels
        (good | {"takes": [sent[0], {"drive": x, "x": x, "e": sent[1]["e"]}]}, "invalid-field", "takes.1"),
    ):
        answer = await post_packed(client, "/calibrate", body)
        assert answer.status_code != 200, (code, field)
        assert_problem(answer, code, field)
