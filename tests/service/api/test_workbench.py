"""The page and its files: open, under a strict policy, and nothing beside them."""

import json
import re
from pathlib import Path

import pytest

from service.api.workbench import FOLDER

pytestmark = pytest.mark.anyio

LARGEST = 500_000
"""Bytes of the whole page, the example listener included."""


async def test_the_page_and_all_that_it_names_are_served(client):
    page = await client.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    named = re.findall(r'(?:href|src)="(workbench/[^"]+)"', page.text)
    assert {Path(each).name for each in named} == {"style.css", "app.js"}
    total = len(page.content)
    for name in sorted(each.name for each in FOLDER.iterdir() if each.suffix in (".js", ".css", ".json")):
        file = await client.get(f"/workbench/{name}")
        assert file.status_code == 200, name
        assert file.headers["x-content-type-options"] == "nosniff"
        total += len(file.content)
    assert total < LARGEST


async def test_the_example_listener_can_be_designed_for(client):
    import base64

    import numpy as np

    def samples(text: str) -> list[float]:
        return np.frombuffer(base64.b64decode(text), "<f4").tolist()

    for ear in json.loads((FOLDER / "example.json").read_text()).values():
        body = {name: {"impulse_response": samples(ear[name]["float32"])} for name in ("primary", "secondary")}
        answer = await client.post("/refine", json=body | {"sample_rate": 48_000})
        assert answer.status_code == 200, answer.text
        assert answer.json()["prediction"]["mean_noise_reduction_db"] > 10
