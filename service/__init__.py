"""The HTTP service: resident models behind `POST /synthesize`, `/refine` and `/evaluate`.

The path of a request: `server` (uvicorn) -> `api.front` -> `admission` (key, deadline, load, memory) -> a handler of
`api`, which makes a `Problem` -> `engine` (queue, worker threads, backends) -> answer -> `observability`. `app` joins
the parts. `docs/http-api.md` is the contract.
"""
