"""Files of Prometheus and Grafana, and a real Prometheus on the running service: panels have data, rules evaluate."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from benchmarks.service_process import ServiceProcess, started_service
from model_store.manifest import Scores
from model_store.store import ModelStore
from prime_anc.client import wire
from service.engine import Engine
from service.metrics import Metrics
from tests.service.bodies import digest
from tests.service.program import PATIENT, free_port, wait_for
from tests.service.recordings import encoded, recordings

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))


def alert_expressions() -> list[str]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def panels() -> Iterator[tuple[str, str]]:
    """Title and query of every target of every panel."""
    for dashboard in DASHBOARDS:
        for panel in json.loads(dashboard.read_text())["panels"]:
            yield from ((panel["title"], target["expr"]) for target in panel.get("targets", []))


def test_every_metric_of_alerts_is_exported(tmp_path: Path) -> None:
    used = set(re.findall(r"\b((?:prime|process)_\w+?)(?:_bucket|_sum|_count)?\b", " ".join(alert_expressions())))
    text = Metrics(Engine(ModelStore(tmp_path), "cpu")).exposition("")[0].decode()
    assert len(used) >= 3
    assert used <= set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


def promtool(*arguments: str | Path) -> str:
    program = shutil.which("promtool") or pytest.skip("promtool is not on PATH (`make programs` fetches it)")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_files(tmp_path: Path) -> None:
    assert "rules found" in promtool("check", "config", PROMETHEUS / "prometheus.yml")
    config = (PROMETHEUS / "kubernetes.yml").read_text()
    shutil.copy(PROMETHEUS / "alerts.yml", tmp_path)
    # Distributions build Prometheus without discovery in Kubernetes.
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


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    tests = (Path(__file__).parent / "rules_test.yml").read_text()
    file = tmp_path / "rules_test.yml"
    file.write_text(tests.replace("RULES", str(PROMETHEUS / "alerts.yml")))
    assert "SUCCESS" in promtool("test", "rules", file)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service whose model states a score, and whose clients have a key."""
    store = ModelStore(tmp_path_factory.mktemp("store"), include_bundled=False)
    checkpoint = ModelStore().load("generic")
    scores = Scores(held_out={f"k={n}": {"noise_reduction_db": 20.0} for n in range(4)})
    checkpoint = replace(checkpoint, manifest=checkpoint.manifest.model_copy(update={"scores": scores, "split": 0}))
    store.publish("generic", checkpoint)
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"phones:{digest('secret')}")
    with started_service(store.root, *PATIENT, "--api-keys-file", str(keys)) as service:
        yield service


class Prometheus:
    """A server with the deployment's configuration, except target and interval."""

    def __init__(self, program: str, folder: Path, target: str) -> None:
        config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        config["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "500ms")
        config["rule_files"] = [str(PROMETHEUS / item) for item in config["rule_files"]]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.address = f"127.0.0.1:{free_port()}"
        arguments = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        self.log = (folder / "log").open("w")
        arguments += [f"--web.listen-address={self.address}", "--log.level=warn"]
        self.process = subprocess.Popen([program, *arguments], stdout=self.log, stderr=self.log)

    def ask(self, path: str, **parameters: str) -> Any:
        return httpx.get(f"http://{self.address}/api/v1/{path}", params=parameters, timeout=120).json()["data"]

    def values(self, expression: str) -> list[float]:
        """Return the query's current values without NaN."""
        found = [float(item["value"][1]) for item in self.ask("query", query=expression)["result"]]
        return [item for item in found if not math.isnan(item)]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(120)
        self.log.close()


@pytest.fixture(scope="module")
def prometheus(service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A server that has scraped the service during designs."""
    program = shutil.which("prometheus") or pytest.skip("prometheus is not on PATH (`make programs` fetches it)")
    server = Prometheus(program, tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{service.port}")
    try:
        wait_for(lambda: has_data(server, service))
        yield server
    finally:
        server.close()


def has_data(server: Prometheus, service: ServiceProcess) -> bool:
    """Request designs, and return whether the recorded drift is there: it needs two scrapes, and then an evaluation."""
    request_designs(service)
    with suppress(httpx.TransportError):  # not listening yet
        return bool(server.values("prime:noise_reduction_drift_db") and server.values("prime_golden_seconds"))
    return False


def request_designs(service: ServiceProcess) -> None:
    """Produce data for the whole dashboard: designs, of which the generator keeps one, a refusal, and a calibration."""
    listener = json.loads((ROOT / "examples" / "listener.json").read_text())
    primary, secondary = (np.array(listener[name]["impulse_response"]) for name in ("primary", "secondary"))
    body = wire.encode(primary, secondary)
    noise = np.random.default_rng(0).standard_normal(48_000)
    takes = encoded(recordings(noise, primary, secondary))
    requests = (("/refine?k=1", body, 200), ("/synthesize", body, 200), ("/refine?k=99", body, 422))
    for path, body, status in (*requests, ("/calibrate", takes, 200)):
        headers = {"Content-Type": "application/x-safetensors", "Authorization": "Bearer secret"}
        assert service.ask("POST", path, body, headers)[0] == status


@pytest.mark.parametrize(("title", "expression"), list(panels()))
def test_every_panel_has_data(prometheus: Prometheus, title: str, expression: str) -> None:
    query = expression.replace("$__rate_interval", "30s").replace("$stage", "refine")
    wait_for(lambda: bool(prometheus.values(query)))  # on a busy machine a scrape may come too late


def test_target_is_up_and_every_rule_evaluates(prometheus: Prometheus) -> None:
    wait_for(lambda: prometheus.values('up{job="prime-anc"}') == [1.0])
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}  # unknown: not evaluated yet
    assert not [rule.get("lastError") for rule in rules if rule.get("lastError")]
