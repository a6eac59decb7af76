"""The endpoints: each reads a request, delegates, and writes the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelVersion
from service.designs import Ear, Recipe
from service.errors import Problem
from service.formats import answers, wire
from service.formats.options import BINARY as BINARY_OPTIONS
from service.formats.options import DEFAULT_UPDATES, REFINE, Options, read_options
from service.formats.schemas import DesignBody, EvaluateBody, items_of, read_object
from service.http import advice
from service.http.context import Service, admitted, charge, count_items, design_body, json_response, service_of
from service.http.items import Item, design_items
from service.http.negotiation import BINARY, JSON, body_type, chosen_answer, until_gone
from synthesis.errors import SynthesisError


async def synthesize(request: Request) -> Response:
    """POST /synthesize: paths in, filter out, without updates."""
    return await _design(request, options=(), default_updates=0)


async def refine(request: Request) -> Response:
    """POST /refine: paths in, filter out, after up to k Gauss-Newton updates."""
    return await _design(request, options=REFINE, default_updates=DEFAULT_UPDATES)


async def _design(request: Request, options: Iterable[str], default_updates: int) -> Response:
    service, watch, gone = service_of(request), answers.Stopwatch(), partial(until_gone, request)
    due = admitted(request, service, watch)
    answer_type, media_type = chosen_answer(request), body_type(request)
    allowed = (*options, *BINARY_OPTIONS) if media_type == BINARY else tuple(options)
    asked = read_options(request.query_params, allowed, default_updates)
    if media_type == BINARY:
        request.state.method = asked.method  # JSON says it in its body
    body = await design_body(request, service, due)
    watch.body_read()
    if media_type == BINARY:
        recipe, ear = _from_binary(body, asked)
    else:
        document = await service.side_lane.load(body, due, gone)
        if (items := items_of(document)) is not None:
            count_items(request, service, len(items))
            return await _design_items(request, [_item(item, asked) for item in items], watch, due)
        recipe, ear = _from_json(document, asked)
    request.state.method = recipe.method
    watch.decoded()
    (design,) = await service.engine.design(recipe, [ear], due, gone)
    if isinstance(design, SynthesisError):
        raise design
    warnings = advice.advise(ear, design.figures, design.replaces)
    headers: dict[str, str] = {}
    if answer_type == BINARY:
        content, times, headers = answers.design_binary(design, warnings, watch)
    else:
        content, times = answers.design_json(design, warnings, watch)
    headers["Server-Timing"] = answers.server_timing(times)
    service.metrics.observe_times(times)
    service.metrics.observe_design(design)
    return Response(content, headers=headers, media_type=answer_type)


def _from_binary(body: bytearray, asked: Options) -> Item:
    paths = wire.decode(body)
    ear = Ear(*paths, sign=asked.sign, max_gain_db=asked.max_gain_db)
    return Item(Recipe(asked.model, asked.method, asked.k, asked.profile).for_ear(ear), ear)


def _from_json(document: object, asked: Options) -> Item:
    read = read_object(DesignBody, document)
    ear = Ear(read.primary, read.secondary, read.coherence, read.reference_psd, read.sign, read.max_gain_db)
    return Item(Recipe(read.model, read.method, asked.k, asked.profile).for_ear(ear), ear)


def _item(document: object, asked: Options) -> Item | Problem:
    try:
        return _from_json(document, asked)
    except Problem as problem:
        return problem


async def _design_items(
    request: Request, items: Sequence[Item | Problem], watch: answers.Stopwatch, due: float
) -> Response:
    """Several designs in one request, each with its own answer or problem."""
    chosen_answer(request, (JSON,))
    service = service_of(request)
    methods = [item.recipe.method if isinstance(item, Item) else "" for item in items]
    request.state.method = methods[0] if len(set(methods)) == 1 else ""
    watch.decoded()
    outcomes = await design_items(service.engine, items, due, partial(until_gone, request))
    content, times = await answers.items_json(outcomes, watch, service.side_lane)
    service.metrics.observe_times(times)
    for method, outcome in zip(methods, outcomes, strict=True):
        if isinstance(outcome, Problem):
            service.metrics.count_item(method, outcome.code)
        else:
            design, _ = outcome
            service.metrics.count_item(method, "ok")
            service.metrics.observe_design(design)
    return Response(content, headers={"Server-Timing": answers.server_timing(times)}, media_type=JSON)


async def evaluate(request: Request) -> Response:
    """POST /evaluate: paths and a filter in, what it will do out."""
    service, watch, gone = service_of(request), answers.Stopwatch(), partial(until_gone, request)
    due = admitted(request, service, watch)
    chosen_answer(request, (JSON,))
    body_type(request, (JSON,))
    read_options(request.query_params, (), 0)
    body = await design_body(request, service, due)
    watch.body_read()
    read = read_object(EvaluateBody, await service.side_lane.load(body, due, gone))
    # No ceiling was asked for, so none can be exceeded.
    ear = Ear(read.primary, read.secondary, read.coherence, read.reference_psd, read.sign, max_gain_db=float("inf"))
    watch.decoded()
    (evaluation,) = await service.engine.evaluate(read.model, [ear], [read.fir], due, gone)
    if isinstance(evaluation, SynthesisError):
        raise evaluation
    content, times = answers.evaluation_json(evaluation, advice.advise(ear, evaluation.figures), watch)
    service.metrics.observe_times(times)
    return Response(content, headers={"Server-Timing": answers.server_timing(times)}, media_type=JSON)


async def list_models(request: Request) -> Response:
    """GET /models: every published version, and which of them are resident."""
    service = service_of(request)
    charge(request, service)
    chosen_answer(request, (JSON,))
    return json_response(await asyncio.to_thread(_published, service))


async def show_model(request: Request) -> Response:
    """GET /models/{name}: one version, the latest without `@version`."""
    service = service_of(request)
    charge(request, service)
    chosen_answer(request, (JSON,))
    return json_response(await asyncio.to_thread(_described, service, request.path_params["name"]))


async def live(request: Request) -> Response:
    """GET /health/live: the event loop answers."""
    return json_response({"status": "live"})


async def ready(request: Request) -> Response:
    """GET /health/ready: the default model designs its golden case, in time, and no stop is under way."""
    engine = service_of(request).engine
    engine.readiness.require()
    models = [answers.model_document(version) for version in engine.residency.versions()]
    return json_response({"status": "ready", "device": engine.device.type, "models": models})


async def metrics(request: Request) -> Response:
    """GET /metrics: for Prometheus, in whichever of its formats the scraper prefers."""
    content, media_type = service_of(request).metrics.exposition(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": media_type})


def _published(service: Service) -> dict[str, Any]:
    return {
        "default": service.engine.residency.default_model,
        "aliases": service.store.aliases(),
        "models": [_document(service, version) for version in service.store.list()],
        "broken": service.store.broken(),
    }


def _described(service: Service, reference: str) -> dict[str, Any]:
    return _document(service, service.store.resolve(reference))


def _document(service: Service, version: ModelVersion) -> dict[str, Any]:
    """What a client may know of a version: what its manifest says, and whether it is in memory."""
    document = answers.model_document(version) | {"resident": version in service.engine.residency.versions()}
    manifest = service.store.manifest(str(version))
    return document | manifest.model_dump(mode="json", exclude={"files", "name", "version"})
