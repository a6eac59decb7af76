"""What `kubectl kustomize` makes of the manifests obeys their schemas and uses existing features of the service."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from fastapi.routing import iter_route_contexts

from service.app import create_app
from service.settings import MAX_DEADLINE_MS, Settings

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VERSION = "1.31"
Manifest = dict[str, Any]


@pytest.fixture(scope="module", params=["cpu", "gpu", "models-volume", "models-url", "keys"])
def manifests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """Manifests by kind, as applied without and with each change."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    folder = tmp_path_factory.mktemp("kubernetes") / "copy"
    shutil.copytree(FOLDER, folder)
    if request.param != "cpu":
        file, patch = folder / "kustomization.yaml", request.param.replace("gpu", "keys")
        text = file.read_text().replace("- base", "- gpu" if request.param == "gpu" else "- base")
        file.write_text(f"{text}patches:\n  - path: {patch}.yaml\n")
    command = ["kubectl", "kustomize", folder]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {"variant": request.param} | {item["kind"]: item for item in yaml.safe_load_all(made)}


def container_of(manifests: dict[str, Manifest]) -> Manifest:
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container | {"settings": {item["name"]: item["value"] for item in container["env"]}}


def test_parts_fit_together(manifests: dict[str, Manifest]) -> None:
    """Ports of the service and of scrapes, files of keys in the secret's folder, and a GPU for its overlay alone."""
    container, template = container_of(manifests), manifests["Deployment"]["spec"]["template"]
    (port,) = container["ports"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    assert [item["targetPort"] for item in manifests["Service"]["spec"]["ports"]] == [port["name"]]
    files = [Path(value) for name, value in container["settings"].items() if name.endswith("_KEYS_FILE")]
    assert len(files) == (2 if manifests["variant"] in ("keys", "gpu") else 0)
    secrets = {item["name"] for item in template["spec"]["volumes"] if "secret" in item}
    mounts = {Path(item["mountPath"]) for item in container["volumeMounts"] if item["name"] in secrets}
    assert {file.parent for file in files} == mounts
    requested = container["resources"]["limits"].get("nvidia.com/gpu")
    assert requested == ("1" if manifests["variant"] == "gpu" else None)


def test_manifests_obey_schemas(manifests: dict[str, Manifest]) -> None:
    for kind in ("Deployment", "Service", "PodDisruptionBudget"):
        # The release whose schema was taken; where there is none for ours, an older one would be.
        assert kubernetes_validate.validate(manifests[kind], VERSION, strict=True) == VERSION


def test_deployment_uses_existing_features(manifests: dict[str, Manifest]) -> None:
    container = container_of(manifests)
    settings = container["settings"]
    assert settings.keys() <= {f"PRIME_{name.upper()}" for name in Settings.model_fields}
    parsed = Settings(**{name.removeprefix("PRIME_").lower(): value for name, value in settings.items()})
    grace_s = manifests["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > parsed.drain_s + MAX_DEADLINE_MS / 1e3
    paths = {item.path for item in iter_route_contexts(create_app(Settings()).routes)}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
        assert container[probe]["httpGet"]["port"] == "http"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert parsed.drain_s > container["readinessProbe"]["periodSeconds"]
