"""The state of a request, and the parts of the service that its handler uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TypeVar

from starlette.requests import Request

from service.admission import MAX_BODY_BYTES, MAX_RECORDINGS_BYTES, Admission, deadline_s
from service.engine import Engine
from service.metrics import Metrics
from service.models.resident_model import ResidentModel
from service.queue.estimates import Cost
from service.settings import Settings

Result = TypeVar("Result")

JSON, TAPS, TENSORS = "application/json", "application/octet-stream", "application/x-safetensors"


@dataclass(frozen=True)
class Service:
    """The parts of a running service, in `app.state.service`."""

    settings: Settings
    engine: Engine
    admission: Admission
    metrics: Metrics


@dataclass(frozen=True)
class Policy:
    """What a kind of body may take."""

    max_bytes: int
    # Whether it has the deadline of recordings.
    is_long: bool
    # Whether its work is nearly always light: it is refused before it is read while light work has no room, also the
    # few designs that only their bodies would show to be heavy.
    is_light: bool = False


DESIGNS, FILTERS, HYBRIDS, RECORDINGS = (
    Policy(MAX_BODY_BYTES, False, True),
    Policy(MAX_BODY_BYTES, False),
    Policy(MAX_BODY_BYTES, True),
    Policy(MAX_RECORDINGS_BYTES, True),
)


@dataclass(slots=True)
class RequestState:
    """State of a request, in `request.state.request`."""

    # Start of its handling (`perf_counter`, s).
    began: float
    # Its `X-Request-Id`.
    request_id: str
    # Name of its key.
    key: str = ""
    # Deadline (`perf_counter`, s).
    due: float = math.inf
    # Time at which its body had arrived.
    received: float = 0.0
    decode_ms: float = 0.0
    # For the metrics: the method of a design, and the code of a problem.
    design_method: str = ""
    code: str = "ok"

    def set_deadline(self, request: Request, policy: Policy) -> None:
        """Take the deadline from the header, or the default; raises HttpProblem."""
        settings = service_of(request).settings
        default_ms = settings.calibration_deadline_ms if policy.is_long else settings.deadline_ms
        self.due = self.began + deadline_s(request.headers, default_ms)

    def decoded(self) -> None:
        """Note that decoding has ended."""
        self.decode_ms = 1e3 * (perf_counter() - self.received)


def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service


def state_of(request: Request) -> RequestState:
    """Return the state of a request."""
    state: RequestState = request.state.request
    return state


async def check_sender(request: Request) -> None:
    """Refuse another site's page."""
    service_of(request).admission.check_sender(request)


async def client_key(request: Request) -> None:
    """Require a client's key."""
    state_of(request).key = service_of(request).admission.client(request.headers)


async def operator_key(request: Request) -> None:
    """Require an operator's key."""
    state_of(request).key = service_of(request).admission.operator(request.headers)


async def disconnected(request: Request) -> None:
    """Wait until the client has disconnected; for use after the body was received."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def model_of(request: Request, reference: str | None) -> ResidentModel:
    """Return the model that a request asks for, loaded if need be."""
    watch = partial(disconnected, request)
    return await service_of(request).engine.model(reference, state_of(request).due, watch)


async def run(request: Request, task: Callable[[], Result], cost: Cost) -> tuple[Result, float]:
    """Run a request's task in the queue; returns its answer, and its time there in ms."""
    state, watch = state_of(request), partial(disconnected, request)
    answer, queue_s = await service_of(request).engine.run(task, cost, state.key, state.due, watch)
    return answer, 1e3 * queue_s
