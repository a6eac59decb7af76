"""The compose files name only existing files, ports and settings."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
COMPOSE_GPU = ROOT / "deploy" / "docker-compose.gpu.yml"


def read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(file.read_text())
    return content


def test_every_mounted_folder_is_in_project() -> None:
    mounts = [mount for service in read(COMPOSE)["services"].values() for mount in service["volumes"]]
    from_project = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert from_project
    assert [folder for folder in from_project if not (ROOT / folder).is_dir()] == []


def test_grace_period_covers_admitted_requests() -> None:
    service = read(COMPOSE)["services"]["service"]
    assert int(service["stop_grace_period"].removesuffix("s")) > Settings().drain_s + Settings().shutdown_s


@pytest.mark.parametrize("file", [COMPOSE, COMPOSE_GPU], ids=lambda file: file.name)
def test_settings_exist_with_their_defaults(file: Path) -> None:
    for name, value in read(file)["services"]["service"]["environment"].items():
        if name.startswith("PRIME_"):
            field = Settings.model_fields[name.removeprefix("PRIME_").lower()]
            assert not value.startswith("${") or value == f"${{{name}:-{field.default}}}"


def test_prometheus_scrapes_service() -> None:
    scraped = read(ROOT / "deploy/prometheus/prometheus.yml")["scrape_configs"][0]["static_configs"][0]["targets"]
    host, port = scraped[0].split(":")
    assert host in read(COMPOSE)["services"]
    assert read(COMPOSE)["services"][host]["ports"][0].endswith(f":{port}")
