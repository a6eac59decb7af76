"""JSON is read and sent as gzip; a bomb, a stub and other forms are refused."""

import gzip

import httpx
import numpy as np
import orjson
import pytest

from service.admission.admission import MAX_JSON_BYTES
from service.app import MIN_GZIP_BYTES
from synthesis.types import Paths
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import as_responses

pytestmark = pytest.mark.anyio
GZIP = {"Content-Type": "application/json", "Content-Encoding": "gzip"}


async def test_gzip_request_is_answered_as_plain(client: httpx.AsyncClient, ear: Paths) -> None:
    content = orjson.dumps(as_responses(ear))
    plain = await client.post("/synthesize", content=content, headers={"Content-Type": "application/json"})
    answer = await client.post("/synthesize", content=gzip.compress(content), headers=GZIP)
    np.testing.assert_array_equal(answer.json()["fir"], plain.json()["fir"])
    assert "content-encoding" not in answer.headers  # small answers are not worth the wait
    document = await client.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert document.headers["content-encoding"] == "gzip"
    assert len(document.content) > MIN_GZIP_BYTES
    document = await client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in document.headers
    uncompressed = GZIP | {"Content-Encoding": "identity"}
    assert (await client.post("/synthesize", content=content, headers=uncompressed)).status_code == 200


@pytest.mark.parametrize(
    ("content", "headers", "code"),
    [
        (gzip.compress(b" " * (MAX_JSON_BYTES + 1), mtime=0), GZIP, "too-large"),
        (gzip.compress(b"{}", mtime=0)[:-4], GZIP, "malformed-json"),
        (gzip.compress(b"{}", mtime=0) * 2, GZIP, "malformed-json"),
        (
            gzip.compress(b"{}", mtime=0),
            GZIP | {"Content-Type": "application/x-safetensors"},
            "unsupported-encoding",
        ),
    ],
)
async def test_unusable_gzip_is_refused(
    client: httpx.AsyncClient, content: bytes, headers: dict, code: str
) -> None:
    assert_problem(await client.post("/synthesize", content=content, headers=headers), code)
