"""Fixtures of the service's tests, and a client of the running program."""

from collections.abc import Iterator

import pytest

from prime_anc.client import Client
from tests.service.conftest import default_model, ear, program, store_folder
from tests.service.program import Program

__all__ = ["default_model", "ear", "program", "store_folder"]


@pytest.fixture
def client(program: Program) -> Iterator[Client]:
    """Client of that program."""
    with Client(program.address, timeout_s=60) as client:
        yield client
