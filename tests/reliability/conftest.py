"""One service for all tests of this folder; pytest-xdist keeps them on one worker."""

from collections.abc import Iterator

import pytest

from benchmarks.reliability.service_process import ServiceTarget, target_for
from tests.service import models

# The models are random generators, which a Wiener filter would replace.
SERVICE = ("--device", "cpu", "--receive-timeout-s", "1", "--fallback-margin-db", "1000")


@pytest.fixture(scope="session")
def target() -> Iterator[ServiceTarget]:
    """A service with a small model of random weights, its store, and the checkpoint."""
    with target_for(models.checkpoint(1), *SERVICE) as target:
        yield target
