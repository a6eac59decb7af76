"""Two-state calibration (eqs. 1-2): the twin agrees, and bad takes are named."""

import numpy as np
import pytest
from scipy.signal import fftconvolve

from prime_anc.measure.estimate import GainTake, estimate_paths
from prime_anc.method.errors import InvalidOption, InvalidPaths
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


SILENT, DRIVEN = (GainTake(gain, np.ones(N), np.ones(N)) for gain in (0.0, GAIN))


@pytest.mark.parametrize(
    ("takes", "options", "field", "message"),
    [
        ([DRIVEN, DRIVEN], {}, "takes", r"their gains are \[0.35\]; record at least one take with gain 0"),
        ([GainTake(0.0, np.ones(N), np.ones(100)), DRIVEN], {}, "takes", "take 0, error: it has 100 samples"),
        ([SILENT, GainTake(GAIN, np.full(N, np.nan), np.ones(N))], {}, "takes", "take 1, reference: it holds NaN"),
        ([SILENT, DRIVEN], {"window": 190_000}, "window", "190000 samples are too many; use at most 183808"),
    ],
)
def test_bad_takes_are_named(takes: list[GainTake], options: dict[str, int], field: str, message: str) -> None:
    with pytest.raises((InvalidPaths, InvalidOption), match=message) as caught:
        estimate_paths(takes, **options)
    assert caught.value.field == field
