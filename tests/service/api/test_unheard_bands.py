"""Bands that a measurement did not hear are named, whatever is predicted of them."""

import numpy as np
import pytest

from service.api.warnings import _unheard
from synthesis.backends.base import DesignInput
from synthesis.conventions import N_BINS, SAMPLE_RATE_HZ


@pytest.mark.parametrize(("heard_to_hz", "expected"), [(24_000, None), (7100, "8000, 10000 Hz")])
def test_unheard_bands_are_named(heard_to_hz: float, expected: str | None) -> None:
    response = np.ones(1, np.float32)
    frequency = np.linspace(0, SAMPLE_RATE_HZ / 2, N_BINS)
    coherence = np.where(frequency < heard_to_hz, 0.9, 0.02).astype(np.float32)
    found = _unheard(DesignInput(response, response, coherence))
    assert found is None if expected is None else (found is not None and found.startswith(expected))
    assert _unheard(DesignInput(response, response)) is None
