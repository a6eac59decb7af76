"""The HTTP service: resident models behind `POST /synthesize`, `/refine` and `/evaluate`.

A request goes down through the folders and its answer up again: `http` reads it, `admission` says whether it may
ask and until when, `formats` turns bytes into plain values (`designs`) and back, `engine` designs filters,
`calibration` works out paths from probe recordings, `observability` counts. `openapi` describes all of it, `app`
joins it, `server` puts it on a socket. `pyproject.toml` holds the order of the layers, `docs/http-api.md` is the
contract.
"""

import os

# OpenMP threads that wait spin by default, and where another program holds a core they spin for its whole slice: on
# two cores with one of them busy, a design of 13 ms took 25 to 700 ms. So they soon sleep, at 5 % of the time on an
# idle machine. OpenMP reads this when PyTorch is first imported, which the modules below this package do.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
