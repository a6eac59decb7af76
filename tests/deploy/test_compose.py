"""The Compose file passes existing settings to the service, and keys above all."""

import re
from pathlib import Path

import pytest
import yaml

from service.settings import Settings, misspelt

ROOT = Path(__file__).resolve().parents[2]
SERVICE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["service"]


def test_service_gets_existing_settings() -> None:
    assert misspelt(SERVICE["environment"]) == {}
    assert "PRIME_API_KEYS" in SERVICE["environment"]


def test_foreign_host_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the container does not listen on loopback."""
    (default,) = re.findall(r"^\$\{PRIME_ALLOWED_HOSTS:-(.*)\}$", SERVICE["environment"]["PRIME_ALLOWED_HOSTS"])
    monkeypatch.setenv("PRIME_ALLOWED_HOSTS", default)
    assert Settings().allowed_hosts == ("localhost",)
