"""Fixtures of tests of calibrations."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def coarse_posterior() -> Iterator[None]:
    """Solve for paths to three digits in half of the time, for tests of what recordings show beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prime_anc.measure.posterior.TOLERANCE", 1e-3)
        yield
