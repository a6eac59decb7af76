"""The HTTP service: resident models behind `POST /synthesize`, `/refine` and `/evaluate`.

`schemas`, `wire` and `open_inference` turn bytes into requests, `side_lane` keeps long JSON out of the way,
`engine` owns the worker thread and the models that live in it, `resident` runs one model's recorded stages, `app`
joins them. `docs/http-api.md` is the contract.
"""

import os

# OpenMP threads that wait spin by default, and where another program holds a core they spin for its whole slice: on
# two cores with one of them busy, a design of 13 ms took 25 to 700 ms. So they soon sleep, at 5 % of the time on an
# idle machine. OpenMP reads this when PyTorch is first imported, which the modules below this package do.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
