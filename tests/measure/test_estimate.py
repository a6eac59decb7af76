"""Two-state calibration (eqs. 1-2) against the twin."""

import numpy as np
import pytest
from scipy.signal import fftconvolve

from prime_anc.measure.estimate import GainTake, estimate_paths
from tests.method.cases import relative_error
from tests.oracles import measured
from tests.oracles import path_estimation as oracle

N = 4 * 48_000
GAIN = 0.35


@pytest.mark.parametrize("window", [4096, 8192])
def test_separate_references_equal_twin(window: int) -> None:
    rng = np.random.default_rng(3)
    primary, secondary = (rng.standard_normal(n) * np.exp(-np.arange(n) / n * 5) for n in (40, 24))
    white, takes, frames = 0.05 * rng.standard_normal((2, 2, N)), [], []
    for gain, references in zip((0.0, GAIN), white, strict=True):
        path = primary - gain * np.pad(secondary, (0, 16))
        errors = np.array([fftconvolve(x, path)[:N] for x in references])
        takes += [GainTake(gain, x, e) for x, e in zip(references, errors, strict=True)]
        frames += [oracle.cut(references, window), oracle.cut(errors, window)]
    found = estimate_paths(takes, window=window)
    p, s = oracle.two_states(*frames, GAIN, (8192, 2048))
    # The same sums over the same frames in float64, in another order.
    assert relative_error(found.primary, p) < 1e-12
    assert relative_error(found.secondary, s) < 1e-12
    np.testing.assert_allclose(found.coherence, oracle.coherence(*frames[:2], measured.N_BINS), atol=1e-11)
