"""One filter for several conditions over HTTP: JSON, binary, predictions, the loop, refusals."""

import httpx
import numpy as np
import pytest

from prime_anc.method.conventions import N_BINS
from prime_anc.method.types import Paths
from tests.service import models
from tests.service.api.test_design import ask
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import Json, as_responses


def condition(ear: Paths, **more: object) -> Json:
    body = as_responses(ear, **more)
    del body["sample_rate"]
    return body


def joint(*conditions: Json, **more: object) -> Json:
    return {"conditions": list(conditions), "sample_rate": 48_000, **more}


async def refined(client: httpx.AsyncClient, body: Json) -> Json:
    return await ask(client, "/refine?k=2", body)


async def test_condition_without_data_is_named(client: httpx.AsyncClient) -> None:
    body = joint(condition(models.ear(1)), condition(models.ear(2), coherence=[0.01] * N_BINS))
    details = {item["code"]: item["detail"] for item in (await refined(client, body))["warnings"]}
    assert details["low_coherence"].startswith("conditions.1: the mean is 0.01")


async def test_loop_is_reported(client: httpx.AsyncClient, ear: Paths) -> None:
    shape = np.exp(-np.arange(64) / 6) * np.cos(np.arange(64) / 5)
    feedback = {"feedback": {"impulse_response": (0.3 * shape).tolist()}}
    found = await refined(client, as_responses(ear, **feedback))
    assert found["loop"]["stable"] is True
    target = {"form": "fir", "number_format": "float64"}
    for path, more in (("evaluate", {}), ("export", {"target": target})):
        again = (await client.post(f"/{path}", json=as_responses(ear) | found | feedback | more)).json()
        kept = {"loss_db": 0, "peak_hz": 0}  # of two peaks of one height either may be the higher one
        assert again["loop"] | kept == pytest.approx(found["loop"] | kept, abs=0.75, rel=0.05)
        mean = found["prediction"]["mean_noise_reduction_db"]
        assert again["prediction"]["mean_noise_reduction_db"] == pytest.approx(mean, abs=0.01)
    silent = await refined(client, as_responses(ear, feedback={"impulse_response": (1e-6 * shape).tolist()}))
    np.testing.assert_allclose(silent["fir"], (await refined(client, as_responses(ear)))["fir"], atol=1e-4)
    assert silent["loop"]["gain_margin_db"] > 60


@pytest.mark.parametrize(
    "target",
    [
        {"n_sections": 4},
        {"form": "fir", "sample_rate": 16_000},
        {"form": "fir", "sample_rate": 44_100},
    ],
)
async def test_exported_loop_keeps_margins(client: httpx.AsyncClient, ear: Paths, target: Json) -> None:
    """What is designed anew would howl without a lower ceiling."""
    late = np.arange(64)
    feedback = {"impulse_response": np.r_[np.zeros(30), np.exp(-late / 6) * np.cos(late / 5)].tolist()}
    body = as_responses(ear, feedback=feedback)
    found = await refined(client, body)
    exported = (await client.post("/export", json=body | {"fir": found["fir"], "target": target})).json()
    loop = exported["loop"]
    assert loop["stable"] is True
    assert loop["gain_margin_db"] > 5.5
    assert loop["phase_margin_deg"] > 28
    if target.get("sample_rate") == 44_100:  # taps of that length are the filter again
        kept, whole = (item["prediction"]["mean_noise_reduction_db"] for item in (exported, found))
        assert kept > whole - 0.1


def flat(n_bins: int) -> Json:
    """The spectrum of an impulse."""
    return {"real": [0.1] * n_bins, "imag": [0.0] * n_bins}


GOOD = {"primary": {"impulse_response": [0.5, 0.25]}, "secondary": {"impulse_response": [0.0, 1.0]}}
SILENT, FLAT = {"impulse_response": [0.0]}, {"primary": flat(2049), "secondary": flat(2049)}


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"conditions": []}, "out-of-range", "conditions"),
        ({"conditions": [GOOD, {"primary": GOOD["primary"]}]}, "missing-field", "conditions.1.secondary"),
        ({"conditions": [GOOD, GOOD | {"weight": 0}]}, "out-of-range", "conditions.1.weight"),
        ({"conditions": [GOOD, GOOD | {"sample_rate": 48_000}]}, "unknown-field", "conditions.1.sample_rate"),
        ({"conditions": [GOOD, GOOD | {"secondary": SILENT}]}, "unusable-paths", "conditions.1.secondary"),
        ({"conditions": [GOOD, FLAT | {"feedback": flat(4097)}]}, "unequal-grids", "conditions.1.feedback"),
        ({"primary": GOOD["primary"]}, "unknown-field", "primary"),
    ],
)
async def test_fault_is_named(client: httpx.AsyncClient, change: Json, code: str, field: str) -> None:
    assert_problem(await client.post("/refine", json=joint(GOOD, GOOD) | change), code, field)
