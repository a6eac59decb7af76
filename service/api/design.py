"""POST /synthesize, /refine and /evaluate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from starlette.responses import Response

from model_store.store import ModelVersion
from service.api import binary_codec
from service.api import json_answers as answers
from service.api.call import BINARY, JSON, Call, timed_response
from service.api.json_answers import Answered
from service.api.paths import PathsOfCondition, check_effect, joint_input, resolved_profile
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
    refuse_unused,
)
from service.api.warnings import collect_warnings, negated_filter
from service.engine.work import work_of
from service.errors import HttpProblem, to_problem
from synthesis.errors import SynthesisError, answer_or_raise
from synthesis.feedback import loop_gain, loop_of
from synthesis.latency import with_latency
from synthesis.types import (
    DEFAULT_GAIN_MARGIN_DB,
    DEFAULT_PHASE_MARGIN_DEG,
    Design,
    DesignOptions,
    Float32,
    Path,
    Problem,
)

if TYPE_CHECKING:
    from service.api.open_inference_codec import InferenceParameters


DEFAULT_MARGINS = {"min_gain_margin_db": DEFAULT_GAIN_MARGIN_DB, "min_phase_margin_deg": DEFAULT_PHASE_MARGIN_DEG}


@dataclass(frozen=True, eq=False)
class DesignRequest:
    """A request for one filter. sent: its primary and secondary paths as the client sent them. input: what is
    designed for, with the paths on the design grid."""

    model: str | None
    options: DesignOptions
    sign: Sign
    sent: Sequence[Path]
    input: Problem

    async def answered(self, call: Call) -> Answered:
        """The engine's design; raises SynthesisError, HttpProblem `over-quota` and whatever `Engine.design` raises."""
        call.charge(work_of(self.options))
        engine = call.service.engine
        model, (design,) = await engine.design(self.model, self.options, [self.input], call.due, call.disconnected)
        return self.with_warnings(model, answer_or_raise(design))

    def with_warnings(self, model: ModelVersion, design: Design) -> Answered:
        """The engine's design with the request's sign and the warnings."""
        warnings = collect_warnings(
            self.sent,
            self.input,
            design.prediction,
            design.replaced_because,
            design.ceiling_cost_db,
            design.implausible,
            design.loop,
        )
        taps = -design.taps if self.sign == "plus" else design.taps
        return Answered(model, design, self.sign, taps, warnings, self.input.latency_samples)


async def synthesize(call: Call) -> Response:
    """Options are fields of a JSON body, or query parameters with a binary body. A JSON body may hold up to 16
    requests in `items`, for example both ears; the answer then has a filter or a problem for each, in order."""
    return await _design(call, options=SYNTHESIZE_OPTIONS, default_updates=0)


async def refine(call: Call) -> Response:
    """Options are fields of a JSON body, or query parameters with a binary body; `k` and `profile` are always query
    parameters. A JSON body may hold up to 16 requests in `items`, for example both ears; the answer then has a
    filter or a problem for each, in order. An answer of `/calibrate` is a valid body."""
    return await _design(call, options=REFINE_OPTIONS, default_updates=DEFAULT_UPDATES)


async def _design(call: Call, options: tuple[str, ...], default_updates: int) -> Response:
    answer_type, is_binary = call.answer_type(), call.body_type() == BINARY
    allowed = options + BINARY_OPTIONS if is_binary else options
    query = read_options(call.scope["query_string"], allowed, default_updates)
    if is_binary:
        call.design_method = query.method  # a JSON body names its own, read below
    body = await call.receive_body()
    if is_binary:
        request = make_request(binary_codec.decode(body), query, query, query.model)
    else:
        document = await call.parse(body)
        if (items := items_of(document)) is not None:
            return await _design_items(call, items, query)
        request = _from_json(document, query)
    call.design_method = request.options.method
    call.decoded()
    answered = await request.answered(call)
    if answer_type == BINARY:
        return _binary_answer(call, answered)
    content, times = answers.design_json(answered, call)
    call.observe(times, [(answered.model, answered.design)])
    return timed_response(content, times)


def _binary_answer(call: Call, answered: Answered) -> Response:
    """The taps, and headers with some of the fields of the JSON answer."""
    began = perf_counter()
    design, prediction = answered.design, answered.design.prediction
    content = binary_codec.encode_taps(answered.taps)
    headers = {
        "X-Model-Digest": answered.model.digest,
        "X-Refine-Applied": str(design.refinement.applied),
        "X-Predicted-NR-dB": f"{prediction.mean_noise_reduction_db:.4f}",
        "X-Predicted-AMP-dB": f"{prediction.amplification_db:.4f}",
    }
    if answered.warnings:
        headers["X-Warnings"] = ", ".join([each["code"] for each in answered.warnings])
    times = call.spent_ms(design.times_ms, began)
    call.observe(times, [(answered.model, design)])
    return timed_response(content, times, BINARY, **headers)


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
    `fine` replaces the profile `fast` if the paths are longer than the grid of `fast` resolves.
    """
    if len(conditions) == 1:
        refuse_unused(query, {"leave_one_out": False}, "with one condition: send several")
    if all(each.feedback is None for each in conditions):
        refuse_unused(fields, DEFAULT_MARGINS, "without a path `feedback`: send one")
    ear = joint_input(
        conditions,
        reference_psd,
        fields.max_gain_db,
        latency_samples=float(fields.latency_samples),
        min_gain_margin_db=float(fields.min_gain_margin_db),
        min_phase_margin_deg=float(fields.min_phase_margin_deg),
    )
    sent = [path for each in conditions for path in (each.primary, each.secondary)]
    profile = resolved_profile(query.profile, sent)
    n_feedbacks = sum(each.feedback is not None for each in conditions)
    options = DesignOptions(fields.method, query.k, profile, query.leave_one_out, len(conditions), n_feedbacks)
    return DesignRequest(model, options, fields.sign, sent, ear)


async def _design_items(call: Call, items: list[object], query: Options) -> Response:
    """Several designs in one request, each with its own answer or problem.

    If no item has a filter and at least one failed with 503, the whole request is answered with that 503, so that
    the client sees `Retry-After`.
    """
    service = call.service
    call.answer_type((JSON,))
    requested = [_item(item, query) for item in items]
    call.charge(sum(work_of(each.options) if isinstance(each, DesignRequest) else 1.0 for each in requested))
    methods = [each.options.method if isinstance(each, DesignRequest) else "" for each in requested]
    call.design_method = methods[0] if len(set(methods)) == 1 else ""
    call.decoded()
    outcomes = await _all_items(call, requested)
    refusals = [each for each in outcomes if isinstance(each, HttpProblem) and each.status == 503]
    if refusals and all(isinstance(each, HttpProblem) for each in outcomes):
        raise refusals[0]
    content, times = answers.items_json(outcomes, call)
    call.observe(times, [(each.model, each.design) for each in outcomes if isinstance(each, Answered)])
    for method, outcome in zip(methods, outcomes, strict=True):
        service.metrics.count_item(method, outcome.code if isinstance(outcome, HttpProblem) else "ok")
    return timed_response(content, times)


def _item(document: object, query: Options) -> DesignRequest | HttpProblem:
    try:
        return _from_json(document, query)
    except Exception as error:
        return _known_problem(error)


async def _all_items(call: Call, requested: list[DesignRequest | HttpProblem]) -> list[Answered | HttpProblem]:
    """One engine call for each group of items with the same model and options; the calls run concurrently."""
    groups: dict[tuple[str | None, DesignOptions], list[int]] = {}
    for place, request in enumerate(requested):
        if isinstance(request, DesignRequest):
            groups.setdefault((request.model, request.options), []).append(place)
    outcomes: dict[int, Answered | HttpProblem] = {
        place: each for place, each in enumerate(requested) if isinstance(each, HttpProblem)
    }
    # Shared by all groups: only one task may receive from the connection.
    disconnection = asyncio.ensure_future(call.disconnected())

    async def design(model: str | None, options: DesignOptions, places: list[int]) -> None:
        group = [each for place in places if isinstance(each := requested[place], DesignRequest)]
        try:
            used, designs = await call.service.engine.design(
                model, options, [each.input for each in group], call.due, lambda: asyncio.shield(disconnection)
            )
        except Exception as error:
            outcomes.update(dict.fromkeys(places, _known_problem(error)))
            return
        for place, request, answer in zip(places, group, designs, strict=True):
            if isinstance(answer, SynthesisError):
                outcomes[place] = _known_problem(answer)
            else:
                outcomes[place] = request.with_warnings(used, answer)

    try:
        await asyncio.gather(*(design(*group, places) for group, places in groups.items()))
    finally:
        disconnection.cancel()
    return [outcomes[place] for place in range(len(requested))]


def _known_problem(error: Exception) -> HttpProblem:
    """The problem document of a known error; an unexpected error is raised again."""
    problem = to_problem(error)
    if problem is None:
        raise error
    return problem


async def evaluate(call: Call) -> Response:
    """Predict the effect of a filter on these paths."""
    call.answer_type((JSON,))
    read = read_object(EvaluateBody, await call.read_json())
    # The request has no ceiling, so none can be exceeded.
    latency = float(read.latency_samples)
    ear = joint_input([paths_of(read)], read.reference_psd, float("inf"), latency_samples=latency)
    taps = -read.fir if read.sign == "plus" else read.fir
    check_effect(taps, ear, may_be_none=True)
    call.decoded()
    (answer,) = await call.evaluate(read.model, [ear], [taps])
    implausible = answer.implausible
    if answer.prediction.mean_noise_reduction_db < 0:
        (other,) = await call.evaluate(read.model, [ear], [-taps])
        implausible += negated_filter(other.prediction)
    loop = loop_of(with_latency(ear).conditions, partial(loop_gain, taps))
    sent = read.primary, read.secondary
    warnings = collect_warnings(sent, ear, answer.prediction, implausible=implausible, loop=loop)
    document = {"prediction": answers.prediction_document(answer.prediction), "warnings": warnings}
    document |= answers.loop_document(loop)
    content, times = answers.with_times(document, answer.times_ms, call)
    call.observe(times)
    return timed_response(content, times)
