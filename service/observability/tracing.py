"""OpenTelemetry traces, if a setting enables them: their ids in the log, their spans at a collector.

A request continues its client's trace (`traceparent`, W3C Trace Context) or begins a new one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time_ns

import orjson
from starlette.applications import Starlette
from starlette.routing import Match
from starlette.types import Scope

from synthesis.conventions import STAGES

# Requested every few seconds; their traces add nothing to the metrics.
UNTRACED = "/health/,/metrics"


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message and, if any, `access`, trace_id and error."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "access", {})
        if found := trace_id():
            line["trace_id"] = found
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def trace_id() -> str:
    """Return the current request's trace id, 32 hexadecimal digits; empty outside a request and without tracing."""
    trace = sys.modules.get("opentelemetry.trace")  # imported by `Tracing`
    if trace is None:
        return ""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


class Tracing:
    """Traces the requests of one application."""

    def __init__(self, endpoint: str | None = None) -> None:
        """Enable tracing.

        Parameters
        ----------
        endpoint
            OpenTelemetry collector (OTLP over HTTP) that receives the spans in batches; None: trace ids appear only in
            the log.

        Raises
        ------
        ValueError
            OpenTelemetry is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise ValueError("tracing: OpenTelemetry is not installed; pip install prime-anc[otel]") from error
        self._provider = TracerProvider(resource=Resource.create({"service.name": "prime-anc"}))
        self._tracer = self._provider.get_tracer(__name__)
        if endpoint is not None:
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._middleware = OpenTelemetryMiddleware

    def surround(self, app: Starlette) -> None:
        """Trace the requests of an application, around its present middleware."""

        def details(scope: Scope) -> tuple[str, dict[str, str]]:
            paths = (getattr(route, "path", "") for route in app.routes if route.matches(scope)[0] is Match.FULL)
            path = next(paths, "")
            return f"{scope['method']} {path}".rstrip(), {"http.route": path} if path else {}

        app.add_middleware(
            self._middleware,
            tracer_provider=self._provider,
            excluded_urls=UNTRACED,
            default_span_details=details,
            exclude_spans=["receive", "send"],
        )

    def add_stage_spans(self, times_ms: Mapping[str, float | None]) -> None:
        """Add consecutive child spans for the timed stages; the last one ends now."""
        spent_ns = {stage: int(1e6 * spent) for stage in STAGES if (spent := times_ms.get(stage)) is not None}
        at_ns = time_ns() - sum(spent_ns.values())
        for stage, duration_ns in spent_ns.items():
            span = self._tracer.start_span(stage, start_time=at_ns)
            at_ns += duration_ns
            span.end(at_ns)

    def close(self) -> None:
        """Send the remaining spans; waits for the collector."""
        self._provider.shutdown()
