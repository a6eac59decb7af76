"""A call: one request from its head to its answer, as handlers receive it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from model_store.store import ModelStore, ModelVersion
from service.admission.admission import Admission, Admitted
from service.api.json_workers import JsonWorkerPool
from service.api.query_options import read_options
from service.engine.engine import Engine
from service.engine.work_share import WorkShare
from service.errors import HttpProblem
from service.observability.metrics import Metrics
from service.observability.tracing import Tracing
from service.settings import Settings
from synthesis.conventions import STAGES
from synthesis.errors import answer_or_raise
from synthesis.types import Complex64, Design, Evaluation, Float32, Problem

JSON = "application/json"
BINARY = "application/octet-stream"
NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}

CORE_STAGES = ("path_ratio", "generate", "reconstruct", "refine")

_UTF_8 = (["utf-8"], ['"utf-8"'])

Times = dict[str, float | None]


@dataclass(frozen=True)
class Service:
    """The components of a running service, in `app.state.service`."""

    settings: Settings
    store: ModelStore
    engine: Engine
    calibrations: WorkShare
    exports: WorkShare
    verifications: WorkShare
    admission: Admission
    json_workers: JsonWorkerPool
    metrics: Metrics
    tracing: Tracing | None


class Call(Request):
    """A request with the service that received it, and what its answer states.

    began: when its handling started (`perf_counter`, seconds). admitted: its key, deadline and length.
    design_method: for the metrics, empty while none is known. times_ms, designs: for the metrics, which count them
    once the answer is written.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, service: Service) -> None:
        super().__init__(scope, receive, send)
        self.service = service
        self.began = self._decoding = perf_counter()
        self.admitted: Admitted
        self.design_method = ""
        self.times_ms: Times = {}
        self.designs: Sequence[tuple[ModelVersion, Design]] = ()
        self._decode_ms = 0.0

    @property
    def due(self) -> float:
        """The deadline (`perf_counter`, seconds)."""
        return self.admitted.due

    def answer_type(self, offered: tuple[str, ...] = (JSON, BINARY)) -> str:
        """The media type of the answer: of those offered, the first with the highest quality in the Accept
        header."""
        accept = ",".join(self.headers.getlist("accept")).strip()
        if not accept or accept == "*/*":
            return offered[0]
        if accept in offered:
            return accept
        qualities = {media_type: _quality(accept, media_type) for media_type in offered}
        best = max(offered, key=lambda media_type: qualities[media_type])
        if qualities[best] <= 0:
            raise HttpProblem(
                "not-acceptable",
                f"Accept: {accept[:80]!a} excludes the available media types; accept {' or '.join(offered)}",
            )
        return best

    def body_type(self, accepted: tuple[str, ...] = (JSON, BINARY)) -> str:
        """The media type of the body, "" if not given; HttpProblem if it is not accepted, or for any
        Content-Encoding."""
        self.refuse_encoding()
        given = self.headers.get("content-type", "")
        if given in accepted:
            return given
        media_type, *parameters = (part.strip().lower() for part in given.split(";"))
        named = [[each.strip() for each in parameter.split("=", 1)] for parameter in parameters]
        if media_type not in accepted or any(name == "charset" and value not in _UTF_8 for name, *value in named):
            expected = " or ".join(filter(None, accepted))
            raise HttpProblem(
                "unsupported-media-type", f"Content-Type: {given[:80]!a} is not supported; send {expected}"
            )
        return media_type

    def refuse_encoding(self) -> None:
        """HttpProblem for any Content-Encoding."""
        encoding = self.headers.get("content-encoding")
        if encoding is not None:
            raise HttpProblem(
                "unsupported-encoding",
                f"Content-Encoding: {encoding[:40]!a} is not supported; send the body uncompressed",
            )

    async def receive_body(self) -> bytearray:
        """The whole body; HttpProblem if it is not complete within the service's limit or by the deadline. Decoding
        begins."""
        within_s = self.service.settings.receive_timeout_s
        left_s = max(self.due - perf_counter(), 0.0)
        try:
            async with asyncio.timeout(None) as limit:
                loop = asyncio.get_running_loop()
                # A body that has arrived with its head needs no timer.
                start_timer = loop.call_soon(limit.reschedule, loop.time() + min(within_s, left_s))
                try:
                    body = await self._received()
                finally:
                    start_timer.cancel()
        except TimeoutError:
            told = f"{within_s:g} s" if within_s <= left_s else f"the {left_s:.3g} s left before its deadline"
            raise HttpProblem(
                "too-slow",
                f"the body of {self.admitted.n_body_bytes} bytes was not complete after {told}; send it faster",
                headers={"Connection": "close"},
            ) from None
        self._decoding = perf_counter()
        return body

    async def _received(self) -> bytearray:
        body, n_bytes = bytearray(), self.admitted.n_body_bytes
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > n_bytes:
                raise HttpProblem(
                    "too-large",
                    f"the body is longer than the {n_bytes} bytes of its Content-Length; declare its full length",
                )
            if not message.get("more_body", False):
                return body

    async def disconnected(self) -> None:
        """Return when the client has disconnected. For use after the body was received."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def parse(self, body: bytearray | memoryview) -> object:
        """JSON, with long lists as `LongList`."""
        return await self.service.json_workers.parse(body, self.due, self.disconnected)

    async def read_json(self) -> object:
        """The body of an endpoint that takes JSON alone and no query options."""
        self.body_type((JSON,))
        read_options(self.scope["query_string"], (), 0)
        return await self.parse(await self.receive_body())

    async def evaluate(
        self,
        model: str | None,
        problems: Sequence[Problem],
        taps: Sequence[Float32 | Complex64],
        *,
        is_continued: bool = False,
    ) -> list[Evaluation]:
        """`Engine.evaluate`; raises the first SynthesisError, if there is one."""
        found = await self.service.engine.evaluate(
            model, problems, taps, self.due, self.disconnected, is_continued=is_continued
        )
        return [answer_or_raise(each) for each in found]

    def charge(self, work: float) -> None:
        """Charge the quota of the request's key, which was charged for one unit, for so much work (`work_of`)."""
        if work > 1:
            self.service.admission.charge(self.admitted, work)

    def decoded(self) -> None:
        """Decoding has ended."""
        self._decode_ms = 1e3 * (perf_counter() - self._decoding)

    def spent_ms(self, engine_ms: Mapping[str, float], encoding_began: float, ended: float | None = None) -> Times:
        """All of `timings_ms`. engine_ms: stages that the engine has timed. ended: end of encoding; None: now."""
        now = perf_counter() if ended is None else ended
        times: Times = {stage: engine_ms.get(stage) for stage in STAGES}
        times["decode"] = self._decode_ms + engine_ms.get("decode", 0.0)
        times["encode"] = 1e3 * (now - encoding_began)
        core = [engine_ms[stage] for stage in CORE_STAGES if stage in engine_ms]
        times["core"] = sum(core) if core else None
        times["total"] = 1e3 * (now - self.began)
        return times

    def observe(self, times_ms: Times, designs: Sequence[tuple[ModelVersion, Design]] = ()) -> None:
        """Take the times of an answer into the metrics and the trace, and its designs into the metrics."""
        self.times_ms, self.designs = times_ms, designs
        if self.service.tracing is not None:
            self.service.tracing.add_stage_spans(times_ms)


def _quality(accept: str, media_type: str) -> float:
    """Quality (0 to 1) of a media type in an Accept header; the most specific range applies."""
    ranges = (media_type, media_type.split("/")[0] + "/*", "*/*")
    found: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        found[name] = max(found.get(name, 0.0), quality)
    return next((found[each] for each in ranges if each in found), 0.0)


def timed_response(
    content: bytes, times_ms: Mapping[str, float | None], media_type: str = JSON, **headers: str
) -> Response:
    """A response with status 200 and `Server-Timing`."""
    headers["Server-Timing"] = server_timing(times_ms)
    return Response(content, headers=headers, media_type=media_type)


def server_timing(times_ms: Mapping[str, float | None]) -> str:
    """The `Server-Timing` header, in milliseconds, without stages that have no time."""
    return ", ".join([f"{name};dur={spent:.4f}" for name, spent in times_ms.items() if spent is not None])


def json_response(document: object) -> Response:
    """A JSON response with status 200."""
    return Response(orjson.dumps(document), media_type=JSON)
