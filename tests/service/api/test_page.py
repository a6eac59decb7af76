"""The workbench's page and files are public and complete, under a strict content policy."""

import re
from pathlib import Path

import pytest

from service.api.page import FOLDER

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
    served = (path for path in FOLDER.rglob("*") if path.suffix in (".js", ".css", ".json"))
    for name in sorted(path.relative_to(FOLDER).as_posix() for path in served):
        file = await client.get(f"/workbench/{name}")
        assert file.status_code == 200, name
        assert file.headers["x-content-type-options"] == "nosniff"
        total += len(file.content)
    assert total < LARGEST
