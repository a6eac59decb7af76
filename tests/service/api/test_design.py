"""What comes out over HTTP: the library's filter, in JSON and binary, with its figures, times and warnings."""

from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from prime_anc.client import wire
from prime_anc.method.conventions import STAGES
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.start.synthesizer import Synthesizer
from prime_anc.method.types import Paths
from tests.service.bodies import as_base64, as_lists, as_responses

pytestmark = pytest.mark.anyio

BINARY = "application/octet-stream"
# Tolerance over the largest tap: the service's stages for a CPU against the library's, on float32 systems of condition
# 1e4.
SAME_FLOAT32 = 3e-3


def library_paths(ear: Paths) -> AcousticPaths:
    """The ear as the library takes it."""
    return AcousticPaths.from_impulse_responses(
        torch.from_numpy(ear.primary)[None], torch.from_numpy(ear.secondary)[None]
    )


def assert_same_filter(found: Any, expected: torch.Tensor) -> None:
    """Equal to float32, tap by tap."""
    wanted = expected.detach().numpy().reshape(-1)
    assert np.abs(np.asarray(found, np.float32) - wanted).max() <= SAME_FLOAT32 * np.abs(wanted).max()


async def ask(client: httpx.AsyncClient, path: str, body: object) -> dict[str, Any]:
    """POST JSON, expect an answer."""
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(("n_samples", "profile"), [(4096, "fast"), (4097, "fine")])
async def test_profile_follows_response_length(
    client: httpx.AsyncClient, default_model: Synthesizer, ear: Paths, n_samples: int, profile: str
) -> None:
    """Neither zeros at the end nor the grid of a spectrum count."""
    reverberation = np.random.default_rng(3).standard_normal(n_samples) * np.exp(-np.arange(n_samples) / 1000)
    primary = np.pad(ear.primary, (0, n_samples - len(ear.primary))) + 0.01 * reverberation
    ear = replace(ear, primary=primary.astype(np.float32))
    expected = default_model.design(library_paths(ear), 2, profile=profile).taps
    longer = replace(ear, primary=np.pad(ear.primary, (0, 2000)))
    for body in (as_responses(ear), as_responses(longer), as_base64(ear, 16_384), as_lists(ear, 8192)):
        assert_same_filter((await ask(client, "/refine?k=2", body))["fir"], expected)
    other = default_model.design(library_paths(ear), 2, profile="fast" if profile == "fine" else "fine").taps
    assert (other - expected).abs().max() > 3 * SAME_FLOAT32 * expected.abs().max()  # or this test could not fail


async def test_json_and_binary_agree_bit_by_bit(client: httpx.AsyncClient, ear: Paths) -> None:
    query = "k=1&model=other&method=prime&sign=plus&max_gain_db=20"
    sent = wire.encode(ear.primary, ear.secondary, ear.coherence)
    headers = {"Content-Type": wire.MEDIA_TYPE, "Accept": BINARY}
    answer = await client.post(f"/refine?{query}", content=sent, headers=headers)
    body = as_responses(ear, model="other", sign="plus", max_gain_db=20, coherence=ear.coherence.tolist())
    document = await ask(client, "/refine?k=1", body)
    assert np.array_equal(np.frombuffer(answer.content, "<f4"), np.array(document["fir"], np.float32))
    assert answer.headers["content-type"] == BINARY
    assert answer.headers["x-model-digest"] == document["model"]["digest"]
    assert int(answer.headers["x-refine-applied"]) == document["refinement"]["applied"]
    prediction = document["prediction"]
    assert float(answer.headers["x-predicted-nr-db"]) == pytest.approx(
        prediction["mean_noise_reduction_db"], abs=1e-3
    )
    assert float(answer.headers["x-predicted-amp-db"]) == pytest.approx(prediction["amplification_db"], abs=1e-3)


@pytest.mark.parametrize(
    ("method", "absent"),
    [("prime", set()), ("ratio_base", {"generate"}), ("wmmse", {"path_ratio", "reconstruct"})],
)
async def test_times_name_timed_stages_only(
    client: httpx.AsyncClient, ear: Paths, method: str, absent: set[str]
) -> None:
    answer = await client.post("/refine?k=1", json=as_responses(ear, method=method))
    times = answer.json()["timings_ms"]
    assert list(times) == [*STAGES, "core", "total"]
    assert {name for name, spent in times.items() if spent is None} == absent
    core = ("path_ratio", "generate", "reconstruct", "refine")
    assert times["core"] == pytest.approx(sum(times[name] or 0 for name in core))
    assert sum(times[name] or 0 for name in STAGES) < times["total"] + 1e-6
    header = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert set(header) == set(times) - absent
    for name, spent in header.items():
        assert float(spent) == pytest.approx(times[name], abs=1e-4)


async def test_models_are_listed_with_their_manifests(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/models")).json()
    assert listed["default"] == "ears"
    mine = {(each["name"], each["version"]): each for each in listed["models"]}
    assert mine["ears", 2]["resident"]
    assert mine["other", 1]["seed"] == 3
    shown = (await client.get("/models/ears@1")).json()
    assert shown == mine["ears", 1] | {"resident": shown["resident"]}
