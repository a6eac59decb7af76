"""Options in the query string, and answers used as request bodies."""

import httpx
import pytest

from synthesis.types import Paths
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import as_responses

LOW = {"frequency_hz": [200.0, 215.0], "weight": [1.0, 0.0]}


async def test_query_options_apply_to_every_item(client: httpx.AsyncClient, ear: Paths) -> None:
    alone = (await client.post("/refine", json=as_responses(ear, k=1, sign="plus"))).json()
    answer = await client.post("/refine?k=1&sign=plus", json={"items": 2 * [as_responses(ear)]})
    assert [item["fir"] for item in answer.json()["items"]] == 2 * [alone["fir"]]
    assert [item["refinement"]["requested"] for item in answer.json()["items"]] == [1, 1]


@pytest.mark.parametrize(
    ("query", "fields", "code", "field"),
    [
        ("k=2", {"k": 1}, "invalid-field", "k"),
        ("max_gain_db=100:12,1000:24", {"max_gain_db": 20.0}, "invalid-field", "max_gain_db"),
        ("band_weights=1", {}, "invalid-field", "band_weights"),
        ("band_weights=100:2,1000:1", {"band_weights": LOW}, "invalid-field", "band_weights"),
        ("k=1&k=1", {}, "invalid-field", "k"),
        ("gain=3", {}, "unknown-field", "gain"),
        ("primary=1", {}, "unknown-field", "primary"),
        ("k=many", {}, "invalid-field", "k"),
    ],
)
async def test_faulty_query_is_rejected(
    client: httpx.AsyncClient, ear: Paths, query: str, fields: dict[str, object], code: str, field: str
) -> None:
    answer = await client.post(f"/refine?{query}", json=as_responses(ear, **fields))
    assert_problem(answer, code, field)
