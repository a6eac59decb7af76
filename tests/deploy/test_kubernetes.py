"""The Kubernetes manifests obey their schemas and use only existing features of the service."""

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.admission.keys import Keys
from service.app import create_app
from service.settings import MAX_DEADLINE_MS, Settings

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
MANIFESTS = list(yaml.safe_load_all((FOLDER / "base" / "prime-anc.yaml").read_text()))
VERSION = "1.31"
PATCHES = ("gpu/gpu.yaml", "models-volume.yaml", "models-url.yaml")


def by_name(entries: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge named entries by name, as a strategic merge patch does; append others."""
    if not all("name" in item for item in changes):
        return entries + changes
    merged = {entry["name"]: entry for entry in entries}
    for change in changes:
        merged[change["name"]] = patched(merged.get(change["name"], {}), change)
    return list(merged.values())


def patched(content: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(content)
    for key, value in patch.items():
        if isinstance(value, dict):
            result[key] = patched(result.get(key, {}), value)
        elif isinstance(value, list):
            result[key] = by_name(result.get(key, []), value)
        else:
            result[key] = value
    return result


def deployments() -> list[dict[str, Any]]:
    """The deployment without and with each patch."""
    patches = [yaml.safe_load((FOLDER / file).read_text()) for file in PATCHES]
    return [MANIFESTS[0], *(patched(MANIFESTS[0], patch) for patch in patches)]


@pytest.mark.parametrize("manifest", [*MANIFESTS, *deployments()[1:]], ids=lambda item: item["kind"])
def test_obeys_schema(manifest: dict[str, Any]) -> None:
    # The release whose schema was taken; where there is none for ours, an older one would be.
    assert kubernetes_validate.validate(manifest, VERSION, strict=True) == VERSION


@pytest.mark.parametrize("deployment", deployments(), ids=["cpu", *PATCHES])
def test_manifest_uses_existing_features(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    settings = {item["name"]: item["value"] for item in container["env"]}
    assert settings.keys() <= {f"PRIME_{name.upper()}" for name in Settings.model_fields}
    parsed = Settings(**{name.removeprefix("PRIME_").lower(): value for name, value in settings.items()})
    assert pod["terminationGracePeriodSeconds"] > parsed.drain_s + parsed.shutdown_s
    assert 1e3 * parsed.shutdown_s >= MAX_DEADLINE_MS
    documented = create_app(Settings(device="cpu")).openapi()["paths"]
    paths = {path for path, operations in documented.items() if "get" in operations}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
        assert container[probe]["httpGet"]["port"] == "management"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert parsed.drain_s > container["readinessProbe"]["periodSeconds"]


@pytest.mark.parametrize("deployment", deployments(), ids=["cpu", *PATCHES])
def test_probes_and_scrapes_use_management_port(deployment: dict[str, Any]) -> None:
    """The management port is open to all pods, so that changes need a key."""
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    ports = {item["name"]: str(item["containerPort"]) for item in container["ports"]}
    assert environment["PRIME_MANAGEMENT_HOST"] == "0.0.0.0"
    assert environment["PRIME_MANAGEMENT_PORT"] == ports["management"] != ports["http"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == ports["management"]
    assert Keys((), Path(environment["PRIME_MANAGEMENT_KEYS_FILE"])).are_required
    assert [manifest["targetPort"] for manifest in MANIFESTS[1]["spec"]["ports"]] == ["http"]
