"""What the engine says of itself when it is scraped: its queue, its models, the memory that they take."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.engine.engine import Engine


class StateCollector(Collector):
    """Reads the engine's state at each scrape, so that nothing has to be kept up to date between."""

    def __init__(self, engine: Engine) -> None:
        """engine: asked at each scrape."""
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """The families, in the order in which they are written."""
        engine, residency = self._engine, self._engine.residency
        yield GaugeMetricFamily("prime_queue_depth", "Calls that wait or run.", engine.n_queued)
        yield GaugeMetricFamily("prime_ready", "1 when requests should be sent here.", engine.ready)
        yield GaugeMetricFamily(
            "prime_golden_seconds", "Time of the golden design that was checked last.", engine.readiness.golden_s
        )
        checks = CounterMetricFamily("prime_golden_checks", "Checks of the default model.", labels=["outcome"])
        for outcome, count in engine.readiness.n_checks.items():
            checks.add_metric([outcome], count)
        yield checks
        yield GaugeMetricFamily("prime_resident_models", "Models in memory.", len(residency.versions()))
        models = GaugeMetricFamily(
            "prime_model_info",
            "Resident models; default: whether requests that name none are designed by it.",
            labels=["name", "version", "digest", "default"],
        )
        memory = GaugeMetricFamily(
            "prime_model_memory_bytes",
            "Memory of a resident model: its weights and buffers, and what its recorded CUDA graphs keep.",
            labels=["name", "version", "kind"],
        )
        for model in residency.models():
            name, version = model.version.name, str(model.version.version)
            is_default = "true" if model is residency.default else "false"
            models.add_metric([name, version, model.version.digest, is_default], 1)
            memory.add_metric([name, version, "tensors"], model.tensor_bytes())
            memory.add_metric([name, version, "graphs"], model.graph_bytes)
        yield from (models, memory)
        loads = CounterMetricFamily("prime_model_loads", "Models loaded, by outcome.", labels=["outcome"])
        for outcome, count in residency.n_loads.items():
            loads.add_metric([outcome], count)
        yield loads
        yield GaugeMetricFamily(
            "prime_model_load_seconds", "Time that the last successful load took.", residency.last_load_s
        )
        process = engine.process
        yield GaugeMetricFamily(
            "prime_design_process_memory_bytes",
            "Resident memory of the process that designs; 0 where models live in the service's own.",
            process.resident_bytes() if process else 0,
        )
        yield CounterMetricFamily(
            "prime_design_process_deaths",
            "Processes that have died and were replaced.",
            process.n_deaths if process else 0,
        )
        device = GaugeMetricFamily(
            "prime_device_memory_bytes",
            "GPU memory of this process: in use, and held by PyTorch's allocator; 0 on a CPU.",
            labels=["state"],
        )
        stats = torch.cuda.memory_stats() if engine.device.type == "cuda" else {}
        for state in ("allocated", "reserved"):
            device.add_metric([state], stats.get(f"{state}_bytes.all.current", 0))
        yield device
