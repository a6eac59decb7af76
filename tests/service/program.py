"""`python -m service` as a process, for tests that need more than the application."""

import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.service_process import ServiceProcess as Program
from benchmarks.service_process import started_service

__all__ = ["Program", "exchange", "free_port", "started", "wait_for"]

# A slow machine is ready, and cuts no design short.
PATIENT = ("--device", "cpu", "--threads", "1", "--deadline-ms", "60000")


def started(store: Path, *arguments: str) -> AbstractContextManager[Program]:
    """Run the program over a store with the default model `ears`, from ready until the block ends."""
    return started_service(store, "--model", "ears", *PATIENT, *arguments)


def exchange(port: int, sent: bytes) -> bytes:
    """Send bytes as given, and read until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(sent)
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
        return received


def wait_for(condition: Callable[[], bool], within_s: float = 240) -> None:
    """Poll until the condition holds."""
    given_up = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < given_up
        time.sleep(0.01)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]
