"""`prime-anc`: measure, design, check and export from the command line, with or without a running service."""

import os

# Set before NumPy is imported: on small matrices its threads mostly wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
