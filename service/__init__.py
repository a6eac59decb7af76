"""The HTTP service: resident models behind `POST /synthesize`, `/refine` and `/evaluate`.

A request's way: `server` (uvicorn) -> `api.routes` -> `admission` (key, deadline,
load, memory: once) -> an endpoint of `api`, whose codecs turn bytes into a `Problem` -> `engine` (queue, worker
threads, backends) -> codec -> `observability`. `app` joins the parts. `docs/http-api.md` is the contract.
"""
