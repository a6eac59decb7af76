"""Several designs in one request equal single designs, in order, and run as one batch."""

from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette

from service.engine.engine import Engine
from synthesis.types import Paths
from tests.service import models
from tests.service.api.test_design import SAME_FLOAT32, ask
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import as_responses

pytestmark = pytest.mark.anyio


@pytest.fixture
def ears() -> list[Paths]:
    """A left and a right ear."""
    return [Paths(*models.responses(seed)) for seed in (31, 32)]


def options_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int]]:
    """Record options and number of ears of the engine's designs."""
    calls: list[tuple[Any, int]] = []
    design = engine.design

    async def watched(model: Any, options: Any, inputs: Any, *more: Any) -> Any:
        calls.append((options, len(inputs)))
        return await design(model, options, inputs, *more)

    monkeypatch.setattr(engine, "design", watched)
    return calls


@pytest.mark.parametrize("path", ["/synthesize", "/refine?k=2&profile=paper"])
async def test_both_ears_equal_two_single_calls(
    app: Starlette, client: httpx.AsyncClient, ears: list[Paths], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [as_responses(ears[0], sign="plus"), as_responses(ears[1], max_gain_db=20)]
    alone = [await ask(client, path, request) for request in requests]
    calls = options_of(app.state.service.engine, monkeypatch)
    together = (await ask(client, path, {"items": requests}))["items"]
    assert [n for _, n in calls] == [2]
    for single, item in zip(alone, together, strict=True):
        fir = np.array(single["fir"])
        # Transforms over two rows may be rounded otherwise than over one, and the conjugate gradients amplify that.
        assert np.abs(np.subtract(item["fir"], fir)).max() <= SAME_FLOAT32 * np.abs(fir).max()
        for name in ("sign", "method", "model", "warnings"):
            assert item[name] == single[name]
        assert item["refinement"]["applied"] == single["refinement"]["applied"]
        predicted = [value["prediction"]["noise_reduction_db"] for value in (item, single)]
        assert predicted[0] == pytest.approx(predicted[1], abs=1e-2)
    assert together[0]["fir"] != together[1]["fir"]
    assert all(together[0]["timings_ms"][name] == together[1]["timings_ms"][name] for name in ("encode", "total"))


async def test_items_succeed_or_fail_independently(client: httpx.AsyncClient, ears: list[Paths]) -> None:
    good = as_responses(ears[0])
    bad: list[tuple[object, str, str | None]] = [
        (good | {"sample_rate": 44_100}, "wrong-rate", "sample_rate"),
        (good | {"model": "nobody"}, "unknown-model", "model"),
        (good | {"primary": {"impulse_response": [0.0]}}, "unusable-paths", "primary"),
        (good | {"primary": {"impulse_response": [3e38] * 8}}, "unusable-paths", "primary"),
        (7, "invalid-field", None),
        (good | {"items": []}, "unknown-field", "items"),
    ]
    items = [item for request, _, _ in bad for item in (request, good)]
    alone = await ask(client, "/refine?k=1", good)
    answers = (await ask(client, "/refine?k=1", {"items": items}))["items"]
    assert len(answers) == len(items)
    for (request, code, field), refused, answer in zip(bad, answers[::2], answers[1::2], strict=True):
        single = await client.post("/refine?k=1", json=request)
        if not (isinstance(request, dict) and "items" in request):
            assert refused == single.json()
        assert refused["type"].endswith(code)
        assert refused.get("field") == field
        assert np.abs(np.subtract(answer["fir"], alone["fir"])).max() <= SAME_FLOAT32 * np.abs(alone["fir"]).max()


async def test_items_are_grouped_by_model_and_method(
    app: Starlette, client: httpx.AsyncClient, ears: list[Paths], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[dict[str, str]] = [{}, {"method": "wmmse"}, {"model": "other"}, {"method": "wmmse"}, {}]
    items = [as_responses(ears[place % 2], **change) for place, change in enumerate(changes)]
    calls = options_of(app.state.service.engine, monkeypatch)
    answer = await client.post("/synthesize", json={"items": items})
    found = answer.json()["items"]
    assert sorted(n for _, n in calls) == [1, 2, 2]
    assert [item["method"] for item in found] == [change.get("method", "prime") for change in changes]
    assert [item["model"]["name"] for item in found] == [change.get("model", "ears") for change in changes]
    assert found[1]["timings_ms"]["path_ratio"] is None
    header = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    batches = [item["timings_ms"] for item in found]
    assert float(header["generate"]) == pytest.approx(sum(batch["generate"] for batch in batches), abs=1e-3)
    assert float(header["queue"]) == pytest.approx(min(batch["queue"] for batch in batches), abs=1e-3)


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"items": []}, "out-of-range", "items"),
        ({"items": [{}] * 17}, "out-of-range", "items"),
        ({"items": {}}, "invalid-field", "items"),
        ({"items": [{}], "model": "ears"}, "unknown-field", "model"),
    ],
)
async def test_unusable_list_is_rejected(client: httpx.AsyncClient, body: object, code: str, field: str) -> None:
    assert_problem(await client.post("/refine", json=body), code, field)
