"""What handlers share: the service, and a call, which is a request with a body from its admission to its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import orjson
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelStore
from service.admission.admission import Admission, Admitted
from service.api.json_workers import JsonWorkerPool
from service.api.negotiation import JSON, body_type, receive_body, wait_for_disconnect
from service.api.query_options import read_options
from service.calibration.calibrator import Calibrator
from service.engine.engine import Engine
from service.engine.types import EvaluationAnswer
from service.observability.metrics import Metrics
from service.observability.tracing import Tracing
from service.settings import Settings
from synthesis.backends.base import DesignInput, Float32
from synthesis.conventions import STAGES
from synthesis.errors import answer_or_raise

CORE_STAGES = ("path_ratio", "generate", "reconstruct", "refine")

Times = dict[str, float | None]


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


class Stopwatch:
    """Measures decoding, encoding and total time of a request; the engine measures the other stages."""

    def __init__(self, began: float) -> None:
        """began: when the first byte was handled."""
        self.began = self._decoding = began
        self._decode_ms = 0.0

    def body_received(self) -> None:
        """Decoding begins."""
        self._decoding = perf_counter()

    def decoded(self) -> None:
        """Decoding has ended."""
        self._decode_ms = 1e3 * (perf_counter() - self._decoding)

    def times_ms(self, engine_ms: Mapping[str, float], encoding_began: float, ended: float | None = None) -> Times:
        """All of `timings_ms`. ended: end of encoding; None: now."""
        now = perf_counter() if ended is None else ended
        times: Times = {stage: engine_ms.get(stage) for stage in STAGES}
        times["decode"] = self._decode_ms + engine_ms.get("decode", 0.0)
        times["encode"] = 1e3 * (now - encoding_began)
        core = [engine_ms[stage] for stage in CORE_STAGES if stage in engine_ms]
        times["core"] = sum(core) if core else None
        times["total"] = 1e3 * (now - self.began)
        return times


class Call:
    """A request with a body: the service, the deadline, the body, and the times that its answer states."""

    def __init__(self, request: Request) -> None:
        """request: an admitted one."""
        admitted: Admitted = request.state.admitted
        self.request, self.service, self.admitted = request, service_of(request), admitted
        self.due = admitted.due
        self.watch = Stopwatch(admitted.began)

    async def disconnected(self) -> None:
        """Return when the client has disconnected. For use after the body was received."""
        await wait_for_disconnect(self.request)

    async def receive(self) -> bytearray:
        """The whole body."""
        body = await receive_body(self.request, self.admitted, self.service.settings.receive_timeout_s)
        self.watch.body_received()
        return body

    async def parse(self, body: bytearray | memoryview) -> object:
        """JSON, with long lists as `LongList`."""
        return await self.service.json_workers.parse(body, self.due, self.disconnected)

    async def read_json(self) -> object:
        """The body of an endpoint that takes JSON alone and no query options."""
        body_type(self.request, (JSON,))
        read_options(self.request.query_params, (), 0)
        return await self.parse(await self.receive())

    async def evaluate(
        self, model: str | None, inputs: Sequence[DesignInput], taps: Sequence[Float32]
    ) -> list[EvaluationAnswer]:
        """`Engine.evaluate`; raises the first ear's SynthesisError, if there is one."""
        found = await self.service.engine.evaluate(model, inputs, taps, self.due, self.disconnected)
        return [answer_or_raise(each) for each in found]


def timed_response(
    content: bytes, times_ms: Mapping[str, float | None], media_type: str = JSON, **headers: str
) -> Response:
    """A response with status 200 and `Server-Timing`."""
    timing = {"Server-Timing": server_timing(times_ms)}
    return Response(content, headers=headers | timing, media_type=media_type)


def server_timing(times_ms: Mapping[str, float | None]) -> str:
    """The `Server-Timing` header, in milliseconds, without stages that have no time."""
    return ", ".join(f"{name};dur={spent:.4f}" for name, spent in times_ms.items() if spent is not None)


def json_response(document: object) -> Response:
    """A JSON response with status 200."""
    return Response(orjson.dumps(document), media_type=JSON)
