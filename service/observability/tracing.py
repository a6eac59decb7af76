"""One trace for each request, where the operator asks for it: its id in the log, its spans at a collector.

Nothing of this is in the way of a request unless a setting asks for it: the application is then wrapped. A trace
goes on that a client began (`traceparent`, W3C Trace Context); others begin here.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from time import time_ns
from typing import TYPE_CHECKING

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_TRACEPARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_STAGE = re.compile(r"([a-z_]+);dur=([0-9.]+)")
_TOTALS = ("core", "total")
_UNTRACED = ("/health/", "/metrics", "/v2/health/")
"""What is asked every few seconds and tells nothing that the metrics do not."""

trace_id: ContextVar[str] = ContextVar("trace_id", default="")
"""Of the request that is being answered; 32 hexadecimal digits, empty outside one."""


class JsonFormatter(logging.Formatter):
    """One line of JSON for each record: time, level, logger, message, and where there are any trace_id, error."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if found := trace_id.get():
            line["trace_id"] = found
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def collector(endpoint: str) -> TracerProvider:
    """Sends spans to an OpenTelemetry collector at `endpoint` (OTLP over HTTP), in batches and in a thread of its
    own. Raises ValueError where the packages for it are not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ValueError("otlp-endpoint: found no OpenTelemetry, expected pip install prime-anc[otel]") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "prime-anc"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


class Traced:
    """An ASGI application whose requests have a trace id, and spans where there is a provider."""

    def __init__(self, app: ASGIApp, provider: TracerProvider | None = None) -> None:
        """provider: None for ids alone, which the log then names."""
        self._app = app
        self._record = _recorder(provider) if provider is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"].startswith(_UNTRACED):
            await self._app(scope, receive, send)
            return
        parent = _TRACEPARENT.fullmatch(dict(scope["headers"]).get(b"traceparent", b""))
        found = parent[1].decode() if parent else secrets.token_hex(16)
        token, began_ns, started = trace_id.set(found), time_ns(), dict[str, object]()

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            if self._record is not None:
                self._record(scope, found, parent[2].decode() if parent else None, started, began_ns)
            trace_id.reset(token)


def _recorder(
    provider: TracerProvider,
) -> Callable[[Scope, str, str | None, dict[str, object], int], None]:
    """Writes a request's span when it is over, and below it one for each stage that `Server-Timing` names."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

    class GivenTraceIds(RandomIdGenerator):
        """Gives a request's span the trace id that the log already has. For one thread: the event loop's."""

        trace_id = 0

        def generate_trace_id(self) -> int:
            return self.trace_id

    provider.id_generator = ids = GivenTraceIds()
    tracer = provider.get_tracer("service")

    def record(scope: Scope, found: str, parent: str | None, started: dict[str, object], began_ns: int) -> None:
        ended_ns = time_ns()
        context = None
        if parent is not None:
            span = SpanContext(int(found, 16), int(parent, 16), is_remote=True, trace_flags=TraceFlags(1))
            context = trace.set_span_in_context(NonRecordingSpan(span))
        ids.trace_id = int(found, 16)
        route = getattr(scope.get("route"), "path", "")
        request = tracer.start_span(f"{scope['method']} {route}", context, SpanKind.SERVER, start_time=began_ns)
        request.set_attribute("http.request.method", scope["method"])
        request.set_attribute("http.route", route)
        status = started.get("status", 500)
        assert isinstance(status, int)
        request.set_attribute("http.response.status_code", status)
        headers = started.get("headers", [])
        assert isinstance(headers, list)
        timing = next((value.decode() for name, value in headers if name.lower() == b"server-timing"), "")
        stages = [(name, float(spent)) for name, spent in _STAGE.findall(timing) if name not in _TOTALS]
        # The stages follow each other, and the answer leaves when the last one ends.
        at_ns = ended_ns - int(1e6 * sum(spent for _, spent in stages))
        below = trace.set_span_in_context(request)
        for name, spent in stages:
            stage = tracer.start_span(name, below, start_time=at_ns)
            at_ns += int(1e6 * spent)
            stage.end(at_ns)
        request.end(ended_ns)

    return record
