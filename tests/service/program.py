"""`python -m service` as a process, for tests that need more than the application."""

from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.reliability.service_process import ServiceProcess as Program
from benchmarks.reliability.service_process import started_service

__all__ = ["Program", "started"]

# A slow machine is ready, and cuts no design short.
PATIENT = ("--device", "cpu", "--threads", "1", "--deadline-ms", "60000", "--ready-budget-ms", "60000")


def started(store: Path, *arguments: str) -> AbstractContextManager[Program]:
    """Run the program over a store with the default model `ears`, from ready until the block ends."""
    return started_service(store, "--model", "ears", *PATIENT, *arguments)
