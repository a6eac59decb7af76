"""Refusals over HTTP: status, code and media type; prefix; the request id in answer and log."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest
from fastapi import FastAPI

from prime_anc.client import wire
from prime_anc.method.types import Paths
from service.admission import BODIES_BYTES, MAX_BODY_BYTES
from service.app import create_app
from service.errors import PROBLEM_MEDIA_TYPE, PROBLEMS, TYPE_PREFIX
from service.log import JsonFormatter
from service.settings import Settings
from tests.service.bodies import BINARY_BODY, JSON_BODY, as_responses
from tests.service.conftest import connected, started

pytestmark = pytest.mark.anyio


def assert_problem(answer: httpx.Response, code: str, field: str | None = None) -> None:
    """Expect a problem document with this code and nothing about the machine."""
    problem = answer.json()
    assert problem["type"] == TYPE_PREFIX + code, problem
    assert (problem["status"], problem["title"]) == PROBLEMS[code]
    assert answer.status_code == problem["status"]
    assert answer.headers["content-type"] == PROBLEM_MEDIA_TYPE
    assert problem.get("field") == field
    assert problem["detail"]
    assert re.fullmatch(r"total;dur=\d+\.\d+", answer.headers["server-timing"])
    assert not {"/", "Traceback", "0x7f"} & set(problem["detail"].split())
    assert str(Path(__file__).parents[3]) not in answer.text
    assert "tmp" not in answer.text


async def test_unusable_values_are_rejected(client: httpx.AsyncClient, ear: Paths) -> None:
    assert_problem(await client.post("/synthesize?k=1", json=as_responses(ear)), "unknown-field", "k")
    for model in ("ears@99", {"name": "ears", "version": 1, "digest": "sha256:0"}):
        answer = await client.post("/synthesize", json=as_responses(ear, model=model))
        assert_problem(answer, "unknown-model", "model")


async def test_bodies_under_way_are_bounded_in_memory(app: FastAPI, client: httpx.AsyncClient) -> None:
    """One key may have half; declared lengths count, and only one byte per body is sent."""
    memory, come = app.state.service.admission.memory, asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await come.wait()

    async def declare(n_bytes: int) -> httpx.Response:
        headers = {"Content-Type": "application/x-safetensors", "Content-Length": str(n_bytes)}
        return await client.post("/evaluate", content=body(), headers=headers)

    n_bytes = 12 * 2**20
    n_at_once = BODIES_BYTES // 2 // n_bytes
    pending = [asyncio.create_task(declare(n_bytes)) for _ in range(n_at_once + 2)]
    for refusing in islice(asyncio.as_completed(pending), 2):
        refused = await asyncio.wait_for(refusing, 120)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
    assert memory.n_bytes == n_at_once * n_bytes
    come.set()
    found = [item.status_code for item in await asyncio.gather(*pending)]
    assert (found.count(400), found.count(503)) == (n_at_once, 2)
    assert memory.n_bytes == 0


async def test_long_response_is_rejected(client: httpx.AsyncClient, ear: Paths) -> None:
    late = np.zeros(65_536)
    late[[0, 40_000]] = 1.0
    paths = (np.fft.rfft(item, 65_536).astype(np.complex64) for item in (ear.primary, late))
    answer = await client.post("/synthesize", content=wire.encode(*paths), headers=BINARY_BODY)
    assert_problem(answer, "unusable-paths", "secondary")
    assert "-40 dB" in answer.json()["detail"]


async def test_unreadable_json_is_rejected(client: httpx.AsyncClient) -> None:
    for content, code in (
        (b"{", "malformed-json"),
        (b'{"primary": NaN}', "malformed-json"),
        (b"[]", "invalid-field"),
    ):
        assert_problem(await client.post("/synthesize", content=content, headers=JSON_BODY), code)


async def test_malformed_binary_is_rejected(client: httpx.AsyncClient, ear: Paths) -> None:
    """Beside what `test_fuzz` cuts and flips."""
    body = wire.encode(ear.primary, ear.secondary)
    replacements = (
        (b"F32", b"F64"),
        (b"[0,", b"[4,"),
        (b'"secondary"', b'"primary.0"'),
        (b'"request"', b'"request'),
    )
    for damaged in (body + bytes(4), *(body.replace(*pair, 1) for pair in replacements)):
        assert_problem(await client.post("/refine", content=damaged, headers=BINARY_BODY), "malformed-tensors")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-Type": "text/plain"}, "unsupported-media-type"),
        ({"Content-Type": "application/json; charset=latin-1"}, "unsupported-media-type"),
        (JSON_BODY | {"Content-Encoding": "br"}, "unsupported-encoding"),
        (JSON_BODY | {"Accept": "text/html"}, "not-acceptable"),
        (JSON_BODY | {"Accept": "application/json;q=0"}, "not-acceptable"),
        (JSON_BODY | {"Content-Length": "99999999"}, "too-large"),
        (JSON_BODY | {"Content-Length": "-5"}, "malformed-request"),
    ],
)
async def test_unusable_headers_are_rejected(
    client: httpx.AsyncClient, ear: Paths, headers: dict[str, str], code: str
) -> None:
    answer = await client.post("/synthesize", json=as_responses(ear), headers=headers)
    assert_problem(answer, code)


async def test_accept_chooses_preferred_form(client: httpx.AsyncClient, ear: Paths) -> None:
    for accept, media_type in (
        ("*/*", "application/json"),
        ("application/json;q=0.4, application/octet-stream", "application/octet-stream"),
        ("application/octet-stream;q=0.4, */*;q=0.5", "application/json"),
        ("text/html, application/octet-stream;q=0.1", "application/octet-stream"),
    ):
        answer = await client.post("/synthesize", json=as_responses(ear), headers={"Accept": accept})
        assert answer.headers["content-type"] == media_type, accept


async def test_undeclared_length_is_rejected_unread(client: httpx.AsyncClient) -> None:
    async def chunked() -> AsyncIterator[bytes]:
        yield b"{}"

    assert_problem(await client.post("/synthesize", content=chunked(), headers=JSON_BODY), "length-required")


@pytest.mark.parametrize(
    ("limit_s", "deadline_ms", "remedy"), [(0.05, "60000", "; send it faster"), (60, "50", "; raise X-Deadline-Ms")]
)
async def test_slow_body_is_rejected(
    limit_s: float, deadline_ms: str, remedy: str, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.reading.RECEIVE_S", limit_s)

    async def unfinished() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    headers = JSON_BODY | {"Content-Length": "100", "X-Deadline-Ms": deadline_ms}
    answer = await client.post("/synthesize", content=unfinished(), headers=headers)
    assert_problem(answer, "too-slow")
    assert remedy in answer.json()["detail"]
    assert answer.headers["connection"] == "close"


async def test_body_longer_than_declared_is_rejected(client: httpx.AsyncClient) -> None:
    content = b" " * (MAX_BODY_BYTES + 1)
    answer = await client.post("/synthesize", content=content, headers=JSON_BODY | {"Content-Length": "10"})
    assert_problem(answer, "too-large")


@pytest.mark.parametrize(
    ("method", "path", "code", "allowed"),
    [
        ("GET", "/nowhere", "not-found", None),
        ("POST", "/", "method-not-allowed", "GET"),
        ("POST", "/refine/", "not-found", None),  # no redirection to the request's host
        ("PUT", "/models/reload", "method-not-allowed", "GET"),
    ],
)
async def test_unknown_addresses_and_methods_are_rejected(
    client: httpx.AsyncClient, method: str, path: str, code: str, allowed: str | None
) -> None:
    answer = await client.request(method, path)
    assert_problem(answer, code)
    assert answer.headers.get("allow") == allowed


async def test_missing_default_model_is_not_ready(
    settings: Settings, ear: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(settings.model_copy(update={"model": "missing"})) as app, connected(app) as client:
        assert (await client.get("/health/live")).status_code == 200
        assert_problem(await client.get("/health/ready"), "model-unavailable")
        answer = await client.post("/synthesize", json=as_responses(ear))
        assert_problem(answer, "model-unavailable")
        assert int(answer.headers["retry-after"]) > 0
    assert "ModelNotFound" in caplog.text


async def test_loading_default_model_is_not_ready(settings: Settings, ear: Paths) -> None:
    """Without its lifespan the application stays in the state of loading."""
    app = create_app(settings)
    async with connected(app) as client:
        assert (await client.get("/health/live")).status_code == 200
        assert_problem(await client.get("/health/ready"), "not-ready")
        answer = await client.post("/synthesize", json=as_responses(ear))
        assert_problem(answer, "not-ready")
        assert int(answer.headers["retry-after"]) > 0


async def test_prefix_v1_reaches_every_address(client: httpx.AsyncClient, ear: Paths) -> None:
    assert (await client.get("/v1/models")).json() == (await client.get("/models")).json()
    assert (await client.post("/v1/synthesize", json=as_responses(ear))).status_code == 200
    for path in ("/v1", "/v1/v1/models", "/v1refine"):
        assert (await client.get(path)).status_code == 404


async def test_request_id_is_taken_or_made(client: httpx.AsyncClient) -> None:
    for sent in ("Fit-7_b.2", "", "two words", "a" * 129):
        answer = await client.get("/nowhere", headers={"X-Request-Id": sent})
        expected = re.escape(sent) if sent == "Fit-7_b.2" else r"[0-9a-f]{32}"
        assert re.fullmatch(expected, answer.headers["x-request-id"])


async def test_access_is_fields_in_json(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(settings.model_copy(update={"access_log": True}))
    with caplog.at_level(logging.INFO, "service.access"):
        async with connected(app) as client:
            await client.get("/nowhere", headers={"X-Request-Id": "fit-7"})
    (line,) = (orjson.loads(JsonFormatter().format(record)) for record in caplog.records)
    assert (line["path"], line["status"], line["request"]) == ("/nowhere", 404, "fit-7")


async def test_log_names_failed_request(
    client: httpx.AsyncClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(app.state.service.engine, "require_live", fail)
    with caplog.at_level(logging.ERROR):
        answer = await client.get("/health/live", headers={"X-Request-Id": "fit-7"})
    assert_problem(answer, "internal-error")
    assert "fit-7" in answer.json()["detail"]
    assert "fit-7" in caplog.text
