"""The application on a Ray cluster: `serve run service.ray_serve:application`.

A replica is a whole service with its models; its settings come from the environment (`PRIME_STORE`, ...); Ray's options
set number and resources: `deployment.options(num_replicas=4, ray_actor_options={"num_gpus": 1}).bind()`. Ray's proxy
replaces uvicorn and with it the limits at the socket (time-outs, size of heads, number of connections, the drain); the
application's checks remain.
"""

from __future__ import annotations

from fastapi import FastAPI
from ray import serve

# Requests that a replica holds at once: more than a batch, so that waiting ones can be designed together. The replica
# refuses those that it cannot answer in time.
MAX_ONGOING_REQUESTS = 64


def build() -> FastAPI:
    """Create the application in the replica's process: models and threads cannot be sent there."""
    from service.app import create_app
    from service.settings import Settings

    return create_app(Settings())  # type: ignore[call-arg]


deployment = serve.deployment(name="prime-anc", max_ongoing_requests=MAX_ONGOING_REQUESTS)(serve.ingress(build)())
application = deployment.bind()
