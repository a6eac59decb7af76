"""Bands and conditions that a measurement did not hear are named, whatever is predicted of them."""

import numpy as np
import pytest

from service.api.warnings import collect_warnings
from synthesis.backends import DesignInput, create_backend
from synthesis.backends.base import Condition
from synthesis.conventions import N_BINS, SAMPLE_RATE_HZ
from synthesis.errors import answer_or_raise
from tests.model_store import cases


@pytest.mark.parametrize(("heard_to_hz", "expected"), [(24_000, None), (7100, "8000, 10000 Hz"), (None, None)])
def test_unheard_bands_are_named(heard_to_hz: float | None, expected: str | None) -> None:
    response = np.ones(1, np.float32)
    frequency = np.linspace(0, SAMPLE_RATE_HZ / 2, N_BINS)
    coherence = None if heard_to_hz is None else np.where(frequency < heard_to_hz, 0.9, 0.02).astype(np.float32)
    ear = DesignInput(response, response, coherence)
    backend = create_backend("cpu", cases.checkpoint(1).parameters)
    silent = answer_or_raise(backend.predict([ear], [np.zeros(2048, np.float32)])[0])
    details = [each["detail"] for each in collect_warnings((), ear, silent) if each["code"] == "amplification"]
    assert [each.startswith(f"{expected} may become louder") for each in details] == [True] * bool(expected)


def test_the_condition_that_was_not_heard_is_named() -> None:
    response, good = np.ones(1, np.float32), np.full(N_BINS, 0.9, np.float32)
    ear = DesignInput(response, response, good, others=(Condition(response, response, 0.01 * good),))
    backend = create_backend("cpu", cases.checkpoint(1).parameters)
    silent = answer_or_raise(backend.predict([ear], [np.zeros(2048, np.float32)])[0])
    (detail,) = [each["detail"] for each in collect_warnings((), ear, silent) if each["code"] == "low_coherence"]
    assert detail.startswith("conditions.1: the mean is 0.01")
