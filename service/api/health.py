"""Health and metrics, for load balancers and Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from prime_anc.answers import Live, Ready, document
from service.api.openapi import ANY_CODES, described
from service.api.responses import plain
from service.api.state import service_of
from service.models.resident_models import reference_of

router = APIRouter()


@router.get("/health/live", **described(answer=Live, codes=ANY_CODES + "not-ready"))
async def live(request: Request) -> Response:
    """Tell whether the event loop answers, and no restart is needed."""
    service_of(request).engine.require_live()
    return plain({"status": "live"})


@router.get("/health/ready", **described(answer=Ready, codes=ANY_CODES + "not-ready model-unavailable"))
async def ready(request: Request) -> Response:
    """Tell whether the default model reproduces its golden case in time, and the service is not shutting down."""
    engine = service_of(request).engine
    engine.require_ready()
    models = [document(reference_of(version)) for version in engine.models.versions()]
    return plain({"status": "ready", "device": engine.device, "models": models})


@router.get("/metrics", **described(codes=ANY_CODES))
async def metrics(request: Request) -> Response:
    """Answer metrics in the Prometheus format that the scraper prefers."""
    content, media_type = service_of(request).metrics.exposition(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": media_type})
