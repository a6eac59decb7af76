"""What an operator sees of a key's use: metrics by its name, a line per request; and origins that may call."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from model_store.store import ModelStore
from service.engine.engine import Engine
from service.observability.metrics import MAX_KEY_NAMES, Metrics
from tests.service.program import Program

APP = "https://app.example.org"


@pytest.fixture(scope="module")
def program(store_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"phones:{hashlib.sha256(b'secret').hexdigest()}\n")
    with Program(
        store_folder, "--api-keys-file", str(keys), "--access-log", "--cors-origins", f'["{APP}"]'
    ) as program:
        program.wait_until_ready()
        yield program


def test_use_is_counted_and_logged_by_name(program: Program) -> None:
    headers = {"Authorization": "Bearer secret", "X-Request-Id": "ticket-7"}
    assert httpx.get(f"{program.address}/models", headers=headers).status_code == 200
    refused = httpx.post(
        f"{program.address}/refine", content=b"[", headers=headers | {"Content-Type": "text/plain"}
    )
    assert refused.status_code == 415
    late = httpx.post(f"{program.address}/refine", content=b"{}", headers=headers | {"X-Deadline-Ms": "0"})
    assert late.status_code == 422
    assert httpx.get(f"{program.address}/models").status_code == 401
    metrics = httpx.get(f"{program.address}/metrics").text
    assert 'prime_key_requests_total{key="phones",outcome="ok"} 1.0' in metrics
    assert 'prime_key_requests_total{key="phones",outcome="refused"} 2.0' in metrics
    assert 'prime_key_seconds_total{key="phones"}' in metrics
    assert program.logged(r"GET '(/models)' 200 ok [\d.]+ ms, key 'phones', request ticket-7")
    assert program.logged(r"GET '/models' (401) unauthorised [\d.]+ ms, key '-'")


def test_names_of_keys_are_bounded(tmp_path: Path) -> None:
    metrics = Metrics(Engine(ModelStore(tmp_path), "cpu"))
    for number in range(MAX_KEY_NAMES + 5):
        metrics.count_key(f"key {number}", 200, 0.1)
    text = metrics.exposition("")[0].decode()
    assert text.count("prime_key_seconds_total{") == MAX_KEY_NAMES + 1
    assert 'prime_key_requests_total{key="other",outcome="ok"} 5.0' in text


def test_only_named_origins_may_call(program: Program) -> None:
    asking = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    allowed = httpx.options(f"{program.address}/v1/refine", headers=asking | {"Origin": APP})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, APP)
    assert httpx.options(
        f"{program.address}/v1/refine", headers=asking | {"Origin": "https://evil.example"}
    ).is_error
    body = {"content": b"{}", "headers": {"Content-Type": "application/json", "Authorization": "Bearer secret"}}
    for origin, status in ((APP, 422), ("https://evil.example", 403)):
        body["headers"] |= {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
        answer = httpx.post(f"{program.address}/refine", **body)
        assert answer.status_code == status, answer.text
    assert "access-control-allow-origin" not in answer.headers
