"""POST /synthesize, /refine and /evaluate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.api import binary_codec
from service.api import json_answers as answers
from service.api.context import Service, admitted_of, disconnect_of, service_of
from service.api.json_answers import Answered, Stopwatch
from service.api.negotiation import BINARY, JSON, body_type, negotiate_answer, receive_body
from service.api.query_options import (
    BINARY_OPTIONS,
    DEFAULT_UPDATES,
    REFINE_OPTIONS,
    SYNTHESIZE_OPTIONS,
    Options,
    read_options,
)
from service.api.request_types import (
    ConditionBody,
    ConditionsBody,
    DesignBody,
    EvaluateBody,
    PathsBody,
    Sign,
    items_of,
    read_object,
)
from service.api.resampling import PathsOfCondition, joint_input, n_points
from service.api.validation import Path
from service.api.warnings import collect_warnings
from service.engine.types import DesignAnswer, Disconnected
from service.errors import Problem, to_problem
from synthesis.backends.base import DesignInput, DesignOptions, Float32
from synthesis.errors import SynthesisError
from synthesis.gain_curve import GainCurve
from synthesis.profiles import profile_for_resolution


@dataclass(frozen=True, eq=False)
class DesignRequest:
    """A request for one filter. sent: all its paths before resampling."""

    model: str | None
    options: DesignOptions
    sign: Sign
    sent: Sequence[Path]
    input: DesignInput

    async def answered(self, service: Service, due: float, disconnected: Disconnected) -> Answered:
        """The engine's design; raises SynthesisError and whatever `Engine.design` raises."""
        (answer,) = await service.engine.design(self.model, self.options, [self.input], due, disconnected)
        if isinstance(answer, SynthesisError):
            raise answer
        return self.with_warnings(answer)

    def with_warnings(self, answer: DesignAnswer) -> Answered:
        """The engine's answer with the request's sign and the warnings."""
        warnings = collect_warnings(
            self.sent,
            self.input,
            answer.design.prediction,
            answer.replaced_because,
            answer.design.ceiling_cost_db,
            answer.implausible,
        )
        return Answered(answer, self.sign, warnings)


async def synthesize(request: Request) -> Response:
    """Options are fields of a JSON body, or query parameters with a binary body. A JSON body may hold up to 16
    requests in `items`, for example both ears; the answer then has a filter or a problem for each, in order."""
    return await _design(request, options=SYNTHESIZE_OPTIONS, default_updates=0)


async def refine(request: Request) -> Response:
    """Options are fields of a JSON body, or query parameters with a binary body; `k` and `profile` are always query
    parameters. A JSON body may hold up to 16 requests in `items`, for example both ears; the answer then has a
    filter or a problem for each, in order. An answer of `/calibrate` is a valid body."""
    return await _design(request, options=REFINE_OPTIONS, default_updates=DEFAULT_UPDATES)


async def _design(request: Request, options: tuple[str, ...], default_updates: int) -> Response:
    service, admitted, disconnected = service_of(request), admitted_of(request), disconnect_of(request)
    watch = Stopwatch(admitted.began)
    answer_type, media_type = negotiate_answer(request), body_type(request)
    allowed = options + BINARY_OPTIONS if media_type == BINARY else options
    asked = read_options(request.query_params, allowed, default_updates)
    if media_type == BINARY:
        request.state.method = asked.method  # a JSON body names its own, read below
    body = await receive_body(request, admitted, service.settings.receive_timeout_s)
    watch.body_received()
    if media_type == BINARY:
        wanted = _from_binary(body, asked)
    else:
        document = await service.json_workers.parse(body, admitted.due, disconnected)
        if (items := items_of(document)) is not None:
            return await _design_items(request, items, asked, watch)
        wanted = _from_json(document, asked)
    request.state.method = wanted.options.method
    watch.decoded()
    answered = await wanted.answered(service, admitted.due, disconnected)
    headers: dict[str, str] = {}
    if answer_type == BINARY:
        content, times, headers = answers.design_binary(answered, watch)
    else:
        content, times = answers.design_json(answered, watch)
    headers["Server-Timing"] = answers.server_timing(times)
    service.observe_times(times)
    service.metrics.observe_design(answered.answer)
    return Response(content, headers=headers, media_type=answer_type)


def _from_binary(body: bytearray, asked: Options) -> DesignRequest:
    return make_request(
        binary_codec.decode(body),
        model=asked.model,
        method=asked.method,
        sign=asked.sign,
        n_updates=asked.k,
        profile=asked.profile,
        is_left_out=asked.leave_one_out,
        max_gain_db=asked.max_gain_db,
        latency_samples=asked.latency_samples,
        min_gain_margin_db=asked.min_gain_margin_db,
        min_phase_margin_deg=asked.min_phase_margin_deg,
    )


def _from_json(document: object, asked: Options) -> DesignRequest:
    is_joint = isinstance(document, dict) and "conditions" in document
    read = read_object(ConditionsBody, document) if is_joint else read_object(DesignBody, document)
    return make_request(
        [paths_of(each) for each in read.conditions],
        model=read.model,
        method=read.method,
        sign=read.sign,
        n_updates=asked.k,
        profile=asked.profile,
        is_left_out=asked.leave_one_out,
        reference_psd=read.reference_psd,
        max_gain_db=read.max_gain_db,
        latency_samples=float(read.latency_samples),
        min_gain_margin_db=float(read.min_gain_margin_db),
        min_phase_margin_deg=float(read.min_phase_margin_deg),
    )


def paths_of(read: ConditionBody | PathsBody) -> PathsOfCondition:
    """One condition of a request as `joint_input` takes it."""
    own = (float(read.weight), read.label) if isinstance(read, ConditionBody) else (1.0, "")
    return PathsOfCondition(read.primary, read.secondary, read.coherence, read.feedback, *own, read.uncertainty)


def make_request(
    conditions: Sequence[PathsOfCondition],
    *,
    model: str | None,
    method: str,
    sign: Sign,
    n_updates: int,
    profile: str,
    is_left_out: bool,
    max_gain_db: float | GainCurve,
    reference_psd: Float32 | None = None,
    **limits: float,
) -> DesignRequest:
    """The request for one filter that serves all conditions. limits: further fields of `DesignInput`.

    The profile is `fine` instead of `fast` if the paths are finer than the grid of `fast`.
    """
    used = joint_input(conditions, reference_psd, max_gain_db, **limits)
    sent = [path for each in conditions for path in (each.primary, each.secondary)]
    profile = profile_for_resolution(profile, max(map(n_points, sent)))
    options = DesignOptions(method, n_updates, profile, is_left_out, len(conditions))
    return DesignRequest(model, options, sign, sent, used)


async def _design_items(request: Request, items: list[object], asked: Options, watch: Stopwatch) -> Response:
    """Several designs in one request, each with its own answer or problem.

    If no item has a filter and at least one failed with 503, the whole request is answered with that 503, so that
    the client sees `Retry-After`.
    """
    service, admitted, disconnected = service_of(request), admitted_of(request), disconnect_of(request)
    service.admission.charge_items(admitted, len(items))
    negotiate_answer(request, (JSON,))
    wanted = [_item(item, asked) for item in items]
    methods = [item.options.method if isinstance(item, DesignRequest) else "" for item in wanted]
    request.state.method = methods[0] if len(set(methods)) == 1 else ""
    watch.decoded()
    outcomes = await _all_items(service, wanted, admitted.due, disconnected)
    refusals = [each for each in outcomes if isinstance(each, Problem) and each.status == 503]
    if refusals and all(isinstance(each, Problem) for each in outcomes):
        raise refusals[0]
    content, times = answers.items_json(outcomes, watch)
    service.observe_times(times)
    for method, outcome in zip(methods, outcomes, strict=True):
        service.metrics.count_item(method, outcome.code if isinstance(outcome, Problem) else "ok")
        if isinstance(outcome, Answered):
            service.metrics.observe_design(outcome.answer)
    return Response(content, headers={"Server-Timing": answers.server_timing(times)}, media_type=JSON)


def _item(document: object, asked: Options) -> DesignRequest | Problem:
    try:
        return _from_json(document, asked)
    except Exception as error:
        return _known_problem(error)


async def _all_items(
    service: Service, wanted: list[DesignRequest | Problem], due: float, disconnected: Disconnected
) -> list[Answered | Problem]:
    """One engine call for each group of items with the same model and options; the calls run concurrently."""
    groups: dict[tuple[str | None, DesignOptions], list[int]] = {}
    for place, item in enumerate(wanted):
        if isinstance(item, DesignRequest):
            groups.setdefault((item.model, item.options), []).append(place)
    outcomes: dict[int, Answered | Problem] = {
        n: each for n, each in enumerate(wanted) if isinstance(each, Problem)
    }
    leaving = asyncio.ensure_future(
        disconnected()
    )  # shared by all calls: only one task may receive from the connection

    async def design(model: str | None, options: DesignOptions, places: list[int]) -> None:
        asked = [item for place in places if isinstance(item := wanted[place], DesignRequest)]
        try:
            found = await service.engine.design(
                model, options, [item.input for item in asked], due, lambda: asyncio.shield(leaving)
            )
        except Exception as error:
            outcomes.update(dict.fromkeys(places, _known_problem(error)))
            return
        for place, item, answer in zip(places, asked, found, strict=True):
            if isinstance(answer, SynthesisError):
                outcomes[place] = _known_problem(answer)
            else:
                outcomes[place] = item.with_warnings(answer)

    try:
        await asyncio.gather(*(design(*group, places) for group, places in groups.items()))
    finally:
        leaving.cancel()
    return [outcomes[place] for place in range(len(wanted))]


def _known_problem(error: Exception) -> Problem:
    """The problem document of a known error; an unexpected error is raised again."""
    problem = to_problem(error)
    if problem is None:
        raise error
    return problem


async def evaluate(request: Request) -> Response:
    """Predict the effect of a filter on these paths."""
    service, admitted, disconnected = service_of(request), admitted_of(request), disconnect_of(request)
    watch = Stopwatch(admitted.began)
    negotiate_answer(request, (JSON,))
    body_type(request, (JSON,))
    read_options(request.query_params, (), 0)
    body = await receive_body(request, admitted, service.settings.receive_timeout_s)
    watch.body_received()
    read = read_object(EvaluateBody, await service.json_workers.parse(body, admitted.due, disconnected))
    sent = read.primary, read.secondary
    # The request has no ceiling, so none can be exceeded.
    paths = PathsOfCondition(*sent, read.coherence, read.feedback, uncertainty=read.uncertainty)
    used = joint_input([paths], read.reference_psd, float("inf"))
    taps = -read.fir if read.sign == "plus" else read.fir
    watch.decoded()
    (answer,) = await service.engine.evaluate(read.model, [used], [taps], admitted.due, disconnected)
    if isinstance(answer, SynthesisError):
        raise answer
    warnings = collect_warnings(sent, used, answer.prediction, implausible=answer.implausible)
    content, times = answers.evaluation_json(answer.prediction, warnings, answer.times_ms, watch)
    service.observe_times(times)
    return Response(content, headers={"Server-Timing": answers.server_timing(times)}, media_type=JSON)
