"""The permanent prefix of addresses, and the request id in answer and log."""

import logging
import re

import httpx
import orjson
import pytest
from starlette.applications import Starlette

from service.app import create_app
from service.observability.tracing import JsonFormatter
from service.settings import Settings
from synthesis.types import Paths
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import as_responses
from tests.service.conftest import connected

MADE = r"[0-9a-f]{32}"


async def test_prefix_v1_reaches_every_address(client: httpx.AsyncClient, ear: Paths) -> None:
    for path in ("/health/live", "/models", "/v2", "/openapi.json"):
        assert (await client.get(f"/v1{path}")).json() == (await client.get(path)).json()
    lasting = await client.post("/v1/refine?k=1", json=as_responses(ear))
    assert lasting.json()["fir"] == (await client.post("/refine?k=1", json=as_responses(ear))).json()["fir"]
    for path in ("/v1", "/v1/v1/models", "/v2/v1/models", "/v1refine"):
        assert (await client.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("sent", "expected"), [("Fit-7_b.2", r"Fit-7_b\.2"), ("", MADE), ("two words", MADE), ("a" * 129, MADE)]
)
async def test_request_id_is_taken_or_made(client: httpx.AsyncClient, sent: str, expected: str) -> None:
    for path in ("/health/live", "/nowhere"):
        answer = await client.get(path, headers={"X-Request-Id": sent})
        assert re.fullmatch(expected, answer.headers["x-request-id"])


@pytest.mark.anyio
async def test_access_is_fields_in_json(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(settings.model_copy(update={"access_log": True}))
    with caplog.at_level(logging.INFO, "service.access"):
        async with connected(app) as client:
            await client.get("/nowhere", headers={"X-Request-Id": "fit-7"})
    (line,) = (orjson.loads(JsonFormatter().format(record)) for record in caplog.records)
    assert (line["path"], line["status"], line["request"]) == ("/nowhere", 404, "fit-7")


async def test_log_names_failed_request(
    client: httpx.AsyncClient, app: Starlette, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(app.state.service.engine, "require_live", fail)
    with caplog.at_level(logging.ERROR):
        answer = await client.get("/health/live", headers={"X-Request-Id": "fit-7"})
    assert_problem(answer, "internal-error")
    assert "fit-7" in answer.json()["detail"]
    assert "fit-7" in caplog.text
