"""Prometheus metrics. An application has a separate registry, so that several can run in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, Summary
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest

from prime_anc.method.conventions import STAGES
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.method.types import Design, Replaced
from service.engine import Engine
from service.engine_collector import EngineCollector
from service.models.resident_model import ResidentModel

# 50 us to 6.4 s in steps of 1.5: a design takes from tenths of a millisecond on a GPU to tens of them on a CPU.
TIME_BUCKETS_S = tuple(50e-6 * 1.5**step for step in range(30))

# 10 ms to 75 s, above any deadline, in the same steps.
CALIBRATION_BUCKETS_S = tuple(0.01 * 1.5**step for step in range(23))

# Names of keys that have series; later ones share `other`.
MAX_KEY_NAMES = 100

NOISE_REDUCTION_BUCKETS_DB = tuple(range(0, 51, 2))  # from 0: a histogram with negative bounds has no sum


class Metrics:
    """The service's metrics, with the prefix `prime_`, and the process's, with `process_`."""

    def __init__(self, engine: Engine, commit: str = "") -> None:
        """Register the metrics.

        Parameters
        ----------
        engine
            Read at scrapes; reports the size of its batches.
        commit
            Commit of this build.
        """
        self.registry = CollectorRegistry()
        # A metric with labels for given ones, looked up once.
        self._child: Callable[..., Any] = cache(lambda metric, *labels: metric.labels(*labels))
        self._key_names: set[str] = set()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        ProcessCollector(registry=self.registry)
        self.registry.register(EngineCollector(engine))
        Info("prime_build", "What runs.", registry=self.registry).info(
            {"version": version("prime-anc"), "commit": commit or "unknown", "torch": _installed("torch")}
        )
        stage = histogram(
            "prime_stage_seconds", "Time of each stage of a request.", ["stage"], buckets=TIME_BUCKETS_S
        )
        total = "First byte handled to body encoded"
        self._times: dict[str, Histogram] = {name: stage.labels(name) for name in STAGES} | {
            "core": histogram("prime_core_seconds", "Resident spectra to filter.", buckets=TIME_BUCKETS_S),
            "total": histogram("prime_total_seconds", f"{total}.", buckets=TIME_BUCKETS_S),
        }
        self._calibration = histogram(
            "prime_calibration_seconds", f"{total}, of calibrations.", buckets=CALIBRATION_BUCKETS_S
        )
        self._requests = counter(
            "prime_requests_total",
            "Requests by endpoint, design method, status and outcome: `ok`, a problem's code or `client-gone`.",
            ["endpoint", "method", "status", "code"],
        )
        self._key_requests = counter(
            "prime_key_requests_total",
            "Requests by the key's name in its file, and outcome: `ok`, `refused` (4xx) or `failed`.",
            ["key", "outcome"],
        )
        self._key_seconds = counter(
            "prime_key_seconds_total", "Time from head to answer of requests, by the key's name.", ["key"]
        )
        # Without labels, so it starts at 0 and the first defect is an increase.
        self._defects = counter(
            "prime_defects_total", "Failures inside the service, answered 500; their causes are in its log."
        )
        self._register_designs(counter, histogram)
        engine.queue.on_batch = histogram(
            "prime_batch_size", "Pieces of work done together.", buckets=(1, 2, 4, 8, 16)
        ).observe

    def _register_designs(self, counter: Callable[..., Counter], histogram: Callable[..., Histogram]) -> None:
        """Register the metrics of designs' figures."""
        self._noise_reduction = histogram(
            "prime_predicted_noise_reduction_db",
            "Predicted mean noise reduction of the designs, dB.",
            buckets=NOISE_REDUCTION_BUCKETS_DB,
        )
        self._applied = histogram(
            "prime_refine_applied", "Gauss-Newton updates applied to a design.", buckets=range(MAX_UPDATES + 1)
        )
        self._replaced = counter(
            "prime_replaced_designs_total",
            "Generator's designs that the Wiener filter replaced, by reason.",
            ["reason"],
        )
        for reason in get_args(Replaced):  # start at 0, so that the first one is an increase
            self._replaced.labels(reason)
        # Two sums over the same designs: their difference is the drift, over any time and set of replicas.
        self._judged = Summary(
            "prime_judged_noise_reduction_db",
            "Designs whose model's manifest states a score: what was predicted, and what the model scored.",
            ["model", "source"],
            registry=self.registry,
        )

    def observe(self, times_ms: Mapping[str, float | None]) -> None:
        """Observe the times of one answered request; None is a stage without a separate time."""
        for name, spent in times_ms.items():
            if spent is not None:
                self._times[name].observe(spent / 1e3)

    def observe_calibration(self, times_ms: Mapping[str, float | None]) -> None:
        """Observe the time of one answered calibration."""
        self._calibration.observe((times_ms["total"] or 0.0) / 1e3)

    def observe_design(self, model: ResidentModel, design: Design) -> None:
        """Observe the figures of one delivered design, and beside its scores those of the model's generator."""
        predicted_db = design.prediction.mean_noise_reduction_db
        n_applied = design.refinement.applied
        self._noise_reduction.observe(predicted_db)
        self._applied.observe(n_applied)
        if design.replaced_because is not None:
            self._child(self._replaced, design.replaced_because).inc()
        if design.method != "prime":
            return
        scored_db = model.scored_noise_reduction_db[n_applied]
        if scored_db is not None:
            # Prometheus's rate() needs sums that never fall, so negative figures count as 0 dB.
            self._child(self._judged, model.version.name, "predicted").observe(max(predicted_db, 0.0))
            self._child(self._judged, model.version.name, "scored").observe(max(scored_db, 0.0))

    def count(self, endpoint: str, method: str, status: int, code: str) -> None:
        """Count one answered request; method is empty if none was given."""
        self._child(self._requests, endpoint, method, status, code).inc()

    def count_key(self, name: str, status: int, seconds: float) -> None:
        """Count one request with a valid key; the first MAX_KEY_NAMES names have series of their own."""
        if name not in self._key_names:
            if len(self._key_names) < MAX_KEY_NAMES:
                self._key_names.add(name)
            else:
                name = "other"
        outcome = "ok" if status < 400 else "refused" if status < 499 else "failed"
        self._child(self._key_requests, name, outcome).inc()
        self._child(self._key_seconds, name).inc(seconds)

    def count_defect(self) -> None:
        """Count one failure inside the service."""
        self._defects.inc()

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the text of a scrape and its media type, preferred by Accept; plain if that header is invalid."""
        try:
            encoder, media_type = choose_encoder(accept)
            return encoder(self.registry), media_type
        except (TypeError, ValueError):  # a version that is not a number
            return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4


def _installed(package: str) -> str:
    """Return the version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
