"""Metrics have the stages' names, count the answers, and belong to one application."""

import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from model_store.manifest import Scores
from model_store.store import ModelStore
from prime_anc.method.conventions import STAGES
from prime_anc.method.types import Paths
from service.engine import Engine
from service.metrics import MAX_KEY_NAMES, Metrics
from service.settings import Settings
from tests.service import models
from tests.service.bodies import as_responses
from tests.service.conftest import connected, started

pytestmark = pytest.mark.anyio


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(app: FastAPI) -> Samples:
    """Every sample of a scrape over HTTP, by name and labels."""
    async with connected(app) as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples = [item for family in text_string_to_metric_families(answer.text) for item in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(samples: Samples, name: str, /, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


async def test_metrics_count_design_once(app: FastAPI, ear: Paths) -> None:
    before = await scraped(app)
    async with connected(app) as client:
        answer = await client.post("/refine?k=2", json=as_responses(ear, method="ratio_base"))
    document = answer.json()
    after = await scraped(app)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    for stage in STAGES:
        spent = document["timings_ms"][stage]
        assert grown("prime_stage_seconds_count", stage=stage) == (0 if stage == "generate" else 1)
        assert grown("prime_stage_seconds_sum", stage=stage) == pytest.approx((spent or 0) / 1e3, abs=1e-6)
    assert grown("prime_total_seconds_sum") == pytest.approx(document["timings_ms"]["total"] / 1e3, abs=1e-6)
    outcome = {"endpoint": "/refine", "method": "ratio_base", "status": "200", "code": "ok"}
    assert grown("prime_requests_total", **outcome) == 1
    assert grown("prime_refine_applied_sum") == document["refinement"]["applied"]
    assert grown("prime_predicted_noise_reduction_db_sum") == pytest.approx(
        document["prediction"]["mean_noise_reduction_db"], abs=1e-4
    )


async def test_refusals_are_counted_by_code(app: FastAPI, ear: Paths) -> None:
    before = await scraped(app)
    async with connected(app) as client:
        await client.post("/refine?k=99", json=as_responses(ear))
        await client.post("/synthesize", json=as_responses(ear, method="wmmse", model="nobody"))
        await client.get("/nowhere")
    after = await scraped(app)
    for labels in (
        {"endpoint": "/refine", "method": "", "status": "422", "code": "out-of-range"},
        {"endpoint": "/synthesize", "method": "wmmse", "status": "404", "code": "unknown-model"},
        {"endpoint": "", "method": "", "status": "404", "code": "not-found"},
    ):
        name = "prime_requests_total"
        assert value(after, name, **labels) - value(before, name, **labels) == 1


async def test_state_is_read_at_each_scrape(app: FastAPI) -> None:
    samples = await scraped(app)
    assert value(samples, "prime_ready") == 1
    assert value(samples, "prime_queue_depth", lane="heavy") == 0
    assert value(samples, "prime_model_loads_total", outcome="loaded") >= 1
    assert value(samples, "prime_model_memory_bytes", name="ears", version="2", kind="tensors") > 1e4
    models = [dict(labels) for name, labels in samples if name == "prime_model_info"]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", model["digest"]) for model in models)
    assert [(model["name"], model["version"]) for model in models if model["default"] == "true"] == [("ears", "2")]


async def test_metrics_show_predictions_beside_scores(settings: Settings, tmp_path: Path, ear: Paths) -> None:
    checkpoint = models.checkpoint(1)
    scores = Scores(held_out={"prime-log": {"noise_reduction_db": 20.0}, "k=1": {"noise_reduction_db": 21.0}})
    checkpoint = replace(checkpoint, manifest=checkpoint.manifest.model_copy(update={"scores": scores}))
    ModelStore(tmp_path, include_bundled=False).publish("scored", checkpoint)
    more = {"store": tmp_path, "model": "scored", "commit": "abc"}
    async with started(settings.model_copy(update=more)) as app, connected(app) as client:
        predicted = 0.0
        for path, method in (("/synthesize", "prime"), ("/refine?k=1", "prime"), ("/synthesize", "wmmse")):
            answer = (await client.post(path, json=as_responses(ear, method=method))).json()
            if method == "prime":
                predicted += answer["prediction"]["mean_noise_reduction_db"]
    samples = await scraped(app)
    name = "prime_judged_noise_reduction_db"
    assert value(samples, f"{name}_count", model="scored", source="predicted") == 2
    assert value(samples, f"{name}_sum", model="scored", source="predicted") == pytest.approx(predicted, abs=1e-3)
    assert value(samples, f"{name}_sum", model="scored", source="scored") in (40.0, 41.0)  # by updates applied
    build = {"version": version("prime-anc"), "commit": "abc", "torch": version("torch")}
    assert value(samples, "prime_build_info", **build) == 1


async def test_names_of_keys_are_bounded(tmp_path: Path) -> None:
    metrics = Metrics(Engine(ModelStore(tmp_path), "cpu"))
    for number in range(MAX_KEY_NAMES + 5):
        metrics.count_key(f"key {number}", 200, 0.1)
    text = metrics.exposition("")[0].decode()
    assert text.count("prime_key_seconds_total{") == MAX_KEY_NAMES + 1
    assert 'prime_key_requests_total{key="other",outcome="ok"} 5.0' in text
