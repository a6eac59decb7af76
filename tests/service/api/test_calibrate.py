"""POST /calibrate: forms of takes, the verdict, refusals, and the request to /refine that follows."""

import asyncio
import base64
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from fastapi import FastAPI

from model_store.store import ModelStore
from prime_anc.client import Take
from prime_anc.measure.calibration import calibrate
from prime_anc.measure.estimate import GainTake
from prime_anc.measure.prior import PathPrior, learn_path_prior
from prime_anc.method.conventions import N_BINS
from prime_anc.method.support_statistics import learn_support_statistics
from service.admission import MAX_JSON_BYTES
from service.api.reading import parse_tensors
from service.queue.estimates import Cost
from service.settings import Settings
from tests.service import models
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import BINARY_BODY, JSON_BODY, post_packed
from tests.service.conftest import started
from tests.service.recordings import encoded, recordings
from training.datasets.noise import NoiseSet, simulated_noise
from training.datasets.path_pairs import PathPair
from training.datasets.simulated import simulate_listeners

pytestmark = pytest.mark.anyio

N_SAMPLES = 4 * 48_000
LIMIT = 2**22


@pytest.fixture(scope="module")
def noise() -> NoiseSet:
    """Stand-ins for eight recordings."""
    return simulated_noise()


@pytest.fixture(scope="module")
def pairs() -> tuple[PathPair, ...]:
    """Four simulated ears."""
    return simulate_listeners(2).pairs


@pytest.fixture(scope="module")
def prior(pairs: tuple[PathPair, ...]) -> PathPrior:
    """Of these ears."""
    listeners = [pair.listener for pair in pairs]
    found = learn_path_prior([pair.primary for pair in pairs], [pair.secondary for pair in pairs], listeners)
    return PathPrior.from_arrays(found.arrays())  # in single precision, as a store keeps it


@pytest.fixture(scope="module")
async def app(
    tmp_path_factory: pytest.TempPathFactory, anyio_backend: str, pairs: tuple[PathPair, ...], prior: PathPrior
) -> AsyncIterator[FastAPI]:
    """A service whose model knows its support."""
    folder = tmp_path_factory.mktemp("store")
    store, knowing = ModelStore(folder, include_bundled=False), models.checkpoint(1)
    traits = learn_support_statistics(
        np.array([pair.primary for pair in pairs]), np.array([pair.secondary for pair in pairs])
    )
    knowing.manifest = knowing.manifest.model_copy(update={"support_traits": traits})
    knowing.parameters = replace(knowing.parameters, path_prior=prior)
    store.publish("knowing", knowing)
    patient = {"deadline_ms": 60_000, "calibration_deadline_ms": 60_000}
    settings = Settings(store=folder, model="knowing", device="cpu", threads=1, **patient)
    async with started(settings) as app:
        yield app


@pytest.fixture(scope="module")
def takes(noise: NoiseSet, pairs: tuple[PathPair, ...]) -> list[Take]:
    """Two takes of four seconds, of an ear without faults."""
    return recordings(noise.signals[3:4, :N_SAMPLES], pairs[0].primary, pairs[0].secondary)


async def post(client: httpx.AsyncClient, body: bytes, query: str = "", **headers: str) -> httpx.Response:
    return await client.post(f"/calibrate{query}", content=body, headers=BINARY_BODY | headers)


async def calibrated(client: httpx.AsyncClient, takes: list[Take], query: str = "") -> dict[str, Any]:
    """The JSON answer to a binary body."""
    answer = await post(client, encoded(takes), query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def as_float32(signal: np.ndarray) -> dict[str, str]:
    return {"float32": base64.b64encode(signal.astype("<f4").tobytes()).decode()}


def in_json(takes: list[Take], form: Any = as_float32, **more: object) -> dict[str, Any]:
    """A JSON body."""
    body = [{"gain": take.gain, "x": form(take.x), "e": form(take.e)} for take in takes]
    return {"takes": body, "sample_rate": 48_000, **more}


async def test_answer_equals_estimate(client: httpx.AsyncClient, takes: list[Take], prior: PathPrior) -> None:
    found = await calibrated(client, takes)
    signals = [GainTake(t.gain, t.x.astype(float), t.e.astype(float)) for t in takes]
    expected = calibrate(signals, prior=prior)
    paths = {"primary": expected.estimate.primary, "secondary": expected.estimate.secondary}
    for name, path in paths.items():
        rounded = path.astype(np.float32)
        assert np.array_equal(np.float32(found[name]["impulse_response"]), rounded)
        spectrum = np.frombuffer(base64.b64decode(found["spectra"][name]["complex64"]), "<c8")
        np.testing.assert_allclose(spectrum, np.fft.rfft(rounded, 32_768), atol=1e-6 * np.abs(spectrum).max())
    assert np.array_equal(np.float32(found["coherence"]), expected.estimate.coherence.astype(np.float32))
    bands = found["bands"]
    ceiling = -10 * np.log10(1 - np.array(bands["coherence"]))
    np.testing.assert_allclose(bands["noise_reduction_ceiling_db"], ceiling, atol=0.01)
    assert found["verdict"]["passed"], found["verdict"]
    assert found["verdict"]["not_judged"] == []
    assert found["verdict"]["model"]["name"] == "knowing"
    assert abs(found["verdict"]["figures"]["level_db"]) < 1
    assert abs(found["verdict"]["figures"]["delay_samples"]) < 0.5
    assert set(found["timings_ms"]) == {"queue", "decode", "estimate", "encode", "total"}


async def test_binary_answer_is_valid_request(client: httpx.AsyncClient, takes: list[Take]) -> None:
    answer = await post(client, encoded(takes), Accept="application/x-safetensors")
    assert (answer.status_code, answer.headers["x-verdict"]) == (200, "passed")
    assert "estimate;dur=" in answer.headers["server-timing"]
    paths, plain = parse_tensors(answer.content), await calibrated(client, takes)
    assert np.array_equal(paths["primary"], np.float32(plain["primary"]["impulse_response"]))
    assert len(paths["coherence"]) == N_BINS
    design = await client.post("/refine?k=1", content=answer.content, headers=BINARY_BODY)
    again = await client.post("/refine?k=1", json=plain)
    assert design.status_code == again.status_code == 200, again.text
    assert design.json()["fir"] == again.json()["fir"]
    assert design.json()["prediction"] == again.json()["prediction"]
    assert again.json()["prediction"]["basis"] == "coherence"
    without = await client.post(
        "/refine?k=1",
        json={name: value for name, value in plain.items() if name != "uncertainty"},
    )
    assert without.json()["prediction"]["interval_db"] > again.json()["prediction"]["interval_db"]


async def test_opposite_chain_sign_flips_filter(client: httpx.AsyncClient, takes: list[Take]) -> None:
    """With sign plus, gain g plays as gain -g with sign minus; the design has the declared sign."""
    turned = [Take(-t.gain, t.x, t.e) for t in takes]
    plus, minus = await calibrated(client, turned, "?sign=plus"), await calibrated(client, takes)
    assert plus["secondary"] == minus["secondary"]
    assert plus["verdict"]["passed"]
    designs = [(await client.post("/refine", json=item)).json() for item in (plus, minus)]
    assert np.array_equal(-np.array(designs[0]["fir"]), designs[1]["fir"])
    (reason,) = (await calibrated(client, turned))["verdict"]["reasons"]
    assert reason["code"] == "implausible_polarity"
    binary = await post(client, encoded(turned), Accept="application/x-safetensors")
    assert binary.headers["x-verdict"] == "implausible_polarity"


def changed(body: dict[str, Any], take: int, **more: object) -> dict[str, Any]:
    """The body with fields of one take replaced."""
    listed = list(body["takes"])
    listed[take] = listed[take] | more
    return body | {"takes": listed}


async def test_every_bad_field_is_named(client: httpx.AsyncClient, takes: list[Take]) -> None:
    good = in_json([Take(t.gain, t.x[:4000], t.e[:4000]) for t in takes])
    x = good["takes"][0]["x"]
    without_x = [{key: item for key, item in good["takes"][0].items() if key != "x"}, good["takes"][1]]
    short = as_float32(np.ones(100, np.float32))
    for body, code, field in (
        ([], "invalid-field", None),
        ({"sample_rate": 48_000}, "missing-field", "takes"),
        (good | {"sample_rate": 44_100}, "wrong-rate", "sample_rate"),
        (good | {"model": "nobody"}, "unknown-model", "model"),
        (good | {"takes": good["takes"] * 33}, "out-of-range", "takes"),
        (good | {"takes": [1, 2]}, "invalid-field", "takes.0"),
        (good | {"takes": without_x}, "missing-field", "takes.0.x"),
        (changed(good, 0, y=1), "unknown-field", "takes.0"),
        (changed(good, 1, gain=True), "invalid-field", "takes.1.gain"),
        (changed(good, 1, gain=-1e-7), "out-of-range", "takes.1.gain"),
        (changed(good, 1, gain=0), "invalid-field", "takes"),
        (changed(good, 0, x=short), "invalid-field", "takes.0"),
        (changed(good, 0, x=short, e=short), "out-of-range", "takes.0"),
        (changed(good, 0, x=[1e39] * 4000), "invalid-field", "takes.0.x"),
        (changed(good, 0, x=as_float32(np.full(4000, np.nan))), "invalid-field", "takes.0.x"),
        (changed(good, 0, x={"float32": "?"}), "invalid-field", "takes.0.x.float32"),
        (changed(good, 0, x=x | {"wav": ""}), "invalid-field", "takes.0.x"),
        (changed(good, 1, e=good["takes"][0]["e"]), "unusable-paths", "takes"),
    ):
        content = orjson.dumps(body)
        if len(content) > MAX_JSON_BYTES:
            answer = await post_packed(client, "/calibrate", body)
        else:
            answer = await client.post("/calibrate", content=content, headers=JSON_BODY)
        assert answer.status_code != 200, (code, field)
        assert_problem(answer, code, field)


@pytest.fixture
async def held_up(app: FastAPI) -> AsyncIterator[threading.Event]:
    """Block the worker of heavy work until the event is set."""
    go_on = threading.Event()
    held = asyncio.ensure_future(app.state.service.engine.run(partial(go_on.wait, 60), Cost("held", 1.0)))
    yield go_on
    go_on.set()
    await held


def assert_shed(answer: httpx.Response, code: str) -> None:
    assert_problem(answer, code)
    assert int(answer.headers["retry-after"]) >= 1


async def test_deadline_passed_in_queue_is_reported(
    app: FastAPI, client: httpx.AsyncClient, takes: list[Take], held_up: threading.Event
) -> None:
    body = encoded(takes)
    hurried = await post(client, body, **{"X-Deadline-Ms": "500"})
    assert hurried.json()["type"].endswith(("overloaded", "deadline-passed"))
    assert_shed(hurried, hurried.json()["type"].rpartition(":")[2])
    held_up.set()
    assert (await post(client, body)).status_code == 200
