"""POST /verify: recordings with the filter off and on in, what it does, what is off and a trimmed filter out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from service.api.context import Service, admitted_of, disconnect_of, service_of
from service.api.json_answers import BAND_CENTRE_HZ, Stopwatch, server_timing
from service.api.negotiation import JSON, body_type, negotiate_answer, receive_body
from service.api.query_options import read_options
from service.api.request_types import read_object
from service.api.resampling import design_input
from service.calibration.verify_body import VerifyBody
from service.engine.types import Disconnected, EvaluationAnswer
from synthesis.backends.base import DesignInput, DesignOptions, Float32, Prediction
from synthesis.errors import SynthesisError
from synthesis.verification import Deviation, Verification, changed_secondary, diagnose, shifted_taps, verify

BEYOND_A_TRIM = {"not_running", "leak", "refit"}
"""Findings that no gain and delay put right: measure again."""

REDESIGN = DesignOptions("prime", 1)
REDESIGN_MARGIN_DB = 0.5
"""By which a new filter for the changed path must be predicted to be better than the one shifted to it."""


async def verify_filter(request: Request) -> Response:
    """Levels with the filter off and on per band, compared with the prediction; gain, delay and polarity of the
    secondary path against the one that was sent; a diagnosis, and the filter trimmed for gain and delay where these
    are what is off. All figures are medians over blocks of 0.8 s."""
    service, admitted, disconnected = service_of(request), admitted_of(request), disconnect_of(request)
    watch = Stopwatch(admitted.began)
    negotiate_answer(request, (JSON,))
    body_type(request, (JSON,))
    read_options(request.query_params, (), 0)
    body = await receive_body(request, admitted, service.settings.receive_timeout_s)
    watch.body_received()
    read = read_object(VerifyBody, await service.json_workers.parse(body, admitted.due, disconnected))
    used = design_input(
        read.primary, read.secondary, read.coherence, read.reference_psd, float("inf"), read.uncertainty
    )
    direction = -1 if read.sign == "plus" else 1
    taps = direction * read.fir
    watch.decoded()
    found = await service.calibrator.run(
        lambda: verify(read.takes, taps, used.primary, used.secondary), admitted.due, disconnected
    )
    if read.prediction is None:
        (prediction,) = await _predicted(service, read.model, [used], [taps], admitted.due, disconnected)
        bands, mean = prediction.noise_reduction_db, prediction.mean_noise_reduction_db
    else:
        bands, mean = np.array(read.prediction["bands"]), read.prediction["mean"]
    diagnosis = diagnose(found, mean)
    trim = None
    if not BEYOND_A_TRIM & {each.code for each in diagnosis}:
        trim = await _trim(service, read.model, used, taps, found, admitted.due, disconnected)
        trim["fir"] = direction * trim["fir"]
    document = {
        "measured": measured_document(found),
        "predicted_noise_reduction_db": mean,
        "deviation_db": found.mean_noise_reduction_db - mean,
        "band_deviation_db": found.noise_reduction_db - bands,
        "diagnosis": [_deviation_document(each) for each in diagnosis],
        "trim": trim,
    }
    times = watch.times_ms({}, watch.began)
    document["timings_ms"] = times
    content = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, headers={"Server-Timing": server_timing(times)}, media_type=JSON)


async def _trim(
    service: Service,
    model: str | None,
    used: DesignInput,
    taps: Float32,
    found: Verification,
    due: float,
    disconnected: Disconnected,
) -> dict[str, Any]:
    """The filter for the secondary path as it is now: shifted, or designed anew if that is clearly better."""
    now = replace(used, secondary=changed_secondary(used.secondary, found))
    shifted = shifted_taps(taps, found)
    (answer,) = await service.engine.design(model, REDESIGN, [now], due, disconnected)
    if isinstance(answer, SynthesisError):
        raise answer
    (prediction,) = await _predicted(service, model, [now], [shifted], due, disconnected)
    best, reached_db = shifted, prediction.mean_noise_reduction_db
    if answer.design.prediction.mean_noise_reduction_db > reached_db + REDESIGN_MARGIN_DB:
        best, reached_db = answer.design.taps, answer.design.prediction.mean_noise_reduction_db
    return {
        "gain_db": -found.gain_db,
        "delay_samples": -found.delay_samples,
        "invert": found.is_inverted,
        "predicted_noise_reduction_db": reached_db,
        "fir": best,
    }


async def _predicted(
    service: Service,
    model: str | None,
    inputs: list[DesignInput],
    taps: list[Float32],
    due: float,
    disconnected: Disconnected,
) -> list[Prediction]:
    found = []
    for answer in await service.engine.evaluate(model, inputs, taps, due, disconnected):
        if isinstance(answer, SynthesisError):
            raise answer
        assert isinstance(answer, EvaluationAnswer)
        found.append(answer.prediction)
    return found


def measured_document(found: Verification) -> dict[str, Any]:
    """The `measured` of an answer."""
    return {
        "band_centre_hz": BAND_CENTRE_HZ,
        "noise_reduction_db": found.noise_reduction_db,
        "mean_noise_reduction_db": found.mean_noise_reduction_db,
        "amplification_db": found.amplification_db,
        "interval_db": found.interval_db,
        "n_blocks": found.n_blocks,
    }


def _deviation_document(deviation: Deviation) -> dict[str, Any]:
    document: dict[str, Any] = {"code": deviation.code, "detail": deviation.detail}
    if deviation.by is not None:
        document["by"] = deviation.by
    return document
