"""Traces: in the log as JSON, limited in number, and as spans at a collector if one is set."""

import io
import logging

import orjson
import pytest

from service.app import create_app
from service.observability.traceback_limit import PER_S, TracebackLimit
from service.observability.tracing import JsonFormatter, trace_id
from service.settings import Settings
from synthesis.conventions import STAGES
from synthesis.types import Paths
from tests.service.bodies import JSON_BODY, as_responses
from tests.service.conftest import connected

in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
otlp = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")

pytestmark = pytest.mark.anyio

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
COLLECTOR = "http://127.0.0.1:4318/v1/traces"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


async def test_request_is_one_trace_with_span_per_stage(
    settings: Settings, ear: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = in_memory.InMemorySpanExporter()
    monkeypatch.setattr(otlp, "OTLPSpanExporter", lambda endpoint: {COLLECTOR: collected}[endpoint])
    app = create_app(settings.model_copy(update={"otlp_endpoint": COLLECTOR}))
    async with app.router.lifespan_context(app), connected(app) as client:
        await app.state.service.engine.started()
        content = orjson.dumps(as_responses(ear))
        answer = await client.post("/refine?k=1", content=content, headers=JSON_BODY | TRACEPARENT)
        assert answer.status_code == 200
        assert (await client.post("/refine?k=99", content=content, headers=JSON_BODY)).status_code == 422
        for path in ("/health/live", "/health/ready", "/metrics"):
            await client.get(path)
    spans = collected.get_finished_spans()  # closing has sent them
    requests = [span for span in spans if span.name == "POST /refine"]
    assert len(requests) == 2
    (known,) = [span for span in requests if span.context.trace_id == int(TRACE, 16)]
    assert known.parent.span_id == int(PARENT, 16)
    (begun_here,) = [span for span in requests if span is not known]
    assert begun_here.parent is None
    assert begun_here.attributes["http.status_code"] == 422
    assert begun_here.attributes["http.route"] == "/refine"
    stages = {span.name: span for span in spans if span.parent and span.parent.span_id == known.context.span_id}
    assert set(stages) == set(STAGES)
    assert all(span.context.trace_id == known.context.trace_id for span in stages.values())
    spent_ms = (stages["refine"].end_time - stages["refine"].start_time) / 1e6
    assert spent_ms == pytest.approx(answer.json()["timings_ms"]["refine"], abs=0.01)
    assert len(spans) == len(requests) + len(STAGES)  # none for health or metrics


async def test_defect_line_names_trace(settings: Settings, ear: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(settings.model_copy(update={"log_format": "json"}))
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    logging.getLogger("service.api.front").addHandler(handler)
    async with app.router.lifespan_context(app), connected(app) as client:
        await app.state.service.engine.started()
        monkeypatch.setattr(app.state.service.engine, "design", None)  # a defect
        answer = await client.post("/refine", json=as_responses(ear), headers=TRACEPARENT)
    logging.getLogger("service.api.front").removeHandler(handler)
    assert answer.status_code == 500
    (line,) = [orjson.loads(item) for item in written.getvalue().splitlines()]
    assert (line["level"], line["logger"], line["trace_id"]) == ("error", "service.api.front", TRACE)
    assert "TypeError" in line["error"]
    assert TRACE not in answer.text
    assert trace_id() == ""


def record() -> logging.LogRecord:
    """The log record of a failure."""
    fault = ValueError("wrong")
    return logging.LogRecord("service", logging.ERROR, "", 1, "%s", ("failed",), (ValueError, fault, None))


def test_tracebacks_are_limited_per_minute() -> None:
    now = [0.0]
    limit = TracebackLimit(2, lambda: now[0])
    records = [record() for _ in range(4)]
    assert all(map(limit.filter, records))
    assert [item.exc_info is not None for item in records] == [True, True, False, False]
    assert records[3].getMessage().startswith("failed (traceback left out")
    now[0] = PER_S
    later = record()
    assert limit.filter(later)
    assert later.exc_info is not None
