"""Two-state calibration (eqs. 1-2): known paths are recovered, and the twin agrees."""

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


def convolved(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Convolve along the last axis, keeping the length of x; the frames start after the onset."""
    return fftconvolve(x, np.broadcast_to(h, (*x.shape[:-1], h.shape[-1])), axes=-1)[..., : x.shape[-1]]


def takes_of(
    x: np.ndarray, primary: np.ndarray, secondary: np.ndarray, gain: float = GAIN, x_g: np.ndarray | None = None
) -> list[GainTake]:
    """Noise-free takes of both states per reference row of x; x_g is the reference of the second state."""
    x_g = x if x_g is None else x_g
    silent = [GainTake(0.0, row, convolved(row, primary)) for row in x]
    driven = [
        GainTake(
            gain,
            row,
            convolved(row, primary) - gain * convolved(row, secondary),
        )
        for row in x_g
    ]
    return silent + driven


@pytest.fixture(scope="module")
def short_paths() -> tuple[np.ndarray, np.ndarray]:
    """A primary of 40 and a secondary of 24 samples."""
    rng = np.random.default_rng(3)
    return rng.standard_normal(40) * np.exp(-np.arange(40) / 8), rng.standard_normal(24) * np.exp(
        -np.arange(24) / 5
    )


@pytest.fixture(scope="module")
def white() -> np.ndarray:
    """Four independent references."""
    return 0.05 * np.random.default_rng(4).standard_normal((4, N))


@pytest.mark.parametrize("window", [4096, 8192])
def test_separate_references_equal_twin(
    window: int, short_paths: tuple[np.ndarray, np.ndarray], white: np.ndarray
) -> None:
    primary, secondary = short_paths
    x, x_g = white[:2], white[2:]
    found = estimate_paths(takes_of(x, primary, secondary, x_g=x_g), window=window)
    frames = [
        oracle.cut(item, window)
        for item in (
            x,
            convolved(x, primary),
            x_g,
            convolved(x_g, primary) - GAIN * convolved(x_g, secondary),
        )
    ]
    p, s = oracle.two_states(*frames, GAIN, (8192, 2048))
    # The same sums over the same frames in float64, in another order.
    assert relative_error(found.primary, p) < 1e-12
    assert relative_error(found.secondary, s) < 1e-12
    np.testing.assert_allclose(found.coherence, oracle.coherence(*frames[:2], measured.N_BINS), atol=1e-11)


@pytest.mark.parametrize("has_two_references", [False, True])
def test_recovers_short_paths_from_noise_free_takes(
    has_two_references: bool, short_paths: tuple[np.ndarray, np.ndarray], white: np.ndarray
) -> None:
    primary, secondary = short_paths
    takes = takes_of(white[:2], primary, secondary, x_g=white[2:] if has_two_references else None)
    found = estimate_paths(takes)
    # A frame includes the response to up to 40 samples before it: an error of the paths' length over the window (1 %),
    # averaged over 12 frames. It cancels in the difference of two states that share x.
    assert relative_error(found.primary[:64], np.pad(primary, (0, 24))) < 0.01
    assert relative_error(found.secondary[:64], np.pad(secondary, (0, 40))) < (0.05 if has_two_references else 0.01)


def test_coherence_tells_share_of_unrelated_noise(white: np.ndarray) -> None:
    x = np.concatenate([white, np.random.default_rng(5).permuted(white, axis=-1)])
    noise = 0.05 * np.random.default_rng(6).standard_normal(x.shape)
    takes = [GainTake(0.0, a, a + b) for a, b in zip(x, noise, strict=True)]
    takes.append(GainTake(GAIN, *(x[0],) * 2))
    found = estimate_paths(takes).coherence
    assert found.shape == (16_385,)
    assert 0 <= found.min() <= found.max() <= 1
    # Equal powers: c = 1/2; 48 frames bias it by (1 - c)^2 / 48 = 0.005, and its mean over bins scatters by 0.002.
    assert found.mean() == pytest.approx(0.505, abs=0.01)


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
