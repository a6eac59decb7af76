"""POST /synthesize, /refine and /evaluate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from service.api import binary_codec
from service.api import json_answers as answers
from service.api.context import Call, timed_response
from service.api.json_answers import Answered
from service.api.negotiation import BINARY, JSON, body_type, negotiate_answer
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
    read_paths,
)
from service.api.resampling import PathsOfCondition, joint_input, n_points
from service.api.validation import Path
from service.api.warnings import collect_warnings, negated_filter
from service.engine.types import DesignAnswer
from service.errors import Problem, to_problem
from synthesis.backends.base import DesignInput, DesignOptions, Float32
from synthesis.errors import SynthesisError, answer_or_raise
from synthesis.profiles import profile_for_resolution

if TYPE_CHECKING:
    from service.api.open_inference_codec import InferenceParameters


@dataclass(frozen=True, eq=False)
class DesignRequest:
    """A request for one filter. sent: all its paths before resampling. input: the same on the design grid."""

    model: str | None
    options: DesignOptions
    sign: Sign
    sent: Sequence[Path]
    input: DesignInput

    async def answered(self, call: Call) -> Answered:
        """The engine's design; raises SynthesisError and whatever `Engine.design` raises."""
        engine = call.service.engine
        (answer,) = await engine.design(self.model, self.options, [self.input], call.due, call.disconnected)
        return self.with_warnings(answer_or_raise(answer))

    def with_warnings(self, answer: DesignAnswer) -> Answered:
        """The engine's answer with the request's sign and the warnings."""
        warnings = collect_warnings(
            self.sent,
            self.input,
            answer.design.prediction,
            answer.replaced_because,
            answer.design.ceiling_cost_db,
            answer.implausible,
            answer.design.loop,
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
    call = Call(request)
    answer_type, is_binary = negotiate_answer(request), body_type(request) == BINARY
    allowed = options + BINARY_OPTIONS if is_binary else options
    query = read_options(request.query_params, allowed, default_updates)
    if is_binary:
        request.state.method = query.method  # a JSON body names its own, read below
    body = await call.receive()
    if is_binary:
        wanted = make_request(binary_codec.decode(body), query, query, query.model)
    else:
        document = await call.parse(body)
        if (items := items_of(document)) is not None:
            return await _design_items(call, items, query)
        wanted = _from_json(document, query)
    request.state.method = wanted.options.method
    call.watch.decoded()
    answered = await wanted.answered(call)
    headers: dict[str, str] = {}
    if answer_type == BINARY:
        content, times, headers = answers.design_binary(answered, call.watch)
    else:
        content, times = answers.design_json(answered, call.watch)
    call.service.observe_times(times)
    call.service.metrics.observe_design(answered.answer)
    return timed_response(content, times, answer_type, **headers)


def _from_json(document: object, query: Options) -> DesignRequest:
    read = read_paths(document, DesignBody, ConditionsBody)
    return make_request([paths_of(each) for each in read.conditions], read, query, read.model, read.reference_psd)


def paths_of(read: ConditionBody | PathsBody) -> PathsOfCondition:
    """One condition of a request as `joint_input` takes it."""
    own = (float(read.weight), read.label) if isinstance(read, ConditionBody) else (1.0, "")
    return PathsOfCondition(read.primary, read.secondary, read.coherence, read.feedback, *own, read.uncertainty)


def make_request(
    conditions: Sequence[PathsOfCondition],
    fields: DesignBody | ConditionsBody | Options | InferenceParameters,
    query: Options | InferenceParameters,
    model: str | None,
    reference_psd: Float32 | None = None,
) -> DesignRequest:
    """The request for one filter that serves all conditions.

    fields: options that a JSON body has as fields, such as `method` and `sign`; with a binary body they are query
    parameters, so fields and query are the same. query: options that are always query parameters, such as `k`.
    The profile is `fine` instead of `fast` if the paths' power is finer than the grid of `fast`.
    """
    ear = joint_input(
        conditions,
        reference_psd,
        fields.max_gain_db,
        latency_samples=float(fields.latency_samples),
        min_gain_margin_db=float(fields.min_gain_margin_db),
        min_phase_margin_deg=float(fields.min_phase_margin_deg),
    )
    sent = [path for each in conditions for path in (each.primary, each.secondary)]
    profile = profile_for_resolution(query.profile, 2 * max(map(n_points, sent)))
    options = DesignOptions(fields.method, query.k, profile, query.leave_one_out, len(conditions))
    return DesignRequest(model, options, fields.sign, sent, ear)


async def _design_items(call: Call, items: list[object], query: Options) -> Response:
    """Several designs in one request, each with its own answer or problem.

    If no item has a filter and at least one failed with 503, the whole request is answered with that 503, so that
    the client sees `Retry-After`.
    """
    service = call.service
    service.admission.charge_items(call.admitted, len(items))
    negotiate_answer(call.request, (JSON,))
    wanted = [_item(item, query) for item in items]
    methods = [item.options.method if isinstance(item, DesignRequest) else "" for item in wanted]
    call.request.state.method = methods[0] if len(set(methods)) == 1 else ""
    call.watch.decoded()
    outcomes = await _all_items(call, wanted)
    refusals = [each for each in outcomes if isinstance(each, Problem) and each.status == 503]
    if refusals and all(isinstance(each, Problem) for each in outcomes):
        raise refusals[0]
    content, times = answers.items_json(outcomes, call.watch)
    service.observe_times(times)
    for method, outcome in zip(methods, outcomes, strict=True):
        service.metrics.count_item(method, outcome.code if isinstance(outcome, Problem) else "ok")
        if isinstance(outcome, Answered):
            service.metrics.observe_design(outcome.answer)
    return timed_response(content, times)


def _item(document: object, query: Options) -> DesignRequest | Problem:
    try:
        return _from_json(document, query)
    except Exception as error:
        return _known_problem(error)


async def _all_items(call: Call, wanted: list[DesignRequest | Problem]) -> list[Answered | Problem]:
    """One engine call for each group of items with the same model and options; the calls run concurrently."""
    groups: dict[tuple[str | None, DesignOptions], list[int]] = {}
    for place, item in enumerate(wanted):
        if isinstance(item, DesignRequest):
            groups.setdefault((item.model, item.options), []).append(place)
    outcomes: dict[int, Answered | Problem] = {
        n: each for n, each in enumerate(wanted) if isinstance(each, Problem)
    }
    # Shared by all groups: only one task may receive from the connection.
    leaving = asyncio.ensure_future(call.disconnected())

    async def design(model: str | None, options: DesignOptions, places: list[int]) -> None:
        group = [item for place in places if isinstance(item := wanted[place], DesignRequest)]
        try:
            found = await call.service.engine.design(
                model, options, [item.input for item in group], call.due, lambda: asyncio.shield(leaving)
            )
        except Exception as error:
            outcomes.update(dict.fromkeys(places, _known_problem(error)))
            return
        for place, item, answer in zip(places, group, found, strict=True):
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
    call = Call(request)
    negotiate_answer(request, (JSON,))
    read = read_object(EvaluateBody, await call.read_json())
    # The request has no ceiling, so none can be exceeded.
    ear = joint_input([paths_of(read)], read.reference_psd, float("inf"))
    taps = -read.fir if read.sign == "plus" else read.fir
    call.watch.decoded()
    (answer,) = await call.evaluate(read.model, [ear], [taps])
    implausible = answer.implausible
    if answer.prediction.mean_noise_reduction_db < 0:
        (other,) = await call.evaluate(read.model, [ear], [-taps])
        implausible += negated_filter(other.prediction)
    warnings = collect_warnings((read.primary, read.secondary), ear, answer.prediction, implausible=implausible)
    document = {"prediction": answers.prediction_document(answer.prediction), "warnings": warnings}
    content, times = answers.with_times(document, answer.times_ms, call.watch)
    call.service.observe_times(times)
    return timed_response(content, times)
