"""Prometheus's and Grafana's files parse and use only exported metrics."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from model_store.store import ModelStore
from service.engine.engine import Engine
from service.observability.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))
SUFFIXES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
    "counter": ("_total",),
    "gauge": ("",),
    "info": ("_info",),
}


def alert_expressions() -> list[str]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def targets(dashboard: Path) -> Iterator[dict[str, Any]]:
    for panel in json.loads(dashboard.read_text())["panels"]:
        yield from panel.get("targets", [])


def exported_names(folder: Path) -> set[str]:
    """Names of all series that the service exports."""
    metrics = Metrics(Engine(ModelStore(folder), "cpu"))
    return {
        family.name + suffix for family in metrics.registry.collect() for suffix in SUFFIXES.get(family.type, ("",))
    }


def test_every_metric_of_alerts_is_exported(tmp_path: Path) -> None:
    used = set(re.findall(r"\b(?:prime|process)_\w+", " ".join(alert_expressions())))
    assert len(used) >= 3
    assert used - exported_names(tmp_path) == set()


def promtool(*arguments: str | Path) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not on PATH (`make programs` fetches it)")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_files(tmp_path: Path) -> None:
    assert "rules found" in promtool("check", "config", PROMETHEUS / "prometheus.yml")
    # Distributions build Prometheus without discovery in Kubernetes.
    config = (PROMETHEUS / "kubernetes.yml").read_text()
    shutil.copy(PROMETHEUS / "alerts.yml", tmp_path)
    found = re.sub(r"kubernetes_sd_configs:\n +- role: pod", "static_configs: [targets: [pod]]", config)
    (tmp_path / "kubernetes.yml").write_text(found)
    assert "rules found" in promtool("check", "config", tmp_path / "kubernetes.yml")


def test_pods_are_scraped_under_the_job_of_the_alerts() -> None:
    """Otherwise PrimeDown could not fire."""
    (job,) = yaml.safe_load((PROMETHEUS / "kubernetes.yml").read_text())["scrape_configs"]
    deployment = next(yaml.safe_load_all((ROOT / "deploy/kubernetes/base/prime-anc.yaml").read_text()))
    template = deployment["spec"]["template"]
    label = template["metadata"]["labels"]["app.kubernetes.io/name"]
    ports = {item["name"] for item in template["spec"]["containers"][0]["ports"]}
    name, port = job["relabel_configs"][0]["regex"].split(";")
    assert (name, port in ports) == (label, True)
    assert set(re.findall(r'job="([^"]*)"', " ".join(alert_expressions()))) == {job["job_name"]}
