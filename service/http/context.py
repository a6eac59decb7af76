"""What every endpoint shares: the service behind a request, who may ask, until when."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelStore
from service.admission.deadlines import deadline_s
from service.admission.keys import Keys
from service.admission.quotas import Quotas
from service.admission.room import Room
from service.calibration.calibrator import Calibrator
from service.engine.engine import Engine
from service.formats import answers
from service.formats.side_lane import SideLane
from service.http.negotiation import JSON, declared_length, read_body
from service.observability.metrics import Metrics
from service.settings import Settings

MANAGEMENT = "is_management"
"""Set in the state of requests that come in by the management listener."""


@dataclass(frozen=True)
class Service:
    """What every endpoint works with; `request.app.state.service`."""

    settings: Settings
    store: ModelStore
    engine: Engine
    metrics: Metrics
    side_lane: SideLane
    quotas: Quotas
    keys: Keys
    management_keys: Keys
    calibrator: Calibrator
    room: Room
    """For the bodies of all requests but calibrations, which have room of their own."""


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    service: Service = request.app.state.service
    return service


def is_managed(request: Request) -> bool:
    """Whether it came in by the management listener, which only the operator's network reaches."""
    return bool(getattr(request.state, MANAGEMENT, False))


def charge(request: Request, service: Service) -> None:
    """Check the key, and take one request from its quota."""
    request.state.key = key = service.keys.holder(request)
    if key is not None:
        service.quotas.take(key)


def admitted(
    request: Request, service: Service, watch: answers.Stopwatch, default_ms: float | None = None
) -> float:
    """Check the key and its quota; return when the answer is due, as `perf_counter` counts. default_ms: the
    deadline of who names none, where it is not that of designs."""
    charge(request, service)
    return watch.began + deadline_s(request, default_ms or service.settings.deadline_ms)


def count_items(request: Request, service: Service, n_items: int) -> None:
    """Let a request that has been admitted as one count as many against its key's quota."""
    if request.state.key is not None:
        service.quotas.take(request.state.key, n_items, held=1)


async def design_body(request: Request, service: Service, due: float) -> bytearray:
    """The body of a request for designs that are `due` then, if they can be made and there is room for it. Its
    place is kept until the answer."""
    service.engine.refuse_hopeless(due)
    settings = service.settings
    n_bytes = declared_length(request, settings.max_body_bytes)
    request.state.held.enter_context(service.room.place(n_bytes))
    return await read_body(request, settings.max_body_bytes, settings.receive_timeout_s, due)


def json_response(document: object) -> Response:
    """A document as the body of a 200."""
    return Response(orjson.dumps(document), media_type=JSON)
