"""The operator's endpoints require a management key and report the models in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from model_store.store import ModelStore
from prime_anc.method.types import Paths
from service.app import create_app
from service.settings import Settings
from tests.service import models
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import as_responses, digest
from tests.service.conftest import connected, started

pytestmark = pytest.mark.anyio

KEY, CLIENT = ({"Authorization": f"Bearer {name}"} for name in ("operator", "client"))
PATHS = ("/models/ears/load", "/models/ears/unload", "/models/reload")


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """A store for one test: `ears` in one version."""
    store = ModelStore(tmp_path, include_bundled=False)
    store.publish("ears", models.checkpoint(1))
    return store


@pytest.fixture
async def app(
    store: ModelStore, settings: Settings, anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[FastAPI]:
    """A service over that store, with a client key and a management key."""
    folder = tmp_path_factory.mktemp("keys")
    keys = {f"{kind}_keys_file": folder / kind for kind in ("api", "management")}
    for file, key in zip(keys.values(), ("client", "operator"), strict=True):
        file.write_text(f"{key}:{digest(key)}")
    async with started(settings.model_copy(update={"store": store.root} | keys)) as app:
        yield app


async def test_client_key_cannot_manage(client: httpx.AsyncClient) -> None:
    for path in PATHS:
        for headers in ({}, CLIENT, {"Authorization": "Bearer nobody"}):
            answer = await client.post(path, headers=headers)
            assert_problem(answer, "unauthorised")
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_operator_replaces_failed_model(client: httpx.AsyncClient, app: FastAPI, ear: Paths) -> None:
    engine = app.state.service.engine
    with models.damaged(engine.models.default, 1.0):
        await engine.readiness.check()
        for address in ("/health/live", "/health/ready"):
            assert (await client.get(address)).status_code == 503, address
        assert (await client.post("/models/reload", headers=KEY)).status_code == 200
        assert (await client.get("/health/live")).status_code == 200
        designed = await client.post("/synthesize", json=as_responses(ear), headers=CLIENT)
        assert designed.status_code == 200


async def test_management_needs_configured_key(settings: Settings) -> None:
    async with connected(create_app(settings)) as client:
        for path in PATHS:
            assert_problem(await client.post(path, headers=KEY), "unauthorised")


async def test_reload_finds_damaged_file(client: httpx.AsyncClient, store: ModelStore) -> None:
    damaged = Path(store.root) / store.publish("other", models.checkpoint(3)).file
    assert (await client.get("/models", headers=CLIENT)).json()["broken"] == {}
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes()[:1000])
    await client.post("/models/reload", headers=KEY)
    assert list((await client.get("/models", headers=CLIENT)).json()["broken"]) == ["other@1"]


async def test_unloading_over_http(client: httpx.AsyncClient, store: ModelStore) -> None:
    other = store.publish("other", models.checkpoint(3))
    assert (await client.post("/models/other@1/load", headers=KEY)).json()["digest"] == other.digest
    answer = await client.post("/models/other/unload", headers=KEY)
    assert [item["digest"] for item in answer.json()["unloaded"]] == [other.digest]
    assert_problem(await client.post("/models/other/unload", headers=KEY), "unknown-model", "model")
    for reference in ("ears", "ears@1"):
        answer = await client.post(f"/models/{reference}/unload", headers=KEY)
        assert_problem(answer, "default-model", "model")
    newer = store.publish("other", models.checkpoint(4))  # after unloading, the name is looked up again
    body = as_responses(models.ear(1), model="other")
    designed = await client.post("/synthesize", json=body, headers=CLIENT)
    assert designed.json()["model"]["digest"] == newer.digest
    for path in ("/models/nobody/load", "/models/..%2Fears/load"):
        assert (await client.post(path, headers=KEY)).status_code == 404
