"""Traces: in the log as JSON, and as spans at a collector if one is set."""

import io
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest

from service.app import create_app
from service.observability.tracing import JsonFormatter, trace_id
from service.settings import Settings
from synthesis.conventions import STAGES
from synthesis.types import Paths
from tests.service.bodies import JSON_BODY, as_responses
from tests.service.conftest import connected

trace_service_pb2 = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

pytestmark = pytest.mark.anyio

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


class Collector:
    """A collector's record of the bodies posted to it."""

    def __init__(self) -> None:
        bodies: list[bytes] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *_: object) -> None:
                pass

        self.bodies = bodies
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def spans(self) -> list[object]:
        found = []
        for body in self.bodies:
            request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            found += [
                span
                for resource_span in request.resource_spans
                for scope in resource_span.scope_spans
                for span in scope.spans
            ]
        return found

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector on a free port."""
    collector = Collector()
    yield collector
    collector.close()


async def test_request_is_one_trace_with_span_per_stage(
    settings: Settings, ear: Paths, collector: Collector
) -> None:
    app = create_app(settings.model_copy(update={"otlp_endpoint": collector.url}))
    async with app.router.lifespan_context(app), connected(app) as client:
        await app.state.service.engine.started()
        content = orjson.dumps(as_responses(ear))
        answer = await client.post("/refine?k=1", content=content, headers=JSON_BODY | TRACEPARENT)
        assert answer.status_code == 200
        assert (await client.post("/refine?k=99", content=content, headers=JSON_BODY)).status_code == 422
        for path in ("/health/live", "/health/ready", "/metrics"):
            await client.get(path)
    spans = collector.spans()  # closing has sent them
    requests = [span for span in spans if span.name == "POST /refine"]
    assert len(requests) == 2
    (known,) = [span for span in requests if span.trace_id.hex() == TRACE]
    assert known.parent_span_id.hex() == PARENT
    (begun_here,) = [span for span in requests if span is not known]
    assert not begun_here.parent_span_id
    attributes = {attribute.key: attribute.value for attribute in begun_here.attributes}
    assert attributes["http.status_code"].int_value == 422
    assert attributes["http.route"].string_value == "/refine"
    stages = {span.name: span for span in spans if span.parent_span_id == known.span_id}
    assert set(stages) == set(STAGES)
    assert all(span.trace_id == known.trace_id for span in stages.values())
    spent_ms = (stages["refine"].end_time_unix_nano - stages["refine"].start_time_unix_nano) / 1e6
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
        answer = await client.post(
            "/refine", content=orjson.dumps(as_responses(ear)), headers=JSON_BODY | TRACEPARENT
        )
    logging.getLogger("service.api.front").removeHandler(handler)
    assert answer.status_code == 500
    (line,) = [orjson.loads(item) for item in written.getvalue().splitlines()]
    assert (line["level"], line["logger"], line["trace_id"]) == ("error", "service.api.front", TRACE)
    assert "TypeError" in line["error"]
    assert TRACE not in answer.text
    assert trace_id() == ""
