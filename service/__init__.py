"""The HTTP service: resident models behind `POST /synthesize`, `/refine` and `/evaluate`.

`schemas` and `wire` turn bytes into requests, `engine` owns the worker thread and the models that live in it,
`resident` runs one model's recorded stages, `app` joins them. `docs/http-api.md` is the contract.
"""
