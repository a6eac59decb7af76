"""POST /calibrate: probe recordings in, paths and a verdict out."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from time import perf_counter

from starlette.responses import Response

from service.api.call import BINARY, Call, Service, Times, timed_response
from service.api.json_answers import joined
from service.api.query_options import CALIBRATION_OPTIONS, Options, read_options
from service.calibration import take_codec
from service.calibration.calibration_answer import Judge, as_binary, as_json, calibrate_recordings
from service.calibration.takes import Recordings, read_calibration


async def calibrate(call: Call) -> Response:
    """Options are fields of a JSON body, or query parameters with a binary body. The answer, JSON or binary, is a
    valid body for `/refine`. `multipart/form-data` is not supported."""
    service = call.service
    answer_type, is_binary = call.answer_type(), call.body_type() == BINARY
    asked = read_options(call.scope["query_string"], CALIBRATION_OPTIONS if is_binary else (), 0)
    body = await call.receive_body()
    document = None if is_binary else await call.parse(body)
    marks = [perf_counter()]

    def work() -> tuple[bytes, dict[str, str]]:
        """The answer's body, without its times, and its headers."""
        marks.append(perf_counter())
        recordings = _from_binary(body, asked) if is_binary else read_calibration(document)
        marks.append(perf_counter())
        judged = calibrate_recordings(recordings, partial(_model, service))
        marks.append(perf_counter())
        answer = as_binary(judged) if answer_type == BINARY else (as_json(judged, recordings), {})
        marks.append(perf_counter())
        return answer

    content, headers = await service.calibrations.run(work, call.due, call.disconnected)
    stages = zip(("queue", "decode", "estimate", "encode"), pairwise(marks), strict=True)
    times: Times = {name: 1e3 * (ended - began) for name, (began, ended) in stages}
    total_ms = times["total"] = 1e3 * (perf_counter() - call.began)
    service.metrics.observe_calibration(total_ms)
    if answer_type != BINARY:
        content = joined(content, times)
    return timed_response(content, times, answer_type, **headers)


def _from_binary(body: bytearray, asked: Options) -> Recordings:
    return Recordings([*take_codec.decode(body)], asked.model, asked.sign, asked.n_windows)


def _model(service: Service, reference: str | None) -> Judge:
    """The resident model, as for a design, even if the store has a newer version or none any more; else the one in
    the store."""
    models = service.engine.models
    resident = models.default if reference is None else models.find(reference)
    if resident is not None:
        return resident.version, resident.parameters
    version = service.store.resolve(models.default_model if reference is None else reference)
    return version, service.store.load(str(version)).parameters
