"""Metrics of the engine's state, read at scrapes: queue, models, memory."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.engine import Engine


class EngineCollector(Collector):
    """Reads the engine's state at scrapes."""

    def __init__(self, engine: Engine) -> None:
        """Read this engine."""
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families in order."""
        engine, models = self._engine, self._engine.models
        depth = GaugeMetricFamily("prime_queue_depth", "Work that waits or runs, by lane.", labels=["lane"])
        for lane, count in engine.queue.n_pending.items():
            depth.add_metric([lane], count)
        yield depth
        yield GaugeMetricFamily("prime_ready", "1 when requests should be sent here.", engine.ready)
        yield GaugeMetricFamily(
            "prime_golden_seconds", "Time of the golden design that was checked last.", engine.readiness.golden_s
        )
        checks = CounterMetricFamily("prime_golden_checks", "Checks of the default model.", labels=["outcome"])
        for outcome, count in engine.readiness.n_checks.items():
            checks.add_metric([outcome], count)
        yield checks
        yield GaugeMetricFamily("prime_resident_models", "Models in memory.", len(models.versions()))
        infos = GaugeMetricFamily(
            "prime_model_info",
            "Resident models; default: whether requests that name none are designed by it.",
            labels=["name", "version", "digest", "default"],
        )
        memory = GaugeMetricFamily(
            "prime_model_memory_bytes", "Memory of a resident model's weights.", labels=["name", "version", "kind"]
        )
        for model in models.models():
            name, version = model.version.name, str(model.version.version)
            is_default = "true" if model is models.default else "false"
            infos.add_metric([name, version, model.version.digest, is_default], 1)
            memory.add_metric([name, version, "tensors"], model.n_bytes)
        yield from (infos, memory)
        loads = CounterMetricFamily("prime_model_loads", "Models loaded, by outcome.", labels=["outcome"])
        for outcome, count in models.n_loads.items():
            loads.add_metric([outcome], count)
        yield loads
        yield GaugeMetricFamily(
            "prime_model_load_seconds", "Time that the last successful load took.", models.last_load_s
        )
        device = GaugeMetricFamily(
            "prime_device_memory_bytes",
            "GPU memory of this process: in use, and held by PyTorch's allocator; 0 on a CPU.",
            labels=["state"],
        )
        for state, n_bytes in _device_memory(engine.device).items():
            device.add_metric([state], n_bytes)
        yield device


def _device_memory(device: str) -> dict[str, int]:
    """Return bytes by state."""
    if device != "cuda":
        return {"allocated": 0, "reserved": 0}
    import torch  # the backend has imported it already

    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
