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
from service.calibration import take_wire
from service.calibration.answer import as_binary, as_json, work_out
from service.calibration.takes import Recordings, read_calibration
from service.formats import answers
from service.formats.options import CALIBRATE, Options, read_options
from service.http.context import Service, admitted, service_of
from service.http.negotiation import BINARY, body_type, chosen_answer, declared_length, read_body, until_gone


async def calibrate(request: Request) -> Response:
    """Estimate the paths that takes were recorded over, and judge them."""
    service, watch, gone = service_of(request), answers.Stopwatch(), partial(until_gone, request)
    settings = service.settings
    due = admitted(request, service, watch, settings.calibration_deadline_ms)
    answer_type, media_type = chosen_answer(request), body_type(request)
    asked = read_options(request.query_params, CALIBRATE if media_type == BINARY else (), 0)
    with service.calibrator.place(declared_length(request, settings.max_calibration_bytes), due):
        body = await read_body(request, settings.max_calibration_bytes, settings.receive_timeout_s, due)
        if media_type == BINARY:
            read = partial(_from_binary, body, asked)
        else:
            read = partial(read_calibration, await service.side_lane.load(body, due, gone))
        work = _Work(read, service.store, _default_model(service), answer_type == BINARY)
        content, headers = await service.calibrator.run(work, due, gone)
    times = work.times_ms | {"total": 1e3 * (perf_counter() - watch.began)}
    service.metrics.observe_calibration(times["total"])
    headers["Server-Timing"] = answers.server_timing(times)
    if answer_type != BINARY:
        content = content[:-1] + b',"timings_ms":' + orjson.dumps(times) + b"}"
    return Response(content, headers=headers, media_type=answer_type)


def _from_binary(body: bytearray, asked: Options) -> Recordings:
    return Recordings(take_wire.decode(body), asked.model, asked.sign, asked.n_windows)


def _default_model(service: Service) -> str:
    """The resident version, which designs are made with whatever the store holds by now; else what is to be one."""
    default = service.engine.residency.default
    return service.engine.residency.default_model if default is None else str(default.version)


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
        judged = work_out(asked, self.store, self.default_model)
        marks.append(perf_counter())
        content, headers = as_binary(judged) if self.is_binary else (as_json(judged, asked), {})
        marks.append(perf_counter())
        for name, began, ended in zip(("queue", "decode", "estimate", "encode"), marks, marks[1:], strict=False):
            self.times_ms[name] = 1e3 * (ended - began)
        return content, headers
