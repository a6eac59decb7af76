"""The workbench's page and files are public and complete, under a strict content policy."""

import json
import re
from pathlib import Path

import pytest

from service.api.workbench import FOLDER

pytestmark = pytest.mark.anyio

# Bytes of the whole page, the example listener included.
LARGEST = 500_000


async def test_page_and_its_files_are_served(client):
    page = await client.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    named = re.findall(r'(?:href|src)="(workbench/[^"]+)"', page.text)
    assert {Path(item).name for item in named} == {"style.css", "app.js"}
    total = len(page.content)
    for name in sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".js", ".css", ".json")):
        file = await client.get(f"/workbench/{name}")
        assert file.status_code == 200, name
        assert file.headers["x-content-type-options"] == "nosniff"
        total += len(file.content)
    assert total < LARGEST


async def test_example_listener_can_be_designed_for(client):
    import base64

    import numpy as np

    def samples(text: str) -> list[float]:
        return np.frombuffer(base64.b64decode(text), "<f4").tolist()

    for ear in json.loads((FOLDER / "example.json").read_text()).values():
        body = {name: {"impulse_response": samples(ear[name]["float32"])} for name in ("primary", "secondary")}
        answer = await client.post("/refine", json=body | {"sample_rate": 48_000})
        assert answer.status_code == 200, answer.text
        assert answer.json()["prediction"]["mean_noise_reduction_db"] > 10
