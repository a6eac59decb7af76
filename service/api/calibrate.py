"""POST /calibrate: probe recordings in, paths and a verdict out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import orjson
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelStore
from service.api.context import Service, admitted_of, disconnect_of, service_of
from service.api.json_answers import server_timing
from service.api.negotiation import BINARY, body_type, negotiate_answer, receive_body
from service.api.query_options import CALIBRATION_OPTIONS, Options, read_options
from service.calibration import take_codec
from service.calibration.calibration_answer import as_binary, as_json, calibrate_recordings
from service.calibration.takes import Recordings, read_calibration


async def calibrate(request: Request) -> Response:
    """Options are fields of a JSON body, or query parameters with a binary body. The answer, JSON or binary, is a
    valid body for `/refine`. `multipart/form-data` is not supported."""
    service, admitted, disconnected = service_of(request), admitted_of(request), disconnect_of(request)
    answer_type, media_type = negotiate_answer(request), body_type(request)
    asked = read_options(request.query_params, CALIBRATION_OPTIONS if media_type == BINARY else (), 0)
    body = await receive_body(request, admitted, service.settings.receive_timeout_s)
    if media_type == BINARY:
        read = partial(_from_binary, body, asked)
    else:
        read = partial(read_calibration, await service.json_workers.parse(body, admitted.due, disconnected))
    work = _Work(read, service.store, _default_model(service), answer_type == BINARY)
    content, headers = await service.calibrator.run(work, admitted.due, disconnected)
    times = work.times_ms | {"total": 1e3 * (perf_counter() - admitted.began)}
    service.metrics.observe_calibration(times["total"])
    headers["Server-Timing"] = server_timing(times)
    if answer_type != BINARY:
        content = content[:-1] + b',"timings_ms":' + orjson.dumps(times) + b"}"
    return Response(content, headers=headers, media_type=answer_type)


def _from_binary(body: bytearray, asked: Options) -> Recordings:
    return Recordings([*take_codec.decode(body)], asked.model, asked.sign, asked.n_windows)


def _default_model(service: Service) -> str:
    """The resident default version, even if the store has a newer one; its name while it is not loaded."""
    models = service.engine.models
    return models.default_model if models.default is None else str(models.default.version)


@dataclass
class _Work:
    """One request's work in the calibrator's thread. times_ms: `queue`, `decode`, `estimate` and `encode`."""

    read: Callable[[], Recordings]
    store: ModelStore
    default_model: str
    is_binary: bool
    times_ms: dict[str, float] = field(default_factory=dict)
    handed_over: float = field(default_factory=perf_counter)

    def __call__(self) -> tuple[bytes, dict[str, str]]:
        """The answer's body, without its times, and its headers."""
        marks = [self.handed_over, perf_counter()]
        asked = self.read()
        marks.append(perf_counter())
        judged = calibrate_recordings(asked, self.store, self.default_model)
        marks.append(perf_counter())
        content, headers = as_binary(judged) if self.is_binary else (as_json(judged, asked), {})
        marks.append(perf_counter())
        for name, began, ended in zip(("queue", "decode", "estimate", "encode"), marks, marks[1:], strict=False):
            self.times_ms[name] = 1e3 * (ended - began)
        return content, headers
