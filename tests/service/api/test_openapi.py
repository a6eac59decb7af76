"""The OpenAPI document is complete and matches the service's answers."""

import asyncio
import re
import time
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from service.app import EXPOSED_HEADERS, create_app
from service.settings import Settings
from tests.service.bodies import JSON_BODY
from tests.service.conftest import connected

pytestmark = pytest.mark.anyio


@pytest.fixture
async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    """The document as served."""
    answer = await client.get("/openapi.json")
    assert answer.status_code == 200
    return answer.json()


def validator(document: dict[str, Any], name: str) -> Draft202012Validator:
    """Validator of one component with its references resolved."""
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document["components"]})


def test_document_is_valid(document: dict[str, Any]) -> None:
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


async def test_document_is_made_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it is asked for by several."""
    made: list[int] = []

    def making(*_: object) -> dict[str, Any]:
        made.append(0)
        time.sleep(0.2)
        return {"n": 1}

    monkeypatch.setattr("service.app.document", making)
    async with connected(create_app(settings)) as client:
        answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(8)))
        assert ({item.status_code for item in answers}, len(made)) == ({200}, 1)


async def test_example_requests_work(client: httpx.AsyncClient, document: dict[str, Any]) -> None:
    for path in ("/synthesize", "/refine", "/evaluate", "/export"):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        for example in body["examples"].values():
            answer = await client.post(path, json=example["value"])
            assert answer.status_code == 200, answer.text


async def test_answers_match_schemas(client: httpx.AsyncClient, document: dict[str, Any]) -> None:
    """Those of other bodies are compared with them in `test_hostile_numbers`."""
    answers = {
        "ModelList": await client.get("/models"),
        "ModelDescription": await client.get("/models/ears"),
        "Live": await client.get("/health/live"),
        "Ready": await client.get("/health/ready"),
        "ProblemDocument": await client.post("/refine?k=11", content=b"", headers=JSON_BODY),
    }
    for name, answer in answers.items():
        errors = [error.message for error in validator(document, name).iter_errors(answer.json())]
        assert not errors, (name, errors)


def test_foreign_pages_may_read_documented_headers(document: dict[str, Any]) -> None:
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    answers = [operation["responses"]["200"] for operation in operations]
    documented = {header for answer in answers for header in answer.get("headers", ())}
    assert len(documented) > 5
    assert documented <= set(EXPOSED_HEADERS)


async def test_page_of_documentation_is_served(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert "openapi.json" in answer.text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    for address in addresses:  # local addresses only
        assert address.startswith("/docs/assets/")
        assert (await client.get(address)).status_code == 200
