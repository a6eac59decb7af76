"""Both listeners reject browser requests of foreign pages and serve other clients."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest
from starlette.datastructures import Headers

from service.admission.admission import refuse_foreign
from service.errors import PROBLEMS, HttpProblem
from synthesis.types import Paths
from tests.service.bodies import as_responses
from tests.service.program import Program

EVIL = {"Host": "evil.example", "Origin": "http://evil.example"}
FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": "evil.example"},
    EVIL | {"Sec-Fetch-Site": "same-origin"},
)


@pytest.fixture(scope="module")
def program(store_folder: Path) -> Iterator[Program]:
    """A program with a management listener, and a proxy's name allowed."""
    names = '["anc.example.org"]'
    with Program(store_folder, "--management-port", "0", "--allowed-hosts", names) as program:
        program.wait_until_ready()
        yield program


@pytest.fixture(scope="module")
def management(program: Program) -> str:
    """Address of its management listener."""
    return program.logged(r"Management on (http://127\.0\.0\.1:\d+)")


@pytest.mark.parametrize("headers", FOREIGN)
def test_foreign_requests_are_rejected(
    program: Program, management: str, ear: Paths, headers: dict[str, str]
) -> None:
    body, kind = orjson.dumps(as_responses(ear)), {"Content-Type": "application/json"}
    for answer in (
        httpx.post(f"{program.address}/synthesize", content=body, headers=kind | headers),
        httpx.post(f"{program.address}/v2/models/ears/infer", content=b"{}", headers=kind | headers),
        httpx.post(f"{management}/models/reload", headers=headers),
        httpx.get(f"{management}/metrics", headers=headers),
        httpx.get(f"{management}/models", headers=headers),
    ):
        assert answer.status_code == PROBLEMS["cross-site"][0] == 403
        assert "cross-site" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:9"},
        {"Host": "[::1]:9"},
        {"Host": "localhost:9", "Origin": "http://localhost:9", "Sec-Fetch-Site": "same-origin"},
        {"Host": "anc.example.org", "Origin": "https://anc.example.org", "Sec-Fetch-Site": "same-origin"},
        {"Host": "replica", "Origin": "https://anc.example.org", "Sec-Fetch-Site": "same-origin"},
        {"Host": "192.0.2.1:8080", "Origin": "http://192.0.2.1:8080"},
    ],
)
def test_page_and_programs_are_served(
    program: Program, management: str, ear: Paths, headers: dict[str, str]
) -> None:
    kind = {"Content-Type": "application/json"}
    content = orjson.dumps(as_responses(ear))
    answer = httpx.post(f"{program.address}/synthesize", content=content, headers=kind | headers)
    assert answer.status_code == 200
    assert np.isfinite(answer.json()["fir"]).all()
    assert httpx.get(f"{management}/metrics", headers=headers).status_code == 200


@pytest.mark.parametrize("server", [("10.0.0.5", 8000), ("/run/anc.sock", None), None])
def test_host_is_free_beyond_loopback(server: tuple[str, int | None] | None) -> None:
    scope = {"type": "http", "server": server}
    refuse_foreign(scope, Headers({"host": "anc.example.org"}), ())
    with pytest.raises(HttpProblem):
        refuse_foreign(scope, Headers({"host": "anc.example.org", "origin": "https://other.example.org"}), ())
