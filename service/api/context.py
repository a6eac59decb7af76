"""Accessors that handlers share: the service, the admission of a request, and its disconnection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelStore
from service.admission.admission import Admission, Admitted
from service.api.json_workers import JsonWorkerPool
from service.api.negotiation import JSON, wait_for_disconnect
from service.calibration.calibrator import Calibrator
from service.engine.engine import Engine
from service.engine.types import Disconnected
from service.observability.metrics import Metrics
from service.observability.tracing import Tracing
from service.settings import Settings


@dataclass(frozen=True)
class Service:
    """The components of a running service, in `request.app.state.service`."""

    settings: Settings
    store: ModelStore
    engine: Engine
    calibrator: Calibrator
    admission: Admission
    json_workers: JsonWorkerPool
    metrics: Metrics
    tracing: Tracing | None

    def observe_times(self, times_ms: Mapping[str, float | None]) -> None:
        """Add the times of an answered request to the metrics and to its trace."""
        self.metrics.observe_times(times_ms)
        if self.tracing is not None:
            self.tracing.add_stage_spans(times_ms)


def service_of(request: Request) -> Service:
    """The service that received the request."""
    service: Service = request.app.state.service
    return service


def admitted_of(request: Request) -> Admitted:
    """How the request was admitted, before its endpoint was called."""
    admitted: Admitted = request.state.admitted
    return admitted


def disconnect_of(request: Request) -> Disconnected:
    """An awaitable that returns when the client has disconnected; for use after the body was received."""
    return partial(wait_for_disconnect, request)


def json_response(document: object) -> Response:
    """A JSON response with status 200."""
    return Response(orjson.dumps(document), media_type=JSON)
