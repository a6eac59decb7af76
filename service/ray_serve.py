"""The same application on a Ray cluster: `serve run service.ray_serve:application`.

Each replica is a whole service with its own models; its settings come from the environment (`PRIME_STORE`, ...);
Ray's options say how many there are and on what: `deployment.options(num_replicas=4, ray_actor_options={"num_gpus":
1}).bind()`. Ray's proxy stands where uvicorn does, so the guards of the socket (time-outs, limits on heads and
connections, the drain) are Ray's; what the application checks itself stays.
"""

from __future__ import annotations

from fastapi import FastAPI
from ray import serve

MAX_ONGOING_REQUESTS = 64
"""Requests that a replica holds at once: more than a batch, so that what waits can be designed together. Which of
them are answered in time is for the replica to say."""


def build() -> FastAPI:
    """The application, in the replica's process: models and threads cannot travel to it."""
    from service.app import create_app
    from service.settings import Settings

    return create_app(Settings())  # type: ignore[call-arg]


deployment = serve.deployment(name="prime-anc", max_ongoing_requests=MAX_ONGOING_REQUESTS)(serve.ingress(build)())
application = deployment.bind()
