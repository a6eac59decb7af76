"""What the service and its training cost, and what is bought with it: every time has its noise reduction beside it.

`python -m benchmarks core | http | start | train | scaling | trace | floor | bound` write one JSON file
each, `report` draws them. Nothing of the product imports this package. docs/performance.md says what is
compared with what, and why.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `python -m service` does, before NumPy is there
