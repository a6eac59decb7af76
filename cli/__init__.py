"""`prime-anc`: measure, design, check and export from the command line, with or without a running service."""

import os

# Before NumPy is imported: on small matrices its own threads wait for each other far longer than they work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
