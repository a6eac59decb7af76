"""The same application on a Ray cluster: `serve run service.ray_serve:application`.

Each replica is a whole service with its own models; its settings come from the environment (`PRIME_STORE`, ...);
Ray's options say how many there are and on what: `deployment.options(num_replicas=4, ray_actor_options={"num_gpus":
1}).bind()`. Ray's proxy replaces uvicorn and with it the limits at the socket (time-outs, size of heads, number of
connections, the drain); the application's own checks remain.
"""

from __future__ import annotations

from fastapi import FastAPI
from ray import serve

MAX_ONGOING_REQUESTS = 64
"""Requests that a replica holds at once: more than a batch, so that waiting ones can be designed together. The
replica itself refuses those that it cannot answer in time."""


def build() -> FastAPI:
    """The application, in the replica's process: models and threads cannot travel to it."""
    from service.app import create_app
    from service.settings import Settings

    return create_app(Settings())  # type: ignore[call-arg]


deployment = serve.deployment(name="prime-anc", max_ongoing_requests=MAX_ONGOING_REQUESTS)(serve.ingress(build)())
application = deployment.bind()
