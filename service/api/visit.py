"""One request on its way through the service: what was admitted, when, and what its answer reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelStore, ModelVersion
from service.admission.admission import Admission, Admitted
from service.engine.engine import Engine
from service.engine.work_share import WorkShare
from service.errors import HttpProblem
from service.observability.metrics import Metrics
from service.observability.tracing import Tracing
from service.settings import Settings
from synthesis.conventions import STAGES
from synthesis.types import Design

JSON = "application/json"
TAPS = "application/octet-stream"

CORE_STAGES = ("path_ratio", "generate", "reconstruct", "refine")

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
    metrics: Metrics
    tracing: Tracing | None


@dataclass(slots=True)
class Visit:
    """A request that is being answered, in `request.state.visit`."""

    service: Service
    # When its handling started (`perf_counter`, seconds).
    began: float
    admitted: Admitted = field(default_factory=Admitted)
    # When its body had arrived.
    received: float = 0.0
    decode_ms: float = 0.0
    # For the metrics, which count once the answer is written.
    design_method: str = ""
    times_ms: Times = field(default_factory=dict)
    designs: Sequence[tuple[ModelVersion, Design]] = ()

    @property
    def due(self) -> float:
        """The deadline (`perf_counter`, seconds)."""
        return self.admitted.due

    def decoded(self) -> None:
        """Note that decoding has ended."""
        self.decode_ms = 1e3 * (perf_counter() - self.received)

    def spent_ms(self, engine_ms: Mapping[str, float], encoding_began: float, ended: float | None = None) -> Times:
        """Compute all of `timings_ms`.

        Parameters
        ----------
        engine_ms
            Stages that the engine has timed.
        encoding_began
            When encoding began (`perf_counter`, seconds).
        ended
            When it ended; None: now.
        """
        now = perf_counter() if ended is None else ended
        times: Times = {stage: engine_ms.get(stage) for stage in STAGES}
        times["decode"] = self.decode_ms + engine_ms.get("decode", 0.0)
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


def visit_of(request: Request) -> Visit:
    """The visit that a request is."""
    visit: Visit = request.scope["state"]["visit"]
    return visit


def answer_type(request: Request, offered: tuple[str, ...]) -> str:
    """Choose the media type of the answer.

    Parameters
    ----------
    request
        Whose Accept header is read.
    offered
        Media types, the preferred one first.

    Returns
    -------
    str
        Of those offered, the first with the highest quality.

    Raises
    ------
    HttpProblem
        `not-acceptable`.
    """
    accept = ",".join(request.headers.getlist("accept")).strip()
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


async def disconnected(request: Request) -> None:
    """Return when the client has disconnected. For use after the body was received."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def timed_response(
    content: bytes, times_ms: Mapping[str, float | None], media_type: str = JSON, **headers: str
) -> Response:
    """A response with status 200 and `Server-Timing`."""
    headers["Server-Timing"] = server_timing(times_ms)
    return Response(content, headers=headers, media_type=media_type)


def server_timing(times_ms: Mapping[str, float | None]) -> str:
    """The `Server-Timing` header, in milliseconds, without stages that have no time."""
    return ", ".join([f"{name};dur={spent:.4f}" for name, spent in times_ms.items() if spent is not None])
